"""Graphs for ASTRA-sim: what becomes of communication, of waits, of orders and of what it cannot play."""

from typing import Any

import numpy as np
import pytest
from execgraph.converter.edges import Edges, topological_order
from execgraph.converter.ranks import with_values
from execgraph.converter.rewiring import data_edges, edited_graph, without_host
from execgraph.converter.targets import LEAST_BYTES, lower_for_target, separate_messages
from execgraph.converter.targets.communication import LOWERED, PLAYED, lower_collectives, pad_all_gathers, simulated_as
from execgraph.converter.targets.times import FIRST_BYTES, idle_rank, with_delay_nodes
from execgraph.schema.columns import ABSENT, Categorical, Ragged
from execgraph.schema.comm_groups import INT32_MAX
from execgraph.schema.errors import DataError
from execgraph.schema.graph import Change, CollectiveType, DependencyKind, ExecutionGraph, NodeType
from support import for_simulator
from support.for_simulator import (
    ALL_GATHER,
    ALL_REDUCE,
    SEND,
    UNKNOWN,
    communicating,
    for_astra_sim,
    lowered,
    passed,
    report,
    value,
)
from support.generated import graphs_of
from support.graphs import EVENT_WAIT, HOST_SYNC, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder
from support.simulator import LATENCY_NS, Generation, read_files, simulate
from support.tables import column


@pytest.mark.parametrize("kind", CollectiveType)
def test_every_collective_gets_a_type_that_runs(kind: CollectiveType) -> None:
    played, told = lowered(communicating(comm_type=kind))
    assert played.type[1] == NodeType.COMM_COLL
    assert value(played, "comm_type") in PLAYED
    assert value(played, "comm_size") == 4096
    assert bool(told.reasons(Change.LOWERED)) == (kind in LOWERED)


def test_a_type_is_simulated_as_itself_or_the_one_in_its_place_and_an_unknown_one_stays() -> None:
    assert [simulated_as(int(kind)) for kind in CollectiveType] == [LOWERED.get(kind, kind) for kind in CollectiveType]
    assert simulated_as(-1) == -1


def test_a_lowered_type_is_counted_by_name() -> None:
    assert for_simulator.report(communicating(comm_type=CollectiveType.GATHER)).reasons(Change.LOWERED) == {
        "gather as all gather": 1
    }


def test_a_barrier_without_data_still_holds_the_ranks_together() -> None:
    played = for_astra_sim(communicating(comm_type=CollectiveType.BARRIER, comm_size=0))
    assert (played.type[1], value(played, "comm_type")) == (NodeType.COMM_COLL, ALL_REDUCE)
    assert value(played, "comm_size") == LEAST_BYTES


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"pg_ranks": [0]}, "in a group of one"), ({"pg_ranks": [1, 2]}, "in a group without this rank"),
        ({"pg_ranks": [0, 4]}, "in a group with ranks that are not simulated"),
        ({"comm_type": 42}, "of an unknown type"), ({"comm_type": ABSENT}, "of an unknown type"),
        ({"comm_size": 0}, "without data"), ({"comm_type": ALL_GATHER, "comm_size": 0}, "without data"),
        ({**SEND, "comm_dst": -1}, UNKNOWN), ({**SEND, "comm_dst": ABSENT}, UNKNOWN),
        ({**SEND, "comm_src": 2}, "of another rank"), ({**SEND, "comm_dst": 0}, "to the rank itself"),
        ({**SEND, "comm_dst": 4}, UNKNOWN), ({**SEND, "comm_tag": -1}, "with a tag out of range"),
        ({**SEND, "comm_tag": INT32_MAX + 1}, "with a tag out of range"), ({**SEND, "comm_size": 0}, "without data"),
    ],
)  # fmt: skip
def test_what_the_simulator_cannot_play_becomes_computation_of_the_measured_time(attributes, reason):
    played, told = lowered(communicating(**attributes))
    assert played.type[1] == NodeType.COMP
    assert played.duration_micros[1] == 5
    assert told.reasons(Change.AS_COMPUTATION) == {reason: 1}
    assert played.texts("pg_name").codes[1] == -1


