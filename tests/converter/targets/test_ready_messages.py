"""Sends that wait for their receiver in a simulator that sends at once, and receives beside all other communication."""

from pathlib import Path

import pytest
from execgraph.converter.ranks import with_values
from execgraph.converter.rewiring import data_edges
from execgraph.converter.targets import for_astra_sim
from execgraph.schema.graph import ExecutionGraph, NodeType
from support.for_simulator import ALL_REDUCE, targets
from support.graphs import STREAM_ORDER, GraphBuilder
from support.simulator import LATENCY_NS, Generation, read_files, simulate

SEND, RECV = NodeType.COMM_SEND, NodeType.COMM_RECV
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
    send, receive = targets(ordered(member(0, 10_000, SEND))), targets(ordered(member(1, 10_000, RECV)))
    assert edges_of(send) >= {("gemm", "receiver is ready"), ("receiver is ready", "nccl"), ("gemm", "nccl")}
    assert edges_of(receive) >= {("gemm", "ready to receive"), ("ready to receive", "nccl")}
    for graph, name, type in ((send, "receiver is ready", RECV), (receive, "ready to receive", SEND)):
        row = [graph.name[row] for row in range(len(graph))].index(name)
        facts = [int(graph.integers(f"comm_{what}")[row]) for what in ("src", "dst", "tag", "size")]
        assert (graph.type[row], facts, graph.duration_ns[row]) == (type, [1, 0, TAG, 64], 0)


def test_sends_and_collectives_follow_the_common_order_and_receives_do_not() -> None:
    assert ("nccl", "ncclAllReduce") in edges_of(targets(ordered(member(0, 10_000, SEND))))
    assert ("nccl", "ncclAllReduce") not in edges_of(targets(ordered(member(1, 10_000, RECV))))


def test_the_receiver_is_ready_before_it_waits_in_a_later_collective() -> None:
    assert ("ready to receive", "ncclAllReduce") in edges_of(targets(ordered(member(1, 10_000, RECV))))


@pytest.mark.parametrize("generation", list(Generation))
def test_a_simulated_send_waits_for_a_late_receiver_and_no_rank_waits_for_ever(
    generation: Generation, tmp_path: Path
) -> None:
    def finish(ready: bool) -> dict[int, int]:
        for rank, graph in enumerate((member(0, 10_000, SEND), member(1, 30_000, RECV))):
            for_astra_sim(ordered(graph, ready)).write(str(tmp_path / f"graph.{rank}.et"))
        outcome = simulate(read_files(tmp_path / "graph", 2), None, generation)
        assert outcome.good, outcome.trouble
        return outcome.finished_ns

    at_once, awaited = finish(False), finish(True)
    ready, message = LATENCY_NS + 1, LATENCY_NS + 1_000
    assert (at_once[1], awaited[1]) == (35_000, 30_000 + ready + message + 5_000)
    assert (at_once[0], awaited[0]) == (10_000 + message + 5_000, awaited[1])
