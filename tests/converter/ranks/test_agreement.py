"""What ranks have to know of each other, and what they agree on: one order, one size of each, who waits for whom.

When nodes and ranks began, and how much later nodes could have ended without their rank ending later.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from execgraph.converter.ranks import (
    Call,
    Calls,
    SimulatedCalls,
    begin_of_ranks,
    common_order,
    common_positions,
    common_sizes,
    communication_summary,
    compute_instead,
    contradictions,
    lacks_members,
    matched_calls,
    measured_times,
    order_collectives,
    simulated_order,
    with_deferred_ends,
    with_values,
)
from execgraph.converter.ranks.calls import slack_ns
from execgraph.converter.rewiring import without_host
from execgraph.schema.columns import ABSENT, Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from support.for_simulator import ALL_GATHER, ALL_REDUCE, Issued, communicating, follows, matched_job, value
from support.generated import graphs_of
from support.graphs import STREAM_ORDER, GraphBuilder

COLL, SEND, RECV = NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV
LONG, SHORT = 0, 1
Row = tuple[int, int, int, int]
"""A rank, the number of its match, and when it started and ended that, since the rank's first node."""


def entry(node: int, matched: int, end: int = 0, follows: tuple[int, ...] = (), **more: Any) -> Issued:
    return Issued(node, matched, end - 5, end, follows, **more)


def summary(graph: ExecutionGraph) -> SimulatedCalls:
    return communication_summary(graph)


def matched(graphs: list[ExecutionGraph]) -> SimulatedCalls:
    return matched_calls([communication_summary(graph) for graph in graphs])


def changed_sizes(calls: SimulatedCalls) -> list[dict[int, int]]:
    sizes = common_sizes(calls)
    return calls.by_node(sizes, sizes != calls.size)


def lacking(calls: SimulatedCalls) -> list[list[int]]:
    return [*map(list, calls.by_node(calls.node, lacks_members(calls)))]


# What others have to know of a graph


def test_a_summary_tells_members_sizes_and_times() -> None:
    g = GraphBuilder(rank=0, world_size=6)
    g.host("op", 100, 10)
    g.collective(150, 10, ranks=[0, 1, 2], comm_type=int(CollectiveType.BROADCAST), comm_size=8)
    g.collective(160, 10, ranks=[], comm_size=-5)
    g.activity("send", 170, 10, type=SEND, comm_dst=1)
    calls = summary(g.build())
    columns = (calls.node, calls.type, calls.kind, calls.members, calls.size, calls.start_ns, calls.end_ns)
    assert [*zip(*(column.tolist() for column in columns), strict=True)] == [
        (2, COLL, CollectiveType.BROADCAST, 3, 8, 50, 60),
        (3, COLL, -1, 6, 0, 60, 70),
        (4, SEND, -1, 2, 0, 70, 80),
    ]
    g.metadata = {}
    assert summary(g.build()).members.tolist() == [3, 0, 2]


def test_messages_of_one_kernel_share_its_time_by_bytes_with_those_of_their_direction(g: GraphBuilder) -> None:
    for clock, length, kind, size in (
        (0, 0, SEND, 100),
        (0, 0, SEND, 300),
        (0, 40, RECV, 900),
        (50, 20, RECV, 900),
        (80, 30, SEND, 0),
    ):
        g.activity("message", clock, length, type=kind, comm_size=size)
    g.collective(120, 60, ranks=[0, 1])
    calls = summary(g.build())
    assert calls.transfer_ns.tolist() == [10, 30, 40, 20, 0, 60]
    assert (calls.end_ns - calls.start_ns).tolist() == [0, 0, 40, 20, 30, 60]


def test_nobody_has_to_know_of_messages_that_lead_outside(g: GraphBuilder) -> None:
    for ranks in ([0, 1], []):
        g.collective(0, 10, ranks=ranks, comm_src=-1)
    for more in ({"comm_dst": -1}, {"comm_dst": 0}, {"comm_src": -1}, {"comm_src": 1}):
        g.activity("message", 0, 10, type=SEND, **more)
    assert summary(g.build()).node.tolist() == [1, 2, 4, 6]


