"""Graph launches: which graphs there are, how often each was launched, what its kernels took, place by place, and the
ops behind them: from the capture, by node or by the whole sequence, or from a run before it.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from execgraph.tools.analyses import AnalysisOptions, RankTrace, analyse, read_captures, read_rank
from execgraph.tools.analyses.graphs import BY_NAME, BY_NODE, BY_ORDER, KERNEL, attribution
from execgraph.tools.analyses.rank import Capture, Launched
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.commands import status_of
from support.references import picked
from support.runs import link_run


def replayed(t: TraceBuilder) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    found = analyse([RankTrace(0, link_run(t))], ["graph_replays"])
    return found["graph_replays"].rows(), found["graph_replays_by_position"].rows(), found["graph_replays"].note


def launch(t: TraceBuilder, *kernels: tuple[str, float]) -> None:
    with t.op("aten::replay"):
        t.graph_launch([(name, 7, duration) for name, duration in kernels])


def test_launches_of_the_same_kernels_are_of_one_graph(t: TraceBuilder) -> None:
    launch(t, ("a", 10), ("b", 20))
    launch(t, ("a", 30), ("b", 40))
    launch(t, ("a", 5), ("c", 6), ("a", 7))
    graphs, positions, note = replayed(t)
    assert picked(graphs, "graph", "launches", "activities", "time") == [(0, 2, 2, 100), (1, 1, 3, 18)]
    assert graphs[0]["span"] >= 100
    assert graphs[0]["span_mean"] == graphs[0]["span"] / 2
    assert picked(positions, "graph", "position", "name", "count", "time", "min", "max") == [
        (0, 0, "a", 2, 40, 10, 30),
        (0, 1, "b", 2, 60, 20, 40),
        (1, 0, "a", 1, 5, 5, 5),
        (1, 1, "c", 1, 6, 6, 6),
        (1, 2, "a", 1, 7, 7, 7),
    ]
    assert [row["pct"] for row in positions[:2]] == [40, 60]
    assert note == ""


def test_single_launches_and_a_copy_in_several_pieces_are_no_graphs(t: TraceBuilder) -> None:
    with t.op("aten::mm"):
        t.launch("gemm")
    with t.op("aten::copy_"):
        copied = t.call("enqueueCommand memcpyHtoDAsync", 4)
        for start in (10, 20):
            t.activity("dma_request", 7, start, 5, copied)
    assert replayed(t) == ([], [], "no call launched a graph")


GRAPH = [("gemm", 7, 10), ("relu", 7, 2), ("gemm", 7, 12)]
OPS = ["aten::linear > aten::addmm", "aten::relu", "aten::linear > aten::addmm"]
LAUNCH = {"gemm": "cudaLaunchKernelExC", "relu": "cudaLaunchKernel"}


def replays(*graphs: list[tuple[str, int, float]], t: TraceBuilder | None = None) -> RankTrace:
    t = t or TraceBuilder()
    for kernels in graphs or (GRAPH, GRAPH):
        with t.op("aten::replay"):
            t.graph_launch(kernels)
    return RankTrace(0, link_run(t))


def ops_around(t: TraceBuilder, launched: Callable[[str], Any], names: Sequence[str]) -> TraceBuilder:
    """Launches, each in its op."""
    for name in names:
        inner = t.op("aten::addmm") if name == "gemm" else nullcontext()
        with t.op("aten::linear") if name == "gemm" else t.op("aten::relu"), inner:
            launched(name)
    return t


def captured(t: TraceBuilder, names: Sequence[str] = ("gemm", "relu", "gemm")) -> TraceBuilder:
    """What a trace holds of a capture: calls without kernels."""
    t.call("cudaStreamBeginCapture_v10000")
    ops_around(t, lambda name: t.call(LAUNCH[name]), names)
    t.call("cudaStreamEndCapture")
    return t


def eager(names: Sequence[str]) -> TraceBuilder:
    t = TraceBuilder()
    return ops_around(t, t.launch, names)


def captures(t: TraceBuilder, folder: Path) -> list[Capture]:
    return read_captures(str(t.write(folder)[1]))


def tables(rank: RankTrace, given: Sequence[Capture] = ()) -> tuple[Any, Any, Any]:
    found = analyse([rank], ["graph_replays"], AnalysisOptions(captures=given))
    return found["graph_replays"], found["graph_replays_by_position"], found["graph_replays_by_op"]


def test_without_a_capture_nothing_is_known_of_ops() -> None:
    graphs, positions, ops = tables(replays())
    assert [row["ops_known"] for row in graphs.rows()] == [""]
    assert {row["op"] for row in positions.rows()} == {""}
    assert (len(ops), ops.note) == (0, "no trace of the captures was given (captures=…)")


def test_what_ran_op_by_op_before_tells_the_ops_by_the_names_of_kernels(tmp_path: Path) -> None:
    given = captures(eager(["gemm", "relu", "gemm", "gemm", "relu", "gemm", "relu"]), tmp_path)
    graphs, positions, ops = tables(replays(), given)
    assert [row["ops_known"] for row in graphs.rows()] == [BY_NAME]
    assert [row["op"] for row in positions.rows()] == OPS
    found = picked(ops.rows(), "op", "kernels", "count", "time")
    assert found == [("aten::linear > aten::addmm", 2, 4, 44), ("aten::relu", 1, 2, 4)]
    assert sum(row["pct"] for row in ops.rows()) == pytest.approx(100)
    assert ops.note == ""


def test_a_capture_without_names_tells_them_by_the_order_of_launches(tmp_path: Path) -> None:
    given = captures(captured(TraceBuilder()), tmp_path)
    graphs, positions, ops = tables(replays(), given)
    assert [row["ops_known"] for row in graphs.rows()] == [BY_ORDER]
    assert [row["op"] for row in positions.rows()] == OPS
    assert ops.note == "graph 0: by the order of launches alone, as the capture has no names of kernels"


def test_a_capture_in_the_same_trace_is_found() -> None:
    _, positions, _ = tables(replays(t=captured(TraceBuilder())))
    assert [row["op"] for row in positions.rows()] == OPS


def test_the_whole_capture_must_agree_or_is_said_how_much_does(tmp_path: Path) -> None:
    given = captures(captured(TraceBuilder(), ["gemm", "relu", "gemm", "relu"]), tmp_path)
    graphs, _, ops = tables(replays(), given)
    assert [row["ops_known"] for row in graphs.rows()] == [""]
    assert ops.note == "graph 0: no capture has its 3 launches in their order, the nearest agrees in the first 3"


def test_names_beside_calls_are_read_and_must_agree(tmp_path: Path) -> None:
    _, device = captured(TraceBuilder()).write(tmp_path)
    trace = json.loads(device.read_text())
    rows = [row for row in trace["traceEvents"] if "Launch" in str(row.get("name"))]
    for row, name in zip(rows, ("gemm", "relu", "gemm"), strict=True):
        row["args"]["kernel"] = name  # as ROCm's profiler has it
    device.write_text(json.dumps(trace))
    given = read_captures(str(device))
    assert [launch.name for launch in given[0].launches] == ["gemm", "relu", "gemm"]
    graphs, _, _ = tables(replays(), given)
    assert [row["ops_known"] for row in graphs.rows()] == [BY_NAME]
    other = [("gemm", 7, 10.0), ("gelu", 7, 2.0), ("gemm", 7, 12.0)]
    graphs, _, ops = tables(replays(other), given)
    assert [row["ops_known"] for row in graphs.rows()] == [""]
    assert ops.note.endswith("the nearest agrees in the first 1")


def test_a_copy_is_no_kernel(t: TraceBuilder, tmp_path: Path) -> None:
    t.call("cudaStreamBeginCapture")
    for name in ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"):
        with t.op(f"op of {name}"):
            t.call(name)
    t.call("cudaStreamEndCapture")
    given = captures(t, tmp_path)
    assert [launch.kind for launch in given[0].launches] == ["kernel", "copy", "set"]
    _, positions, _ = tables(replays(GRAPH), given)
    assert {row["op"] for row in positions.rows()} == {""}


def test_a_drivers_call_within_a_runtime_call_is_the_same_launch(t: TraceBuilder, tmp_path: Path) -> None:
    t.call("cudaStreamBeginCapture")
    with t.op("aten::add"):
        outer = t.call("cudaLaunchKernel", 8)
        inner = outer.thread, outer.start + 1000, outer.end - 1000, outer.correlation, outer.op
        t.calls.append(type(outer)("cuLaunchKernel", *inner))
    t.call("cudaStreamEndCapture")
    assert [launch.op for launch in captures(t, tmp_path)[0].launches] == ["aten::add"]


def test_streams_that_run_beside_each_other_are_put_in_order_of_start(tmp_path: Path) -> None:
    given = captures(eager(["x", "y", "z"]), tmp_path)
    _, positions, _ = tables(replays([("x", 7, 5), ("y", 9, 3), ("z", 7, 5)]), given)
    assert picked(positions.rows(), "name", "stream") == [("x", 7), ("z", 7), ("y", 9)]
    assert {row["op"] for row in positions.rows()} == {"aten::relu"}


def launches(names: str, ops: str = "", first: int = -1) -> list[Launched]:
    nodes = range(first, first + len(names)) if first >= 0 else [-1] * len(names)
    return [Launched(KERNEL, name, node, op) for name, node, op in zip(names, nodes, ops or names.upper(), strict=True)]


def test_nodes_tell_more_than_the_order_does() -> None:
    """A node's number holds that of its graph in its upper half, which differs once the graph is made ready."""
    capture = Capture(launches("abcd", first=(5 << 32) + 1)[::-1], True)
    found = attribution(launches("bcd", "...", first=(9 << 32) + 2), [capture])
    assert (found.ops, found.known_by) == (["B", "C", "D"], BY_NODE)
    assert attribution(launches("bxd", "...", first=(9 << 32) + 2), [capture]).known_by == ""


