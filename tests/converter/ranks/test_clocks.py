"""When ranks began to record, by the collectives and messages that they share."""

import numpy as np
import pytest
from execgraph.converter.ranks import start_offsets
from execgraph.converter.ranks.clocks import MatchedTimes, begin_of_ranks
from execgraph.converter.ranks.communication_summary import CommunicationEntry
from execgraph.schema.graph import CollectiveType, NodeType
from support.tables import column

Row = tuple[int, int, int, int]
"""A rank, the number of its match, and when it started and ended that, since the rank's first node."""


def begins(ranks: int, *rows: Row, mutual: bool = True, messages: bool = False) -> list[int]:
    rank, matched, start, end = (column(*values) for values in zip(*rows, strict=True))
    flags = (np.full(len(rows), flag) for flag in (messages, mutual))
    return begin_of_ranks(ranks, MatchedTimes(rank, matched, start, end, *flags)).tolist()


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
    assert begins(2, *first, *later, mutual=False) == [0, 500]


@pytest.mark.parametrize(
    ("node_type", "kind", "later"),
    [
        (NodeType.COMM_COLL, CollectiveType.ALL_REDUCE, 300),
        (NodeType.COMM_COLL, CollectiveType.BROADCAST, 500),
        (NodeType.COMM_SEND, -1, 500),
    ],
)
def test_only_a_collective_without_a_root_cannot_end_before_all_have_begun(
    node_type: NodeType, kind: int, later: int
) -> None:
    rows = (0, 5, 999, 1_000), (1, 5, 700, 800), *shared(500, 6, lasts=400), *shared(500, 7, lasts=400)
    ranks = [
        [
            CommunicationEntry(match, node_type, kind, match, 2, 8, end, end - start, end - start, -1, False, ())
            for rank, match, start, end in rows
            if rank == position
        ]
        for position in range(2)
    ]
    assert start_offsets(ranks).tolist() == [0, later]


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
    assert begin_of_ranks(2, MatchedTimes(*[column()] * 4, *[column() > 0] * 2)).tolist() == [0, 0]


def test_collectives_come_before_messages_between_the_same_ranks() -> None:
    rank, matched = column(0, 1, 0, 1), column(5, 5, 6, 6)
    times = MatchedTimes(rank, matched, column(0, 0, 0, 0), column(100, 90, 100, 10), matched == 6, matched < 0)
    assert begin_of_ranks(2, times).tolist() == [0, 10]


def test_a_rank_that_takes_part_twice_in_a_match_says_nothing_of_others() -> None:
    assert begins(2, (0, 5, 0, 100), (0, 5, 0, 30), (1, 5, 0, 60)) == [0, 40]
