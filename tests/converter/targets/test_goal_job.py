"""Jobs in GOAL: who waits for whom, what a message needs, and that the measured run comes back when messages cost
nothing.
"""

import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.converter.ranks import restrict_to_ranks
from execgraph.converter.targets import GoalOptions, write_goal
from execgraph.converter.targets.goal_job import job_of, rank_communication
from execgraph.converter.targets.goal_program import READY
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, Delay, ExecutionGraph, NodeType
from support.generated import built_job
from support.graphs import EVENT_WAIT, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder
from support.simulator import StandsStill, Waits, others, parse, run, troubles

PLAIN = GoalOptions(simulator="atlahs")
MEASURED = GoalOptions(measured_communication=True)


def goal(graphs, options=PLAIN, **more):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.goal")
        report = write_goal(str(path), len(graphs), lambda place: graphs[place], options, **more)
        return parse(path.read_text()), report


def alone(graph: GraphBuilder, options: GoalOptions = PLAIN) -> int:
    """When a single rank finishes; both ways to wait say the same of a file for LogGOPSim."""
    ranks, _ = goal([graph.build()], options)
    crossing, _ = goal([graph.build()], GoalOptions(simulator="loggopsim"))
    finishes = {run(ranks)[0], *(run(crossing, waits)[0] for waits in Waits)}
    assert len(finishes) == 1
    return finishes.pop()


def member(rank: int, begin: int, lasts: int, *, ranks: Sequence[int] = (0, 1), **more: Any) -> ExecutionGraph:
    """A rank that computes until `begin`, then takes part in a collective while it lasts, then computes for 5."""
    g = GraphBuilder(rank=rank)
    work = g.activity("gemm", 0, begin)
    more = {"comm_type": CollectiveType.ALL_REDUCE, "comm_size": 4096} | more
    met = g.collective(begin, lasts, ranks=list(ranks), after=[(work, STREAM_ORDER)], **more)
    g.activity("after", begin + lasts, 5, after=[(met, STREAM_ORDER)])
    return g.build()


def members(count: int, **more: Any) -> list[ExecutionGraph]:
    """Ranks that all meet at once, in the same collective."""
    return [member(rank, 10, 9, ranks=range(count), **more) for rank in range(count)]


def in_turn(rank, ranks, kind, *met, **more):
    """A rank that takes part in collectives right after each other, each of as many bytes and as long as given."""
    g, begin = GraphBuilder(rank=rank), 0
    for size, lasts in met:
        g.collective(begin, lasts, ranks=list(ranks), comm_type=kind, comm_size=size, **more)
        begin += lasts
    return g.build()


def peer(rank: int, kind: NodeType, begin: int = 10, size: int = 100, **more: Any) -> ExecutionGraph:
    """A rank that sends to the other one of two, or receives from it."""
    g = GraphBuilder(rank=rank)
    source = rank if kind == NodeType.COMM_SEND else 1 - rank
    g.activity("gemm", 0, begin)
    g.activity(
        "ncclSend", begin, 7, type=kind, comm_src=source, comm_dst=1 - source, comm_tag=0, comm_size=size, **more
    )
    return g.build()


# Who waits for whom


def test_a_kernel_follows_its_launch_by_its_gap_and_the_host_goes_on(g: GraphBuilder) -> None:
    launch = g.host("aten::mm", 0, 5)
    g.host("aten::add", 5, 50, after=[(launch, PROGRAM_ORDER)])
    g.activity("sgemm", 8, 20, gap=3, after=[(launch, LAUNCH)])
    assert alone(g) == 55
    g.activity("sgemm", 28, 40, after=[(3, STREAM_ORDER)])
    assert alone(g) == 5 + 3 + 20 + 40


def test_streams_run_beside_each_other_until_one_waits(g: GraphBuilder) -> None:
    first = g.activity("sgemm", 0, 100, stream=7)
    second = g.activity("relu", 0, 30, stream=8)
    assert alone(g) == 100
    g.activity("add", 100, 10, stream=8, after=[(second, STREAM_ORDER), (first, EVENT_WAIT)])
    assert alone(g) == 110


