"""What communication on the host (gloo) orders: transfers follow their requests, and waits follow their transfers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.schema.linked import LinkedTrace
from execgraph.schema.reasons import Reason
from execgraph.tools.replay import parse_scale, replay, replay_ranks
from support.builder.records import Tensor
from support.builder.timeline import TraceBuilder
from support.folders import DATA
from support.runs import convert_run, link_run

TRACES = os.environ.get("EXECGRAPH_TRACES", "")
JOBS = [DATA / name for name in ("ddp", "gloo_slow", "gloo_fast", "gpu/gloo")]
JOBS += sorted(Path(TRACES).glob("captures/**/ddp_gloo")) if TRACES else []
HANDOFF, TIMING = DependencyKind.HANDOFF, DependencyKind.INFERRED | DependencyKind.HANDOFF
UNREQUESTED = Reason.UNKNOWN_REQUEST
UNAWAITED = Reason.TRANSFER_WITHOUT_WAIT


def linked_ranks(job: Path) -> list[LinkedTrace]:
    host, device = ("et", "kineto") if (job / "et_rank0.json.gz").exists() else ("host", "device")
    files = [[str(job / f"{kind}_rank{rank}.json.gz") for kind in (host, device)] for rank in (0, 1)]
    return [link(read_host_trace(host), read_device_trace(device)) for host, device in files]


def graphs_of(name: str) -> list[ExecutionGraph]:
    return [convert(linked) for linked in linked_ranks(DATA / name)]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.parent.name}-{job.name}")
def test_real_jobs_replay_as_they_ran_alone_and_together(job: Path) -> None:
    ranks = linked_ranks(job)
    graphs = [convert(linked) for linked in ranks]
    assert [abs(replay(graph).error_pct or 0) < 0.5 for graph in graphs] == [True, True]
    assert abs(replay_ranks(graphs).error_pct or 0) < 0.5
    assert [linked.report.oddities.get(UNREQUESTED, 0) for linked in ranks] == [0, 0]


@pytest.mark.parametrize(
    ("recorded", "changed", "factor"), [("gloo_slow", "gloo_fast", 0.2), ("gloo_fast", "gloo_slow", 5)]
)
def test_a_real_job_whose_loading_takes_another_time(recorded: str, changed: str, factor: float) -> None:
    """Measured: 312.4 ms with 0.1 s of loading, 73.2 ms with 0.02 s; predicted from each other 72.0 ms and 315.5 ms."""
    predicted = replay_ranks(graphs_of(recorded), [parse_scale(f"load batch={factor}")])
    measured = replay_ranks(graphs_of(changed)).measured_ns
    assert predicted.makespan_ns == pytest.approx(measured, rel=0.03)


def test_what_a_real_job_waited_for_is_no_work() -> None:
    """Rank 0 waits 0.1 s in each of three steps for what rank 1 loads."""
    graph = graphs_of("gloo_slow")[0]
    of_host = [int(graph.duration_ns[row]) for row in range(len(graph)) if not graph.name[row].startswith("gloo:")]
    assert sum(of_host) < 0.1 * replay(graph).measured_ns


@contextmanager
def transferring(t: TraceBuilder, tensor: Tensor, start: float, duration: float = 40) -> Iterator[None]:
    """A transfer on a thread of gloo's, while the main thread does what is in the block."""
    with t.thread(2, start=start), t.annotation("gloo:all_reduce", inputs=[tensor]):
        t.work(duration)
    yield


def request(t: TraceBuilder, tensor: Tensor, *said: bool) -> None:
    t.leaf("c10d::allreduce_", 5, inputs=[[tensor], *said], outputs=[[tensor]])


def test_a_request_that_blocks_is_waited_for_at_once() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    tensor = t.tensor((4,))
    t.leaf("aten::mm", 10)
    request(t, tensor, False)
    with transferring(t, tensor, 20):
        pass
    t.wait_until(70)
    t.leaf("aten::add", 5)
    nodes = convert_run(t)
    assert nodes.edges(HANDOFF) == {("c10d::allreduce_", "host idle#0"), ("gloo:all_reduce", "host idle#1")}
    assert not nodes.edges(DependencyKind.INFERRED)
    assert nodes.times(1000)[1:] == [("c10d::allreduce_", 10, 15), ("host idle", 60, 70), ("aten::add", 70, 75)]
    assert nodes.replay_error() == 0


