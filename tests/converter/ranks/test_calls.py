"""What a rank communicates, by hand-made records and graphs: its calls, what others have to know of it, and some ranks
alone.

Which collectives of different ranks are one, and which of their groups.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import numpy as np
import pytest
from execgraph.converter.ranks import (
    Call,
    Calls,
    Group,
    GroupNames,
    awaits_all,
    given_ranks,
    graph_calls,
    match,
    ranks_of,
    ranks_text,
    recognised,
    recorded_calls,
    restrict_to_ranks,
)  # fmt: skip
from execgraph.schema.columns import ABSENT, Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import Change, CollectiveType, ExecutionGraph, NodeType
from execgraph.schema.linked import Communication
from hypothesis import given, strategies as st
from support.for_simulator import UNKNOWN, communicating, report, value
from support.graphs import GraphBuilder
from support.tables import column

COLL, SEND, RECV = NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV
PAIR = Group("0,1", "5", "")


def calls_of(graph: ExecutionGraph, own: int = 0) -> list[Call]:
    calls = graph_calls(graph, np.arange(len(graph)), own).rows()
    return [call._replace(start_ns=0, end_ns=0, matched=0) for call in calls]


# Calls


def test_groups_are_numbered_in_the_order_in_which_they_come() -> None:
    other = Group("0,1", "6")
    calls = Calls.of([Call(0, COLL, other), Call(1, SEND), Call(2, COLL, PAIR), Call(3, COLL, other)])
    assert (calls.groups, calls.group.tolist()) == ([other, PAIR], [0, -1, 1, 0])
    assert calls.take(column(3, 1)).row.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("call", "known"),
    [
        (Call(0, COLL, Group("0,1", "")), True), (Call(0, COLL, Group("", "5")), True),
        (Call(0, COLL, Group("", "", "default_pg")), False), (Call(0, SEND, source=0, target=1), True),
        (Call(0, SEND, source=1, target=0), True), (Call(0, SEND, source=-1, target=1), False),
        (Call(0, RECV, source=1), False),
    ],
)  # fmt: skip
def test_who_takes_part_is_known_by_group_or_by_both_ends(call: Call, known: bool) -> None:
    assert Calls.of([call, Call(1, COLL, Group("", ""))]).is_placed.tolist() == [known, False]


def digest(*done: Call) -> str:
    (found,) = Calls.of(done).done().values()
    return found


def test_what_was_done_in_a_group_is_told_by_kinds_in_order_and_sizes_that_all_members_share() -> None:
    def call(kind: CollectiveType, size: int) -> Call:
        return Call(0, COLL, PAIR, kind, size)

    reduced, gathered = call(CollectiveType.ALL_REDUCE, 8), call(CollectiveType.ALL_GATHER, 8)
    assert digest(reduced, gathered) == digest(reduced, Call(0, SEND), gathered)
    assert digest(reduced, gathered) == digest(reduced, gathered._replace(size=9))
    assert digest(reduced, gathered) != digest(gathered, reduced)
    assert digest(reduced) != digest(reduced._replace(size=9))
    assert digest(reduced) != digest(reduced, reduced)
    other = reduced._replace(group=Group("0,1", "6"))
    assert list(Calls.of([other, reduced, other]).done().values()) == [digest(reduced, reduced), digest(reduced)]


def test_of_collectives_without_a_root_no_member_ends_before_all_have_come() -> None:
    kinds = [*CollectiveType]
    rooted = {CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER}
    assert awaits_all(column(-1, *kinds)).tolist() == [False, *(kind not in rooted for kind in kinds)]
    assert awaits_all(column(0)).tolist() == [CollectiveType(0) not in rooted]


def test_recorded_arguments_tell_each_call_and_the_kernel_where_they_do_not() -> None:
    recorded = [
        Communication("allreduce", "Float", 4, group="5", ranks=[0, 1], sequence=7),
        Communication("send", "Float", 4, target=3, tag=9),
        Communication("", "Float", 4, group="5", ranks=[0, 1]),
        Communication("", "Float", 4, group="5", ranks=[0, 1]),
    ]
    kernels = ["", "", "ncclDevKernel_Broadcast_RING_LL(x)", "mine"]
    assert recorded_calls(recorded, kernels, own_rank=2).rows() == [
        Call(0, COLL, PAIR, CollectiveType.ALL_REDUCE, 16, 7),
        Call(1, SEND, None, -1, 16, -1, 2, 3, 9),
        Call(2, COLL, PAIR, CollectiveType.BROADCAST, 16),
        Call(3, COLL, PAIR),
    ]


def test_a_graph_tells_the_calls_of_its_nodes() -> None:
    g = GraphBuilder(rank=2)
    g.collective(0, 1, ranks=[0, 1], comm_type=CollectiveType.ALL_REDUCE, comm_size=16, comm_seq=7, pg_name="5")
    g.collective(1, 1, ranks=[0, 1], pg_name="8", pg_recorded="5")
    g.activity("send", 2, 1, type=SEND, comm_dst=3, comm_size=4, comm_tag=9)
    g.activity("recv", 3, 1, type=RECV, comm_src=3)
    assert calls_of(g.build(), 2) == [
        Call(0, COLL, PAIR, CollectiveType.ALL_REDUCE, 16, 7),
        Call(1, COLL, PAIR),
        Call(2, SEND, None, -1, 4, -1, 2, 3, 9),
        Call(3, RECV, None, -1, 0, -1, 3, 2, 0),
    ]


def test_a_node_of_several_messages_is_a_call_for_each(g: GraphBuilder) -> None:
    g.activity(
        "both", 0, 1, type=RECV, coalesced_src=[0, 1], coalesced_dst=[1, 0], coalesced_tag=[3, 4], coalesced_size=[8, 9]
    )
    g.activity("one", 1, 1, type=RECV, comm_src=1)
    both, one = [Call(0, SEND, size=8, source=0, target=1, tag=3), Call(0, RECV, size=9, source=1, target=0, tag=4)], 1
    assert calls_of(g.build()) == [*both, Call(one, RECV, source=1, target=0)]
    graph = g.build()
    del graph.attributes["coalesced_tag"]
    assert calls_of(graph)[0] == Call(0, RECV, source=0, target=0)


# Groups


def test_transfers_of_the_host_come_in_the_order_of_issue_whichever_thread_began_first(g: GraphBuilder) -> None:
    for number, size in ((9, 8), (7, 4), (ABSENT, 2)):
        g.host("gloo", 10, 5, thread=size, type=COLL, rf_id=number, comm_type=CollectiveType.ALL_REDUCE, comm_size=size)
    assert [call.size for call in calls_of(g.build())] == [4, 8, 2]


def test_addresses_are_numbered_by_the_ranks_they_come_with() -> None:
    names, one, two = GroupNames(), "94594108284448", "94594108284999"
    found = [
        names.group_of(ranks, name, "") for ranks, name in (([0, 1], one), ([0, 2], one), ([0, 1], two), ([0, 1], one))
    ]
    assert [group.name for group in found] == ["", "", "number 2", ""]
    assert names.group_of([0, 1], "5", "tensor") == Group("0,1", "5", "tensor")


def test_a_group_that_shares_its_name_with_another_of_the_job_is_told_by_the_rank() -> None:
    ones, others = (
        {Group("0,1", name): done for name, done in used}
        for used in ((("5", "a"), ("7", "c")), (("6", "a"), ("5", "b")))
    )
    known = recognised([ones, others])
    assert known[1][Group("0,1", "5")] == Group("0,1", "5 of the rank at 1")
    assert known[1][Group("0,1", "6")] == Group("0,1", "5")


def test_a_group_without_ranks_is_one_with_ranks_where_its_name_is_that_of_one_list() -> None:
    nameless, other = Group("", "5"), Group("", "", "x")
    pair, pairs = {PAIR: "a", Group("0,1", ""): "b"}, {Group("2,3", "5"): "a"}
    assert recognised([pair, {nameless: "a", other: "b"}])[1] == {nameless: PAIR, other: other}
    assert recognised([pair, pairs, {nameless: "a"}])[2] == {nameless: nameless}


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""), ([5], "5"), ([0, 1], "0,1"), ([0, 1, 2], "0-2"), ([3, 2, 1, 0], "3-0:-1"),
        ([0, 2, 4, 7], "0-4:2,7"), ([4, 4, 4], "4,4,4"), ([1, 3, 4, 5], "1,3-5"), ([8, 6, 4], "8-4:-2"),
        ([-1, 0, 1], "-1-1"), ([3, 1, -1], "3--1:-2"),
    ],
)  # fmt: skip
def test_runs_of_three_ranks_and_more_are_told_by_their_ends_and_step(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text
    assert list(ranks_of(text)) == ranks


@given(st.lists(st.integers(0, 40), max_size=12))
def test_ranks_as_text_are_the_same_ranks(ranks: list[int]) -> None:
    assert ranks_of(ranks_text(ranks)) == tuple(ranks)


# Matches


def test_matches_come_by_group_then_by_number() -> None:
    own = Calls.of([Call(0, COLL, Group("0,1", name), 0, 0, number) for number in (1, 2) for name in ("5", "6")])
    found = match([own, own])
    assert (found.sequence.tolist(), found.occurrence.tolist()) == ([1, 1, 2, 2] * 2, [0] * 8)
    assert [rank.matched.tolist() for rank in found.of_ranks(2)] == [[0, 2, 1, 3]] * 2
    assert (found.group.tolist(), found.rank.tolist()) == ([0, 1] * 4, [0] * 4 + [1] * 4)


@pytest.mark.parametrize(("common", "by_order"), [(0, 4), (0, 5), (1, 6), (1, 7), (3, 10), (3, 11)])
def test_order_is_believed_where_it_finds_more_than_twice_and_a_few_as_many_matches(common: int, by_order: int) -> None:
    """Each rank has as many collectives, of which the first have the same numbers on both."""
    one = [Call(0, COLL, PAIR, 0, 0, number) for number in range(by_order)]
    two = [call._replace(sequence=call.sequence + (100 if place >= common else 0)) for place, call in enumerate(one)]
    found = match([Calls.of(one), Calls.of(two)])
    assert (set(found.sequence.tolist()) == {-1}) == (by_order > 2 * common + 4)


# Graphs of some ranks


def test_ranks_on_their_own_are_renumbered_wherever_they_stand() -> None:
    g = GraphBuilder(rank=7, world_size=8)
    g.collective(0, 1, ranks=[3, 5, 7, 9])
    g.activity("send", 0, 1, type=SEND, comm_dst=3, coalesced_dst=[3, 4, 7, 99], coalesced_src=[7, 0])
    g.activity("recv", 0, 1, type=RECV, comm_src=4)
    graph = restrict_to_ranks(g.build(), [7, 3])
    assert (graph.metadata["rank"], graph.metadata["world_size"]) == (0, 2)
    assert graph.integers("comm_dst").tolist() == [ABSENT, 1, ABSENT]
    assert graph.integers("comm_src").tolist() == [ABSENT, ABSENT, -1]

    def lists(name: str, of: ExecutionGraph) -> list[list[int]]:
        values = of.attributes[name]
        assert isinstance(values, Ragged)
        return [values[row].tolist() for row in range(len(of))]

    assert lists("coalesced_dst", graph) == [[], [1, -1, 0, -1], []]
    assert lists("coalesced_src", graph) == [[], [0, -1], []]
    assert lists("pg_ranks", graph) == [[1, 0], [], []]


def test_groups_that_the_metadata_lists_are_restricted_too() -> None:
    g = GraphBuilder(rank=7, world_size=10)
    for name, split in (("inside", [1, 2]), ("across", [1, 2, 3]), ("own", [4, 5])):
        g.collective(0, 1, pg_name=name, comm_split=split, ranks=[7, 8] if name == "own" else ())
    graph = g.build()
    graph.metadata |= {f"ranks_of_group_{name}": text for name, text in (("inside", "7,3"), ("across", "3-7:2"))}
    graph.metadata["ranks_of_group_elsewhere"] = "8-9"

    def told(of: ExecutionGraph) -> tuple[dict[str, str], list[list[int]], list[list[int]]]:
        named = {name: str(text) for name, text in of.metadata.items() if name.startswith("ranks_of_group_")}
        lists = (of.attributes[name] for name in ("pg_ranks", "comm_split"))
        ranks, splits = (
            [values[row].tolist() for row in range(len(of))] for values in lists if isinstance(values, Ragged)
        )
        return named, ranks, splits

    inside, across = {"ranks_of_group_inside": "0,1"}, {"ranks_of_group_across": "1,0"}
    assert told(restrict_to_ranks(graph, [7, 3])) == (inside | across, [[], [], [0]], [[1, 2], [1, 3], [4]])


@pytest.mark.parametrize("graph", [GraphBuilder().build(), communicating(rank=5)])
def test_a_graph_of_none_of_the_ranks_or_that_does_not_know_its_rank_is_refused(graph: ExecutionGraph) -> None:
    own_rank = graph.metadata.get("rank", -1)
    with pytest.raises(DataError, match=f"of rank {own_rank}, which is not one of the 2"):
        restrict_to_ranks(graph, [0, 1])


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("4", (4,)), ("0-3", (0, 1, 2, 3)), ("0-10:5,1", (0, 5, 10, 1)), ("9-4:-3", (9, 6)), ("0-7:5", (0, 5)),
        ("3-2", ()), ("9-0,0-9", tuple(range(10))),
    ],
)  # fmt: skip
def test_a_given_list_has_no_more_ranks_than_the_limit(text: str, ranks: tuple[int, ...]) -> None:
    assert given_ranks(text, len(ranks)) == ranks_of(text) == ranks
    if ranks:
        assert given_ranks(text, len(ranks) - 1) is None


@pytest.mark.parametrize("text", ["", "all", "-1", "1,", "0-3:0", "0-3:", "0-1-2", "0-9999999999"])
def test_other_texts_are_no_list(text: str) -> None:
    assert given_ranks(text, 1_000) is None


def test_messages_to_ranks_outside_become_computation() -> None:
    inside = communicating(type=NodeType.COMM_SEND, rank=2, comm_src=2, comm_dst=3)
    part = restrict_to_ranks(inside, [2, 3])
    assert [value(part, name) for name in ("comm_src", "comm_dst")] == [0, 1]
    assert report(restrict_to_ranks(inside, [1, 2])).reasons(Change.AS_COMPUTATION) == {UNKNOWN: 1}


def calls(*sequences: int, kind: int = 0, name: str = "0", members: str = "0,1", size: int = 0) -> list[Call]:
    group = Group(members, name)
    return [Call(0, COLL, group, kind, size, sequence) for sequence in sequences]


def matched(*ranks: list[Call]) -> list[list[int]]:
    return [rank.matched.tolist() for rank in match([Calls.of(own) for own in ranks]).of_ranks(len(ranks))]


def met(*ranks: list[Call]) -> int:
    """How many matches all ranks take part in."""
    return len(set.intersection(*map(set, matched(*ranks))))


# by number or by order


MEETINGS: dict[str, tuple[int, list[Call], list[Call]]] = {
    "the same numbers": (3, calls(5, 6, 7), calls(5, 6, 7)),
    "what has no number, in order": (2, calls(-1, -1), calls(-1, -1, -1)),
    "numbers that differ throughout are not used": (30, calls(*range(30)), calls(*range(0, 90, 3))),
    "a few numbers that differ are believed": (0, calls(7), calls(8)),
    "numbers of one range of which none is shared are not used": (4, calls(2, 4, 6, 8), calls(5, 7, 9, 11)),
    "numbers that one rank counts twice are not used": (5, calls(*range(5)), calls(*range(0, 10, 2))),
    "numbers of other calls are believed": (0, calls(1, 2, 3, 4), calls(5, 6, 7, 8)),
    "not other types": (0, calls(1, kind=0), calls(1, kind=2)),
    "a rank that is not traced is not needed": (2, calls(1, 2, members="0-7"), calls(1, 2, members="0-7")),
    "groups of the same members by name": (
        2, [*calls(1, name="0"), *calls(1, name="3")], [*calls(1, name="3"), *calls(1, name="0")],
    ),
    "names that agree are believed whatever was done in them": (
        0, [*calls(1, name="0"), *calls(1, name="3", kind=2)], [*calls(1, name="0", kind=2), *calls(1, name="3")],
    ),
    "names that every rank counts for itself, in order": (
        3, [*calls(1, 2, name="9"), *calls(1, name="10", kind=2)], [*calls(1, name="4", kind=2), *calls(1, 2, name="3")],
    ),
    "a group that a rank does not use leaves the names of the others": (
        2,
        [*calls(1, name="0", kind=0), *calls(1, name="1", kind=1), *calls(1, name="3", kind=2)],
        [*calls(1, name="0", kind=0), *calls(1, name="3", kind=2)],
    ),
    "a name is of other groups on other ranks": (
        0, calls(1, name="1", members="0,1"), calls(1, name="1", members="2,3"),
    ),
    "who is in a group is known from the ranks that recorded it": (2, calls(1, 2), calls(1, 2, members="")),
    "groups without ranks of one name": (1, calls(1, members=""), calls(1, members="")),
    "not groups without ranks of other names": (0, calls(1, members="", name="1"), calls(1, members="", name="2")),
}  # fmt: skip


@pytest.mark.parametrize("meeting", MEETINGS)
def test_collectives_meet(meeting: str) -> None:
    count, first, second = MEETINGS[meeting]
    assert met(first, second) == count


def test_a_rank_that_began_to_record_later_meets_from_there_on() -> None:
    first, second = matched(calls(5, 6, 7, 8), calls(7, 8, 9))
    assert first[2:] == second[:2]
    assert len({*first, *second}) == 5


@pytest.mark.parametrize(
    ("count", "skipped", "how"), [(4, 2, "by step"), (3, 0, "in their order, whatever their step")]
)
def test_calls_without_numbers_are_matched_by_step_where_ranks_recorded_others(count, skipped, how):
    """Two calls a step, the second rank began a step later; three in two steps do not tell how many a step has."""
    one, two = Calls.of(calls(*[-1] * 6)), Calls.of(calls(*[-1] * count))
    found = match([replace(one, steps=(0, 1, 2)), replace(two, steps=(1, 2))])
    said = f"ranks recorded different steps, 0 to 2 and 1 to 2: calls without sequence numbers are matched {how}"
    assert found.decisions == (said,)
    first, second = (rank.matched.tolist() for rank in found.of_ranks(2))
    assert second == first[skipped : skipped + count]


def test_calls_are_matched_by_number_where_ranks_recorded_no_common_step_and_that_is_said() -> None:
    one = Calls.of(calls(1, 2))
    found = match([replace(one, steps=(0, 1)), replace(one, steps=(4,))])
    how = "calls are matched by their sequence numbers, as if these steps were the same"
    assert (found.matched.tolist(), *found.decisions) == (
        [0, 1] * 2,
        f"ranks recorded different steps, 0 to 1 and 4: {how}",
    )


def test_few_numbers_that_differ_are_not_used_where_ranks_recorded_the_same_steps() -> None:
    found = match([replace(Calls.of(calls(number)), steps=(3,)) for number in (7, 8)])
    assert found.matched.tolist() == [0, 0] and len(found.decisions) == 1


def test_equal_numbers_meet_in_order_who_lacks_one_leaves_the_others_to_meet_and_nothing_meets_nobody() -> None:
    found = match([Calls.of(calls(4, 4)), Calls.of(calls(4, 4))])
    assert (found.sequence.tolist(), found.occurrence.tolist()) == ([4] * 4, [0, 1] * 2)
    first, second, third = matched(calls(1, 2, 3), calls(1, 3), calls(1, 2, 3))
    assert first == third and second == [first[0], first[2]]
    assert (matched([]), matched([], [])) == ([[]], [[], []])


# what is missing


# messages


def message(source: int, target: int, type_: NodeType, tag: int = 0) -> Call:
    return Call(0, type_, source=source, target=target, tag=tag)


def test_messages_meet_in_order_by_way_and_tag_or_themselves_and_no_collectives() -> None:
    sends, receives = matched([message(0, 1, SEND)] * 2, [message(0, 1, RECV)] * 3)
    assert sends == receives[:2] and len(set(receives)) == 3
    mine = [message(0, 1, SEND), message(1, 0, RECV), message(0, 1, SEND, tag=1)]
    theirs = [message(1, 0, SEND), message(0, 1, RECV, tag=1), message(0, 1, RECV)]
    first, second = matched(mine, theirs)
    assert first == [second[2], second[0], second[1]] and len(set(first)) == 3
    assert len(set(matched([message(0, 0, SEND), message(0, 0, RECV)], [])[0])) == 1
    first, second = matched([message(-1, -1, SEND)], calls(-1, kind=-1))
    assert first != second


# groups


def test_a_renamed_group_is_known_by_what_was_done_in_it() -> None:
    mine = [*calls(1, name="0", size=4), *calls(1, name="1", size=8)]
    theirs = [*calls(1, name="0", size=4), *calls(1, name="!", size=8)]
    assert matched(mine, theirs, mine) == [[0, 1]] * 3


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


def test_two_groups_of_a_job_never_go_by_one_name() -> None:
    one, two, three, four = (Group("0,1", name) for name in "5678")
    known = recognised([{one: "a", three: "c"}, {two: "a", one: "b", four: "c"}])
    assert (known[1][two], known[1][four]) == (one, three)
    assert known[1][one] not in (one, three)


def test_the_default_group_is_known_by_its_description() -> None:
    default = Group("", "elsewhere", "default_pg"), Group("0,1", "0", "default_pg")
    assert len({*matched(*([Call(0, COLL, group)] for group in default))[0]}) == 1
    assert met([Call(0, COLL, default[0])], [Call(0, COLL, default[1])]) == 1


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
def test_neither_the_order_of_ranks_nor_what_each_calls_its_groups_matters(groups, done, count, numbered, draw):
    ranks = job(groups, done, count, numbered)
    whole = together(matched(*ranks))
    assert all(len(members) == count for members in whole) and len(whole) == len(done)
    order = draw.sample(range(count), count)
    other = matched(*([*renamed(ranks[rank], draw.choice(["x", "y", "z", "1"]))] for rank in order))
    assert together([other[order.index(rank)] for rank in range(count)]) == whole


@given(GROUPS, DONE, st.data())
def test_what_is_lost_on_a_rank_changes_no_match_of_the_others(groups, done, data):
    ranks = job(groups, done, 3, numbered=True)
    lost = data.draw(st.sets(st.integers(0, max(len(done) - 1, 0))))
    left = [call for call in ranks[1] if call.row not in lost]
    first, second, third = matched(ranks[0], left, ranks[2])
    assert first == third and second == [number for place, number in enumerate(first) if place not in lost]