def test_a_call_follows_the_one_before_it_on_its_lane_and_the_last_known_of_others(g: GraphBuilder) -> None:
    one = g.collective(0, 10, ranks=[0, 1], stream=7)
    two = g.collective(10, 10, ranks=[0, 1], stream=7, after=[(one, STREAM_ORDER)])
    gemm = g.activity("gemm", 20, 10, stream=8, after=[(two, STREAM_ORDER)])
    g.collective(30, 10, ranks=[0, 1], stream=9, after=[(gemm, STREAM_ORDER)])
    g.collective(40, 10, ranks=[0, 1], stream=7)
    assert follows(summary(g.build())) == [[], [0], [1], [1]]


def test_what_followed_a_call_that_is_left_out_follows_those_before_it() -> None:
    calls = matched_job([entry(1, 0), entry(2, 1, 0, (0,)), entry(3, 2, 0, (1,))], [entry(4, 0)])
    kept = calls.without(calls.node == 2)
    assert kept.node.tolist() == [1, 3, 4]
    assert follows(kept) == [[], [0], []]


# One order


def crossed(rank: int) -> ExecutionGraph:
    """Two ranks with a collective of either of two groups on streams of their own; each rank began with another."""
    g = GraphBuilder(rank=rank, world_size=2)
    for place, name in enumerate("ab" if rank == 0 else "ba"):
        g.collective(
            1_000 * place, 5_000, ranks=[0, 1], name=f"nccl {name}", stream=ord(name), pg_name=name, comm_type=ALL_REDUCE, comm_size=64
        )  # fmt: skip
    return g.build()


def names(graph: ExecutionGraph) -> list[str]:
    return [graph.name[row] for row in range(len(graph))]


def test_ranks_agree_on_an_order_where_their_dependencies_leave_it_open() -> None:
    graphs = [crossed(rank) for rank in range(2)]
    ordered = [
        order_collectives(graph, order) for graph, order in zip(graphs, common_order(matched(graphs)), strict=True)
    ]
    assert names(ordered[0]) == names(ordered[1])
    for graph in ordered:
        assert graph.data_deps[1].tolist() == [1]
        kinds = graph.attributes["data_dep_kinds"]
        assert isinstance(kinds, Ragged)
        assert kinds.values.tolist() == [DependencyKind.COLLECTIVE]


FIRST, SECOND = [entry(1, 0, 10), entry(2, 1, 20)], [entry(3, 1, 21), entry(4, 0, 30)]
SENT, RECEIVED, LATER = entry(1, 0, 50, type=SEND), entry(1, 0, 0, type=RECV), entry(2, 1, 40)
SWAPPED = ([entry(1, own, 0, type=SEND), entry(2, 1 - own, 5, (0,), type=RECV)] for own in range(2))
DEPENDENT = [entry(1, 0), entry(2, 1, 10), entry(3, 2, 5, (1,))], [entry(7, 2), entry(8, 0, 20)]
ORDERS: dict[str, tuple[Sequence[list[Issued]], list[list[int]]]] = {
    "by when it ended for the last member": ((FIRST, SECOND), [[2, 1], [3, 4]]),
    "whichever rank is first": ((SECOND, FIRST), [[3, 4], [2, 1]]),
    "of one rank": (([entry(1, 0, 1), entry(2, 1, 0)],), [[2, 1]]), "of no rank": ((), []),
    "after what a rank depends on": (DEPENDENT, [[2, 3, 1], [7, 8]]),
    "a receive after its send however early it ended": (([SENT, LATER], [RECEIVED, LATER]), [[2, 1], [2, 1]]),
    "a receive after its send on a rank with both": (([RECEIVED, LATER], [LATER]), [[1, 2], [2]]),
    "ranks that each send before they receive": ([*SWAPPED], [[1, 2], [1, 2]]),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDERS)
def test_communication_has_one_order_on_all_ranks(case: str) -> None:
    ranks, orders = ORDERS[case]
    assert common_order(matched_job(*ranks)) == orders


