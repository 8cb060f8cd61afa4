"""Graph launches: which graphs there are, how often each was launched, and what its kernels took, place by place."""

from typing import Any

from execgraph.tools.analyses import RankTrace, analyse
from support.builder.timeline import TraceBuilder
from support.runs import link_run


def replayed(t: TraceBuilder) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    found = analyse([RankTrace(0, link_run(t))], ["graph_replays"])
    return found["graph_replays"].rows(), found["graph_replays_by_position"].rows(), found["graph_replays"].note


def launch(t: TraceBuilder, *kernels: tuple[str, float]) -> None:
    with t.op("aten::replay"):
        t.graph_launch([(name, 7, duration) for name, duration in kernels])


def test_launches_of_the_same_kernels_are_of_one_graph() -> None:
    t = TraceBuilder()
    launch(t, ("a", 10), ("b", 20))
    launch(t, ("a", 30), ("b", 40))
    launch(t, ("a", 5), ("c", 6), ("a", 7))
    graphs, positions, note = replayed(t)
    assert [(row["graph"], row["launches"], row["activities"], row["time"]) for row in graphs] == [
        (0, 2, 2, 100),
        (1, 1, 3, 18),
    ]
    assert graphs[0]["span"] >= 100
    assert graphs[0]["span_mean"] == graphs[0]["span"] / 2
    assert [
        (row["graph"], row["position"], row["name"], row["count"], row["time"], row["min"], row["max"])
        for row in positions
    ] == [
        (0, 0, "a", 2, 40, 10, 30),
        (0, 1, "b", 2, 60, 20, 40),
        (1, 0, "a", 1, 5, 5, 5),
        (1, 1, "c", 1, 6, 6, 6),
        (1, 2, "a", 1, 7, 7, 7),
    ]
    assert [row["pct"] for row in positions[:2]] == [40, 60]
    assert note == ""


def test_single_launches_are_no_graphs() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("gemm")
    graphs, positions, note = replayed(t)
    assert (graphs, positions) == ([], [])
    assert note == "no call launched a graph"


def test_a_copy_in_several_pieces_is_no_graph() -> None:
    t = TraceBuilder()
    with t.op("aten::copy_"):
        copied = t.call("enqueueCommand memcpyHtoDAsync", 4)
        for start in (10, 20):
            t.activity("dma_request", 7, start, 5, copied)
    assert replayed(t)[:2] == ([], [])