def test_a_cpu_is_a_thread_or_a_stream_and_runs_one_node_at_a_time(g: GraphBuilder) -> None:
    g.host("aten::mm", 0, 10, thread=1)
    g.host("aten::mm", 0, 10, thread=2)
    g.activity("sgemm", 0, 30, stream=7)
    g.activity("sgemm", 30, 30, stream=7)
    ranks, report = goal([g.build()])
    assert report.ranks[0].cpus == ["thread 1", "thread 2", "device 0 stream 7"]
    assert run(ranks) == [60]


def test_delays_pass_beside_the_work_and_beside_each_other(g: GraphBuilder) -> None:
    launch = g.host("aten::mm", 0, 10)
    busy = g.activity("sgemm", 10, 40, stream=7, after=[(launch, LAUNCH)])
    for stream in (7, 8):
        delay = g.delay(10, 50, Delay.UNEXPLAINED, after=[(launch, LAUNCH)])
        chain = [(busy, STREAM_ORDER)] if stream == 7 else []
        g.activity("relu", 60, 5, stream=stream, after=[(delay, LAUNCH), *chain])
    assert alone(g) == 65


def test_lanes_begin_when_they_did(g: GraphBuilder) -> None:
    g.host("aten::mm", 1000, 10)
    g.host("aten::mm", 1040, 10, thread=2)
    assert alone(g) == 50


def test_for_loggopsim_no_time_is_lost_between_cpus_where_requires_tells_the_order_alone(g: GraphBuilder) -> None:
    launch = g.host("aten::mm", 0, 100)
    g.activity("sgemm", 100, 20, after=[(launch, LAUNCH)])
    plain, crossing = (goal([g.build()], GoalOptions(simulator=name))[0] for name in ("atlahs", "loggopsim"))
    assert (run(plain, Waits.ORDER), run(crossing, Waits.ORDER), run(crossing, Waits.TIME)) == ([100], [120], [120])
    assert troubles(crossing) == []


# What a collective takes


def test_members_meet_and_take_the_shortest_measured_time_from_the_last_arrival_on() -> None:
    graphs = [member(0, 10, 100), member(1, 80, 30)]
    for simulator in ("loggopsim", "atlahs"):
        ranks, _ = goal(graphs, GoalOptions(measured_communication=True, simulator=simulator))
        assert run(ranks) == [115, 115]
    # messages that cost nothing leave the wait for the last
    ranks, report = goal(graphs)
    assert run(ranks) == [85, 85]
    assert report.communication == {"all-reduce by ring": 1}


def test_a_rank_that_began_later_begins_later() -> None:
    """Its clock begins 70 after the other one's, as both end the collective at once; what it does beside ends that much
    later.
    """
    g = GraphBuilder(rank=1)
    g.collective(10, 30, ranks=[0, 1], comm_type=CollectiveType.ALL_REDUCE, comm_size=4096)
    g.activity("beside", 0, 100, stream=8)
    graphs = [member(0, 80, 30), g.build()]
    ranks, report = goal(graphs, MEASURED)
    assert [rank.begin_ns for rank in report.ranks] == [0, 70]
    assert run(ranks, Waits.ORDER) == [rank.end_ns for rank in report.ranks] == [115, 170]
    at_once, report = goal(graphs, MEASURED, start_offsets=False)
    assert [rank.begin_ns for rank in report.ranks] == [0, 70]
    assert run(at_once, Waits.ORDER) == [115, 110]


def test_members_of_an_all_gather_send_what_each_puts_in() -> None:
    sizes = (100, 300)
    ranks, _ = goal(
        [member(rank, 10, 9, comm_type=CollectiveType.ALL_GATHER, comm_size=size) for rank, size in enumerate(sizes)]
    )
    assert [(rank, op.amount) for rank, op in others(ranks, "send")] == [(0, 100), (1, 300)]


@pytest.mark.parametrize(("sent", "received"), [(100, 0), (0, 100)])
def test_a_message_has_the_size_that_either_end_recorded(sent: int, received: int) -> None:
    ranks, _ = goal([peer(0, NodeType.COMM_SEND, size=sent), peer(1, NodeType.COMM_RECV, size=received)])
    assert 100 in [op.amount for rank, op in others(ranks, "send") if rank == 0]


