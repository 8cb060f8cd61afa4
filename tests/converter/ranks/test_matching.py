"""Which collectives of different ranks are one, and which of their groups."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from execgraph.converter.ranks import Call, Calls, Group, match, recognised
from execgraph.schema.graph import NodeType
from hypothesis import given, strategies as st

COLL, SEND, RECV = NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV
WORLD = Group("0,1", "0")


def calls(*sequences: int, kind: int = 0, name: str = "0", members: str = "0,1", size: int = 0) -> list[Call]:
    group = Group(members, name)
    return [Call(0, COLL, group, kind, size, sequence) for sequence in sequences]


def matched(*ranks: list[Call]) -> list[list[int]]:
    return [numbers.tolist() for numbers in match([Calls.of(own) for own in ranks]).matched]


def met(*ranks: list[Call]) -> int:
    """How many matches all ranks take part in."""
    return len(set.intersection(*map(set, matched(*ranks))))


# by number or by order


def test_the_same_numbers_meet() -> None:
    assert met(calls(5, 6, 7), calls(5, 6, 7)) == 3


def test_a_rank_that_began_to_record_later_meets_from_there_on() -> None:
    first, second = matched(calls(5, 6, 7, 8), calls(7, 8, 9))
    assert first[2:] == second[:2]
    assert len({*first, *second}) == 5


def test_what_has_no_number_meets_in_order() -> None:
    assert met(calls(-1, -1), calls(-1, -1, -1)) == 2


def test_numbers_that_differ_throughout_are_not_used() -> None:
    # where messages are counted too, ranks that send more have higher numbers
    assert met(calls(*range(30)), calls(*range(0, 90, 3))) == 30
    assert set(match([Calls.of(calls(*range(30))), Calls.of(calls(*range(0, 90, 3)))]).sequence.tolist()) == {-1}


def test_a_few_numbers_that_differ_are_believed() -> None:
    assert met(calls(7), calls(8)) == 0


def test_other_types_do_not_meet() -> None:
    assert met(calls(1, kind=0), calls(1, kind=2)) == 0


def test_equal_numbers_meet_in_order() -> None:
    found = match([Calls.of(calls(4, 4)), Calls.of(calls(4, 4))])
    assert (found.sequence.tolist(), found.occurrence.tolist()) == ([4, 4], [0, 1])


# what is missing


def test_who_lacks_a_collective_leaves_the_others_to_meet() -> None:
    first, second, third = matched(calls(1, 2, 3), calls(1, 3), calls(1, 2, 3))
    assert first == third and second == [first[0], first[2]]


def test_a_rank_that_is_not_traced_is_not_needed() -> None:
    members = {"members": "0-7"}
    assert met(calls(1, 2, **members), calls(1, 2, **members)) == 2


def test_nothing_meets_nobody() -> None:
    assert (matched(), matched([]), matched([], [])) == ([], [[]], [[], []])


# messages


def message(source: int, target: int, type_: NodeType, tag: int = 0) -> Call:
    return Call(0, type_, source=source, target=target, tag=tag)


def test_a_send_meets_its_receive_in_order() -> None:
    sends, receives = matched([message(0, 1, SEND)] * 2, [message(0, 1, RECV)] * 3)
    assert sends == receives[:2] and len(set(receives)) == 3


def test_messages_both_ways_and_of_other_tags_are_others() -> None:
    mine = [message(0, 1, SEND), message(1, 0, RECV), message(0, 1, SEND, tag=1)]
    theirs = [message(1, 0, SEND), message(0, 1, RECV, tag=1), message(0, 1, RECV)]
    first, second = matched(mine, theirs)
    assert first == [second[2], second[0], second[1]] and len(set(first)) == 3


def test_a_message_to_oneself_meets_itself() -> None:
    assert len(set(matched([message(0, 0, SEND), message(0, 0, RECV)], [])[0])) == 1


def test_messages_are_no_collectives() -> None:
    first, second = matched([message(-1, -1, SEND)], calls(-1, kind=-1))
    assert first != second


# groups


def test_groups_of_the_same_members_are_told_apart_by_name() -> None:
    assert met([*calls(1, name="0"), *calls(1, name="3")], [*calls(1, name="3"), *calls(1, name="0")]) == 2


def test_names_that_agree_are_believed_whatever_was_done_in_them() -> None:
    mine, theirs = (
        [*calls(1, name="0"), *calls(1, name="3", kind=2)],
        [*calls(1, name="0", kind=2), *calls(1, name="3")],
    )
    assert met(mine, theirs) == 0


def test_names_that_every_rank_counts_for_itself_are_taken_in_order() -> None:
    mine = [*calls(1, 2, name="9"), *calls(1, name="10", kind=2)]
    theirs = [*calls(1, name="4", kind=2), *calls(1, 2, name="3")]
    assert met(mine, theirs) == 3


def test_a_renamed_group_is_known_by_what_was_done_in_it() -> None:
    mine = [*calls(1, name="0", size=4), *calls(1, name="1", size=8)]
    theirs = [*calls(1, name="0", size=4), *calls(1, name="!", size=8)]
    assert matched(mine, theirs, mine) == [[0, 1]] * 3


def test_a_group_that_a_rank_does_not_use_leaves_the_names_of_the_others() -> None:
    mine = [*calls(1, name="0", kind=0), *calls(1, name="1", kind=1), *calls(1, name="3", kind=2)]
    assert met(mine, [mine[0], mine[2]]) == 2


def test_groups_in_which_the_same_was_done_are_known_by_description() -> None:
    def rank(*groups: Group) -> dict[Group, str]:
        return dict.fromkeys(groups, "the same")

    tensor, data = Group("0,1", "1", "tensor"), Group("0,1", "2", "data")
    renamed = [Group("0,1", "x", "data"), Group("0,1", "y", "tensor")]
    assert recognised([rank(tensor, data), rank(*renamed)])[1] == dict(zip(renamed, (data, tensor), strict=True))


def test_where_all_differs_groups_are_one_in_the_order_of_their_making() -> None:
    mine, theirs = [Group("0,1", name) for name in ("9", "10")], [Group("0,1", name) for name in ("4", "3")]
    known = recognised([dict(zip(mine, "ab", strict=True)), dict(zip(theirs, "cd", strict=True))])
    assert known[1] == {theirs[0]: mine[1], theirs[1]: mine[0]}


def test_a_name_stands_for_other_groups_on_other_ranks() -> None:
    assert met(calls(1, name="1", members="0,1"), calls(1, name="1", members="2,3")) == 0


def test_two_groups_of_a_job_never_go_by_one_name() -> None:
    one, two, three, four = (Group("0,1", name) for name in "5678")
    known = recognised([{one: "a", three: "c"}, {two: "a", one: "b", four: "c"}])
    assert (known[1][two], known[1][four]) == (one, three)
    assert known[1][one] not in (one, three)


def test_who_is_in_a_group_is_known_from_the_ranks_that_recorded_it() -> None:
    assert met(calls(1, 2), calls(1, 2, members="")) == 2
    default = Group("", "elsewhere", "default_pg"), Group("0,1", "0", "default_pg")
    assert len({*matched(*([Call(0, COLL, group)] for group in default))[0]}) == 1
    assert met([Call(0, COLL, default[0])], [Call(0, COLL, default[1])]) == 1


def test_of_groups_without_ranks_only_those_of_one_name_are_one() -> None:
    assert met(calls(1, members=""), calls(1, members="")) == 1
    assert met(calls(1, members="", name="1"), calls(1, members="", name="2")) == 0


# any job

GROUPS = st.lists(st.sampled_from(["tp", "dp", "ep"]), min_size=1, max_size=3, unique=True)
DONE = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3)), max_size=20)
"""Of each collective the place of its group, the type, and what tells its size."""


def job(groups: Sequence[str], done: Sequence[tuple[int, int, int]], ranks: int, numbered: bool) -> list[list[Call]]:
    """Ranks that all do the same; the size says which group it is, so that no two groups are alike."""
    seen = Counter[str]()
    found: list[Call] = []
    for place, kind, size in done:
        name = groups[place % len(groups)]
        seen[name] += 1
        group = Group(f"0-{ranks - 1}", name, "")
        bytes_ = 10 * size + groups.index(name)
        found.append(Call(len(found), COLL, group, kind, bytes_, seen[name] if numbered else -1))
    return [list(found) for _ in range(ranks)]


def renamed(own: Sequence[Call], name: str) -> Iterator[Call]:
    for call in own:
        yield call._replace(group=call.group and call.group._replace(name=f"{name} {call.group.name}"))


def together(ranks: Sequence[Sequence[int]]) -> set[frozenset[tuple[int, int]]]:
    """The matches as sets of their members, each by its rank and place."""
    members = sorted((number, rank, place) for rank, own in enumerate(ranks) for place, number in enumerate(own))
    return {frozenset(found[1:] for found in same) for _, same in groupby(members, itemgetter(0))}


@given(GROUPS, DONE, st.integers(2, 5), st.booleans(), st.randoms(use_true_random=False))
def test_neither_the_order_of_ranks_nor_what_each_calls_its_groups_matters(
    groups: Sequence[str],
    done: Sequence[tuple[int, int, int]],
    count: int,
    numbered: bool,
    draw: random.Random,
) -> None:
    ranks = job(groups, done, count, numbered)
    whole = together(matched(*ranks))
    assert all(len(members) == count for members in whole) and len(whole) == len(done)
    order = draw.sample(range(count), count)
    other = matched(*([*renamed(ranks[rank], draw.choice(["x", "y", "z", "1"]))] for rank in order))
    assert together([other[order.index(rank)] for rank in range(count)]) == whole


@given(GROUPS, DONE, st.data())
def test_what_is_lost_on_a_rank_changes_no_match_of_the_others(
    groups: Sequence[str], done: Sequence[tuple[int, int, int]], data: st.DataObject
) -> None:
    ranks = job(groups, done, 3, numbered=True)
    lost = data.draw(st.sets(st.integers(0, max(len(done) - 1, 0))))
    left = [call for call in ranks[1] if call.row not in lost]
    first, second, third = matched(ranks[0], left, ranks[2])
    assert first == third and second == [number for place, number in enumerate(first) if place not in lost]
