"""How much later nodes could have ended without their rank ending later."""

from execgraph.converter.ranks.clocks import measured_times, slack_ns
from support.graphs import STREAM_ORDER, GraphBuilder


def test_a_node_may_end_when_the_first_that_needs_it_must_begin() -> None:
    g = GraphBuilder(rank=0)
    needed = g.activity("needed", 0, 10, stream=7)
    early = g.activity("early", 0, 4, stream=8)
    idle = g.activity("idle", 0, 2, stream=9)
    g.activity("last", 10, 20, stream=7, after=[(needed, STREAM_ORDER), (early, STREAM_ORDER)])
    g.activity("short", 5, 3, stream=9, gap_ns=1, after=[(early, STREAM_ORDER), (idle, STREAM_ORDER)])
    graph = g.build()
    slack = dict(
        zip(
            (graph.name[row] for row in range(len(graph))), slack_ns(graph, measured_times(graph)).tolist(), strict=True
        )
    )
    assert slack == {"needed": 0, "early": 6, "idle": 24, "last": 0, "short": 22}


def test_a_node_that_another_one_overtook_has_no_slack() -> None:
    """By the times measured the second began before the first, on which it depends, had ended."""
    g = GraphBuilder(rank=0)
    first = g.activity("first", 0, 10)
    g.activity("second", 7, 10, after=[(first, STREAM_ORDER)])
    graph = g.build()
    assert slack_ns(graph, measured_times(graph)).tolist() == [0, 0]