@pytest.mark.parametrize(
    "attributes",
    [
        {"comm_size": 1}, {"pg_ranks": [0, 3]}, {"pg_ranks": []}, {**SEND, "comm_size": 1},
        {**SEND, "comm_tag": INT32_MAX}, {**SEND, "comm_dst": 3}, {**SEND, "rank": 1, "comm_src": 1, "comm_dst": 0},
        {**SEND, "rank": 1, "type": NodeType.COMM_RECV},
    ],
)  # fmt: skip
def test_what_is_just_playable_is_played(attributes: dict[str, Any]) -> None:
    graph = communicating(**attributes)
    played, told = lowered(graph)
    assert (played.type.tolist(), told.reasons(Change.AS_COMPUTATION)) == (graph.type.tolist(), {})


def test_messages_of_a_graph_that_does_not_know_its_rank_cannot_be_played() -> None:
    assert for_simulator.report(communicating(**{**SEND, "comm_src": ABSENT}, rank=-1)).reasons(
        Change.AS_COMPUTATION
    ) == {UNKNOWN: 1}


def test_a_side_and_a_tag_that_are_not_recorded_are_the_own_rank_and_zero() -> None:
    names = ("comm_src", "comm_dst", "comm_tag")
    received = for_astra_sim(communicating(type=NodeType.COMM_RECV, rank=2, comm_src=1))
    assert received.type[1] == NodeType.COMM_RECV
    assert [value(received, name) for name in names] == [1, 2, 0]
    sent = for_astra_sim(communicating(type=NodeType.COMM_SEND, rank=2, comm_dst=1))
    assert sent.type[1] == NodeType.COMM_SEND
    assert [value(sent, name) for name in names] == [2, 1, 0]
    assert [value(sent, name, 0) for name in names] == [ABSENT] * 3
    assert "comm_src" not in for_astra_sim(communicating()).attributes


def test_communication_that_the_host_recorded_is_not_on_the_host() -> None:
    g = GraphBuilder(rank=0, world_size=2)
    g.host("gloo", 0, 5_000, type=NodeType.COMM_COLL, comm_type=ALL_REDUCE, comm_size=8, pg_ranks=[0, 1])
    g.host("after", 5_000, 5_000, after=[(1, PROGRAM_ORDER)])
    assert for_astra_sim(g.build()).integers("is_cpu_op").tolist() == [0, 1]


SENDS, RECEIVES = NodeType.COMM_SEND, NodeType.COMM_RECV
NAMES = ("comm_src", "comm_dst", "comm_tag", "comm_size")


def exchange(*messages: tuple[int, int, int, int], **metadata: int) -> ExecutionGraph:
    """A kernel, one that carries these messages (source, destination, tag, bytes) 5 µs later for 20 µs, and one after
    it.
    """
    g = GraphBuilder(**metadata)
    first = g.activity("first", 0, 10_000)
    lists = {
        name.replace("comm", "coalesced"): list(column)
        for name, column in zip(NAMES, zip(*messages, strict=True), strict=True)
    }
    both = g.activity("nccl", 15_000, 20_000, gap=5_000, type=SENDS, after=[(first, STREAM_ORDER)], **lists)
    g.activity("last", 40_000, 1_000, gap=3_000, after=[(both, STREAM_ORDER)])
    return g.build()


def chain(graph: ExecutionGraph) -> list[tuple[str, list[int]]]:
    return [(graph.name[row], graph.data_deps[row].tolist()) for row in range(len(graph))]


def test_messages_follow_each_other_between_what_was_around_their_kernel() -> None:
    """The gap passes before the first one and the kernel's time at the last one."""
    graph = separate_messages(exchange((1, 0, 3, 8), (1, 2, 4, 16), (0, 1, 5, 32), rank=1))
    assert chain(graph) == [("first", []), ("nccl", [1]), ("nccl", [2]), ("nccl", [3]), ("last", [4])]
    assert graph.type[1:4].tolist() == [SENDS, SENDS, RECEIVES]
    told = [graph.integers(name)[1:4].tolist() for name in NAMES]
    assert told == [[1, 1, 0], [0, 2, 1], [3, 4, 5], [8, 16, 32]]
    assert not [name for name in graph.attributes if name.startswith("coalesced")]
    assert graph.duration_ns[1:4].tolist() == [0, 0, 20_000]
    assert graph.integers("gap_ns").tolist() == [0, 5_000, ABSENT, ABSENT, 3_000]


