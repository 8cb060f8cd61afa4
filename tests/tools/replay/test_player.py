"""Players with rules: full devices, and one node of a kind at a time as in ASTRA-sim."""

from pathlib import Path

import numpy as np
import pytest
from execgraph.converter.rewiring import without_host
from execgraph.converter.targets import for_astra_sim
from execgraph.schema.errors import DataError
from execgraph.schema.graph import Delay, ExecutionGraph, NodeType
from execgraph.tools.replay import describe_simulated, replay, simulate_ranks, simulated_ends
from support.generated import graphs_of
from support.graphs import LAUNCH, STREAM_ORDER, GraphBuilder
from support.runs import path_ns, scaled
from support.simulator import Generation, read_files, simulate


def on_streams(count: int, **metadata: int) -> ExecutionGraph:
    """Kernels of 10 ns, one on each stream, launched at once."""
    g = GraphBuilder(**metadata)
    op = g.host("op", 0, 5)
    for stream in range(count):
        g.activity(f"kernel {stream}", 5, 10, stream=stream, after=[(op, LAUNCH)])
    return g.build()


@pytest.mark.parametrize(("limit", "makespan"), [(1, 85), (2, 45), (3, 45), (4, 25), (9, 25)])
def test_a_device_with_a_concurrency_limit_runs_no_more_at_once(limit: int, makespan: int) -> None:
    assert scaled(on_streams(4, concurrency_limit_of_device_0=limit), "kernel=2").makespan_ns == makespan
    assert scaled(on_streams(4, concurrency_limit_of_device_1=limit), "kernel=2").makespan_ns == 25


def test_what_is_ready_first_gets_the_slot_first_and_the_path_leads_through_it() -> None:
    replayed = scaled(on_streams(3, concurrency_limit_of_device_0=1), "kernel 1=5")
    assert replayed.start_ns.tolist() == [0, 5, 15, 65]
    assert path_ns(replayed) == {"computation": 70, "host": 5}


def test_communication_takes_no_slot() -> None:
    g = GraphBuilder(concurrency_limit_of_device_0=1)
    op = g.host("op", 0, 5)
    g.activity("kernel", 5, 10, stream=7, after=[(op, LAUNCH)])
    g.collective(5, 10, ranks=[0], stream=8, after=[(op, LAUNCH)])
    assert scaled(g.build(), "kernel=2").makespan_ns == 25


def one_after_the_other() -> ExecutionGraph:
    """Two kernels of 10 ns, ready at once, on a device that has one slot."""
    g = GraphBuilder(concurrency_limit_of_device_0=1)
    op = g.host("op", 0, 5)
    g.activity("first", 5, 10, stream=7, after=[(op, LAUNCH)])
    delay = g.delay(5, 10, Delay.CONTENTION, after=[(op, LAUNCH)])
    g.activity("second", 15, 10, stream=8, after=[(op, LAUNCH), (delay, LAUNCH)])
    return g.build()


def test_what_waited_for_a_slot_waits_as_measured_in_the_run_as_it_was() -> None:
    assert replay(one_after_the_other()).makespan_ns == 25


@pytest.mark.parametrize(("factor", "makespan"), [("0.2", 17), ("3", 45)])
def test_what_waited_for_a_slot_waits_for_that_in_a_changed_run(factor: str, makespan: int) -> None:
    assert scaled(one_after_the_other(), f"first={factor}").makespan_ns == makespan


def played(g: GraphBuilder) -> ExecutionGraph:
    return for_astra_sim(g.build())


def test_one_node_of_a_kind_runs_at_a_time_and_the_lowest_id_goes_first() -> None:
    g = GraphBuilder(rank=0)
    op = g.host("op", 0, 10_000)
    g.host("other thread", 10_000, 10_000, thread=2)
    g.activity("kernel", 10_000, 20_000, stream=7, after=[(op, LAUNCH)])
    g.activity("other stream", 30_000, 20_000, stream=8, after=[(op, LAUNCH)])
    ends = simulated_ends([played(g)])[0] // 1000
    assert ends.tolist() == [10, 20, 30, 50]


def test_receives_run_beside_all_other_communication() -> None:
    g = GraphBuilder(rank=0, world_size=2)
    for stream, kind in enumerate((NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_RECV, NodeType.COMM_SEND)):
        peers = {"comm_src": 0, "comm_dst": 1} if kind == NodeType.COMM_SEND else {"comm_src": 1, "comm_dst": 0}
        g.activity(f"nccl {stream}", stream, 20_000, type=kind, stream=stream, comm_size=64, comm_tag=stream, **peers)
    graph = g.build()
    graph.attributes["is_cpu_op"], graph.duration_micros[:] = np.zeros(len(graph), np.int64), 20
    assert (simulated_ends([graph])[0] // 1000).tolist() == [20, 20, 20, 40]


@pytest.mark.parametrize("host", [True, False], ids=["host", "no host"])
@pytest.mark.parametrize("job", ["ddp", "pipeline", "moe", "halo", "streams"])
def test_generated_jobs_take_their_measured_time(job: str, host: bool) -> None:
    for graph in graphs_of(job):
        found = simulate_ranks([for_astra_sim(graph if host else without_host(graph))])
        assert abs(found.worst_error_pct) <= 0.5


def test_the_rules_are_those_of_the_simulator(tmp_path: Path) -> None:
    """Without communication, whose time replay mode takes from the file."""
    for number, graph in enumerate(graphs_of("streams")):
        made = for_astra_sim(graph)
        made.write(str(tmp_path / f"{number}.0.et"))
        outcome = simulate(read_files(tmp_path / str(number), 1), None, Generation.V1)
        assert outcome.finished_ns == {0: simulated_ends([made])[0].max()}


def test_each_rank_is_told_beside_its_measured_time() -> None:
    g = GraphBuilder(rank=3)
    first = g.activity("kernel", 0, 10_000, stream=7)
    g.activity("late", 20_000, 10_000, stream=7, after=[(first, STREAM_ORDER)])
    found = simulate_ranks([played(g)])
    assert found.ranks["3"].measured_us == 30
    assert found.ranks["3"].finish_us == 20
    assert found.worst_error_pct == pytest.approx(-100 / 3)
    assert "rank 3" in describe_simulated(found)
    assert "-33.33 %" in describe_simulated(found)


def test_graphs_for_others_are_refused() -> None:
    g = GraphBuilder(rank=0)
    g.activity("kernel", 0, 10_000)
    with pytest.raises(DataError, match="not for astra-sim; build the job"):
        simulate_ranks([g.build()])