def test_ends_of_ranks_that_began_at_different_times_are_compared_on_one_clock() -> None:
    """Rank 1 began 1000 ns after rank 0, so that what it did first ended last."""

    def rank(number: int, *collectives: tuple[str, int]) -> ExecutionGraph:
        g = GraphBuilder(rank=number, world_size=3)
        g.host("op", 0, 1)
        for name, end in collectives:
            ranks = [0, 1] if name in "ab" else [number]
            g.collective(end - 10, 10, ranks=ranks, stream=ord(name), pg_name=name, comm_type=ALL_REDUCE)
        return g.build()

    calls = matched([rank(0, ("a", 1_500), ("b", 2_500)), rank(1, ("a", 500), ("b", 1_500))])
    assert calls.offset_ns.tolist() == [0, 1_000]
    assert calls.end_ns.tolist() == [1_500, 2_500] * 2


def test_a_contradiction_between_ranks_is_refused_with_the_circle() -> None:
    forth, back = [entry(1, 0), entry(2, 1, 5, (0,))], [entry(1, 1), entry(2, 0, 5, (0,))]
    with pytest.raises(DataError, match=r"circle of 2: .*node 1 of .*node 2 of|circle of 2: .*node 2 of .*node 1 of"):
        common_order(matched_job(forth, back))


@pytest.mark.parametrize(("ranks", "more"), [(4, ""), (5, " -> 1 more"), (6, " -> 2 more")])
def test_a_circle_is_named_by_four_of_it(ranks: int, more: str) -> None:
    """Each rank has two collectives the other way round than its neighbour; one before them is in no circle."""
    ring = [
        [entry(1, ranks), entry(2, rank, 5, (0,)), entry(3, (rank + 1) % ranks, 9, (0, 1))] for rank in range(ranks)
    ]
    node = r"all_reduce \(node [23] of the rank at \d\)"
    with pytest.raises(DataError, match=rf"a circle of {ranks}: {node} -> {node} -> {node} -> {node}{more}; check"):
        common_order(matched_job(*ring))


def test_a_message_in_a_circle_is_named_by_its_type() -> None:
    one = [entry(1, 0, type=SEND, kind=-1), entry(2, 1, 0, (0,))]
    two = [entry(1, 1), entry(2, 0, 0, (0,), type=SEND, kind=-1)]
    with pytest.raises(DataError, match=r"comm_send \(node 1 of the rank at 0\)"):
        common_order(matched_job(one, two))


# Sizes and partners


@pytest.mark.parametrize(
    ("kind", "common"),
    [
        (CollectiveType.ALL_GATHER, 6), (CollectiveType.GATHER, 6), (CollectiveType.ALL_REDUCE, 10),
        (CollectiveType.SCATTER, 10), (CollectiveType.ALL_TO_ALL, 10),
    ],
)  # fmt: skip
def test_shards_keep_their_sum_and_the_largest_decides_else(kind: CollectiveType, common: int) -> None:
    ranks = [[entry(1, 0, size=size, kind=int(kind)), entry(2, 1)] for size in (10, 1, common)]
    assert changed_sizes(matched_job(*ranks)) == [{} if size == common else {1: common} for size in (10, 1, common)]


def test_a_match_lacks_somebody_where_fewer_took_part_than_its_members_or_no_counterpart_did() -> None:
    assert lacking(matched_job([entry(1, 0)], [entry(1, 0), entry(2, 1), entry(3, 2, members=1)])) == [[], [2]]
    assert lacking(matched_job([entry(1, 0, members=0)], [entry(2, 0, members=0)], [])) == [[1], [2], []]
    assert lacking(matched_job([entry(1, 0, members=0)], [entry(2, 0, members=0)])) == [[], []]
    both = [entry(1, 0, type=SEND), entry(2, 0, type=RECV)]
    assert (lacking(matched_job(both)), lacking(matched_job(both[:1]))) == ([[]], [[1]])
    alone = communicating(rank=0)
    assert lacking(matched([alone, communicating(rank=1)])) == [[], []]
    assert lacking(matched([alone, communicating(rank=1, comm_type=ALL_GATHER)])) == [[2], [2]]
    send = communicating(type=SEND, rank=0, comm_dst=1)
    assert lacking(matched([send, communicating(type=RECV, rank=1, comm_src=0)])) == [[], []]
    assert lacking(matched([send, GraphBuilder(rank=1).build()])) == [[2], []]


