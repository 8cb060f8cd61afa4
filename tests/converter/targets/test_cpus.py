"""The cpus of a rank in GOAL: one for each thread and stream, and some for delays."""

import pytest
from execgraph.converter.ranks import measured_times
from execgraph.converter.targets.goal_program import LARGEST_COUNT, Cpus, cpus_of
from execgraph.schema.errors import DataError
from execgraph.schema.graph import NodeType
from support.graphs import LAUNCH, GraphBuilder


def cpus(graph: GraphBuilder, first: list[str]) -> Cpus:
    built = graph.build()
    return cpus_of(built, measured_times(built), first)


def test_threads_and_streams_come_behind_the_given_ones_and_metadata_has_none() -> None:
    g = GraphBuilder(rank=0)
    g.host("group", 0, 0, type=NodeType.METADATA)
    g.host("op", 0, 5, thread=3)
    g.activity("kernel", 5, 5, stream=9)
    g.host("op", 5, 5, thread=3)
    found = cpus(g, ["network"])
    assert (found.of_node.tolist(), found.lanes) == ([-1, 1, 2, 1], 3)
    assert found.names == ["network", "thread 3", "device 0 stream 9"]


def test_a_graph_of_metadata_alone_has_only_the_given_ones() -> None:
    g = GraphBuilder(rank=0)
    g.host("group", 0, 0, type=NodeType.METADATA)
    found = cpus(g, ["network"])
    assert (found.of_node.tolist(), found.names, found.lanes) == ([-1], ["network"], 1)


def test_delays_that_overlap_have_cpus_of_their_own_and_use_the_first_free_one_again() -> None:
    g = GraphBuilder(rank=0)
    op = g.host("op", 0, 10)
    for start, length in ((10, 20), (15, 5), (20, 30), (30, 5)):
        g.delay(start, length, after=[(op, LAUNCH)])
    found = cpus(g, [])
    assert found.of_node.tolist() == [0, 1, 2, 2, 1]
    assert (found.names, found.lanes) == (["thread 1", "delays", "delays"], 1)


def test_a_delay_that_follows_nothing_lasts_from_the_begin_of_the_run() -> None:
    g = GraphBuilder(rank=0)
    op = g.host("op", 0, 10)
    g.delay(10, 10)
    g.delay(5, 4, after=[(op, LAUNCH)])
    assert cpus(g, []).of_node.tolist() == [0, 1, 2]


def test_there_are_no_more_cpus_than_goal_has_numbers() -> None:
    g = GraphBuilder(rank=5)
    for thread in range(LARGEST_COUNT):
        g.host("op", 0, 5, thread=thread)
    assert len(cpus(g, []).names) == LARGEST_COUNT
    with pytest.raises(DataError, match=f"rank 5 has {LARGEST_COUNT + 1} threads, streams and delays at once"):
        cpus(g, ["network"])
