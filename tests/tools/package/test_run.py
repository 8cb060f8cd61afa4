"""A replayed run tells its results in µs, its tables in ns, and what a further change would bring."""

from pathlib import Path

import pytest
from execgraph import replay, what_if
from execgraph.schema.graph import DependencyKind
from support.graphs import LAUNCH, PROGRAM_ORDER, GraphBuilder, rank_with_collective, training_step


def test_results_are_in_us_and_tables_in_ns() -> None:
    run = replay(training_step())
    assert (run.makespan_us, run.measured_us, run.results.makespan_us) == (0.05, 0.05, 0.05)
    assert sum(run.critical_path["duration_ns"].tolist()) == run.makespan_ns == 50  # type: ignore[union-attr]
    assert list(run.nodes.columns)[4:6] == ["start_ns", "end_ns"]


def test_the_critical_path_names_its_nodes() -> None:
    pytest.importorskip("polars")
    path = replay(training_step()).critical_path.to_polars()
    assert path["name"].to_list()[-2:] == ["cudaDeviceSynchronize", "host idle"]
    assert path.filter(path["name"] == "sgemm").select("rank", "id", "kind", "stream").rows()[-1] == (
        0,
        3,
        "computation",
        7,
    )


def test_the_rank_is_a_number_as_in_all_tables_the_position_of_a_graph_without_one() -> None:
    ranks = [rank_with_collective(rank, work=10, collective=5, clock=0) for rank in (4, 2)]
    run = replay(ranks)
    assert set(run.nodes["rank"].tolist()) == {2, 4}  # type: ignore[union-attr]
    assert set(run.critical_path["rank"].tolist()) <= {2, 4}  # type: ignore[union-attr]
    assert set(replay(training_step()).nodes["rank"].tolist()) == {0}  # type: ignore[union-attr]


def test_a_change_of_a_changed_run_comes_on_top() -> None:
    answer = replay(training_step(), {"sgemm": 0.5}).what_if({"vector_add": 0.5})
    assert (answer.before.makespan_ns, answer.after.makespan_ns) == (40, 35)
    assert "all" not in answer.after.describe() and "sgemm" not in repr(answer)
    assert "changed  1 node by vector_add=0.5, which took " in repr(answer)


def test_an_answer_is_as_recorded_and_leads_to_the_one_without_a_profiler() -> None:
    """Two steps of a host op of 80 µs and a kernel of 20 µs, which take 30 µs without a profiler."""
    g = GraphBuilder(rank=0, steps=2, step_without_profiler_ns=30_000)
    before: list[tuple[int, DependencyKind]] = []
    for end in (80_000, 160_000):
        op = g.host("aten::mm", end - 80_000, 80_000, after=before)
        g.activity("gemm", end, 20_000, stream=op, after=[(op, LAUNCH)])
        before = [(op, PROGRAM_ORDER)]
    answer = what_if(g.build(), {"class:host": 0.5})
    assert (answer.before.makespan_us, answer.after.makespan_us) == (180, 100)
    title, *lines = repr(answer).splitlines()
    assert title == "WhatIf: 1.80 times as fast with the profiler, 1.50 times without"
    assert lines[-1] == "  no profiler  60.0 µs before, 40.0 µs after; see without_profiler"
    faster = answer.without_profiler
    assert faster is not None and "profiler" not in repr(faster)
    assert (faster.before.makespan_us, faster.after.makespan_us) == (
        pytest.approx(60, rel=0.01),
        pytest.approx(40, rel=0.01),
    )
    assert what_if(training_step(), {"class:host": 0.5}).without_profiler is None


def test_a_timeline_is_written_for_viewers(tmp_path: Path) -> None:
    ranks = [rank_with_collective(rank, work=10, collective=5, clock=0) for rank in (0, 1)]
    replay(ranks).write_timeline(tmp_path / "timeline.json")
    assert (tmp_path / "timeline.json").read_text().count("process_name") == 4
