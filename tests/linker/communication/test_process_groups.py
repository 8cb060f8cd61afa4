"""The members of groups that communications name, and the peers and roots among them: by records made by hand."""

import json

import pytest
from execgraph.linker.communication import groups_of_host, process_groups, with_members
from execgraph.linker.communication.process_groups import MEMBERS_EACH
from execgraph.linker.communication.recorded_arguments import members
from execgraph.schema.columns import Categorical
from execgraph.schema.comm_groups import LARGEST_JOB
from execgraph.schema.linked import GROUP_INIT, Communication, ProcessGroup

WORLD = 8
PAIR, FOUR = ProcessGroup("g", "", [2, 5]), ProcessGroup("g", "", [1, 3, 5, 7])


def ranks_of(found: Communication, *groups: ProcessGroup, world: int = WORLD) -> list[int]:
    return with_members([found], groups, world)[0].ranks


def peers(group_rank: int, name: str = "send", source: int = -1, target: int = -1) -> tuple[int, int]:
    """Source and target of a message or collective of the ranks 4, 6 and 9."""
    given = Communication(name, ranks=[4, 6, 9], group_rank=group_rank, source=source, target=target)
    (found,) = with_members([given], [], WORLD)
    return found.source, found.target


def test_recorded_ranks_come_before_described_ones() -> None:
    assert ranks_of(Communication(group="g", ranks=[1, 2]), PAIR) == [1, 2]
    assert ranks_of(Communication(group="g"), PAIR) == [2, 5]


def test_of_groups_of_one_name_the_one_of_that_size_is_meant() -> None:
    assert ranks_of(Communication(group="g", group_size=4), PAIR, FOUR) == [1, 3, 5, 7]
    assert ranks_of(Communication(group="g", in_split=[1, 1]), PAIR, FOUR) == [2, 5]
    assert ranks_of(Communication(group="g", out_split=[1, 1]), PAIR, FOUR) == [2, 5]
    assert ranks_of(Communication(group="g"), PAIR, FOUR) == []
    assert ranks_of(Communication(group="g"), PAIR, PAIR) == [2, 5]


def test_a_group_of_one_rank_has_a_size_as_any() -> None:
    assert ranks_of(Communication(group="g", group_size=1), ProcessGroup("g", "", [3]), PAIR) == [3]
    assert ranks_of(Communication(group="g", in_split=[5]), ProcessGroup("g", "", [3]), PAIR) == [3]


def test_a_group_of_another_size_is_the_only_one_of_its_name() -> None:
    assert ranks_of(Communication(group="g", group_size=3), PAIR) == [2, 5]


def test_a_group_described_without_ranks_is_the_world() -> None:
    assert ranks_of(Communication(group="g"), ProcessGroup("g"), world=3) == [0, 1, 2]


@pytest.mark.parametrize("found", [Communication(group_size=WORLD), Communication(in_split=[1] * WORLD)])
def test_a_group_of_the_worlds_size_is_the_world(found: Communication) -> None:
    other = ProcessGroup("other", "", [0, 1])
    assert ranks_of(found, other) == list(range(WORLD))
    assert ranks_of(Communication(group_size=WORLD - 1), other) == []
    assert ranks_of(Communication(), other) == []


def test_the_only_group_of_a_trace_that_describes_none_is_the_world() -> None:
    one, wait = Communication("allreduce", group="g"), Communication("wait", group="")
    assert [found.ranks for found in with_members([one, one, wait], [], 2)] == [[0, 1]] * 3
    two = [one, Communication("allreduce", group="h"), wait]
    assert [found.ranks for found in with_members(two, [], 2)] == [[]] * 3
    assert [found.ranks for found in with_members([one], [ProcessGroup("x", "", [0])], 2)] == [[]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("send", (-1, 6)),
        ("isend", (-1, 6)),
        ("recv", (6, -1)),
        ("irecv", (6, -1)),
        ("recv_any_source", (6, -1)),
        ("broadcast", (6, -1)),
        ("_broadcast_oop", (6, -1)),
        ("scatter", (6, -1)),
        ("reduce", (-1, 6)),
        ("gather", (-1, 6)),
        ("reduce_scatter", (-1, -1)),
        ("_reduce_scatter_base", (-1, -1)),
        ("allreduce", (-1, -1)),
        ("allgather", (-1, -1)),
    ],
)
def test_a_place_is_that_of_the_peer_or_of_the_root(name: str, expected: tuple[int, int]) -> None:
    assert peers(1, name) == expected