def test_members_on_host_threads_end_when_they_did() -> None:
    """The third collective of rank 1 begins 20 later and ends 10 sooner."""

    def rank(number: int, *times: tuple[int, int]) -> ExecutionGraph:
        g = GraphBuilder(rank=number)
        for sequence, (start, end) in enumerate(times):
            g.host("gloo:all_reduce", start, end - start, type=NodeType.COMM_COLL, pg_ranks=[0, 1], comm_size=8,
                   comm_type=CollectiveType.ALL_REDUCE, comm_seq=sequence)  # fmt: skip
        return g.build()

    graphs = rank(0, (0, 10), (20, 50), (60, 100)), rank(1, (0, 10), (20, 50), (80, 90))
    found = job_of([rank_communication(graph, at) for at, graph in enumerate(graphs)], GoalOptions())
    assert found.begin_ns.tolist() == [0, 0]
    assert [collective.duration_ns for collective in found.collectives] == [(10, 10), (30, 30), (20, 10)]


@pytest.mark.parametrize("chunk", [512, 1000, 1 << 20])
def test_a_ring_sends_its_share_of_the_buffer_twice_in_pieces(chunk: int) -> None:
    ranks, report = goal(members(4), GoalOptions(chunk_bytes=chunk))
    sent = Counter[int]()
    for rank, op in others(ranks, "send"):
        assert op.peer == (rank + 1) % 4 and op.amount <= chunk
        sent[rank] += op.amount
    assert set(sent.values()) == {2 * 3 * 1024}
    assert report.bytes_sent == 4 * 2 * 3 * 1024


def test_an_all_to_all_sends_what_was_recorded_for_each() -> None:
    splits = ([1, 20, 300], [4, 5, 600], [7000, 0, 9])
    kind = CollectiveType.ALL_TO_ALL
    graphs = [
        member(rank, 10, 9, ranks=range(3), comm_type=kind, comm_size=sum(split), comm_split=split)
        for rank, split in enumerate(splits)
    ]
    ranks, _ = goal(graphs)
    assert {(rank, op.peer): op.amount for rank, op in others(ranks, "send")} == {
        (rank, to): size for rank, split in enumerate(splits) for to, size in enumerate(split) if to != rank and size
    }


def test_recorded_splits_are_in_the_graph_and_go_with_the_members_of_a_part_of_the_job() -> None:
    for graph in built_job("uneven", 2).graphs:
        splits, sizes = graph.attributes["comm_split"], graph.integers("comm_size")
        rows = np.flatnonzero(splits.lengths())
        assert [int(splits[row].sum()) for row in rows] == sizes[rows].tolist()
    split = member(3, 10, 9, ranks=range(4), comm_split=[10, 20, 30, 40])
    assert restrict_to_ranks(split, [1, 3]).attributes["comm_split"].values.tolist() == [20, 40]


def test_of_ranks_that_are_not_there_is_told_and_their_part_of_an_all_to_all_is_left_out() -> None:
    kind, groups = CollectiveType.ALL_TO_ALL, range(4)
    graphs = [member(rank, 10, 9, ranks=groups, comm_type=kind, comm_size=4000) for rank in (1, 3)]
    ranks, report = goal(graphs)
    assert [(rank, op.peer, op.amount) for rank, op in others(ranks, "send")] == [(0, 1, 1000), (1, 0, 1000)]
    assert [rank.rank for rank in report.ranks] == [1, 3]
    assert report.communication == {
        "all-to-all pairwise": 1,
        "all-to-alls without recorded splits, taken as even": 1,
        "collectives without some members of their group, of those that are there": 1,
    }


def test_what_has_nobody_to_meet_takes_its_measured_time() -> None:
    ranks, report = goal([member(0, 10, 100), member(1, 10, 100, ranks=[1, 2])])
    assert run(ranks) == [115, 115]
    assert list(report.communication.values()) == [2]
    ranks, report = goal([peer(0, NodeType.COMM_SEND), peer(1, NodeType.COMM_SEND)])
    assert run(ranks) == [17, 17]
    assert list(report.communication.values()) == [2]


def test_a_collective_without_bytes_is_a_barrier() -> None:
    ranks, report = goal([member(rank, 10 * rank, 9, comm_size=0) for rank in range(2)])
    assert run(ranks) == [15, 15]
    assert report.communication["barrier by dissemination"] == 1


