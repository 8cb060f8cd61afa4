"""A graph for ASTRA-sim: which nodes and dependencies stay, in which order, and what is told of them."""

import numpy as np
import pytest
from execgraph.converter.targets import for_astra_sim
from execgraph.schema.columns import Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import Change, CollectiveType, DependencyKind, NodeType
from support.for_simulator import communicating, lowered, report, targets, value
from support.generated import graphs_of
from support.graphs import EVENT_WAIT, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder


def test_metadata_goes_and_who_followed_it_follows_what_came_before() -> None:
    g = GraphBuilder(rank=0)
    first = g.host("first", 0, 5_000)
    meta = g.host("process_group:init", 5_000, 0, type=NodeType.METADATA, after=[(first, PROGRAM_ORDER)])
    more = g.host("process_group:init", 5_000, 0, type=NodeType.INVALID, after=[(meta, PROGRAM_ORDER)])
    g.host("second", 5_000, 5_000, after=[(more, PROGRAM_ORDER)])
    played, told = lowered(g.build())
    assert played.id.tolist() == [1, 2]
    assert [row.tolist() for row in (played.data_deps[0], played.data_deps[1])] == [[], [1]]
    assert told[Change.REMOVED] == 2


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
    played, told = lowered(graph)
    assert [played.ctrl_deps[row].tolist() for row in range(4)] == [[], [], [1], []]
    assert told[Change.CONTROL_REMOVED] == 1


@pytest.mark.parametrize("promote", ["sync", "all"])
def test_converted_graphs_keep_all_their_control_dependencies(promote: str) -> None:
    for graph in graphs_of("moe", promote=promote):
        played, told = lowered(graph)
        assert told[Change.CONTROL_REMOVED] == 0
        assert len(played.ctrl_deps.values) == len(graph.ctrl_deps.values)


def test_the_graph_given_stays_as_it_is() -> None:
    graph = communicating(comm_type=CollectiveType.REDUCE)
    for_astra_sim(graph)
    assert value(graph, "comm_type") == CollectiveType.REDUCE
    assert "target" not in graph.metadata


def test_what_does_not_apply_is_counted_as_none() -> None:
    told = report(communicating())
    assert (told[Change.REMOVED], told[Change.PADDED], told[Change.CONTROL_REMOVED], told[Change.DELAY_NODES]) == (
        0,
        0,
        0,
        0,
    )
    assert (told.reasons(Change.LOWERED), told.reasons(Change.AS_COMPUTATION)) == ({}, {})
    assert (told[Change.IDLE_TIME_CUT], told[Change.HOST_DELAY_CUT]) == (0, 0)


def test_many_nodes_that_are_ready_at_once_are_told() -> None:
    g = GraphBuilder(rank=0)
    for clock in range(2_500):
        g.host("free", 1_000 * clock, 1_000)
    told = report(g.build())
    assert told[Change.MOST_READY] == 2_500
    assert "2500 nodes are ready at once" in told.notes[0]
    assert report(graphs_of("dlrm", 2)[0])[Change.MOST_READY] < 10


def test_columns_that_no_node_has_are_left_out() -> None:
    g = GraphBuilder(rank=0)
    g.host("op", 0, 1_000)
    assert not {"comm_type", "comm_size", "pg_name", "pg_recorded"} & targets(g.build()).attributes.keys()
    assert np.array_equal(targets(g.build()).integers("is_cpu_op"), [1])