def test_groups_that_are_named_by_address_are_told_apart_by_which_came_first() -> None:
    def rank(number: int, exchange: str, reduction: str) -> ExecutionGraph:
        g = GraphBuilder(rank=number, world_size=2)
        for clock, name in enumerate((exchange, reduction, exchange)):
            g.collective(1_000 * clock, 500, ranks=[0, 1], comm_type=ALL_REDUCE, comm_size=64 + clock, pg_name=name)
        return g.build()

    calls = matched([rank(0, "94594108284448", "94594108284999"), rank(1, "93891384002768", "93891384002000")])
    assert not lacks_members(calls).any()
    assert not any(changed_sizes(calls))


@pytest.mark.parametrize("job", ["ddp", "moe", "pipeline", "dlrm"])
def test_members_of_a_whole_job_all_have_their_counterparts(job: str) -> None:
    for graphs in (graphs_of(job, 4), [without_host(graph) for graph in graphs_of(job, 4)]):
        calls = matched(graphs)
        assert not lacks_members(calls).any()
        assert not any(changed_sizes(calls))
        assert [sorted(order) for order in common_order(calls)] == [
            calls.node[calls.rank == rank].tolist() for rank in range(4)
        ]


# Collectives that may wait for longer ones beside which they ran


def at(matched: int, start_ns: int, end_ns: int, slack_ns: int = 0, **more: Any) -> Issued:
    return Issued(matched, matched, start_ns, end_ns, slack_ns=slack_ns, **more)


def short(slack: int = 70, start_ns: int = 20, **more: Any) -> Issued:
    return at(SHORT, start_ns, 40, slack_ns=slack, **more)


WAITING, AT_ONCE = {LONG: 100, SHORT: 101}, {LONG: 100, SHORT: 40}
MESSAGE: dict[str, Any] = {"type": SEND, "kind": -1}
DEFERRED: dict[str, tuple[list[list[Issued]], list[dict[int, int]]]] = {
    "waits if nobody needs it sooner": ([[at(LONG, 0, 100), short()]] * 2, [WAITING] * 2),
    "does not if a rank needs it sooner": ([[at(LONG, 0, 100), short(slack)] for slack in (70, 50)], [AT_ONCE] * 2),
    "does not if a member ran it by itself": ([[at(LONG, 0, 100), short()], [short()]], [AT_ONCE, {SHORT: 40}]),
    "began when its last member came": (
        [[short(start_ns=start), at(LONG, 10, 100)] for start in (0, 20)],
        [WAITING] * 2,
    ),
    "began before the longer one": ([[short(start_ns=0), at(LONG, 10, 100)]] * 2, [AT_ONCE] * 2),
    "host threads do not wait": ([[at(LONG, 0, 100, on_host=True), short(on_host=True)]] * 2, [AT_ONCE] * 2),
    "waits for the last that is early enough": (
        [[at(0, 0, 100), at(1, 5, 150), at(2, 10, 200), at(3, 20, 40, slack_ns=150)]] * 2,
        [{0: 100, 1: 150, 2: 200, 3: 151}] * 2,
    ),
    "may just end later": ([[at(LONG, 0, 100), short(61)]] * 2, [WAITING] * 2),
    "may end no later": ([[at(LONG, 0, 100), short(60)]] * 2, [AT_ONCE] * 2),
    "those that follow or end at once do not wait": (
        [[at(0, 0, 20), at(1, 20, 40, slack_ns=70), at(2, 40, 60, slack_ns=70), at(3, 45, 60)]] * 2,
        [{0: 20, 1: 40, 2: 60, 3: 60}] * 2,
    ),
    "messages are not awaited": ([[at(LONG, 0, 100, **MESSAGE), short()]] * 2, [AT_ONCE] * 2),
    "messages are not deferred": ([[at(LONG, 0, 100), short(**MESSAGE)]] * 2, [AT_ONCE] * 2),
    "waits for the last member of the longer one": (
        [[at(LONG, 0, end), short(90)] for end in (100, 104)],
        [{LONG: 100, SHORT: 105}, {LONG: 104, SHORT: 105}],
    ),
}


