"""What a graph becomes for ASTRA-sim, on graphs small enough to see it."""

from typing import Any

import numpy as np
import pytest
from execgraph.converter import lower_for_target
from execgraph.converter.edit import rows_of_graph, without_host
from execgraph.converter.ranks import (
    CommunicationEntry,
    common_order,
    common_sizes,
    communication_summary,
    compute_instead,
    match_entries,
    order_collectives,
    resize_communication,
    restrict_to_ranks,
    unmatched,
)
from execgraph.converter.targets import LEAST_BYTES, TargetReport, for_astra_sim
from execgraph.converter.targets.collectives import LOWERED, PLAYED
from execgraph.schema.columns import ABSENT, Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from execgraph.tools.replay import replay
from support.generated import graphs_of
from support.graphs import EVENT_WAIT, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder

COLLECTIVE = DependencyKind.COLLECTIVE
ALL_REDUCE, ALL_GATHER = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER


def communicating(type: NodeType = NodeType.COMM_COLL, rank: int = 0, **attributes: Any) -> ExecutionGraph:
    """A kernel, then one communication of 5 µs in a job of four ranks."""
    g = GraphBuilder(rank=rank, world_size=4)
    gemm = g.activity("gemm", 0, 10_000)
    told = {"comm_type": ALL_REDUCE, "pg_ranks": [0, 1], "pg_name": "5"} if type is NodeType.COMM_COLL else {}
    g.activity(
        "nccl", 10_000, 5_000, type=type, after=[(gemm, STREAM_ORDER)], **{"comm_size": 4096, **told, **attributes}
    )
    return g.build()


def value(graph: ExecutionGraph, attribute: str, row: int = -1) -> int:
    return int(graph.integers(attribute)[row])


def targets(graph: ExecutionGraph, **options: Any) -> ExecutionGraph:
    return for_astra_sim(graph, **options)[0]


def times(graph: ExecutionGraph) -> list[tuple[int, int]]:
    """Start in ns and length in µs of each node, in the order of starts."""
    return sorted(zip(graph.start_ns.tolist(), graph.duration_micros.tolist(), strict=True))


def report(graph: ExecutionGraph, **options: Any) -> TargetReport:
    return for_astra_sim(graph, **options)[1]


# groups


def test_a_group_is_named_by_the_number_of_its_ranks() -> None:
    played = targets(communicating(), groups={(0, 1): 7})
    assert played.texts("pg_name")[1] == "7"
    assert played.texts("pg_recorded")[1] == "5"


@pytest.mark.parametrize(("groups", "name"), [({(0, 1): 7}, "7"), (None, "5")])
def test_a_generic_graph_names_groups_by_number_only_if_they_are_given(
    groups: dict[Any, int] | None, name: str
) -> None:
    assert lower_for_target(communicating(), "generic", groups).texts("pg_name")[1] == name


def test_the_group_of_all_simulated_ranks_has_no_name() -> None:
    assert targets(communicating(pg_ranks=[0, 1, 2, 3]), groups={}).texts("pg_name")[1] == ""
    assert targets(communicating(), world=(0, 1)).texts("pg_name")[1] == ""


def test_all_ranks_in_another_ring_order_are_a_group_of_their_own() -> None:
    assert targets(communicating(pg_ranks=[0, 2, 1, 3]), groups={(0, 2, 1, 3): 1}).texts("pg_name")[1] == "1"


def test_without_numbers_a_rank_numbers_its_own_groups_and_says_so() -> None:
    played, told = for_astra_sim(communicating())
    assert played.texts("pg_name")[1] == "1"
    assert told.groups == {(0, 1): 1}
    assert any("numbered as this rank knows them" in note for note in told.notes)


def test_a_group_that_the_numbers_lack_is_refused() -> None:
    with pytest.raises(DataError, match=r"lack the ranks \[0, 1\]"):
        for_astra_sim(communicating(), groups={(2, 3): 1})


@pytest.mark.parametrize(("number", "too_large"), [(2_147, False), (2_148, True)])
def test_a_group_number_that_the_simulator_cannot_bear_is_told(number: int, too_large: bool) -> None:
    g = GraphBuilder(rank=0, world_size=4)
    for clock, ranks in enumerate(([0, 1], [0, 2])):
        g.collective(1_000 * clock, 500, ranks=ranks, comm_type=ALL_REDUCE, comm_size=64)
    told = report(g.build(), groups={(0, 1): 1, (0, 2): number})
    assert any("more than the simulator can bear" in note for note in told.notes) == too_large


