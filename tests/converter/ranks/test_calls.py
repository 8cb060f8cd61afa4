"""What a rank communicates, by hand-made records and graphs: its calls, what others have to know of it, and some ranks
alone.
"""

import numpy as np
import pytest
from execgraph.converter.ranks import (
    Call,
    Calls,
    CommunicationEntry,
    Group,
    GroupNames,
    awaits_all,
    common_order,
    common_sizes,
    communication_summary,
    graph_calls,
    match,
    on_job_clock,
    order_collectives,
    ranks_of,
    ranks_text,
    recognised,
    recorded_calls,
    resize_communication,
    restrict_to_ranks,
    unmatched,
)
from execgraph.schema.columns import ABSENT, Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from execgraph.schema.linked import Communication
from support.graphs import STREAM_ORDER, GraphBuilder
from support.tables import column

COLL, SEND, RECV = NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV
PAIR = Group("0,1", "5", "")


def rows(calls: Calls) -> list[Call]:
    columns = (getattr(calls, name).tolist() for name in Call._fields)
    return [
        Call(row, NodeType(type_), calls.groups[group] if group >= 0 else None, *facts)
        for row, type_, group, *facts in zip(*columns, strict=True)
    ]


def calls_of(graph: ExecutionGraph, own: int = 0) -> list[Call]:
    return rows(graph_calls(graph, np.arange(len(graph)), own))


# Calls


def test_what_is_not_said_of_a_call_is_unknown_and_its_tag_is_zero() -> None:
    assert Call(3, SEND) == (3, SEND, None, -1, 0, -1, -1, -1, 0)