@pytest.mark.parametrize("case", DEFERRED)
def test_a_collective_within_a_longer_one(case: str) -> None:
    ranks, expected = DEFERRED[case]
    calls = with_deferred_ends(matched_job(*ranks))
    assert calls.by_node(calls.end_ns, np.ones(len(calls), np.bool_)) == expected


# Sends that waited for their receiver


def message(type, node, matched, start, end, follows=(), kernel=9):
    return Issued(node, matched, start, end, follows, type=type, kind=-1, kernel=kernel)


def ready(*ranks: list[Issued]) -> list[dict[int, int]]:
    """The tags of ready messages by node, of each rank."""
    calls = matched_job(*ranks)
    _, tags = simulated_order(calls, common_positions(calls))
    return calls.by_node(tags, tags != ABSENT)


@pytest.mark.parametrize(("sent_until", "is_awaited"), [(60, True), (50, False)])
def test_a_send_that_ended_after_the_receiver_began_gets_a_ready_message(sent_until: int, is_awaited: bool) -> None:
    sender, receiver = ready([message(SEND, 1, 7, 0, sent_until)], [message(RECV, 2, 7, 50, 70)])
    assert ([*sender], [*receiver]) == ([1] * is_awaited, [2] * is_awaited)
    assert [*sender.values()] == [*receiver.values()]


def test_a_receive_stands_where_its_send_is() -> None:
    reduced = Issued(5, 1, 80, 90)
    calls = matched_job([message(SEND, 1, 7, 0, 60), reduced], [message(RECV, 2, 7, 50, 100), reduced])
    send, first, receive, second = simulated_order(calls, common_positions(calls))[0].tolist()
    assert send == receive < first == second


def test_a_message_whose_receiver_depends_on_what_comes_after_the_send_is_sent_at_once() -> None:
    """The root's broadcast ended before the other rank, which sends first, had begun it."""
    broadcast = int(CollectiveType.BROADCAST)
    root = [Issued(1, 1, 0, 10, kind=broadcast), message(RECV, 2, 7, 20, 40, follows=(0,))]
    sender = [message(SEND, 1, 7, 0, 40), Issued(2, 1, 40, 50, (0,), kind=broadcast)]
    assert ready(root, sender) == [{}, {}]


def test_messages_of_one_kernel_are_ready_when_the_kernel_is() -> None:
    """Two ranks swap messages; the second one of a kernel has its whole length."""

    def swap(sent: int, received: int) -> list[Issued]:
        return [message(SEND, 1, sent, 0, 0), message(RECV, 2, received, 0, 100, (0,))]

    assert [*map(list, ready(swap(0, 1), swap(1, 0)))] == [[1, 2], [1, 2]]


def test_a_kernel_ends_with_its_longest_message() -> None:
    """The longest one is neither first nor last; rank 1 receives the last one."""
    sender = [message(SEND, node, node, 0, end) for node, end in ((1, 10), (2, 60), (3, 20))]
    assert [*map(list, ready(sender, [message(RECV, 4, 3, 50, 70)]))] == [[3], [4]]


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


def test_values_agreed_on_are_those_of_their_nodes() -> None:
    graph = two_collectives()
    assert with_values(graph, "comm_size", {2: 77}).integers("comm_size").tolist() == [8, 77]
    assert graph.integers("comm_size").tolist() == [8, 8]


