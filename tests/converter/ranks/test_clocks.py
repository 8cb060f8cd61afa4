"""When nodes ran, how much later they could have ended, and when ranks began, by what they share.

When nodes ran on the host's clock, and when their rank began.

How much later nodes could have ended without their rank ending later.
"""

import numpy as np
import pytest
from execgraph.converter.ranks.calls import MatchedTimes, begin_of_ranks, measured_times, slack_ns
from execgraph.schema.graph import CollectiveType, NodeType
from support.graphs import STREAM_ORDER, GraphBuilder

Row = tuple[int, int, int, int]
"""A rank, the number of its match, and when it started and ended that, since the rank's first node."""


def begins(
    ranks: int, *rows: Row, kind: int = int(CollectiveType.ALL_REDUCE), messages: tuple[bool, ...] = ()
) -> list[int]:
    rank, matched, start, end = np.array(rows, np.int64).reshape(-1, 4).T
    is_message = np.array(messages or [kind < 0] * len(rows), np.bool_)
    times = MatchedTimes(rank, matched, start, end, is_message, np.full(len(rows), kind))
    return begin_of_ranks(ranks, times).tolist()


def test_ranks_that_end_a_collective_at_once_began_that_much_apart() -> None:
    assert begins(2, (0, 5, 70, 100), (1, 5, 10, 30)) == [0, 70]
    assert begins(2, (0, 5, 10, 30), (1, 5, 70, 100)) == [70, 0]


def test_the_median_of_all_shared_ends_counts() -> None:
    assert begins(2, *shared(40), *shared(60, match=6), *shared(50, match=7)) == [0, 50]


def shared(later: int, match: int = 5, lasts: int = 100) -> tuple[Row, Row]:
    """A collective that ended so much earlier after the beginning of rank 1."""
    return (0, match, 1_000 - lasts, 1_000), (1, match, 1_000 - later - lasts, 1_000 - later)


def test_no_member_ends_before_another_has_begun() -> None:
    """Rank 1 begins the first one 300 ns before rank 0 ends it, and ends it 199 ns before rank 0 begins it."""
    first = (0, 5, 999, 1_000), (1, 5, 700, 800)
    later, at_once = ([row for match in (6, 7) for row in shared(ns, match, lasts=400)] for ns in (500, 0))
    assert begins(2, *first, *later) == [0, 300]
    assert begins(2, *first, *at_once) == [0, 199]


@pytest.mark.parametrize(
    ("kind", "later"), [(CollectiveType.ALL_REDUCE, 300), (CollectiveType.BROADCAST, 500), (-1, 500)]
)
def test_only_a_collective_without_a_root_cannot_end_before_all_have_begun(kind: int, later: int) -> None:
    rows = (0, 5, 999, 1_000), (1, 5, 700, 800), *shared(500, 6, lasts=400), *shared(500, 7, lasts=400)
    assert begins(2, *rows, kind=int(kind)) == [0, later]


def test_bounds_that_contradict_each_other_leave_the_median() -> None:
    apart = (*shared(500, 5, lasts=1), *shared(10, 6, lasts=1), *shared(20, 7, lasts=1))
    assert begins(2, *apart) == [0, 20]


def test_ranks_are_on_one_clock_through_others() -> None:
    """Two pairs, then one of each pair: the second pair moves as a whole."""
    pairs = ((0, 1, 90, 100), (1, 1, 70, 80), (2, 2, 90, 100), (3, 2, 40, 50))
    assert begins(4, *pairs) == [0, 20, 0, 50]
    assert begins(4, *pairs, (1, 3, 190, 200), (2, 3, 90, 100)) == [0, 20, 120, 170]
    assert begins(4, *pairs, (1, 3, 90, 100), (2, 3, 190, 200)) == [80, 100, 0, 50]


def test_ranks_that_share_nothing_begin_together_with_the_first_of_the_others() -> None:
    assert begins(3, (0, 5, 10, 30), (2, 5, 70, 100)) == [70, 0, 0]
    assert begins(2) == [0, 0]


def test_clocks_are_compared_through_ranks_between() -> None:
    assert begins(4, (0, 1, 90, 100), (1, 1, 80, 90), (1, 2, 40, 50), (2, 2, 70, 80)) == [20, 30, 0, 0]


def test_collectives_come_before_messages_between_the_same_ranks() -> None:
    rows = (0, 5, 0, 100), (1, 5, 0, 90), (0, 6, 0, 100), (1, 6, 0, 10)
    broadcast = int(CollectiveType.BROADCAST)
    assert begins(2, *rows, kind=broadcast, messages=(False, False, True, True)) == [0, 10]


def test_a_rank_that_takes_part_twice_in_a_match_says_nothing_of_others() -> None:
    assert begins(2, (0, 5, 0, 100), (0, 5, 0, 30), (1, 5, 0, 60)) == [0, 40]


def test_times_count_from_the_first_start_on_the_hosts_clock() -> None:
    g = GraphBuilder(rank=0, clock_offset_ns=1_000)
    g.host("op", 5_000, 10)
    g.activity("kernel", 4_300, 20, overlap_ns=7)
    begin, start, end = measured_times(g.build())
    assert (begin, start.tolist(), end.tolist()) == (5_000, [0, 300], [10, 327])


def test_a_rank_without_a_host_begins_with_the_delay_of_its_first_activity() -> None:
    """A gap alone, and the delay of an activity that follows another one, come later."""
    g = GraphBuilder(rank=0)
    first = g.activity("first", 1_000, 10, gap=30, host_delay_ns=200)
    g.activity("second", 1_100, 10, gap=50, host_delay_ns=900, after=[(first, STREAM_ORDER)])
    g.activity("alone", 1_000, 10, stream=8, gap=500)
    assert measured_times(g.build()).begin_ns == 1_000 - 230


def test_metadata_has_no_time() -> None:
    g = GraphBuilder(rank=0)
    g.host("group", 0, 0, type=NodeType.METADATA)
    assert measured_times(g.build()).begin_ns == 0
    g.host("op", 5_000, 10)
    assert measured_times(g.build()).begin_ns == 5_000


def test_a_graph_without_nodes_begins_at_zero() -> None:
    assert measured_times(GraphBuilder(rank=0).build()).begin_ns == 0


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