# What a message needs


def test_a_message_goes_from_its_sender_to_its_receiver() -> None:
    ranks, _ = goal([peer(0, NodeType.COMM_SEND, begin=50), peer(1, NodeType.COMM_RECV)], GoalOptions(chunk_bytes=60))
    assert [op.amount for rank, op in others(ranks, "send") if rank == 0] == [60, 40]
    assert run(ranks) == [50, 50]
    ranks, _ = goal([peer(0, NodeType.COMM_SEND, begin=50), peer(1, NodeType.COMM_RECV)], MEASURED)
    assert run(ranks, Waits.ORDER) == [57, 57]


@pytest.mark.parametrize(("send_begin", "receive_begin", "waits"), [(10, 50, True), (50, 10, True), (10, 17, False)])
def test_a_send_waits_for_its_receiver_if_it_did(send_begin: int, receive_begin: int, waits: bool) -> None:
    """It lasts to the end of the receive then, on the clock that a barrier before ties together."""

    def rank(number: int, kind: NodeType, begin: int, lasts: int) -> ExecutionGraph:
        g = GraphBuilder(rank=number)
        met = g.collective(0, 5, ranks=[0, 1], comm_type=CollectiveType.BARRIER, comm_size=0)
        g.activity("ncclSendRecv", begin, lasts, after=[(met, STREAM_ORDER)], gap=begin - 5, type=kind, comm_src=0,
                   comm_dst=1, comm_tag=0, comm_size=100)  # fmt: skip
        return g.build()

    end = max(send_begin, receive_begin) + 7
    send = rank(0, NodeType.COMM_SEND, send_begin, end - send_begin if waits else 7)
    ranks, report = goal([send, rank(1, NodeType.COMM_RECV, receive_begin, end - receive_begin)])
    assert report.communication["message when its receiver is ready" if waits else "message"] == 1
    # messages and the barrier of 5 cost nothing here, so what is left is the wait
    both = max(send_begin, receive_begin)
    assert run(ranks) == [(both if waits else send_begin) - 5, both - 5]


def test_pieces_of_a_collective_leave_in_their_order_and_bytes_of_readiness_wait_for_none() -> None:
    for simulator in ("loggopsim", "atlahs"):
        ranks, _ = goal(members(4), GoalOptions(chunk_bytes=256, simulator=simulator))
        for rank, ops in enumerate(ranks):
            sends = [at for at, op in enumerate(ops) if op.verb == "send" and op.peer != rank]
            assert len(sends) == 2 * 3 * 4
            assert [ops[at].follows_start for at in sends] == [[], *([before] for before in sends[:-1])]
    ranks, _ = goal([peer(0, NodeType.COMM_SEND, begin=50), peer(1, NodeType.COMM_RECV)])
    assert [op.nic for rank, op in others(ranks, "send")] == [0, READY]


@pytest.mark.parametrize(
    ("kind", "latencies", "part"),
    [(CollectiveType.ALL_REDUCE, 6, 6 / 4), (CollectiveType.ALL_TO_ALL, 1, 3 / 4), (CollectiveType.BROADCAST, 3, 3)],
)
def test_latency_and_time_of_a_byte_are_those_of_the_messages(kind, latencies, part):
    """Four members, which send each message in one piece; a message of 500 ns, and 0.25 ns a byte."""
    met = [(size, round(latencies * 500 + part * size * 0.25)) for size in (4_000, 400_000)]
    graphs = [in_turn(rank, range(4), kind, *met, comm_src=0) for rank in range(4)]
    network = goal(graphs, GoalOptions(chunk_bytes=1_000_000))[1].network
    assert (network.latency_ns, network.ns_per_byte, network.transfers, network.fit_error_pct) == (500, 0.25, 2, None)
    assert goal(graphs, MEASURED)[1].network is None


