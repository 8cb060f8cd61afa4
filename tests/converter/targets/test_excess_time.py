"""What collectives took beyond the fitted network, in a graph for ASTRA-sim: it ends when the measured job ended."""

from pathlib import Path

import numpy as np
import pytest
from execgraph.converter.ranks import with_values
from execgraph.converter.rewiring import data_edges
from execgraph.converter.targets import for_astra_sim
from execgraph.schema.graph import Change, CollectiveType, ExecutionGraph, NodeType
from execgraph.tools.replay import simulated_ends
from support.for_simulator import ALL_REDUCE, communicating, report, targets
from support.graphs import STREAM_ORDER, GraphBuilder
from support.simulator import LATENCY_NS, Generation, read_files, simulate

COLLECTIVE = 2
"""The id of the collective of `followed`."""


def followed(rank: int = 0) -> ExecutionGraph:
    """A kernel, an all-reduce of 9 µs with the other rank, and a kernel that waits for it, of 2 µs."""
    g = GraphBuilder(rank=rank, world_size=2)
    gemm = g.activity("gemm", 0, 10_000)
    together = g.collective(
        10_000, 9_000, ranks=[0, 1], comm_type=ALL_REDUCE, comm_size=64, after=[(gemm, STREAM_ORDER)]
    )
    g.activity("after", 19_000, 2_000, after=[(together, STREAM_ORDER)])
    return g.build()


def test_the_excess_stands_between_a_collective_and_what_depends_on_it() -> None:
    lowered = targets(with_values(followed(), "excess_ns", {COLLECTIVE: 6_400}))
    assert [lowered.name[row] for row in range(4)] == ["gemm", "ncclAllReduce", "beyond the fitted network", "after"]
    assert lowered.type.tolist() == [NodeType.COMP, NodeType.COMM_COLL, NodeType.COMM_COLL, NodeType.COMP]
    assert lowered.integers("comm_type")[2] == CollectiveType.BROADCAST
    assert lowered.texts("pg_name")[2] == lowered.texts("pg_name")[1]
    edges = data_edges(lowered)
    assert sorted(zip(edges.source.tolist(), edges.target.tolist(), strict=True)) == [(0, 1), (1, 2), (2, 3)]


def test_both_together_take_the_measured_time_of_the_collective() -> None:
    graph = with_values(followed(), "excess_ns", {COLLECTIVE: 6_400})
    lowered = targets(graph)
    assert lowered.duration_micros.tolist() == [10, 3, 6, 2]
    assert lowered.duration_ns.tolist() == [10_000, 9_000, 0, 2_000]
    assert lowered.integers("excess_ns", 0).tolist() == [0, 0, 6_400, 0]
    assert [ends.max() for ends in simulated_ends([lowered, targets(followed())])] == [21_000, 21_000]
    assert report(graph)[Change.EXCESS] == 6


@pytest.mark.parametrize("generation", list(Generation))
def test_a_simulator_runs_the_excess_after_what_its_network_gives(generation: Generation, tmp_path: Path) -> None:
    def finish(excess_ns: int) -> int:
        for rank in (0, 1):
            for_astra_sim(with_values(followed(rank), "excess_ns", {COLLECTIVE: excess_ns})).write(
                str(tmp_path / f"graph.{rank}.et")
            )
        outcome = simulate(read_files(tmp_path / "graph", 2), None, generation)
        assert outcome.good, outcome.trouble
        return outcome.finished_ns[0]

    assert LATENCY_NS < finish(0) - 12_000 < 9_000
    assert finish(6_000) - finish(0) == 6_000


@pytest.mark.parametrize(
    ("kind", "excess_ns"), [(ALL_REDUCE, 499), (CollectiveType.BROADCAST, 3_000)], ids=["below half a µs", "broadcast"]
)
def test_less_than_half_a_microsecond_and_what_takes_its_measured_time_get_no_node(
    kind: CollectiveType, excess_ns: int
) -> None:
    graph = communicating(comm_type=kind)
    lowered = targets(with_values(graph, "excess_ns", {2: excess_ns}))
    assert len(lowered) == 2
    assert not np.any(lowered.integers("excess_ns", 0))
