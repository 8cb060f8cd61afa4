"""What ranks agree on: one order of communication, one size of each, and what has no counterpart."""

from typing import Any

import pytest
from execgraph.converter.device_only import without_host
from execgraph.converter.ranks import (
    CommunicationEntry,
    common_order,
    common_sizes,
    communication_summary,
    compute_instead,
    match_entries,
    order_collectives,
    resize_communication,
    unmatched,
)
from execgraph.schema.columns import Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from support.for_simulator import ALL_GATHER, ALL_REDUCE, communicating, value
from support.generated import graphs_of
from support.graphs import STREAM_ORDER, GraphBuilder

COLLECTIVE = DependencyKind.COLLECTIVE


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
    orders = common_order(match_entries([communication_summary(graph) for graph in graphs]))
    ordered = [order_collectives(graph, order) for graph, order in zip(graphs, orders, strict=True)]
    assert names(ordered[0]) == names(ordered[1])
    for graph in ordered:
        assert graph.data_deps[1].tolist() == [1]
        kinds = graph.attributes["data_dep_kinds"]
        assert isinstance(kinds, Ragged)
        assert kinds.values.tolist() == [COLLECTIVE]


def test_an_order_keeps_what_each_rank_depends_on() -> None:
    summary = [_entry(1, "a", 0), _entry(2, "b", 10), _entry(3, "c", 5, follows=(1,))]
    assert common_order([summary, [_entry(7, "c", 0), _entry(8, "a", 20)]]) == [[2, 3, 1], [7, 8]]


def test_a_contradiction_between_ranks_is_refused_with_the_circle() -> None:
    forth, back = [_entry(1, "a", 0), _entry(2, "b", 5, (0,))], [_entry(1, "b", 0), _entry(2, "a", 5, (0,))]
    with pytest.raises(DataError, match=r"circle of 2: .*node 1 of .*node 2 of|circle of 2: .*node 2 of .*node 1 of"):
        common_order([forth, back])


def test_of_a_long_circle_the_first_are_named_and_the_others_counted() -> None:
    """Six ranks, each with two collectives the other way round than its neighbour; one before them is in no circle."""
    ring = [
        [_entry(1, "start", 0), _entry(2, str(rank), 5, (0,)), _entry(3, str((rank + 1) % 6), 9, (0, 1))]
        for rank in range(6)
    ]
    with pytest.raises(DataError, match=r"circle of 6: (all_reduce \(node 3 of the rank at \d\) -> ){4}2 more"):
        common_order(ring)


def test_two_ranks_that_each_send_before_they_receive_do_not_contradict() -> None:
    def rank(own: int, other: int) -> list[CommunicationEntry]:
        send, receive = f"{own} to {other}", f"{other} to {own}"
        return [
            _entry(1, send, 0, type=NodeType.COMM_SEND),
            _entry(2, receive, 5, (0,), type=NodeType.COMM_RECV),
        ]

    assert common_order([rank(0, 1), rank(1, 0)]) == [[1, 2], [1, 2]]


def test_issues_count_time_from_the_first_node_and_have_no_negative_size() -> None:
    g = GraphBuilder(rank=0)
    g.activity("kernel", 700, 10)
    g.collective(750, 10, ranks=[0, 1], comm_size=-5)
    g.collective(800, 10, ranks=[0, 1], comm_size=5)
    assert [
        (issue.node, issue.end_ns, issue.length_ns, issue.size) for issue in communication_summary(g.build()).entries
    ] == [
        (2, 60, 10, 0),
        (3, 110, 10, 5),
    ]


def test_dependencies_between_collectives_are_found_through_other_nodes() -> None:
    g = GraphBuilder(rank=0)
    first = g.collective(0, 10, ranks=[0, 1], stream=7)
    gemm = g.activity("gemm", 10, 10, stream=8, after=[(first, STREAM_ORDER)])
    g.collective(20, 10, ranks=[0, 1], stream=9, after=[(gemm, STREAM_ORDER)])
    g.collective(20, 10, ranks=[0, 1], stream=10)
    g.collective(40, 10, ranks=[0, 1], stream=10, after=[(4, STREAM_ORDER)])
    assert [entry.follows for entry in communication_summary(g.build()).entries] == [(), (0,), (), (2,)]


def test_uneven_members_get_one_size() -> None:
    def rank(size: int, kind: CollectiveType) -> list[CommunicationEntry]:
        return [_entry(1, "a", 0, size=size, collective=kind)]

    to_all = common_sizes([rank(100, CollectiveType.ALL_TO_ALL), rank(0, CollectiveType.ALL_TO_ALL)])
    assert to_all == [{}, {1: 100}]
    assert common_sizes([rank(100, ALL_GATHER), rank(1, ALL_GATHER)]) == [{1: 51}, {1: 51}]


def test_sizes_and_partners_agreed_on_are_written() -> None:
    graph = communicating()
    assert value(resize_communication(graph, {2: 77}), "comm_size") == 77
    assert compute_instead(graph, [2]).type.tolist() == [NodeType.COMP, NodeType.COMP]
    assert (value(graph, "comm_size"), graph.type[1]) == (4096, NodeType.COMM_COLL)


def test_groups_that_are_named_by_address_are_told_apart_by_which_came_first() -> None:
    def rank(number: int, exchange: str, reduction: str) -> ExecutionGraph:
        g = GraphBuilder(rank=number, world_size=2)
        for clock, name in enumerate((exchange, reduction, exchange)):
            g.collective(1_000 * clock, 500, ranks=[0, 1], comm_type=ALL_REDUCE, comm_size=64 + clock, pg_name=name)
        return g.build()

    graphs = [rank(0, "94594108284448", "94594108284999"), rank(1, "93891384002768", "93891384002000")]
    summaries = match_entries([communication_summary(graph) for graph in graphs])
    assert not any(unmatched(summaries))
    assert not any(common_sizes(summaries))


def test_communication_without_its_counterparts_is_found() -> None:
    def lacking(*graphs: ExecutionGraph) -> list[list[int]]:
        return unmatched(match_entries([communication_summary(graph) for graph in graphs]))

    alone = communicating(rank=0)
    assert lacking(alone, communicating(rank=1)) == [[], []]
    assert lacking(alone, communicating(rank=1, comm_type=ALL_GATHER)) == [[2], [2]]
    send = communicating(type=NodeType.COMM_SEND, rank=0, comm_dst=1)
    assert lacking(send, communicating(type=NodeType.COMM_RECV, rank=1, comm_src=0)) == [[], []]
    assert lacking(send, GraphBuilder(rank=1).build()) == [[2], []]


@pytest.mark.parametrize("job", ["ddp", "moe", "pipeline", "dlrm"])
def test_members_of_a_whole_job_all_have_their_counterparts(job: str) -> None:
    for graphs in (graphs_of(job, 4), [without_host(graph) for graph in graphs_of(job, 4)]):
        summaries = match_entries([communication_summary(graph) for graph in graphs])
        assert not any(unmatched(summaries))
        assert not any(common_sizes(summaries))
        assert [sorted(order) for order in common_order(summaries)] == [
            [i.node for i in issued] for issued in summaries
        ]


def _entry(node: int, matched: str, end: int, follows: tuple[int, ...] = (), **more: Any) -> CommunicationEntry:
    told = {"type": NodeType.COMM_COLL, "collective": ALL_REDUCE, "members": 2, "size": 8, **more}
    return CommunicationEntry(
        node=node,
        matched=int.from_bytes(matched.encode(), "big"),
        end_ns=end,
        length_ns=5,
        transfer_ns=5,
        kernel=-1,
        on_host=False,
        follows=follows,
        **told,
    )