def test_a_collective_keeps_what_it_took_beyond_the_fitted_network() -> None:
    """Three all-gathers in a row, of which the fit describes two."""
    met = [(1_000, lasts) for lasts in (1_000, 1_000, 4_000)]
    graphs = [in_turn(rank, range(2), CollectiveType.ALL_GATHER, *met) for rank in range(2)]
    ranks, report = goal(graphs)
    given = round(report.network.ns_per_byte * 1_000) * 3
    assert [rank.excess_ns for rank in report.ranks] == [pytest.approx(6_000 - given, abs=3)] * 2
    assert [rank.collectives_ns for rank in report.ranks] == [6_000] * 2
    assert run(ranks) == [report.ranks[0].excess_ns] * 2
    assert run(goal(graphs, excess_time=False)[0]) == [0, 0]


def test_messages_with_one_kernel_go_at_once_so_that_a_swap_does_not_hang() -> None:
    def swap(rank: int) -> ExecutionGraph:
        g = GraphBuilder(rank=rank)
        ends = {"coalesced_src": [rank, 1 - rank], "coalesced_dst": [1 - rank, rank]}
        sizes = {"coalesced_tag": [0, 0], "coalesced_size": [1000, 1000], "comm_size": 1000}
        g.activity("ncclSendRecv", 0, 9, type=NodeType.COMM_RECV, comm_src=1 - rank, comm_dst=rank, **ends, **sizes)
        return g.build()

    ranks, report = goal([swap(0), swap(1)])
    assert report.communication == {"message when its receiver is ready": 2}
    assert [op.amount for _, op in others(ranks, "send") if op.nic != READY] == [1000, 1000]
    assert run(ranks, rendezvous=True) == [0, 0]


def test_ranks_of_a_node_have_a_nic_among_themselves() -> None:
    ranks, report = goal(members(4), GoalOptions(gpus_per_node=2))
    nics = {(rank, op.peer): op.nic for rank, op in others(ranks, "send")}
    assert nics == {(0, 1): 1, (1, 2): 0, (2, 3): 1, (3, 0): 0}
    assert [(rank.node, rank.gpu) for rank in report.ranks] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_rank_that_is_there_twice_is_refused() -> None:
    with pytest.raises(DataError, match="several graphs are of one rank"):
        goal([member(0, 10, 9), member(0, 10, 9)])


def test_the_simulator_of_these_tests_notices_what_hangs() -> None:
    ranks = parse(
        "num_ranks 1\n\nrank 0 {\nl0: recv 8b from 0 tag 1 cpu 0 nic 0\nl1: calc 5 cpu 0\nl1 requires l0\n}\n"
    )
    assert len(troubles(ranks)) == 1
    with pytest.raises(StandsStill, match="2 operations never end"):
        run(ranks)


# Generated jobs

JOBS = [("ddp", 2), ("pipeline", 4), ("moe", 2), ("uneven", 4), ("halo", 4), ("dlrm", 2)]


@pytest.mark.parametrize(
    ("job", "count", "simulator"),
    [(*job, simulator) for job, simulator in zip(JOBS, cycle(("loggopsim", "atlahs", "loggopsim")))],
)
def test_with_measured_communication_every_rank_finishes_as_measured(job: str, count: int, simulator: Any) -> None:
    graphs = built_job(job, count).graphs
    ranks, report = goal(graphs, GoalOptions(measured_communication=True, simulator=simulator))
    assert troubles(ranks) == []
    for waits in Waits if simulator == "loggopsim" else [Waits.TIME]:
        for finish, rank in zip(run(ranks, waits), report.ranks, strict=True):
            assert finish == pytest.approx(rank.end_ns, rel=0.005)


@pytest.mark.parametrize(("job", "count"), JOBS)
def test_messages_fit_and_nobody_waits_for_ever(job: str, count: int) -> None:
    graphs, options = built_job(job, count).graphs, GoalOptions(chunk_bytes=1 << 22)
    ranks, report = goal(graphs, options)
    most = max(Counter(rank for rank, _ in others(ranks, "send")).values())
    with pytest.raises(
        DataError, match=f"would send {most:,} messages, of .* the limit is {most - 1:,} of a rank: make"
    ):
        goal(graphs, options, max_messages=most - 1)
    assert troubles(ranks) == []
    assert 0 < max(run(ranks, rendezvous=True)) < max(rank.end_ns for rank in report.ranks)
    assert run(ranks, Waits.ORDER) == run(ranks, Waits.TIME)