@given(
    st.text("abc", min_size=1, max_size=5), st.lists(st.tuples(st.text("abc", max_size=12), st.booleans()), max_size=4)
)
def test_sequences_are_found_wherever_they_are(graph: str, given: list[tuple[str, bool]]) -> None:
    """Each launch's op is its number; the reference tries every place."""
    made, number = [], 0
    for names, whole in given:
        made.append(Capture([Launched(KERNEL, name, -1, str(number + at)) for at, name in enumerate(names)], whole))
        number += len(names)
    wholes = [
        [one.op for one in capture.launches]
        for capture, (names, whole) in zip(made, given, strict=True)
        if whole and names == graph
    ]
    rows = [
        [one.op for one in capture.launches[at : at + len(graph)]]
        for capture, (names, whole) in zip(made, given, strict=True)
        for at in range(len(names))
        if not whole and names[at : at + len(graph)] == graph
    ]
    found = attribution(launches(graph), made)
    expected = wholes or rows
    assert found.ops == (expected[0] if expected else [""] * len(graph))
    assert found.others == max(len(expected) - 1, 0)


def test_the_command_takes_traces_of_captures(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    replay = TraceBuilder()
    replays(GRAPH, t=replay)
    for name, t in (("capture", captured(TraceBuilder())), ("replay", replay)):
        (tmp_path / name).mkdir()
        t.write(tmp_path / name)
    device, capture = (str(tmp_path / name / "device.json") for name in ("replay", "capture"))
    assert status_of("trace-report", device, "--only", "graph_replays", "--capture-trace", capture, "--json") == 0
    assert '"aten::linear > aten::addmm"' in capfd.readouterr().out
    assert status_of("trace-report", device, "--capture-trace", tmp_path / "none.json") == 1


def test_marks_of_a_captured_program_tell_what_its_kernels_are(t: TraceBuilder, tmp_path: Path) -> None:
    """As `torch.cuda._annotate_cuda_graph_trace` writes what `mark_kernels` noted."""
    for _ in range(2):
        kernels = t.graph_launch(GRAPH)
        for node, (kernel, mark) in enumerate(zip(kernels, ("attention", "", "attention"), strict=True), 1):
            kernel.args["graph node id"] = (5 << 32) + node
            if mark:
                kernel.args["str"] = mark
    t.write(tmp_path)
    graphs, _, ops = tables(read_rank(str(tmp_path / "device.json")))
    assert [row["ops_known"] for row in graphs.rows()] == ["by mark"]
    assert picked(ops.rows(), "op", "count", "time") == [("attention", 4, 44), ("", 2, 4)]
    assert graphs.note == "graph 0: 1 of its 3 nodes were not marked"
