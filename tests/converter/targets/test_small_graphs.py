"""Graphs of a few nodes made fit for a simulator: where each rule begins and ends to apply."""

import numpy as np
import pytest
from execgraph.converter.device_only import without_host
from execgraph.converter.edges import Edges, topological_order
from execgraph.converter.rewiring import NO_EDGES, edited_graph
from execgraph.converter.targets.astra_sim import widest_ready_set
from execgraph.converter.targets.communication import lower_collectives, pad_all_gathers
from execgraph.converter.targets.times import with_delay_nodes
from execgraph.schema.columns import ABSENT, Categorical
from execgraph.schema.comm_groups import INT32_MAX
from execgraph.schema.errors import DataError
from execgraph.schema.graph import Change, CollectiveType, ExecutionGraph, NodeType
from support.for_simulator import lowered, passed, report
from support.graphs import HOST_SYNC, LAUNCH, STREAM_ORDER, GraphBuilder
from support.tables import column

SEND, RECV = NodeType.COMM_SEND, NodeType.COMM_RECV
ALL_REDUCE, ALL_GATHER, BARRIER = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.BARRIER


def collective(kind: CollectiveType = ALL_REDUCE, ranks: tuple[int, ...] = (0, 1), **more: object) -> ExecutionGraph:
    g = GraphBuilder(rank=0, world_size=4)
    g.collective(0, 5, ranks=list(ranks), comm_type=int(kind), **({"comm_size": 8} | more))
    return g.build()


def message(kind: NodeType = SEND, **more: object) -> ExecutionGraph:
    g = GraphBuilder(rank=1, world_size=4)
    peer = "comm_dst" if kind is SEND else "comm_src"
    g.activity("message", 0, 5, type=kind, **({peer: 2, "comm_size": 8, "comm_tag": 0} | more))
    return g.build()


# What is played


@pytest.mark.parametrize(
    "graph",
    [
        collective(comm_size=1),
        collective(ranks=(0, 3)),
        collective(ranks=()),
        message(comm_size=1),
        message(comm_tag=INT32_MAX),
        message(comm_dst=0),
        message(comm_dst=3),
        message(RECV, comm_src=0),
        message(comm_src=1),
    ],
)
def test_what_is_just_playable_is_played(graph: ExecutionGraph) -> None:
    played, said = lowered(graph)
    assert (played.type.tolist(), said.reasons(Change.AS_COMPUTATION)) == (graph.type.tolist(), {})


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (collective(comm_size=0), "without data"),
        (collective(ranks=(0,)), "in a group of one"),
        (collective(ranks=(1, 2)), "in a group without this rank"),
        (collective(ranks=(0, 4)), "in a group with ranks that are not simulated"),
        (message(comm_size=0), "without data"),
        (message(comm_tag=INT32_MAX + 1), "with a tag out of range"),
        (message(comm_tag=-1), "with a tag out of range"),
        (message(comm_dst=1), "to the rank itself"),
        (message(comm_dst=4), "to or from a rank that is unknown or not simulated"),
        (message(comm_dst=-1), "to or from a rank that is unknown or not simulated"),
        (message(comm_src=0), "of another rank"),
    ],
)
def test_what_is_not_becomes_computation_for_one_reason(graph: ExecutionGraph, reason: str) -> None:
    played, said = lowered(graph)
    assert (played.type.tolist(), said.reasons(Change.AS_COMPUTATION)) == ([NodeType.COMP], {reason: 1})


def test_in_a_job_of_unknown_size_no_rank_is_outside() -> None:
    graph = collective(ranks=(0, 999))
    graph.metadata = {"rank": 0}
    assert report(graph).reasons(Change.AS_COMPUTATION) == {}
    graph = collective(ranks=())
    graph.metadata = {"rank": 0, "world_size": 1}
    assert report(graph).reasons(Change.AS_COMPUTATION) == {"in a group of one": 1}


def test_a_group_that_only_a_message_names_is_not_numbered() -> None:
    g = GraphBuilder(rank=0, world_size=4)
    g.collective(0, 5, ranks=[], comm_type=int(ALL_REDUCE), comm_size=8)
    g.activity("send", 5, 5, type=SEND, comm_dst=1, comm_size=8, pg_ranks=[0, 1])
    assert not any("numbered" in note for note in report(g.build()).notes)


# Sizes


@pytest.mark.parametrize(("size", "played", "small"), [(127, 128, 1), (128, 128, 0), (129, 129, 0)])
def test_all_gathers_and_barriers_have_at_least_128_bytes(size: int, played: int, small: int) -> None:
    gather, told = passed(pad_all_gathers, collective(ALL_GATHER, comm_size=size))
    assert (told[Change.PADDED], gather.integers("comm_size").tolist()) == (small, [played])
    barrier, told = passed(lower_collectives, collective(BARRIER, comm_size=size))
    assert told.reasons(Change.LOWERED) == {"barrier as all_reduce": 1}
    assert barrier.integers("comm_size").tolist() == [played]
    for run in (pad_all_gathers, lower_collectives):
        other, told = passed(run, collective(comm_size=size))
        assert (told.counts, other.integers("comm_size").tolist()) == ({}, [size])


# Time