def test_each_kernel_has_the_messages_that_it_carried(g: GraphBuilder) -> None:
    for clock in (0, 50_000):
        peers = {"coalesced_src": [0, 1], "coalesced_dst": [1, 0], "coalesced_tag": [0, 0]}
        g.activity("nccl", clock, 20_000, type=SENDS, stream=clock, coalesced_size=[8, clock], **peers)
        g.activity("kernel", clock, 20_000, stream=clock + 1)
    graph = separate_messages(g.build())
    talking = np.flatnonzero(graph.integers("comm_size") != ABSENT)
    assert graph.integers("comm_size")[talking].tolist() == [8, 0, 8, 50_000]
    assert graph.duration_ns[talking].tolist() == [0, 20_000, 0, 20_000]
    assert [graph.data_deps[row].tolist() for row in talking.tolist()] == [
        [], [graph.id[talking[0]]], [], [graph.id[talking[2]]]
    ]  # fmt: skip


def test_one_message_stays_the_node_that_it_is() -> None:
    graph = separate_messages(exchange((0, 1, 3, 8), rank=1))
    assert chain(graph) == [("first", []), ("nccl", [1]), ("last", [2])]
    assert (graph.type[1], graph.duration_ns[1], graph.integers("gap_ns")[1]) == (RECEIVES, 20_000, 5_000)
    # a rank that is not known receives
    for unknown in ({"rank": -1}, {}):
        assert separate_messages(exchange((1, 0, 3, 8), **unknown)).type[1] == RECEIVES


def test_a_graph_without_messages_together_stays_as_it_is(g: GraphBuilder) -> None:
    g.activity("kernel", 0, 10)
    graph = g.build()
    assert separate_messages(graph) is graph
    assert np.array_equal(graph.type, [NodeType.COMP])


TAG = 1 << 30


def member(rank: int, work_ns: int, type: NodeType) -> ExecutionGraph:
    """A kernel, a message from rank 0 to rank 1, and a kernel after it; an all-reduce on another stream."""
    g = GraphBuilder(rank=rank, world_size=2)
    gemm = g.activity("gemm", 0, work_ns)
    ends = {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 50_000}
    message = g.activity("nccl", work_ns, 1_000, type=type, after=[(gemm, STREAM_ORDER)], **ends)
    g.activity("after", work_ns + 1_000, 5_000, after=[(message, STREAM_ORDER)])
    g.collective(work_ns + 9_000, 1_000, ranks=[0, 1], stream=9, comm_type=ALL_REDUCE, comm_size=64)
    return g.build()


def ordered(graph: ExecutionGraph, ready: bool = True) -> ExecutionGraph:
    """Puts the message, node 2, before the all-reduce, node 4."""
    return with_values(with_values(graph, "comm_order", {2: 0, 4: 1}), "ready_tag", {2: TAG} if ready else {})


def edges_of(graph: ExecutionGraph) -> set[tuple[str, str]]:
    edges = data_edges(graph)
    return {(graph.name[a], graph.name[b]) for a, b in zip(edges.source.tolist(), edges.target.tolist(), strict=True)}


def test_the_receiver_tells_the_sender_when_its_kernel_can_start() -> None:
    """Sends follow the common order and receives do not; a receiver is ready before it waits in a later collective."""
    send, receive = (for_astra_sim(ordered(member(rank, 10_000, type))) for rank, type in enumerate((SENDS, RECEIVES)))
    assert edges_of(send) >= {("gemm", "receiver is ready"), ("receiver is ready", "nccl"), ("gemm", "nccl")}
    assert edges_of(receive) >= {("gemm", "ready to receive"), ("ready to receive", "nccl")}
    for graph, name, type in ((send, "receiver is ready", RECEIVES), (receive, "ready to receive", SENDS)):
        row = list(graph.name).index(name)
        facts = [int(graph.integers(f"comm_{what}")[row]) for what in ("src", "dst", "tag", "size")]
        assert (graph.type[row], facts, graph.duration_ns[row]) == (type, [1, 0, TAG, 64], 0)
    assert ("nccl", "ncclAllReduce") in edges_of(send)
    assert ("nccl", "ncclAllReduce") not in edges_of(receive)
    assert ("ready to receive", "ncclAllReduce") in edges_of(receive)


