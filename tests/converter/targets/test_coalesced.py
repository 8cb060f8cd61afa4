"""Messages that one kernel carried together, taken apart: a node each, in turn, with the kernel's time and
dependencies.
"""

import numpy as np
from execgraph.converter.targets import separate_messages
from execgraph.schema.columns import ABSENT
from execgraph.schema.graph import ExecutionGraph, NodeType
from support.graphs import STREAM_ORDER, GraphBuilder

SEND, RECEIVE = NodeType.COMM_SEND, NodeType.COMM_RECV
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
    both = g.activity("nccl", 15_000, 20_000, gap=5_000, type=SEND, after=[(first, STREAM_ORDER)], **lists)
    g.activity("last", 40_000, 1_000, gap=3_000, after=[(both, STREAM_ORDER)])
    return g.build()


def chain(graph: ExecutionGraph) -> list[tuple[str, list[int]]]:
    return [(graph.name[row], graph.data_deps[row].tolist()) for row in range(len(graph))]


def test_messages_follow_each_other_between_what_was_around_their_kernel() -> None:
    graph = separate_messages(exchange((1, 0, 3, 8), (1, 2, 4, 16), (0, 1, 5, 32), rank=1))
    assert chain(graph) == [("first", []), ("nccl", [1]), ("nccl", [2]), ("nccl", [3]), ("last", [4])]
    assert graph.type[1:4].tolist() == [SEND, SEND, RECEIVE]
    told = [graph.integers(name)[1:4].tolist() for name in NAMES]
    assert told == [[1, 1, 0], [0, 2, 1], [3, 4, 5], [8, 16, 32]]
    assert not [name for name in graph.attributes if name.startswith("coalesced")]


def test_the_gap_passes_before_the_first_and_the_kernels_time_at_the_last() -> None:
    graph = separate_messages(exchange((1, 0, 3, 8), (1, 2, 4, 16), (0, 1, 5, 32), rank=1))
    assert graph.duration_ns[1:4].tolist() == [0, 0, 20_000]
    assert graph.integers("gap_ns").tolist() == [0, 5_000, ABSENT, ABSENT, 3_000]


def test_each_kernel_has_the_messages_that_it_carried() -> None:
    g = GraphBuilder(rank=0)
    for clock in (0, 50_000):
        peers = {"coalesced_src": [0, 1], "coalesced_dst": [1, 0], "coalesced_tag": [0, 0]}
        g.activity("nccl", clock, 20_000, type=SEND, stream=clock, coalesced_size=[8, clock], **peers)
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
    assert (graph.type[1], graph.duration_ns[1], graph.integers("gap_ns")[1]) == (RECEIVE, 20_000, 5_000)


def test_a_graph_that_does_not_know_its_rank_receives() -> None:
    assert separate_messages(exchange((1, 0, 3, 8), rank=-1)).type[1] == RECEIVE
    assert separate_messages(exchange((1, 0, 3, 8))).type[1] == RECEIVE


def test_a_graph_without_messages_together_stays_as_it_is() -> None:
    g = GraphBuilder(rank=0)
    g.activity("kernel", 0, 10)
    graph = g.build()
    assert separate_messages(graph) is graph
    assert np.array_equal(graph.type, [NodeType.COMP])
