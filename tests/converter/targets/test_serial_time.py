"""Each moment counts once: what ran at the same time takes no longer on a simulator that runs it in sequence."""

import numpy as np
import pytest
from execgraph.converter.rewiring import rows_of_graph
from execgraph.schema.columns import ABSENT
from execgraph.schema.graph import Change, ExecutionGraph, NodeType
from execgraph.tools.replay import replay
from support.for_simulator import ALL_REDUCE, lowered, report, targets, value
from support.generated import graphs_of
from support.graphs import EVENT_WAIT, STREAM_ORDER, GraphBuilder


def times(graph: ExecutionGraph) -> list[tuple[int, int]]:
    """Start in ns and length in µs of each node, in the order of starts."""
    return sorted(zip(graph.start_ns.tolist(), graph.duration_micros.tolist(), strict=True))


def test_idle_time_beside_work_on_another_thread_is_cut() -> None:
    g = GraphBuilder(rank=0)
    g.host("host idle", 0, 100_000, thread=1)
    g.host("work", 30_000, 60_000, thread=2)
    played, told = lowered(g.build())
    assert list(played.name) == ["work", "host idle"]
    assert played.duration_micros.tolist() == [60, 40]
    assert played.duration_ns.tolist() == [60_000, 100_000]
    assert told[Change.IDLE_TIME_CUT] == 60


def test_idle_time_of_two_threads_at_once_counts_once() -> None:
    g = GraphBuilder(rank=0)
    g.host("host idle", 0, 100_000, thread=1)
    g.host("host idle", 50_000, 100_000, thread=2)
    assert targets(g.build()).duration_micros.tolist() == [100, 50]


def test_work_of_two_threads_at_once_counts_once_for_what_ended_first() -> None:
    g = GraphBuilder(rank=0)
    g.host("long", 0, 100_000, thread=1)
    g.host("short", 20_000, 30_000, thread=2)
    played, told = lowered(g.build())
    assert list(zip(played.name, played.duration_micros.tolist(), strict=True)) == [("short", 30), ("long", 70)]
    assert told.notes[0].startswith("30.0 µs of host work at the same time on several threads")


def test_communication_beside_other_communication_is_named_and_communication_beside_kernels_is_not() -> None:
    g = GraphBuilder(rank=0)
    g.activity("kernel", 0, 100_000, stream=7)
    g.collective(0, 60_000, ranks=[0, 1], stream=20, comm_type=ALL_REDUCE, comm_size=4096)
    assert not [note for note in report(g.build()).notes if "communication" in note]
    g.collective(20_000, 70_000, ranks=[0, 1], stream=21, comm_type=ALL_REDUCE, comm_size=4096)
    [note] = [note for note in report(g.build()).notes if "communication" in note]
    assert note.startswith("40.0 µs of communication beside other communication counts once")


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
        played, told = lowered(graph)
        assert told[Change.IDLE_TIME_CUT] == 0
        runs_on_host = ~graph.is_activity & (graph.type != NodeType.METADATA)
        on_host = rows_of_graph(played, np.flatnonzero(~played.is_activity))
        assert times(on_host) == times(rows_of_graph(graph, np.flatnonzero(runs_on_host)))


def test_host_delays_behind_work_of_another_stream_are_cut() -> None:
    g = GraphBuilder(rank=0)
    first = g.activity("first", 10_000, 80_000, stream=7, host_delay_ns=10_000)
    g.activity("later", 100_000, 5_000, stream=7, host_delay_ns=10_000, after=[(first, STREAM_ORDER)])
    g.activity("other stream", 105_000, 5_000, stream=8, host_delay_ns=105_000)
    played, told = lowered(g.build())
    assert played.duration_micros.tolist() == [90, 15, 5]
    assert told[Change.HOST_DELAY_CUT] == 105


def test_host_delay_before_communication_becomes_computation_before_it() -> None:
    g = GraphBuilder(rank=0, world_size=2)
    gemm = g.activity("gemm", 0, 10_000, stream=7)
    told = {"comm_type": ALL_REDUCE, "comm_size": 64, "gap": 2_000, "host_delay_ns": 8_000}
    meet = g.collective(20_000, 5_000, ranks=[0, 1], stream=8, after=[(gemm, STREAM_ORDER)], **told)
    g.activity("relu", 25_000, 5_000, stream=7, after=[(gemm, STREAM_ORDER), (meet, STREAM_ORDER)])
    graph = g.build()
    played, said = lowered(graph)
    assert [played.name[row] for row in range(4)] == ["gemm", "host delay", "ncclAllReduce", "relu"]
    assert [played.data_deps[row].tolist() for row in range(4)] == [[], [1], [2], [1, 3]]
    assert (played.type[1], played.duration_micros[1], value(played, "stream", 1)) == (NodeType.COMP, 8, 8)
    assert value(played, "host_delay_ns", 2) == ABSENT
    assert said[Change.DELAY_NODES] == 1
    assert replay(played).end_ns.tolist() == [10_000, 18_000, 25_000, 30_000]
    assert replay(graph).end_ns.tolist() == [10_000, 25_000, 30_000]


def test_work_that_overlapped_and_will_run_in_turn_is_told() -> None:
    g = GraphBuilder(rank=0)
    g.host("a", 0, 10_000, thread=1)
    g.host("b", 4_000, 10_000, thread=2)
    assert "6.0 µs of host work at the same time" in report(g.build()).notes[0]