@pytest.mark.parametrize("generation", list(Generation))
def test_a_simulated_send_waits_for_a_late_receiver_and_no_rank_waits_for_ever(generation, tmp_path):
    def finish(ready: bool) -> dict[int, int]:
        for rank, graph in enumerate((member(0, 10_000, SENDS), member(1, 30_000, RECEIVES))):
            for_astra_sim(ordered(graph, ready)).write(str(tmp_path / f"graph.{rank}.et"))
        outcome = simulate(read_files(tmp_path / "graph", 2), None, generation)
        assert outcome.good, outcome.trouble
        return outcome.finished_ns

    at_once, awaited = finish(False), finish(True)
    ready, message = LATENCY_NS + 1, LATENCY_NS + 1_000
    assert (at_once[1], awaited[1]) == (35_000, 30_000 + ready + message + 5_000)
    assert (at_once[0], awaited[0]) == (10_000 + message + 5_000, awaited[1])


def test_metadata_goes_and_who_followed_it_follows_what_came_before(g: GraphBuilder) -> None:
    first = g.host("first", 0, 5_000)
    meta = g.host("process_group:init", 5_000, 0, type=NodeType.METADATA, after=[(first, PROGRAM_ORDER)])
    more = g.host("process_group:init", 5_000, 0, type=NodeType.INVALID, after=[(meta, PROGRAM_ORDER)])
    g.host("second", 5_000, 5_000, after=[(more, PROGRAM_ORDER)])
    played, told = lowered(g.build())
    assert played.id.tolist() == [1, 2]
    assert [row.tolist() for row in (played.data_deps[0], played.data_deps[1])] == [[], [1]]
    assert told[Change.REMOVED] == 2


def test_a_dependency_given_twice_is_there_once_and_how_a_wait_is_known_is_not_said(g: GraphBuilder) -> None:
    first = g.host("first", 0, 5_000)
    kernel = g.activity("kernel", 5_000, 5_000, after=[(first, LAUNCH), (first, STREAM_ORDER)])
    g.activity("kernel", 10_000, 5_000, stream=9, after=[(kernel, EVENT_WAIT | DependencyKind.CALL_ORDER)])
    played = for_astra_sim(g.build())
    assert [played.data_deps[row].tolist() for row in range(3)] == [[], [1], [2]]
    assert played.attributes["data_dep_kinds"].values.tolist() == [LAUNCH | STREAM_ORDER, EVENT_WAIT]


@pytest.mark.parametrize(
    ("sources", "refused"), [([9], "node 1 depends on node 9"), ([2, 1], "cycle")], ids=["no node", "a cycle"]
)
def test_a_dependency_on_no_node_and_a_cycle_are_refused(g: GraphBuilder, sources: list[int], refused: str) -> None:
    for source in sources:
        g.host("op", 0, 5, after=[(source, PROGRAM_ORDER)])
    with pytest.raises(DataError, match=refused):
        for_astra_sim(g.build())


def test_a_graph_in_which_nothing_runs_is_refused(g: GraphBuilder) -> None:
    g.host("process_group:init", 0, 0, type=NodeType.METADATA)
    with pytest.raises(DataError, match="no node that a simulator runs"):
        for_astra_sim(g.build())


def test_a_graph_in_any_order_comes_back_in_one_that_points_backward(g: GraphBuilder) -> None:
    g.activity("last", 15_000, 10_000, id=30, after=[(20, STREAM_ORDER)])
    g.activity("middle", 5_000, 10_000, id=20, after=[(10, LAUNCH)])
    g.host("first", 0, 5_000, id=10)
    played = for_astra_sim(g.build())
    assert list(played.name) == ["first", "middle", "last"]
    assert [played.data_deps[row].tolist() for row in range(3)] == [[], [1], [2]]


def test_a_control_dependency_stays_only_where_data_dependencies_imply_it(g: GraphBuilder) -> None:
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
    for graph in graphs_of("moe", 2, promote):
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
    never = (Change.REMOVED, Change.PADDED, Change.CONTROL_REMOVED, Change.DELAY_NODES, Change.IDLE_TIME_CUT)
    assert [told[change] for change in (*never, Change.HOST_DELAY_CUT)] == [0] * 6
    assert (told.reasons(Change.LOWERED), told.reasons(Change.AS_COMPUTATION)) == ({}, {})