def test_unknown_ranks_are_taken_as_all_and_told() -> None:
    played, told = for_astra_sim(communicating(pg_ranks=[]))
    assert played.texts("pg_name")[1] == ""
    assert told.notes == ["1 collectives without recorded ranks are taken as ones of all ranks"]


# types and sizes


@pytest.mark.parametrize("kind", CollectiveType)
def test_every_collective_gets_a_type_that_runs(kind: CollectiveType) -> None:
    played, told = for_astra_sim(communicating(comm_type=kind))
    assert played.type[1] == NodeType.COMM_COLL
    assert value(played, "comm_type") in PLAYED
    assert value(played, "comm_size") == 4096
    assert bool(told.lowered) == (kind in LOWERED)


def test_a_lowered_type_is_counted_by_name() -> None:
    assert report(communicating(comm_type=CollectiveType.GATHER)).lowered == {"gather as all_gather": 1}


def test_a_barrier_without_data_still_holds_the_ranks_together() -> None:
    played = targets(communicating(comm_type=CollectiveType.BARRIER, comm_size=0))
    assert (played.type[1], value(played, "comm_type")) == (NodeType.COMM_COLL, ALL_REDUCE)
    assert value(played, "comm_size") == LEAST_BYTES


def test_a_small_all_gather_is_padded_and_a_large_one_is_not() -> None:
    small, told = for_astra_sim(communicating(comm_type=ALL_GATHER, comm_size=3))
    assert (value(small, "comm_size"), told.padded) == (LEAST_BYTES, 1)
    assert (
        value(targets(communicating(comm_type=ALL_GATHER, comm_size=LEAST_BYTES + 1)), "comm_size") == LEAST_BYTES + 1
    )
    assert value(targets(communicating(comm_size=3)), "comm_size") == 3


UNKNOWN = "to or from a rank that is unknown or not simulated"
SEND = {"type": NodeType.COMM_SEND, "comm_src": 0, "comm_dst": 1, "comm_tag": 0}


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"pg_ranks": [0]}, "in a group of one"),
        ({"pg_ranks": [1, 2]}, "in a group without this rank"),
        ({"pg_ranks": [0, 9]}, "in a group with ranks that are not simulated"),
        ({"comm_type": 42}, "of an unknown type"),
        ({"comm_type": ABSENT}, "of an unknown type"),
        ({"comm_size": 0}, "without data"),
        ({"comm_type": ALL_GATHER, "comm_size": 0}, "without data"),
        ({**SEND, "comm_dst": -1}, UNKNOWN),
        ({**SEND, "comm_dst": ABSENT}, UNKNOWN),
        ({**SEND, "comm_src": 2}, "of another rank"),
        ({**SEND, "comm_dst": 0}, "to the rank itself"),
        ({**SEND, "comm_dst": 4}, UNKNOWN),
        ({**SEND, "comm_tag": -1}, "with a tag out of range"),
        ({**SEND, "comm_size": 0}, "without data"),
    ],
)
def test_what_the_simulator_cannot_play_becomes_computation_of_the_measured_time(
    attributes: dict[str, Any], reason: str
) -> None:
    played, told = for_astra_sim(communicating(**attributes))
    assert played.type[1] == NodeType.COMP
    assert played.duration_micros[1] == 5
    assert told.as_computation == {reason: 1}
    assert played.texts("pg_name").codes[1] == -1


def test_messages_of_a_graph_that_does_not_know_its_rank_cannot_be_played() -> None:
    assert report(communicating(**{**SEND, "comm_src": ABSENT}, rank=-1)).as_computation == {UNKNOWN: 1}


def test_a_side_and_a_tag_that_are_not_recorded_are_the_own_rank_and_zero() -> None:
    names = ("comm_src", "comm_dst", "comm_tag")
    received = targets(communicating(type=NodeType.COMM_RECV, rank=2, comm_src=1))
    assert received.type[1] == NodeType.COMM_RECV
    assert [value(received, name) for name in names] == [1, 2, 0]
    sent = targets(communicating(type=NodeType.COMM_SEND, rank=2, comm_dst=1))
    assert sent.type[1] == NodeType.COMM_SEND
    assert [value(sent, name) for name in names] == [2, 1, 0]
    assert [value(sent, name, 0) for name in names] == [ABSENT] * 3
    assert "comm_src" not in targets(communicating()).attributes


def test_communication_that_the_host_recorded_is_not_on_the_host() -> None:
    g = GraphBuilder(rank=0, world_size=2)
    g.host("gloo", 0, 5_000, type=NodeType.COMM_COLL, comm_type=ALL_REDUCE, comm_size=8, pg_ranks=[0, 1])
    g.host("after", 5_000, 5_000, after=[(1, PROGRAM_ORDER)])
    assert targets(g.build()).integers("is_cpu_op").tolist() == [0, 1]


