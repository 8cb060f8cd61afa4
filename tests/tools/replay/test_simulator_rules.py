"""A graph played by ASTRA-sim's rules: as the small simulator of these tests plays its file, and as measured."""

from pathlib import Path

import numpy as np
import pytest
from execgraph.converter.device_only import without_host
from execgraph.converter.targets import for_astra_sim
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph, NodeType
from execgraph.tools.replay import describe_simulated, simulate_ranks, simulated_ends
from support.generated import graphs_of
from support.graphs import LAUNCH, STREAM_ORDER, GraphBuilder
from support.simulator import Generation, read_files, simulate


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