def test_many_nodes_that_are_ready_at_once_are_told(g: GraphBuilder) -> None:
    for clock in range(2_500):
        g.host("free", 1_000 * clock, 1_000)
    told = report(g.build())
    assert told[Change.MOST_READY] == 2_500
    assert "2500 nodes are ready at once" in told.notes[0]
    assert report(graphs_of("dlrm", 2)[0])[Change.MOST_READY] < 10


def test_columns_that_no_node_has_are_left_out(g: GraphBuilder) -> None:
    g.host("op", 0, 1_000)
    assert not {"comm_type", "comm_size", "pg_name", "pg_recorded"} & for_astra_sim(g.build()).attributes.keys()
    assert np.array_equal(for_astra_sim(g.build()).integers("is_cpu_op"), [1])


@pytest.mark.parametrize(
    ("ranks", "job", "reasons"),
    [([0, 999], {}, {}), ([], {"world_size": 1}, {"in a group of one": 1})],
    ids=["unknown size", "one rank"],
)
def test_in_a_job_of_unknown_size_no_rank_is_outside(ranks, job, reasons):
    graph = communicating(pg_ranks=ranks)
    graph.metadata = {"rank": 0, **job}
    assert report(graph).reasons(Change.AS_COMPUTATION) == reasons


def test_a_group_that_only_a_message_names_is_not_numbered() -> None:
    g = GraphBuilder(rank=0, world_size=4)
    g.collective(0, 5, ranks=[], comm_type=ALL_REDUCE, comm_size=8)
    g.activity("send", 5, 5, type=NodeType.COMM_SEND, comm_dst=1, comm_size=8, pg_ranks=[0, 1])
    assert not any("numbered" in note for note in report(g.build()).notes)


@pytest.mark.parametrize(("size", "played", "small"), [(3, 128, 1), (127, 128, 1), (128, 128, 0), (129, 129, 0)])
def test_all_gathers_and_barriers_have_at_least_128_bytes(size: int, played: int, small: int) -> None:
    gather, told = lowered(communicating(comm_type=CollectiveType.ALL_GATHER, comm_size=size))
    assert (told[Change.PADDED], value(gather, "comm_size")) == (small, played)
    barrier, told = lowered(communicating(comm_type=CollectiveType.BARRIER, comm_size=size))
    assert told.reasons(Change.LOWERED) == {"barrier as all reduce": 1}
    assert value(barrier, "comm_size") == played
    for run in (pad_all_gathers, lower_collectives):
        other, told = passed(run, communicating(comm_size=size))
        assert (told.counts, value(other, "comm_size")) == ({}, size)


