"""The trace builder tells the truth about launches, streams, events and the layout of each version."""

import pytest

from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder


def small_run(torch: str = "2.13", **options) -> TraceBuilder:
    t = TraceBuilder(torch=torch, rank=0, world_size=2, **options)
    group = t.group([0, 1])
    a, b = t.tensor((2, 3)), t.tensor((3, 4))
    c = t.tensor((2, 4))
    with t.annotation("ProfilerStep#3"):
        with t.op("aten::mm", inputs=[a, b], outputs=[c], schema="aten::mm(Tensor self, Tensor mat2) -> Tensor"):
            t.work(5)
            t.launch("sgemm", stream=7, duration=20)
        work = t.collective("allreduce", group=group, tensors=[c], stream=20, duration=50)
        t.wait_collective(work, stream=7)
        t.memcpy("DtoH", stream=7, duration=3)
    return t


def rows(trace: dict, category: str) -> list[dict]:
    return [event for event in trace["traceEvents"] if event.get("cat") == category and event["ph"] == "X"]


def test_kernels_start_when_their_launches_streams_and_events_allow(t):
    t.idle(10)
    slow = t.launch("slow", 7, 100)
    assert (slow.start, slow.end, t.now) == (14_000, 114_000, 14)
    event = t.record_event(stream=7)
    queued, beside = t.launch("queued", 7, 1), t.launch("beside", 20, 1)
    assert (queued.start, beside.start) == (slow.end, 24_000)
    t.wait_event(event, stream=20)
    assert t.launch("not after what came behind the event", 20, 1).start == slow.end


@pytest.mark.parametrize("wait", ["stream_synchronize", "device_synchronize", "event_synchronize", "copy"])
def test_host_waits_return_after_what_they_await(t, wait):
    kernel = t.launch("k", 7, 100)
    if wait == "event_synchronize":
        t.event_synchronize(t.record_event(stream=7))
    elif wait == "copy":
        kernel = t.memcpy("DtoH", stream=7)
    else:
        getattr(t, wait)()
    assert kernel.end < round(t.now * 1000) <= kernel.end + 4_000


def test_query_and_upload_do_not_block_and_threads_have_clocks_of_their_own(t):
    t.launch("k", 7, 100)
    assert not t.event_query(t.record_event(stream=7))
    t.memcpy("HtoD", stream=7)
    assert t.now == 4 + 2 + 2 + 4
    with t.thread(2):
        t.leaf("backward", 30)
    assert t.now == 12
    t.join_thread(2)
    assert t.now == 42


def test_graph_launch_has_one_correlation(t):
    kernels = t.graph_launch([("a", 7, 5), ("b", 7, 5), ("c", 20, 5)])
    assert {kernel.correlation for kernel in kernels} == {t.calls[0].correlation}
    assert [kernel.start for kernel in kernels] == [8_000, 13_000, 8_000]


@pytest.mark.parametrize("torch", LAYOUTS)
def test_every_version_writes_its_schema_and_all_its_rows(torch):
    t = small_run(torch)
    host, device = t.host_trace(), t.device_trace()
    assert host["schema"] == LAYOUTS[torch].schema
    assert rows(device, "kernel")[0]["name"] == "sgemm"
    assert len(rows(device, "cuda_sync")) == 2
    assert len(rows(device, "cpu_op")) == 4
    names = [node["name"] for node in host["nodes"]]
    assert names[-1].endswith("process]") and {"aten::mm", "c10d::allreduce_", "ProfilerStep#3"} <= set(names)


def test_versions_share_rf_ids_link_kernels_and_lay_nodes_out_as_they_do():
    old, new = small_run("2.1"), small_run("2.13")
    ids = [{row["args"].get("Record function id") for row in rows(t.device_trace(), "cpu_op")} for t in (old, new)]
    of_host = {a["value"] for node in new.host_trace()["nodes"] for a in node["attrs"] if a["name"] == "rf_id"}
    assert ids[0] == {None} and ids[1] <= of_host
    kernels = [rows(t.device_trace(), "kernel")[0]["args"] for t in (old, new)]
    assert [kernel["External id"] == kernel["correlation"] for kernel in kernels] == [True, False]
    node = next(node for node in old.host_trace()["nodes"] if node["name"] == "aten::mm")
    assert node["input_types"] == ["Tensor(float)", "Tensor(float)"]
    assert node["input_shapes"] == [[2, 3], [3, 4]] and "attrs" not in node


def test_node_and_tensor_ids_never_coincide():
    host = small_run().host_trace()["nodes"]
    nodes = {node["id"] for node in host}
    tensors = {
        value[0] for node in host for value in node["inputs"]["values"] if isinstance(value, list) and len(value) == 6
    }
    assert len(nodes) == len(host) and not nodes & tensors


def test_files_are_named_by_rank_and_compressed_on_demand(tmp_path):
    host, device = small_run().write(tmp_path, compressed=True)
    assert (host.name, device.name) == ("host_rank0.json.gz", "device_rank0.json.gz")
    assert host.read_bytes()[:2] == b"\x1f\x8b"


def test_sync_records_can_be_left_out_or_lose_their_event():
    assert not rows(small_run(sync_records=False).device_trace(), "cuda_sync")
    unknown = rows(small_run(event_correlations=False).device_trace(), "cuda_sync")
    assert {row["args"]["wait_on_cuda_event_record_corr_id"] for row in unknown} == {-1}


def test_events_can_be_known_by_their_ids_alone():
    t = TraceBuilder(event_rows=True)
    event = t.record_event(stream=7)
    t.wait_event(event, stream=20)
    device = t.device_trace()
    (recorded,), (waited,) = rows(device, "cuda_event"), rows(device, "cuda_sync")
    assert recorded["args"]["event_id"] == waited["args"]["wait_on_cuda_event_id"] == event.id
    assert (recorded["args"]["stream"], recorded["args"]["correlation"]) == (7, event.correlation)
    assert waited["args"]["wait_on_stream"] == waited["args"]["wait_on_cuda_event_record_corr_id"] == -1