@pytest.mark.parametrize("gap", [0, 2_000, None])
def test_a_delay_before_communication_ends_where_its_gap_begins(gap: int | None) -> None:
    g = GraphBuilder(rank=0)
    gemm = g.activity("gemm", 0, 5_000)
    g.collective(
        20_500, 5_000, ranks=[0, 1], gap=gap or 0, host_delay_ns=1, device=3, pg_name="5", after=[(gemm, STREAM_ORDER)]
    )
    graph = g.build()
    if gap is None:
        del graph.attributes["gap_ns"]
    changed, told = passed(with_delay_nodes, graph)
    assert (told[Change.DELAY_NODES], [changed.name[row] for row in range(3)]) == (
        1,
        ["gemm", "host delay", "ncclAllReduce"],
    )
    assert changed.start_ns.tolist() == [0, 20_500 - (gap or 0), 20_500]
    assert changed.start_time_micros.tolist() == [0, (20_500 - (gap or 0)) // 1000, 20]
    assert changed.integers("host_delay_ns").tolist() == [ABSENT, 1, ABSENT]
    assert changed.integers("is_cpu_op").tolist() == [0, 0, 0]
    assert changed.integers("device").tolist() == [0, 3, 3]
    assert changed.duration_ns.tolist() == [5_000, 0, 5_000]
    assert changed.texts("pg_name").take(np.arange(3)).codes[1] == -1
    assert [changed.data_deps[row].tolist() for row in range(3)] == [[], [1], [2]]


def test_without_a_delay_before_communication_the_graph_stays() -> None:
    g = GraphBuilder(rank=0)
    g.activity("gemm", 0, 5, host_delay_ns=9)
    g.collective(5, 5, ranks=[0, 1], host_delay_ns=0)
    graph = g.build()
    assert passed(with_delay_nodes, graph) == (graph, ({}, []))


@pytest.mark.parametrize(
    ("on_host", "kind", "us"), [(True, "host work", 60), (False, "device work", 60)], ids=["threads", "streams"]
)
def test_overlaps_are_told_in_us(on_host: bool, kind: str, us: int) -> None:
    g = GraphBuilder(rank=0)
    for lane, start in ((1, 0), (2, 40_000)):
        if on_host:
            g.host("op", start, 100_000, thread=lane)
        else:
            g.activity("kernel", start, 100_000, stream=lane)
    (note,) = report(g.build()).notes
    assert note.startswith(f"{us}.0 µs of {kind} at the same time")


def test_waiting_that_is_cut_is_told_in_us() -> None:
    g = GraphBuilder(rank=0)
    g.host("op", 0, 60_000, thread=1)
    g.host("host idle", 0, 100_000, thread=2)
    g.activity("kernel", 0, 60_000, stream=7)
    g.activity("kernel", 100_000, 10_000, stream=8, host_delay_ns=100_000)
    said = report(g.build())
    assert (said[Change.IDLE_TIME_CUT], said[Change.HOST_DELAY_CUT], said.notes) == (60, 60, [])


def test_nodes_are_ready_from_what_they_follow_until_they_end() -> None:
    g = GraphBuilder(rank=0)
    first = g.activity("a", 0, 10)
    second = g.activity("b", 10, 10, after=[(first, STREAM_ORDER)])
    g.activity("c", 20, 10, after=[(second, STREAM_ORDER)])
    g.activity("d", 5, 0)
    graph = g.build()
    assert widest_ready_set(graph, Edges.of(column(0, 1), column(1, 2), STREAM_ORDER)) == 2
    assert widest_ready_set(graph, NO_EDGES) == 4
    assert widest_ready_set(GraphBuilder().build(), NO_EDGES) == 0


# Order


def test_a_node_that_follows_itself_is_a_cycle() -> None:
    g = GraphBuilder(rank=0)
    g.activity("a", 0, 10)
    with pytest.raises(DataError, match=r"cycle: 0 \(a\) -> 0 \(a\);"):
        edited_graph(g.build(), column(0), Edges.of(column(0), column(0), STREAM_ORDER), NO_EDGES)


@pytest.mark.parametrize(("length", "more"), [(15, ""), (16, " -> and 1 more"), (20, " -> and 5 more")])
def test_of_a_long_cycle_sixteen_nodes_are_shown(length: int, more: str) -> None:
    node = np.arange(length)
    names = Categorical.of(f"op{at}" for at in node.tolist())
    shown = " -> ".join([r"\d+ \(op\d+\)"] * 16)
    with pytest.raises(DataError, match=f"cycle: {shown}{more};"):
        topological_order(0 * node, Edges.of(node, (node + 1) % length, STREAM_ORDER), lambda: names)


# Without the host


def test_without_its_host_an_activity_waits_from_its_release_or_from_the_traces_start() -> None:
    g = GraphBuilder(rank=0)
    op = g.host("op", 1_000, 5_000)
    first = g.activity("first", 8_000, 5_000, gap=500, after=[(op, LAUNCH)], latency_ns=7)
    wait = g.host("wait", 13_000, 2_000, after=[(first, HOST_SYNC)])
    g.activity("second", 16_000, 1_000, gap=0, stream=8, after=[(wait, LAUNCH)])
    g.activity("third", 13_500, 1_000, gap=500, after=[(first, STREAM_ORDER)])
    device = without_host(g.build())
    assert [device.name[row] for row in range(3)] == ["first", "second", "third"]
    assert device.integers("host_delay_ns").tolist() == [6_500, 3_000, ABSENT]
    assert device.duration_micros.tolist() == [12, 4, 2]  # of 12, 4 and, behind the first, 1.5 µs
    assert "latency_ns" not in device.attributes