@pytest.mark.parametrize("gap", [0, 2_000, None])
def test_a_delay_before_communication_ends_where_its_gap_begins(g: GraphBuilder, gap: int | None) -> None:
    gemm = g.activity("gemm", 0, 5_000)
    g.collective(
        20_500, 5_000, ranks=[0, 1], gap=gap or 0, host_delay_ns=1, device=3, pg_name="5", after=[(gemm, STREAM_ORDER)]
    )
    graph = g.build()
    if gap is None:
        del graph.attributes["gap_ns"]
    changed, told = passed(with_delay_nodes, graph)
    assert (told[Change.DELAY_NODES], list(changed.name)) == (1, ["gemm", "host delay", "ncclAllReduce"])
    assert changed.start_ns.tolist() == [0, 20_500 - (gap or 0), 20_500]
    assert changed.start_time_micros.tolist() == [0, (20_500 - (gap or 0)) // 1000, 20]
    assert changed.integers("host_delay_ns").tolist() == [ABSENT, 1, ABSENT]
    assert changed.integers("is_cpu_op").tolist() == [0, 0, 0]
    assert changed.integers("device").tolist() == [0, 3, 3]
    assert changed.duration_ns.tolist() == [5_000, 0, 5_000]
    assert changed.texts("pg_name").take(np.arange(3)).codes[1] == -1
    assert [changed.data_deps[row].tolist() for row in range(3)] == [[], [1], [2]]


def test_without_a_delay_before_communication_the_graph_stays(g: GraphBuilder) -> None:
    g.activity("gemm", 0, 5, host_delay_ns=9)
    g.collective(5, 5, ranks=[0, 1], host_delay_ns=0)
    graph = g.build()
    assert passed(with_delay_nodes, graph) == (graph, ({}, []))


def test_overlaps_of_streams_are_told_in_us(g: GraphBuilder) -> None:
    for stream, start in ((1, 0), (2, 40_000)):
        g.activity("kernel", start, 100_000, stream=stream)
    (note,) = report(g.build()).notes
    assert note.startswith("60.0 µs of device work at the same time")


def test_a_node_that_follows_itself_is_a_cycle(g: GraphBuilder) -> None:
    g.activity("a", 0, 10)
    with pytest.raises(DataError, match=r"cycle: 0 \(a\) -> 0 \(a\);"):
        edited_graph(g.build(), Edges.of(column(0), column(0), STREAM_ORDER), kept_rows=column(0))


@pytest.mark.parametrize(("length", "more"), [(15, ""), (16, " -> and 1 more"), (20, " -> and 5 more")])
def test_of_a_long_cycle_sixteen_nodes_are_shown(length: int, more: str) -> None:
    node = np.arange(length)
    names = Categorical.of(f"op{at}" for at in node.tolist())
    shown = " -> ".join([r"\d+ \(op\d+\)"] * 16)
    with pytest.raises(DataError, match=f"cycle: {shown}{more};"):
        topological_order(0 * node, Edges.of(node, (node + 1) % length, STREAM_ORDER), lambda: names)


def test_without_its_host_an_activity_waits_from_its_release_or_from_the_traces_start(g: GraphBuilder) -> None:
    op = g.host("op", 1_000, 5_000)
    first = g.activity("first", 8_000, 5_000, gap=500, after=[(op, LAUNCH)], latency_ns=7)
    wait = g.host("wait", 13_000, 2_000, after=[(first, HOST_SYNC)])
    g.activity("second", 16_000, 1_000, gap=0, stream=8, after=[(wait, LAUNCH)])
    g.activity("third", 13_500, 1_000, gap=500, after=[(first, STREAM_ORDER)])
    device = without_host(g.build())
    assert list(device.name) == ["first", "second", "third"]
    assert device.integers("host_delay_ns").tolist() == [6_500, 3_000, ABSENT]
    assert device.duration_micros.tolist() == [12, 4, 2]  # of 12, 4 and, behind the first, 1.5 µs
    assert "latency_ns" not in device.attributes


@pytest.mark.parametrize(
    ("ranks", "groups", "name"),
    [
        ([0, 1], {(0, 1): 7}, "7"), ([0, 1], None, "1"), ([0, 1, 2, 3], {}, ""),
        ([0, 2, 1, 3], {(0, 2, 1, 3): 1}, "1"), ([], None, ""),
    ],
    ids=["numbered", "numbered by the rank", "all ranks have no name", "all in another ring order", "unknown ranks"],
)  # fmt: skip
def test_a_group_is_named_by_the_number_of_its_ranks(ranks, groups, name):
    played, told = lowered(communicating(pg_ranks=ranks), groups=groups)
    assert (played.texts("pg_name")[1], played.texts("pg_recorded")[1]) == (name, "5")
    own = any("numbered as this rank knows them" in note for note in told.notes)
    assert own == (groups is None and ranks != [])
    unknown = "1 collectives without recorded ranks are taken as ones of all ranks"
    assert ranks or told.notes == [unknown]


@pytest.mark.parametrize(("groups", "name"), [({(0, 1): 7}, "7"), (None, "5")])
def test_a_generic_graph_names_groups_by_number_only_if_they_are_given(groups, name):
    assert lower_for_target(communicating(), "generic", groups).texts("pg_name")[1] == name


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


def test_an_idle_rank_computes_for_a_microsecond() -> None:
    graph = idle_rank(5)
    assert (graph.id.tolist(), graph.type.tolist()) == ([1], [NodeType.COMP])
    assert (graph.start_time_micros.tolist(), graph.duration_micros.tolist()) == ([0], [1])
    assert [len(column[0]) for column in (graph.data_deps, graph.ctrl_deps)] == [0, 0]
    found = {name: graph.integers(name).tolist() for name in graph.attributes}
    assert found == {"is_cpu_op": [0], "num_ops": [1], "tensor_size": [FIRST_BYTES]}
    assert graph.metadata["rank"] == 5
