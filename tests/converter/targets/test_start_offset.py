"""The start offset of a rank in a graph for ASTRA-sim: before all else there, and counted once by a replay."""

from pathlib import Path

import pytest
from execgraph.converter.device_only import without_host
from execgraph.converter.ranks import communication_summary, matched_calls
from execgraph.converter.rewiring import data_edges
from execgraph.converter.targets import for_astra_sim
from execgraph.converter.targets.times import with_start_offset
from execgraph.schema.graph import CollectiveType, ExecutionGraph
from execgraph.tools.replay import replay_ranks, simulate_ranks, simulated_ends
from support.for_simulator import passed
from support.graphs import LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder
from support.simulator import Generation, read_files, simulate

OFFSET = 300_000


def member(rank: int, *, work: int, collective: int) -> ExecutionGraph:
    """An op launches work and a collective with the other rank, 10 µs into the recording, and ends 20 µs after that;
    another thread and another stream begin with the recording.
    """
    g, clock = GraphBuilder(rank=rank, world_size=2, clock_offset_ns=2_000), 1_000_000 * (rank + 1)
    op = g.host("op", clock, 10_000)
    g.host("loader", clock, 5_000, thread=2)
    g.activity("copy", clock - 2_000, 6_000, stream=8)
    gemm = g.activity("gemm", clock + 8_000, work, after=[(op, LAUNCH)])
    end = clock + 8_000 + work + collective
    meets = {"comm_type": CollectiveType.ALL_REDUCE, "comm_size": 4096, "ranks": [0, 1]}
    g.collective(end - collective, collective, after=[(gemm, STREAM_ORDER)], **meets)
    g.host("synchronize", end + 2_000, 20_000, after=[(op, PROGRAM_ORDER), (len(g.nodes), LAUNCH)])
    return g.build()


def late_rank() -> list[ExecutionGraph]:
    """Rank 1 begins 300 µs after rank 0, which waits for it: both end 430 µs after rank 0 began."""
    return [member(0, work=50_000, collective=350_000), member(1, work=80_000, collective=20_000)]


def offsets(graphs: list[ExecutionGraph]) -> list[int]:
    return matched_calls([communication_summary(graph) for graph in graphs]).offset_ns.tolist()


def lowered(graphs: list[ExecutionGraph]) -> list[ExecutionGraph]:
    pairs = zip(graphs, offsets(graphs), strict=True)
    return [for_astra_sim(graph, start_offset_ns=offset) for graph, offset in pairs]


def test_the_offset_is_how_much_later_a_rank_began_on_the_clock_of_the_collectives() -> None:
    assert offsets(late_rank()) == [0, OFFSET]
    assert offsets([without_host(graph) for graph in late_rank()]) == [0, OFFSET]


@pytest.mark.parametrize("host", [True, False], ids=["host", "no host"])
def test_everything_of_the_rank_comes_after_the_offset(host: bool) -> None:
    first, late = lowered([graph if host else without_host(graph) for graph in late_rank()])
    assert "start offset" not in first.name.table
    assert (late.name[0], late.id[0], late.duration_micros[0]) == ("start offset", 1, OFFSET // 1000)
    assert (late.integers("start_offset_ns")[0], late.duration_ns[0]) == (OFFSET, 0)
    assert (late.integers("is_cpu_op")[0] == 1) == host
    edges = data_edges(late)
    assert set(range(1, len(late))) - set(edges.target.tolist()) == set()
    assert (simulated_ends([late])[0] >= OFFSET).all()


@pytest.mark.parametrize("host", [True, False], ids=["host", "no host"])
def test_a_replay_counts_the_offset_once(host: bool) -> None:
    graphs = [graph if host else without_host(graph) for graph in late_rank()]
    plain, replayed = replay_ranks(graphs), replay_ranks(lowered(graphs))
    assert plain.makespan_ns == plain.measured_ns == OFFSET + 130_000
    assert (replayed.makespan_ns, replayed.measured_ns) == (plain.makespan_ns, plain.measured_ns)


@pytest.mark.parametrize("host", [True, False], ids=["host", "no host"])
def test_ranks_end_in_replay_mode_when_they_did_on_the_clock_of_the_job(host: bool) -> None:
    found = simulate_ranks(lowered([graph if host else without_host(graph) for graph in late_rank()]))
    assert {label: (rank.start_offset_us, rank.measured_us) for label, rank in found.ranks.items()} == {
        "0": (0, 430),
        "1": (300, 430),
    }
    assert abs(found.worst_error_pct) < 1


@pytest.mark.parametrize("generation", Generation)
def test_both_generations_run_the_job_with_its_offset(generation: Generation, tmp_path: Path) -> None:
    for rank, graph in enumerate(lowered(late_rank())):
        graph.write(str(tmp_path / f"job.{rank}.et"))
    outcome = simulate(read_files(tmp_path / "job", 2), None, generation)
    assert outcome.good
    assert all(finish >= OFFSET + 100_000 for finish in outcome.finished_ns.values())


def test_less_than_half_a_microsecond_is_no_node_and_half_of_one_a_whole_one() -> None:
    graph = late_rank()[0]
    assert len(for_astra_sim(graph, start_offset_ns=499)) == len(for_astra_sim(graph))
    assert for_astra_sim(graph, start_offset_ns=500).duration_micros[0] == 1
    assert for_astra_sim(graph, start_offset_ns=1_499).duration_micros[0] == 1


@pytest.mark.parametrize("host", [True, False], ids=["host", "no host"])
def test_the_offset_starts_with_the_rank_on_the_clock_of_its_node(host: bool) -> None:
    """The device's clock is 2 µs behind; without the host the rank begins with the copy, which starts at once."""
    graph = late_rank()[1]
    offset = passed(with_start_offset, graph if host else without_host(graph), OFFSET)[0]
    assert offset.integers("start_time_ns")[0] == 2_000_000 - (0 if host else 2_000)


def test_all_that_depends_on_nothing_follows_the_offset() -> None:
    g = GraphBuilder(rank=0)
    op = g.host("op", 10, 5)
    g.host("next", 15, 5, after=[(op, PROGRAM_ORDER)])
    g.host("loader", 0, 5, thread=2)
    edges = data_edges(passed(with_start_offset, g.build(), OFFSET)[0])
    pairs = set(zip(edges.source.tolist(), edges.target.tolist(), strict=True))
    assert pairs == {(0, 1), (0, 3), (1, 2)}