def test_the_first_user_of_what_was_transferred_has_waited() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    tensor, other = t.tensor((4,)), t.tensor((4,))
    request(t, tensor, True)
    with transferring(t, tensor, 5):
        for name in ("aten::mm", "aten::exp"):
            t.idle(2)
            t.leaf(name, 30, inputs=[other])
    t.leaf("aten::div", 5, inputs=[tensor, other])
    nodes = convert_run(t)
    assert nodes.edges(HANDOFF) >= {("gloo:all_reduce", "aten::div")}
    assert not nodes.edges(DependencyKind.INFERRED)
    assert nodes.replay_error() == 0


def test_a_transfer_that_copies_its_result_does_not_use_it() -> None:
    """As gloo does for tensors on a GPU: the last thing is a copy from the host, on the thread of the transfer."""
    t = TraceBuilder(rank=0, world_size=2)
    tensor = t.tensor((4,))
    request(t, tensor, True)
    with t.thread(2, start=5), t.annotation("gloo:all_reduce", inputs=[tensor]):
        t.work(30)
        t.leaf("aten::copy_", 10, inputs=[tensor])
    t.wait_until(47)
    t.leaf("aten::div", 5, inputs=[tensor])
    assert convert_run(t).edges(HANDOFF) >= {("aten::copy_", "host idle")}


def test_a_real_job_on_a_gpu_waits_for_its_transfers() -> None:
    """The two large transfers of rank 0, 9.15 ms, are not hidden; the run takes 39.2 ms."""
    graphs = graphs_of("gpu/gloo")
    saved_ns = replay_ranks(graphs).makespan_ns - replay_ranks(graphs, [parse_scale("gloo:=0")]).makespan_ns
    assert saved_ns == pytest.approx(9.15e6, rel=0.05)


def rank_of_two(starts: list[float], ends: list[float], used: list[float]) -> ExecutionGraph:
    """Transfers that are awaited one by one, as an op uses their result at these times."""
    t = TraceBuilder(rank=0, world_size=2)
    tensors = [t.tensor((4,)) for _ in starts]
    for tensor in tensors:
        request(t, tensor, True)
    for thread, (tensor, start, end) in enumerate(zip(tensors, starts, ends, strict=True), 2):
        with t.thread(thread, start=start), t.annotation("gloo:all_reduce", inputs=[tensor]):
            t.work(end - start)
    for tensor, time in zip(tensors, used, strict=True):
        t.wait_until(time)
        t.leaf("aten::as_strided", 2)
        t.leaf("aten::copy_", 2, inputs=[tensor])
    return convert(link_run(t))


def test_a_transfer_goes_on_while_the_thread_that_will_wait_for_it_does_other_things() -> None:
    """The first wait of rank 0, from 10 to 36, is the longest one, but the second transfer begins on rank 1 at 45."""
    ranks = [rank_of_two([11, 12], [36, 50], [36, 51]), rank_of_two([20, 45], [36, 50], [36, 51])]
    together = replay_ranks(ranks)
    assert (together.error_pct, together.makespan_ns) == (0, 55_000)


def test_what_a_transfer_does_after_its_end_is_no_communication() -> None:
    """It ended when its result was used, at 23, and not when its thread went on to record that, at 60."""
    graph = rank_of_two([13], [60], [23])
    rows = graph.collective_types() >= 0
    assert (graph.start_ns[rows] - graph.start_ns.min(), graph.duration_ns[rows]) == (13_000, 10_000)


@pytest.mark.parametrize("used", [True, False])
def test_a_later_wait_is_where_the_thread_did_nothing_until_the_transfer_ended(used: bool) -> None:
    t = TraceBuilder(rank=0, world_size=2)
    tensor, other = t.tensor((4,)), t.tensor((4,))
    request(t, tensor, True)
    with transferring(t, tensor, 5):
        t.idle(2)
        t.leaf("aten::mm", 10, inputs=[other])
    t.wait_until(47)
    t.leaf("aten::div", 5, inputs=[tensor if used else other])
    nodes = convert_run(t)
    names = [name for name, *_ in nodes.times(1000)]
    assert names == ["c10d::allreduce_", "host idle", "aten::mm", "host idle", "aten::div"]
    assert nodes.time("host idle#1") == (45, 47)
    assert nodes.follows("host idle#1")["gloo:all_reduce"] == (HANDOFF if used else TIMING)


def test_what_nobody_requested_or_waited_for_is_counted() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    tensor = t.tensor((4,))
    with transferring(t, tensor, 0, 10):
        request(t, tensor, True)
    with transferring(t, tensor, 20, 10):
        t.leaf("aten::mm", 50)
    noted = link_run(t).report.oddities
    assert (noted[UNREQUESTED], noted[UNAWAITED]) == (1, 1)
