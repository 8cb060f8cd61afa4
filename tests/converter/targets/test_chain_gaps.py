"""Gaps for simulators that know one per activity: what the host awaits ends as measured, and what-ifs are right."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.converter.rewiring import data_edges
from execgraph.converter.targets import GoalOptions, for_astra_sim, write_goal
from execgraph.converter.targets.times import chain_gaps
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.replay import parse_scale, replay_ranks, simulated_ends
from support import simulator as goal_simulator
from support.graphs import HOST_SYNC, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder

KERNEL = 4_000
KERNELS = 4


def run(host: int, latency: int, chain: int) -> ExecutionGraph:
    """Four launches, each after as long on the host, their kernels one after the other, and a wait for the last one."""
    g, op, kernel, ended = GraphBuilder(rank=0), 0, 0, 0
    for number in range(KERNELS):
        op = g.host("launch", number * host, host, after=[(op, PROGRAM_ORDER)] if op else [])
        launched = (number + 1) * host
        start = max(launched + latency, ended + chain if kernel else 0)
        after = [(op, LAUNCH), *([(kernel, STREAM_ORDER)] if kernel else [])]
        gap = start - max(launched, ended)
        kernel = g.activity("kernel", start, KERNEL, gap=gap, latency_ns=latency, chain_gap_ns=chain, after=after)
        ended = start + KERNEL
    g.host("wait", ended, 1_000, after=[(op, PROGRAM_ORDER), (kernel, HOST_SYNC)])
    return g.build()


def gaps(graph: ExecutionGraph, **options: Any) -> tuple[list[int], list[int]]:
    """The gaps of the kernels, and by how much these run earlier."""
    changed, rows = chain_gaps(graph, data_edges(graph), **options), graph.is_activity
    assert not changed.gap[~rows].any()
    assert not changed.earlier[~rows].any()
    return changed.gap[rows].tolist(), changed.earlier[rows].tolist()


@pytest.mark.parametrize(
    ("graph", "gap", "earlier"),
    [
        (run(host=10_000, latency=5_000, chain=1_000), [1_000, 1_000, 1_000, 5_000], [4_000, 4_000, 4_000, 0]),
        (run(host=1_000, latency=5_000, chain=1_000), [1_000, 1_000, 1_000, 5_000], [4_000, 4_000, 4_000, 0]),
        (run(host=10_000, latency=1_000, chain=5_000), [5_000, 5_000, 5_000, 1_000], [-4_000, -4_000, -4_000, 0]),
        (run(host=1_000, latency=1_000, chain=5_000), [5_000, 5_000, 5_000, 1_000], [-4_000, -4_000, -4_000, 0]),
        (run(host=10_000, latency=3_000, chain=3_000), [3_000] * 4, [0] * 4),
    ],
    ids=["just in time", "queued", "just in time, short latency", "queued, short latency", "alike"],
)
def test_kernels_have_the_gap_of_a_chain_and_the_awaited_one_ends_as_measured(
    graph: ExecutionGraph, gap: list[int], earlier: list[int]
) -> None:
    assert gaps(graph) == (gap, earlier)


def test_gaps_get_no_longer_where_that_is_not_wanted() -> None:
    assert gaps(run(host=10_000, latency=1_000, chain=5_000), lengthen=False) == ([1_000] * 4, [0] * 4)
    shorter = run(host=10_000, latency=5_000, chain=1_000)
    assert gaps(shorter, lengthen=False) == gaps(shorter)


def test_graphs_that_do_not_tell_the_gaps_apart_stay() -> None:
    graph = run(host=10_000, latency=5_000, chain=1_000)
    del graph.attributes["chain_gap_ns"]
    assert gaps(graph) == ([5_000] * 4, [0] * 4)


def test_communication_delays_and_first_and_last_activities_are_not_moved() -> None:
    g = GraphBuilder(rank=0)
    first = g.activity("first", 7_000, 1_000, gap=7_000, chain_gap_ns=1_000)
    launch = g.host("launch", 0, 10_000)
    late = {"gap": 5_000, "chain_gap_ns": 1_000}
    before = g.activity("before", 15_000, 1_000, **late, after=[(launch, LAUNCH), (first, STREAM_ORDER)])
    meet = g.collective(17_000, 1_000, ranks=[0, 1], gap=1_000, after=[(before, STREAM_ORDER)])
    behind = g.activity("behind", 19_000, 1_000, gap=1_000, after=[(meet, STREAM_ORDER)])
    delay = g.delay(20_000, 2_000, after=[(behind, STREAM_ORDER)])
    g.activity(
        "last", 23_000, 1_000, gap=1_000, chain_gap_ns=400, after=[(behind, STREAM_ORDER), (delay, STREAM_ORDER)]
    )
    changed = chain_gaps(g.build(), data_edges(g.build()))
    assert changed.gap.tolist() == [7_000, 0, 1_000, 5_000, 1_000, 0, 1_000]
    assert changed.earlier.tolist() == [0, 0, 4_000, 0, 0, 0, 0]


def test_no_gap_falls_below_0() -> None:
    g = GraphBuilder(rank=0)
    launch = g.host("launch", 0, 10_000)
    first = g.activity("first", 11_000, 4_000, gap=1_000, chain_gap_ns=9_000, after=[(launch, LAUNCH)])
    second = g.activity("second", 15_000, 4_000, after=[(first, STREAM_ORDER)])
    g.host("wait", 19_000, 1_000, after=[(launch, PROGRAM_ORDER), (second, HOST_SYNC)])
    changed = chain_gaps(g.build(), data_edges(g.build()))
    assert changed.gap.tolist() == [0, 9_000, 0, 0]
    assert changed.earlier.tolist() == [0, -8_000, -8_000, -8_000]


@pytest.mark.parametrize(("latency", "chain"), [(5_000, 1_000), (1_000, 5_000)], ids=["long latency", "long gap"])
@pytest.mark.parametrize(("host", "changed"), [(10_000, 1_000), (1_000, 10_000)], ids=["to a queue", "to just in time"])
def test_what_ifs_are_right_where_something_else_releases_the_kernels(
    host: int, changed: int, latency: int, chain: int, tmp_path: Path
) -> None:
    graph, path = run(host, latency, chain), tmp_path / "job.goal"
    for factor in (1.0, changed / host):
        truth = run(int(host * factor), latency, chain)
        end = int((truth.start_ns + truth.duration_ns).max())
        replayed = replay_ranks([graph], [parse_scale(f"launch={factor}")])
        assert [replayed.makespan_ns, astra_sim_end(graph, factor), goal_end(graph, factor, path)] == [end] * 3


def astra_sim_end(graph: ExecutionGraph, factor: float) -> int:
    played = for_astra_sim(graph)
    launches = played.name.where("launch".__eq__)
    played.duration_micros = np.where(launches, played.duration_micros * factor, played.duration_micros).astype(int)
    return int(simulated_ends([played])[0].max())


def goal_end(graph: ExecutionGraph, factor: float, path: Path) -> int:
    write_goal(str(path), 1, lambda _: graph, GoalOptions(simulator="atlahs"))
    ranks = goal_simulator.parse(path.read_text())
    for op in ranks[0][:-1]:
        if op.cpu == 0:
            op.amount = int(op.amount * factor)
    (end,) = goal_simulator.run(ranks)
    return end
