"""Columns that not every graph has: bytes of tensors that live while a node runs, modules and Python functions."""

import json
from pathlib import Path

import pytest
from execgraph.converter.convert import convert
from execgraph.converter.options import Options
from execgraph.schema.columns import ABSENT
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.analyses import read_rank
from execgraph.tools.analyses.overlay import memory_events
from execgraph.tools.replay import replay
from execgraph.tools.view import write_timeline
from support.builder.timeline import TraceBuilder
from support.runs import Nodes, convert_linked, link_run, link_without_host


def training() -> TraceBuilder:
    """A weight of 64 bytes on the device; a batch of 16 on the host is copied there, multiplied, and the product
    summed.
    """
    t = TraceBuilder()
    weight, batch = t.tensor((4, 4)), t.tensor((2, 2), device="cpu")
    moved, product, total = t.tensor((2, 2)), t.tensor((3, 4)), t.tensor((1,))
    t.leaf("aten::ones", 5, outputs=[batch])
    with t.op("aten::to", inputs=[batch], outputs=[moved]):
        t.work(2)
        t.memcpy("HtoD", duration=3)
    with t.op("aten::mm", inputs=[moved, weight], outputs=[product]):
        t.work(2)
        t.launch("gemm", duration=20)
    with t.op("aten::sum", inputs=[product, weight], outputs=[total]):
        t.work(2)
        t.launch("reduce", duration=5)
    return t


def graph_of(t: TraceBuilder) -> ExecutionGraph:
    return convert(link_run(t), Options(live_bytes=True))


def told(graph: ExecutionGraph) -> dict[str, int]:
    names, value = graph.name, graph.integers("live_bytes")
    return {names[row]: int(value[row]) for row in range(len(graph)) if value[row] != ABSENT}


def test_activities_tell_what_lives_on_their_device_and_slices_what_lives_on_the_host() -> None:
    found = told(graph_of(training()))
    assert {name: found[name] for name in ("gemm", "reduce")} == {"gemm": 64 + 16 + 48, "reduce": 64 + 48 + 4}
    assert found["Memcpy HtoD (Pageable -> Device)"] == 64 + 16
    assert (found["aten::ones"], found["aten::to"], found["aten::mm"]) == (16, 16, 0)


def test_waits_calls_outside_of_ops_and_activities_without_a_call_tell_nothing() -> None:
    t = training()
    with t.op("aten::item"):
        t.stream_synchronize(7)
    t.call("cudaMalloc")
    t.activity("lost", 9, 90, 5)
    found = told(graph_of(t))
    assert found.keys().isdisjoint({"cudaStreamSynchronize", "cudaMalloc", "lost"})
    assert "gemm" in found


def test_only_where_asked_for_and_only_where_tensors_tell() -> None:
    assert "live_bytes" not in convert(link_run(training())).attributes
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("gemm")
    assert told(graph_of(t)) == {}


def test_a_single_device_is_the_same_whatever_its_number_is() -> None:
    t = TraceBuilder(device=0)
    with t.op("aten::mm", outputs=[t.tensor((4,), device="cuda:3")]):
        t.launch("gemm")
    assert told(graph_of(t)) == {"gemm": 16}


def test_the_timeline_of_a_replay_counts_them(tmp_path: Path) -> None:
    write_timeline(replay(graph_of(training())), str(tmp_path / "timeline.json"))
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    for pid in (1, 2):
        started = {event["name"]: event["ts"] for event in events if event["ph"] == "X" and event["pid"] == pid}
        counted = [event for event in events if event["ph"] == "C" and event["pid"] == pid]
        on_device = [
            (event["ts"], event["args"]["bytes"]) for event in counted if event["name"] == "live bytes of device 0"
        ]
        assert on_device == [
            (started["Memcpy HtoD (Pageable -> Device)"], 80), (started["gemm"], 128), (started["reduce"], 116)
        ]  # fmt: skip
        assert [event["args"]["bytes"] for event in counted if event["name"] == "live bytes of the host"] == [16, 0]


def test_the_overlay_has_a_track_of_the_memory_in_use_and_the_weight_stays(tmp_path: Path) -> None:
    host, device = training().write(tmp_path)
    rank = read_rank(str(device), str(host), graph=False)
    events = [json.loads(event) for event in memory_events(rank)]
    assert {event["pid"] for event in events} == {0, rank.linked.info.pid}
    assert [event["args"]["bytes"] for event in events if event["pid"] == 0] == [64, 80, 128, 116, 64]


def test_graphs_tell_nothing_of_memory_unless_asked() -> None:
    assert told(convert(link_run(training()), Options())) == {}


@pytest.mark.parametrize("host", [True, False])
def test_a_graph_file_keeps_them(tmp_path: Path, host: bool) -> None:
    graph = convert(link_run(training()), Options(live_bytes=True, host=host))
    graph.write(str(tmp_path / "graph.et"))
    assert told(ExecutionGraph.read(str(tmp_path / "graph.et"))) == told(graph)


def texts(nodes: Nodes, name: str) -> dict[str, str]:
    return {label: text for label, text in zip(nodes.labels, nodes.graph.texts(name), strict=True) if text}


@pytest.mark.parametrize("with_host", [True, False])
def test_every_slice_of_an_op_a_call_outside_of_ops_and_their_activities_know_their_module_and_function(
    with_host: bool,
) -> None:
    t = TraceBuilder()
    with t.module("Net_0"), t.python("net.py(7): forward"), t.op("aten::mm"):
        t.work(5)
        t.launch("gemm")
        t.work(5)
    t.idle(20)
    with t.module("Head_0"), t.python("head.py(3): forward"):
        t.launch("softmax")
    t.leaf("aten::item", 5)
    t.activity("lost", 9, 40, 5)
    nodes = convert_linked(link_run(t, modules=True) if with_host else link_without_host(t, modules=True))
    first, second = ("aten::mm#0", "aten::mm#1", "gemm"), ("cudaLaunchKernel", "softmax")
    assert texts(nodes, "module") == dict.fromkeys(first, "Net_0") | dict.fromkeys(second, "Head_0")
    functions = dict.fromkeys(first, "net.py(7): forward") | dict.fromkeys(second, "head.py(3): forward")
    assert texts(nodes, "python_function") == functions