def test_groups_are_numbered_in_the_order_in_which_they_come() -> None:
    other = Group("0,1", "6")
    calls = Calls.of([Call(0, COLL, other), Call(1, SEND), Call(2, COLL, PAIR), Call(3, COLL, other)])
    assert (calls.groups, calls.group.tolist()) == ([other, PAIR], [0, -1, 1, 0])
    assert calls.take(column(3, 1)).row.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("call", "known"),
    [
        (Call(0, COLL, Group("0,1", "")), True),
        (Call(0, COLL, Group("", "5")), True),
        (Call(0, COLL, Group("", "", "default_pg")), False),
        (Call(0, SEND, source=0, target=1), True),
        (Call(0, SEND, source=1, target=0), True),
        (Call(0, SEND, source=-1, target=1), False),
        (Call(0, RECV, source=1), False),
    ],
)
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
    assert rows(recorded_calls(recorded, kernels, own_rank=2)) == [
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


def test_a_node_of_several_messages_is_a_call_for_each() -> None:
    g = GraphBuilder(rank=0)
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


def test_a_group_is_named_by_its_ranks_and_its_name() -> None:
    assert (PAIR.text, Group("0,1", "").text) == ("group 0,1 (5)", "group 0,1")


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
        ([], ""),
        ([5], "5"),
        ([0, 1], "0,1"),
        ([0, 1, 2], "0-2"),
        ([3, 2, 1, 0], "3-0:-1"),
        ([0, 2, 4, 7], "0-4:2,7"),
        ([4, 4, 4], "4,4,4"),
        ([1, 3, 4, 5], "1,3-5"),
        ([8, 6, 4], "8-4:-2"),
        ([-1, 0, 1], "-1-1"),
        ([3, 1, -1], "3--1:-2"),
    ],
)
def test_runs_of_three_ranks_and_more_are_told_by_their_ends_and_step(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text
    assert list(ranks_of(text)) == ranks


# Matches


def test_matches_come_by_group_then_by_number() -> None:
    own = Calls.of([Call(0, COLL, Group("0,1", name), 0, 0, number) for number in (1, 2) for name in ("5", "6")])
    found = match([own, own])
    assert (found.sequence.tolist(), found.occurrence.tolist()) == ([1, 2, 1, 2], [0, 0, 0, 0])
    assert [numbers.tolist() for numbers in found.matched] == [[0, 2, 1, 3]] * 2
    assert ([group.tolist() for group in found.group], len(found)) == ([[0, 1, 0, 1]] * 2, 4)


@pytest.mark.parametrize(("common", "by_order"), [(0, 4), (0, 5), (1, 6), (1, 7), (3, 10), (3, 11)])
def test_order_is_believed_where_it_finds_more_than_twice_and_a_few_as_many_matches(common: int, by_order: int) -> None:
    """Each rank has as many collectives, of which the first have the same numbers on both."""
    one = [Call(0, COLL, PAIR, 0, 0, number) for number in range(by_order)]
    two = [call._replace(sequence=call.sequence + (100 if place >= common else 0)) for place, call in enumerate(one)]
    found = match([Calls.of(one), Calls.of(two)])
    assert (set(found.sequence.tolist()) == {-1}) == (by_order > 2 * common + 4)


# What all ranks agree on


def entry(node: int, matched: int, end: int = 0, follows: tuple[int, ...] = (), **more: object) -> CommunicationEntry:
    told = {"type": COLL, "collective": int(CollectiveType.ALL_REDUCE), "members": 2, "size": 8} | more
    return CommunicationEntry(
        node=node,
        matched=matched,
        end_ns=end,
        length_ns=5,
        transfer_ns=5,
        kernel=-1,
        on_host=False,
        follows=follows,
        **told,
    )


def test_communication_comes_in_the_order_in_which_it_ended_for_the_last_member() -> None:
    first, second = [entry(1, 0, 10), entry(2, 1, 20)], [entry(3, 1, 21), entry(4, 0, 30)]
    assert common_order([first, second]) == [[2, 1], [3, 4]]
    assert common_order([second, first]) == [[3, 4], [2, 1]]
    assert common_order([[entry(1, 0, 1), entry(2, 1, 0)]]) == [[2, 1]]
    assert common_order([]) == []


def test_ends_of_ranks_that_began_at_different_times_are_compared_on_one_clock() -> None:
    issued = [[entry(1, 0, 100)], [entry(1, 0, 10), entry(2, 1, 20)], [entry(1, 1, 15)]]
    assert common_order(issued)[1] == [2, 1]
    assert common_order(on_job_clock(issued, [0, 90, 95]))[1] == [1, 2]


def test_a_receive_comes_after_its_send_however_early_it_ended() -> None:
    send, receive = entry(1, 0, 50, type=SEND), entry(1, 0, 0, type=RECV)
    assert common_order([[send, entry(2, 1, 40)], [receive, entry(2, 1, 40)]]) == [[2, 1], [2, 1]]
    assert common_order([[receive, entry(2, 1, 40)], [entry(2, 1, 40)]]) == [[1, 2], [2]]


@pytest.mark.parametrize(("ranks", "more"), [(4, ""), (5, " -> 1 more")])
def test_a_circle_is_named_by_four_of_it(ranks: int, more: str) -> None:
    ring = [[entry(2, rank), entry(3, (rank + 1) % ranks, 0, (0,))] for rank in range(ranks)]
    node = r"all_reduce \(node [23] of the rank at \d\)"
    with pytest.raises(DataError, match=rf"a circle of {ranks}: {node} -> {node} -> {node} -> {node}{more}; check"):
        common_order(ring)


def test_a_message_in_a_circle_is_named_by_its_type() -> None:
    one = [entry(1, 0, type=SEND, collective=-1), entry(2, 1, 0, (0,))]
    two = [entry(1, 1), entry(2, 0, 0, (0,), type=SEND, collective=-1)]
    with pytest.raises(DataError, match=r"comm_send \(node 1 of the rank at 0\)"):
        common_order([one, two])


@pytest.mark.parametrize(
    ("kind", "common"),
    [
        (CollectiveType.ALL_GATHER, 6),
        (CollectiveType.GATHER, 6),
        (CollectiveType.ALL_REDUCE, 10),
        (CollectiveType.SCATTER, 10),
    ],
)
def test_shards_keep_their_sum_and_the_largest_decides_else(kind: CollectiveType, common: int) -> None:
    ranks = [[entry(1, 0, size=size, collective=int(kind)), entry(2, 1)] for size in (10, 1, common)]
    assert common_sizes(ranks) == [{} if size == common else {1: common} for size in (10, 1, common)]


def test_a_match_lacks_somebody_where_fewer_took_part_than_its_members() -> None:
    assert unmatched([[entry(1, 0)], [entry(1, 0), entry(2, 1), entry(3, 2, members=1)]]) == [[], [2]]
    assert unmatched([[entry(1, 0, members=0)], [entry(2, 0, members=0)], []]) == [[1], [2], []]
    assert unmatched([[entry(1, 0, members=0)], [entry(2, 0, members=0)]]) == [[], []]
    both = [entry(1, 0, type=SEND), entry(2, 0, type=RECV)]
    assert (unmatched([both]), unmatched([both[:1]])) == ([[]], [[1]])


# What others have to know of a graph


def test_a_summary_tells_members_sizes_and_times() -> None:
    g = GraphBuilder(rank=0, world_size=6)
    g.host("op", 100, 10)
    g.collective(150, 10, ranks=[0, 1, 2], comm_type=int(CollectiveType.BROADCAST), comm_size=8)
    g.collective(160, 10, ranks=[])
    g.activity("send", 170, 10, type=SEND, comm_dst=1)
    entries = communication_summary(g.build()).entries
    told = [entry[:8] for entry in entries]
    assert told == [
        (2, COLL, CollectiveType.BROADCAST, -1, 3, 8, 60, 10),
        (3, COLL, -1, -1, 6, 0, 70, 10),
        (4, SEND, -1, -1, 2, 0, 80, 10),
    ]
    g.metadata = {}
    assert [one.members for one in communication_summary(g.build()).entries] == [3, 0, 2]


def test_messages_of_one_kernel_share_its_time_by_bytes_with_those_of_their_direction() -> None:
    g = GraphBuilder(rank=0)
    for clock, length, kind, size in (
        (0, 0, SEND, 100),
        (0, 0, SEND, 300),
        (0, 40, RECV, 900),
        (50, 20, RECV, 900),
        (80, 30, SEND, 0),
    ):
        g.activity("message", clock, length, type=kind, comm_size=size)
    g.collective(120, 60, ranks=[0, 1])
    entries = communication_summary(g.build()).entries
    assert [entry.transfer_ns for entry in entries] == [10, 30, 40, 20, 0, 60]
    assert [entry.length_ns for entry in entries] == [0, 0, 40, 20, 30, 60]


def test_nobody_has_to_know_of_what_leads_outside() -> None:
    g = GraphBuilder(rank=0)
    for ranks in ([0, -1], [0, 1], [-1, 0], []):
        g.collective(0, 10, ranks=ranks, comm_src=-1)
    for more in ({"comm_dst": -1}, {"comm_dst": 0}, {"comm_src": -1}, {"comm_src": 1}):
        g.activity("message", 0, 10, type=SEND, **more)
    assert [one.node for one in communication_summary(g.build()).entries] == [2, 4, 6, 8]


def test_an_entry_follows_the_one_before_it_on_its_lane_and_the_last_known_of_others() -> None:
    g = GraphBuilder(rank=0)
    one = g.collective(0, 10, ranks=[0, 1], stream=7)
    two = g.collective(10, 10, ranks=[0, 1], stream=7, after=[(one, STREAM_ORDER)])
    gemm = g.activity("gemm", 20, 10, stream=8, after=[(two, STREAM_ORDER)])
    g.collective(30, 10, ranks=[0, 1], stream=9, after=[(gemm, STREAM_ORDER)])
    g.collective(40, 10, ranks=[0, 1], stream=7)
    assert [one.follows for one in communication_summary(g.build()).entries] == [(), (0,), (1,), (1,)]


# Changes of one rank's graph


def two_collectives() -> ExecutionGraph:
    g = GraphBuilder(rank=0)
    for clock in (0, 10):
        g.collective(clock, 5, ranks=[0, 1], comm_size=8, stream=clock)
    return g.build()


def test_collectives_are_chained_in_the_order_agreed_on() -> None:
    graph = order_collectives(two_collectives(), [2, 1])
    assert graph.start_ns.tolist() == [10, 0]
    assert [graph.data_deps[row].tolist() for row in range(2)] == [[], [1]]
    kinds = graph.attributes["data_dep_kinds"]
    assert isinstance(kinds, Ragged)
    assert kinds.values.tolist() == [DependencyKind.COLLECTIVE]


def test_sizes_agreed_on_are_those_of_their_nodes() -> None:
    graph = two_collectives()
    assert resize_communication(graph, {2: 77}).integers("comm_size").tolist() == [8, 77]
    assert graph.integers("comm_size").tolist() == [8, 8]


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
    assert lists("pg_ranks", restrict_to_ranks(g.build(), [7, 3], whole_groups=True)) == [[1, -1, 0, -1], [], []]


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
    whole = restrict_to_ranks(graph, [7, 3], whole_groups=True)
    assert told(whole) == (inside, [[], [1, -1, 0], [0, -1]], [[1, 2], [1, 2, 3], [4, 5]])


def test_a_graph_that_does_not_know_its_rank_is_none_of_the_ranks() -> None:
    with pytest.raises(DataError, match="of rank -1, which is not one of the 2"):
        restrict_to_ranks(GraphBuilder().build(), [0, 1])
