"""Communication as ASTRA-sim runs it: types, sizes and peers that it accepts, ready messages for sends that waited."""

from typing import Any

import numpy as np
import pytest
from execgraph.converter.ranks import with_values
from execgraph.converter.rewiring import data_edges
from execgraph.converter.targets import LEAST_BYTES, separate_messages
from execgraph.converter.targets.communication import LOWERED, PLAYED, simulated_as
from execgraph.schema.columns import ABSENT
from execgraph.schema.comm_groups import INT32_MAX
from execgraph.schema.graph import Change, CollectiveType, ExecutionGraph, NodeType
from support import for_simulator
from support.for_simulator import ALL_GATHER, ALL_REDUCE, SEND, UNKNOWN, communicating, for_astra_sim, lowered, value
from support.graphs import PROGRAM_ORDER, STREAM_ORDER, GraphBuilder
from support.simulator import LATENCY_NS, Generation, read_files, simulate


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
        ({"pg_ranks": [0]}, "in a group of one"),
        ({"pg_ranks": [1, 2]}, "in a group without this rank"),
        ({"pg_ranks": [0, 4]}, "in a group with ranks that are not simulated"),
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
        ({**SEND, "comm_tag": INT32_MAX + 1}, "with a tag out of range"),
        ({**SEND, "comm_size": 0}, "without data"),
    ],
)
def test_what_the_simulator_cannot_play_becomes_computation_of_the_measured_time(attributes, reason):
    played, told = lowered(communicating(**attributes))
    assert played.type[1] == NodeType.COMP
    assert played.duration_micros[1] == 5
    assert told.reasons(Change.AS_COMPUTATION) == {reason: 1}
    assert played.texts("pg_name").codes[1] == -1


@pytest.mark.parametrize(
    "attributes",
    [
        {"comm_size": 1},
        {"pg_ranks": [0, 3]},
        {"pg_ranks": []},
        {**SEND, "comm_size": 1},
        {**SEND, "comm_tag": INT32_MAX},
        {**SEND, "comm_dst": 3},
        {**SEND, "rank": 1, "comm_src": 1, "comm_dst": 0},
        {**SEND, "rank": 1, "type": NodeType.COMM_RECV},
    ],
)
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