# nodes and dependencies


def test_metadata_goes_and_who_followed_it_follows_what_came_before() -> None:
    g = GraphBuilder(rank=0)
    first = g.host("first", 0, 5_000)
    meta = g.host("process_group:init", 5_000, 0, type=NodeType.METADATA, after=[(first, PROGRAM_ORDER)])
    more = g.host("process_group:init", 5_000, 0, type=NodeType.INVALID, after=[(meta, PROGRAM_ORDER)])
    g.host("second", 5_000, 5_000, after=[(more, PROGRAM_ORDER)])
    played, told = for_astra_sim(g.build())
    assert played.id.tolist() == [1, 2]
    assert [row.tolist() for row in (played.data_deps[0], played.data_deps[1])] == [[], [1]]
    assert told.removed == 2


def test_a_dependency_given_twice_is_there_once() -> None:
    g = GraphBuilder(rank=0)
    first = g.host("first", 0, 5_000)
    g.activity("kernel", 5_000, 5_000, after=[(first, LAUNCH), (first, STREAM_ORDER)])
    played = targets(g.build())
    assert played.data_deps[1].tolist() == [1]
    kinds = played.attributes["data_dep_kinds"]
    assert isinstance(kinds, Ragged)
    assert kinds[1].tolist() == [LAUNCH | STREAM_ORDER]


def test_how_a_wait_is_known_is_not_said_to_the_simulator() -> None:
    g = GraphBuilder(rank=0)
    first = g.activity("kernel", 0, 5_000)
    g.activity("kernel", 5_000, 5_000, stream=9, after=[(first, EVENT_WAIT | DependencyKind.CALL_ORDER)])
    kinds = targets(g.build()).attributes["data_dep_kinds"]
    assert isinstance(kinds, Ragged)
    assert kinds.values.tolist() == [EVENT_WAIT]


def test_a_dependency_on_no_node_and_a_cycle_are_refused() -> None:
    g = GraphBuilder(rank=0)
    g.host("op", 0, 5, after=[(9, PROGRAM_ORDER)])
    with pytest.raises(DataError, match="node 1 depends on node 9"):
        for_astra_sim(g.build())
    g = GraphBuilder(rank=0)
    g.host("chicken", 0, 5, after=[(2, PROGRAM_ORDER)])
    g.host("egg", 0, 5, after=[(1, PROGRAM_ORDER)])
    with pytest.raises(DataError, match="cycle"):
        for_astra_sim(g.build())


def test_a_graph_in_which_nothing_runs_is_refused() -> None:
    g = GraphBuilder(rank=0)
    g.host("process_group:init", 0, 0, type=NodeType.METADATA)
    with pytest.raises(DataError, match="no node that a simulator runs"):
        for_astra_sim(g.build())


def test_a_graph_in_any_order_comes_back_in_one_that_points_backward() -> None:
    g = GraphBuilder(rank=0)
    g.activity("last", 15_000, 10_000, id=30, after=[(20, STREAM_ORDER)])
    g.activity("middle", 5_000, 10_000, id=20, after=[(10, LAUNCH)])
    g.host("first", 0, 5_000, id=10)
    played = targets(g.build())
    assert [played.name[row] for row in range(3)] == ["first", "middle", "last"]
    assert [played.data_deps[row].tolist() for row in range(3)] == [[], [1], [2]]


def test_a_control_dependency_stays_only_where_data_dependencies_imply_it() -> None:
    g = GraphBuilder(rank=0)
    first = g.host("caller", 0, 5_000)
    second = g.host("between", 5_000, 5_000, after=[(first, PROGRAM_ORDER)])
    g.host("called", 10_000, 5_000, after=[(second, PROGRAM_ORDER)])
    g.host("other thread", 10_000, 5_000, thread=2)
    graph = g.build()
    graph.ctrl_deps = Ragged.of([[], [], [1], [1]])
    played, told = for_astra_sim(graph)
    assert [played.ctrl_deps[row].tolist() for row in range(4)] == [[], [], [1], []]
    assert told.control_removed == 1


@pytest.mark.parametrize("promote", ["sync", "all"])
def test_converted_graphs_keep_all_their_control_dependencies(promote: str) -> None:
    for graph in graphs_of("moe", promote=promote):
        played, told = for_astra_sim(graph)
        assert told.control_removed == 0
        assert len(played.ctrl_deps.values) == len(graph.ctrl_deps.values)