def test_what_lacks_a_partner_is_computed() -> None:
    graph = communicating()
    assert compute_instead(graph, [2]).type.tolist() == [NodeType.COMP, NodeType.COMP]
    assert (value(graph, "comm_size"), graph.type[1]) == (4096, NodeType.COMM_COLL)


# When ranks and nodes began


def calls_of(*rows, kind=int(CollectiveType.ALL_REDUCE), messages=()):
    types = [SEND if is_message else COLL for is_message in messages or [kind < 0] * len(rows)]
    return Calls.of(
        Call(0, type_, kind=kind, rank=rank, matched=matched, start_ns=start, end_ns=end)
        for type_, (rank, matched, start, end) in zip(types, rows, strict=True)
    )


def begins(ranks, *rows, **more):
    return begin_of_ranks(ranks, calls_of(*rows, **more)).tolist()


def shared(later: int, match: int = 5, lasts: int = 100) -> tuple[Row, Row]:
    """A collective that ended so much earlier after the beginning of rank 1."""
    return (0, match, 1_000 - lasts, 1_000), (1, match, 1_000 - later - lasts, 1_000 - later)


CROSSED = (0, 5, 999, 1_000), (1, 5, 700, 800)
"""Rank 1 begins it 300 ns before rank 0 ends it, and ends it 199 ns before rank 0 begins it."""
LATE, AT_THE_SAME_TIME = ([row for match in (6, 7) for row in shared(later, match, lasts=400)] for later in (500, 0))
CONTRADICTING = (*shared(500, 5, lasts=1), *shared(10, 6, lasts=1), *shared(20, 7, lasts=1))
PAIRS = ((0, 1, 90, 100), (1, 1, 70, 80), (2, 2, 90, 100), (3, 2, 40, 50))
BEGINS: dict[str, tuple[Sequence[Row], list[int]]] = {
    "apart by how they end a collective": (((0, 5, 70, 100), (1, 5, 10, 30)), [0, 70]),
    "the other one first": (((0, 5, 10, 30), (1, 5, 70, 100)), [70, 0]),
    "by the median of all shared ends": ((*shared(40), *shared(60, match=6), *shared(50, match=7)), [0, 50]),
    "no member ends before another has begun": ((*CROSSED, *LATE), [0, 300]),
    "no member begins after another has ended": ((*CROSSED, *AT_THE_SAME_TIME), [0, 199]),
    "bounds that contradict each other leave the median": (CONTRADICTING, [0, 20]),
    "two pairs": (PAIRS, [0, 20, 0, 50]),
    "a pair moves as a whole": ((*PAIRS, (1, 3, 190, 200), (2, 3, 90, 100)), [0, 20, 120, 170]),
    "a pair moves the other way": ((*PAIRS, (1, 3, 90, 100), (2, 3, 190, 200)), [80, 100, 0, 50]),
    "who shares nothing begins with the first": (((0, 5, 10, 30), (2, 5, 70, 100)), [70, 0, 0]),
    "nobody shares anything": ((), [0, 0]),
    "twice in a match says nothing of others": (((0, 5, 0, 100), (0, 5, 0, 30), (1, 5, 0, 60)), [0, 40]),
}


def ended(*ends_us: tuple[int, int], lasts: int = 400) -> list[Row]:
    """Collectives that rank 0 and rank 1 ended then, the last of them to come after so many µs."""
    return [
        (rank, match, (end - lasts) * 1000, end * 1000)
        for match, ends in enumerate(ends_us)
        for rank, end in enumerate(ends)
    ]


