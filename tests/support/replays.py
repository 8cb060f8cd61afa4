"""What tests of replays ask: a graph with other durations, its critical path, and a graph with a delay."""

from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.replay import Replay, parse_scale, pieces_of, replay, time_by_kind

from support.graphs import LAUNCH, STREAM_ORDER, GraphBuilder


def path_ns(replayed: Replay) -> dict[str, int]:
    return time_by_kind(pieces_of(replayed))


def scaled(graph: ExecutionGraph, *specs: str) -> Replay:
    return replay(graph, [parse_scale(spec) for spec in specs])


def delayed() -> ExecutionGraph:
    """10 ns of launching, a kernel of 20 ns, and a second one that starts 70 ns later than that and its gap explain."""
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    first = g.activity("first", 10, 20, after=[(op, LAUNCH)])
    delay = g.delay(30, 68, after=[(first, STREAM_ORDER)])
    released = [(op, LAUNCH), (first, STREAM_ORDER), (delay, STREAM_ORDER)]
    g.activity("second", 100, 20, gap=2, after=released)
    return g.build()
