"""Lists of ranks as text, from elsewhere too.

A job restricted to some of its ranks: they are numbered from zero, and what others took part in is found.
"""

import pytest
from execgraph.converter.ranks import restrict_to_ranks
from execgraph.converter.ranks.groups import given_ranks, ranks_of, ranks_text
from execgraph.schema.columns import Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import Change, NodeType
from support.for_simulator import UNKNOWN, communicating, report, value


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("4", (4,)),
        ("0-3", (0, 1, 2, 3)),
        ("0-10:5,1", (0, 5, 10, 1)),
        ("9-4:-3", (9, 6)),
        ("0-7:5", (0, 5)),
        ("3-2", ()),
    ],
)
def test_a_given_list_has_no_more_ranks_than_the_limit(text: str, ranks: tuple[int, ...]) -> None:
    assert given_ranks(text, len(ranks)) == ranks_of(text) == ranks
    if ranks:
        assert given_ranks(text, len(ranks) - 1) is None


@pytest.mark.parametrize("text", ["", "all", "-1", "1,", "0-3:0", "0-3:", "0-1-2", "0-9999999999"])
def test_other_texts_are_no_list(text: str) -> None:
    assert given_ranks(text, 1_000) is None


@pytest.mark.parametrize("ranks", [(), (7,), (1, 2), (3, 2, 1), (0, 1, 3, 5, 7), (4, 4, 4), (9, 6, 3, 3)])
def test_the_text_of_a_list_gives_the_list_back(ranks: tuple[int, ...]) -> None:
    assert ranks_of(ranks_text(ranks)) == ranks


def test_a_subset_of_ranks_is_numbered_from_zero_and_its_groups_are_reduced() -> None:
    graph = communicating(rank=3, pg_ranks=[0, 3, 2, 1])
    part = restrict_to_ranks(graph, [1, 3])
    assert (part.metadata["rank"], part.metadata["world_size"]) == (1, 2)
    groups = part.attributes["pg_ranks"]
    assert isinstance(groups, Ragged)
    assert groups[1].tolist() == [1, 0]


def test_groups_that_are_not_complete_can_keep_their_measured_time() -> None:
    part = restrict_to_ranks(communicating(rank=1, pg_ranks=[0, 1, 2]), [0, 1], whole_groups=True)
    assert report(part).reasons(Change.AS_COMPUTATION) == {"in a group with ranks that are not simulated": 1}
    whole = restrict_to_ranks(communicating(rank=1, pg_ranks=[0, 1]), [0, 1], whole_groups=True)
    assert report(whole).reasons(Change.AS_COMPUTATION) == {}


def test_messages_to_ranks_outside_become_computation() -> None:
    inside = communicating(type=NodeType.COMM_SEND, rank=2, comm_src=2, comm_dst=3)
    part = restrict_to_ranks(inside, [2, 3])
    assert [value(part, name) for name in ("comm_src", "comm_dst")] == [0, 1]
    assert report(restrict_to_ranks(inside, [1, 2])).reasons(Change.AS_COMPUTATION) == {UNKNOWN: 1}


def test_a_graph_of_none_of_the_ranks_is_refused() -> None:
    with pytest.raises(DataError, match="rank 0"):
        restrict_to_ranks(communicating(), [1, 2])