APART: dict[str, tuple[list[Row], str]] = {
    "a clock that is fast": (ended((1000, 900), (2000, 1800), (3500, 3150), (5000, 4500)), "1 ran 0.9 times as fast as"),
    "half the length of one rank": (ended((1000, 800), (2000, 1900), (3000, 2700), (4000, 3990), lasts=200), "offset of their clocks:"),
    "two runs": (ended((1000, 1000), (9000, 3000), (10_000, 4000), lasts=50), "up to 6.00 ms apart"),
    "nothing, if the last was not late": (ended((1000, 900), (2000, 1910), (3500, 3380), (5000, 4890)), ""),
    "nothing, if clocks drift as they do": (ended(*((end, end * 10_001 // 10_000) for end in range(0, 10**7, 10**6))), ""),
    "nothing, by two collectives": (ended((1000, 900), (9000, 4500)), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", APART)
def test_clocks_that_no_offset_explains_are_named_and_align_nothing(case: str) -> None:
    rows, told = APART[case]
    lines = contradictions(calls_of(*rows), [0, 1])
    assert len(lines) == bool(told) and all(told in line for line in lines)
    assert (begins(2, *rows) == [0, 0]) is bool(told)


@pytest.mark.parametrize("case", BEGINS)
def test_ranks_begin(case: str) -> None:
    rows, expected = BEGINS[case]
    assert begins(len(expected), *rows) == expected


@pytest.mark.parametrize(
    ("kind", "later"), [(CollectiveType.ALL_REDUCE, 300), (CollectiveType.BROADCAST, 500), (-1, 500)]
)
def test_only_a_collective_without_a_root_cannot_end_before_all_have_begun(kind: int, later: int) -> None:
    assert begins(2, *CROSSED, *LATE, kind=int(kind)) == [0, later]


def test_collectives_come_before_messages_between_the_same_ranks() -> None:
    rows = (0, 5, 0, 100), (1, 5, 0, 90), (0, 6, 0, 100), (1, 6, 0, 10)
    broadcast = int(CollectiveType.BROADCAST)
    assert begins(2, *rows, kind=broadcast, messages=(False, False, True, True)) == [0, 10]


def test_times_count_from_the_first_start_on_the_hosts_clock() -> None:
    g = GraphBuilder(rank=0, clock_offset_ns=1_000)
    g.host("op", 5_000, 10)
    g.activity("kernel", 4_300, 20, overlap_ns=7)
    begin, start, end = measured_times(g.build())
    assert (begin, start.tolist(), end.tolist()) == (5_000, [0, 300], [10, 327])


def test_a_rank_without_a_host_begins_with_the_delay_of_its_first_activity(g: GraphBuilder) -> None:
    """A gap alone, and the delay of an activity that follows another one, come later."""
    first = g.activity("first", 1_000, 10, gap=30, host_delay_ns=200)
    g.activity("second", 1_100, 10, gap=50, host_delay_ns=900, after=[(first, STREAM_ORDER)])
    g.activity("alone", 1_000, 10, stream=8, gap=500)
    assert measured_times(g.build()).begin_ns == 1_000 - 230


def test_metadata_has_no_time(g: GraphBuilder) -> None:
    assert measured_times(g.build()).begin_ns == 0
    g.host("group", 0, 0, type=NodeType.METADATA)
    assert measured_times(g.build()).begin_ns == 0
    g.host("op", 5_000, 10)
    assert measured_times(g.build()).begin_ns == 5_000


def test_a_node_may_end_when_the_first_that_needs_it_must_begin(g: GraphBuilder) -> None:
    needed = g.activity("needed", 0, 10, stream=7)
    early = g.activity("early", 0, 4, stream=8)
    idle = g.activity("idle", 0, 2, stream=9)
    g.activity("last", 10, 20, stream=7, after=[(needed, STREAM_ORDER), (early, STREAM_ORDER)])
    g.activity("short", 5, 3, stream=9, gap_ns=1, after=[(early, STREAM_ORDER), (idle, STREAM_ORDER)])
    graph = g.build()
    slack = dict(zip(graph.name.tolist(), slack_ns(graph, measured_times(graph)).tolist(), strict=True))
    assert slack == {"needed": 0, "early": 6, "idle": 24, "last": 0, "short": 22}


def test_a_node_that_another_one_overtook_has_no_slack(g: GraphBuilder) -> None:
    """By the times measured the second began before the first, on which it depends, had ended."""
    first = g.activity("first", 0, 10)
    g.activity("second", 7, 10, after=[(first, STREAM_ORDER)])
    graph = g.build()
    assert slack_ns(graph, measured_times(graph)).tolist() == [0, 0]