def test_the_graph_given_stays_as_it_is() -> None:
    graph = communicating(comm_type=CollectiveType.REDUCE)
    for_astra_sim(graph)
    assert value(graph, "comm_type") == CollectiveType.REDUCE
    assert "target" not in graph.metadata


# time


def test_idle_time_beside_work_on_another_thread_is_cut() -> None:
    g = GraphBuilder(rank=0)
    g.host("host idle", 0, 100_000, thread=1)
    g.host("work", 30_000, 60_000, thread=2)
    played, told = for_astra_sim(g.build())
    assert list(played.name) == ["work", "host idle"]
    assert played.duration_micros.tolist() == [60, 40]
    assert played.duration_ns.tolist() == [60_000, 100_000]
    assert told.idle_dropped_us == 60


def test_idle_time_of_two_threads_at_once_counts_once() -> None:
    g = GraphBuilder(rank=0)
    g.host("host idle", 0, 100_000, thread=1)
    g.host("host idle", 50_000, 100_000, thread=2)
    assert targets(g.build()).duration_micros.tolist() == [100, 50]


def test_work_of_two_threads_at_once_counts_once_for_what_ended_first() -> None:
    g = GraphBuilder(rank=0)
    g.host("long", 0, 100_000, thread=1)
    g.host("short", 20_000, 30_000, thread=2)
    played, told = for_astra_sim(g.build())
    assert list(zip(played.name, played.duration_micros.tolist(), strict=True)) == [("short", 30), ("long", 70)]
    assert told.notes[0].startswith("30.0 µs of host work at the same time on several threads")


def test_gaps_behind_work_of_another_stream_are_cut() -> None:
    g = GraphBuilder(rank=0)
    g.activity("first", 0, 80_000, stream=7)
    g.activity("second", 90_000, 5_000, stream=8, gap=50_000)
    assert targets(g.build()).duration_micros.tolist() == [80, 15]


@pytest.mark.parametrize(("stream", "lasts"), [(7, [10, 14, 6]), (8, [10, 10, 10])], ids=["one stream", "two"])
def test_gaps_get_longer_where_no_other_stream_computes(stream: int, lasts: list[int]) -> None:
    g = GraphBuilder(rank=0)
    first = g.activity("first", 0, 10_000, stream=7)
    second = g.activity(
        "second", 12_000, 8_000, stream=stream, gap=2_000, chain_gap_ns=6_000, after=[(first, EVENT_WAIT)]
    )
    g.activity("third", 26_000, 4_000, stream=stream, gap=6_000, after=[(second, STREAM_ORDER)])
    assert targets(g.build()).duration_micros.tolist() == lasts


def test_what_ended_first_has_the_lower_id_unless_it_depends_on_the_other() -> None:
    g = GraphBuilder(rank=0)
    long = g.activity("long", 0, 100_000, stream=7)
    g.activity("short", 10_000, 20_000, stream=8)
    g.activity("early", 5_000, 1_000, stream=9, after=[(long, EVENT_WAIT)])
    assert list(targets(g.build()).name) == ["short", "long", "early"]


def test_idle_time_between_the_ops_of_one_thread_stays() -> None:
    for graph in graphs_of("hostbound"):
        played, told = for_astra_sim(graph)
        assert told.idle_dropped_us == 0
        runs_on_host = ~graph.is_activity & (graph.type != NodeType.METADATA)
        on_host = rows_of_graph(played, np.flatnonzero(~played.is_activity))
        assert times(on_host) == times(rows_of_graph(graph, np.flatnonzero(runs_on_host)))


def test_host_delays_behind_work_of_another_stream_are_cut() -> None:
    g = GraphBuilder(rank=0)
    first = g.activity("first", 10_000, 80_000, stream=7, host_delay_ns=10_000)
    g.activity("later", 100_000, 5_000, stream=7, host_delay_ns=10_000, after=[(first, STREAM_ORDER)])
    g.activity("other stream", 105_000, 5_000, stream=8, host_delay_ns=105_000)
    played, told = for_astra_sim(g.build())
    assert played.duration_micros.tolist() == [90, 15, 5]
    assert told.host_delay_dropped_us == 105


def test_what_does_not_apply_is_counted_as_none() -> None:
    told = report(communicating())
    assert (told.removed, told.padded, told.control_removed, told.delay_nodes) == (0, 0, 0, 0)
    assert (told.lowered, told.as_computation) == ({}, {})
    assert (told.idle_dropped_us, told.host_delay_dropped_us) == (0, 0)