def test_a_place_outside_of_the_group_tells_no_peer() -> None:
    assert [peers(group_rank) for group_rank in (-1, 0, 2, 3)] == [(-1, -1), (-1, 4), (-1, 9), (-1, -1)]


def test_a_recorded_peer_comes_before_a_place() -> None:
    assert peers(1, "send", target=0) == (-1, 0)
    assert peers(1, "recv", source=0) == (0, -1)


def test_what_is_coalesced_has_the_members_of_the_whole() -> None:
    parts = [Communication("send", group_rank=1), Communication("recv", group_rank=0, ranks=[7, 6])]
    (found,) = with_members([Communication("coalesced", ranks=[4, 6], coalesced=parts)], [], WORLD)
    assert [(part.ranks, part.source, part.target) for part in found.coalesced] == [([4, 6], -1, 6), ([7, 6], 7, -1)]


# Groups that claim many members


def claiming(size: int) -> Communication:
    return Communication("broadcast", group="g", ranks=range(size), group_rank=size - 1)


def test_communications_have_no_more_members_in_all_than_so_many_tell_of() -> None:
    unlisted: list[int] = []
    most = LARGEST_JOB + 3 * MEMBERS_EACH
    found = with_members([claiming(most - 5), claiming(6), claiming(5)], [], -1, unlisted)
    assert ([len(one.ranks) for one in found], unlisted) == ([most - 5, 0, 5], [-1])
    assert found[1].source == 5


def test_members_that_a_described_group_lends_count_for_each_communication() -> None:
    unlisted: list[int] = []
    wide = ProcessGroup("g", "", list(range(LARGEST_JOB)))
    found = with_members([Communication(group="g")] * 2, [wide], -1, unlisted)
    assert ([len(one.ranks) for one in found], unlisted) == ([LARGEST_JOB, 0], [-1])


def test_equal_groups_share_their_list() -> None:
    first, second = with_members([claiming(4), claiming(4)], [], -1)
    assert first.ranks is second.ranks and first.ranks == [0, 1, 2, 3]


def test_described_groups_without_ranks_have_no_more_members_in_all_than_a_job() -> None:
    unlisted: list[int] = []
    told = [{"pg_name": str(number), "pg_size": LARGEST_JOB // 2} for number in range(4)]
    found = process_groups([*told, *told[:1], {"pg_name": "x", "ranks": [0, 3]}], unlisted)
    assert ([(group.name, len(group.ranks)) for group in found], unlisted) == (
        [("0", LARGEST_JOB // 2), ("1", LARGEST_JOB // 2), ("x", 2)],
        [-1, -1],
    )


def test_a_described_group_without_ranks_has_the_first_ones_if_its_size_is_known() -> None:
    unlisted: list[int] = []
    known, unknown = process_groups([{"pg_name": "x", "pg_size": 3}, {"pg_name": "y"}], unlisted)
    assert (known.ranks, unknown.ranks, unlisted) == ([0, 1, 2], [], [])


def test_groups_that_are_larger_than_any_job_are_counted() -> None:
    unlisted: list[int] = []
    [group] = process_groups([{"pg_name": "x", "pg_size": LARGEST_JOB + 1}], unlisted)
    assert (group.ranks, unlisted) == ([], [-1])
    [found] = with_members([Communication(group="x", group_size=LARGEST_JOB + 1)], [group], -1, unlisted)
    assert (found.ranks, unlisted) == ([], [-1, -1])
    [found] = with_members([Communication(group="x", group_size=LARGEST_JOB)], [group], -1, unlisted)
    assert (found.ranks, unlisted) == ([], [-1, -1])


def test_ranks_fit_32_bits_and_are_all_different() -> None:
    assert members([5, 0, (1 << 31) - 1]) == [5, 0, (1 << 31) - 1]
    assert members([5, 1 << 31]) == members([5, -1]) == members([5, 5]) == members([]) == []


def test_descriptions_that_cannot_be_read_are_counted() -> None:
    texts = ['[{"pg_name": "a"}, 7]', "no list", '{"pg_name": "b"}', '[{"pg_name": "c"}]']
    inputs = [json.dumps({"values": values}).encode() for values in ([text] for text in texts)]
    inputs.append(json.dumps({"values": [8, texts[3]]}).encode())
    names, unreadable = Categorical.of([GROUP_INIT] * len(inputs)), list[int]()
    found = groups_of_host(names, inputs, unreadable)
    assert [group["pg_name"] for group in found] == ["a", "c", "c"]
    assert unreadable == [-1, -1, -1]