def test_host_delay_before_communication_becomes_computation_before_it() -> None:
    g = GraphBuilder(rank=0, world_size=2)
    gemm = g.activity("gemm", 0, 10_000, stream=7)
    told = {"comm_type": ALL_REDUCE, "comm_size": 64, "gap": 2_000, "host_delay_ns": 8_000}
    meet = g.collective(20_000, 5_000, ranks=[0, 1], stream=8, after=[(gemm, STREAM_ORDER)], **told)
    g.activity("relu", 25_000, 5_000, stream=7, after=[(gemm, STREAM_ORDER), (meet, STREAM_ORDER)])
    graph = g.build()
    played, said = for_astra_sim(graph)
    assert [played.name[row] for row in range(4)] == ["gemm", "host delay", "ncclAllReduce", "relu"]
    assert [played.data_deps[row].tolist() for row in range(4)] == [[], [1], [2], [1, 3]]
    assert (played.type[1], played.duration_micros[1], value(played, "stream", 1)) == (NodeType.COMP, 8, 8)
    assert value(played, "host_delay_ns", 2) == ABSENT
    assert said.delay_nodes == 1
    assert replay(played).end_ns.tolist() == [10_000, 18_000, 25_000, 30_000]
    assert replay(graph).end_ns.tolist() == [10_000, 25_000, 30_000]


def test_work_that_overlapped_and_will_run_in_turn_is_told() -> None:
    g = GraphBuilder(rank=0)
    g.host("a", 0, 10_000, thread=1)
    g.host("b", 4_000, 10_000, thread=2)
    assert "6.0 µs of host work at the same time" in report(g.build()).notes[0]


@pytest.mark.parametrize(("on_host", "ends_after", "told"), [(True, 0, True), (False, 0, False), (True, 9_000, False)])
def test_a_run_with_host_nodes_that_ends_in_a_message_is_told(on_host: bool, ends_after: int, told: bool) -> None:
    g = GraphBuilder(rank=0, world_size=4)
    g.activity("send", 10_000, 5_000, **SEND, comm_size=8)
    if on_host:
        g.host("op", 0, 5_000)
    g.activity("kernel", 0, 7_000 + ends_after, stream=8)
    assert any("ends with a send or receive" in note for note in report(g.build()).notes) == told


def test_many_nodes_that_are_ready_at_once_are_told() -> None:
    g = GraphBuilder(rank=0)
    for clock in range(2_500):
        g.host("free", 1_000 * clock, 1_000)
    told = report(g.build())
    assert told.widest_ready_set == 2_500
    assert "2500 nodes are ready at once" in told.notes[0]
    assert report(graphs_of("dlrm", 2)[0]).widest_ready_set < 10


# some of the ranks


def test_a_subset_of_ranks_is_numbered_from_zero_and_its_groups_are_reduced() -> None:
    graph = communicating(rank=3, pg_ranks=[0, 3, 2, 1])
    part = restrict_to_ranks(graph, [1, 3])
    assert (part.metadata["rank"], part.metadata["world_size"]) == (1, 2)
    groups = part.attributes["pg_ranks"]
    assert isinstance(groups, Ragged)
    assert groups[1].tolist() == [1, 0]


def test_groups_that_are_not_complete_can_keep_their_measured_time() -> None:
    part = restrict_to_ranks(communicating(rank=1, pg_ranks=[0, 1, 2]), [0, 1], whole_groups=True)
    assert report(part).as_computation == {"in a group with ranks that are not simulated": 1}
    whole = restrict_to_ranks(communicating(rank=1, pg_ranks=[0, 1]), [0, 1], whole_groups=True)
    assert report(whole).as_computation == {}


def test_messages_to_ranks_outside_become_computation() -> None:
    inside = communicating(type=NodeType.COMM_SEND, rank=2, comm_src=2, comm_dst=3)
    part = restrict_to_ranks(inside, [2, 3])
    assert [value(part, name) for name in ("comm_src", "comm_dst")] == [0, 1]
    assert report(restrict_to_ranks(inside, [1, 2])).as_computation == {UNKNOWN: 1}


def test_a_graph_of_none_of_the_ranks_is_refused() -> None:
    with pytest.raises(DataError, match="rank 0"):
        restrict_to_ranks(communicating(), [1, 2])


# what ranks agree on


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
        follows=follows,
        **told,
    )


def test_columns_that_no_node_has_are_left_out() -> None:
    g = GraphBuilder(rank=0)
    g.host("op", 0, 1_000)
    assert not {"comm_type", "comm_size", "pg_name", "pg_recorded"} & targets(g.build()).attributes.keys()
    assert np.array_equal(targets(g.build()).integers("is_cpu_op"), [1])
