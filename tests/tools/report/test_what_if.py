"""What a change of some activities would save, on all ranks, and between which bounds."""

from pathlib import Path

import pytest
from execgraph.schema.graph import DependencyKind
from execgraph.tools.replay import parse_scale
from execgraph.tools.report.what_if import classes_twice_as_fast, what_if
from support.graphs import EVENT_WAIT, STREAM_ORDER, GraphBuilder, rank_with_collective
from support.reports import as_json


def test_scale_says_what_each_change_brings_and_all_together(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    changes = ["--scale", "gemm 0=0.5", "--scale", "gemm 1=0.5"]
    rows = as_json(capfd, given["pair"], "--only", "critical_path", *changes)["what_if"]
    assert [row["change"] for row in rows] == ["gemm 0=0.5", "gemm 1=0.5", "all of these"]
    assert [row["saved"] for row in rows] == pytest.approx([25, 25, 50])


def test_a_faster_rank_still_waits_for_the_others() -> None:
    graphs = [
        rank_with_collective(0, work=10, collective=20, clock=0),
        rank_with_collective(1, work=15, collective=15, clock=0),
    ]
    table = what_if(graphs, [parse_scale("gemm=0")])
    assert [table[name][0] * 1000 for name in ("before", "after")] == pytest.approx([15 + 15 + 5, 15 + 5])
    assert "2 ranks" in table.note
    assert len(what_if([], [parse_scale("gemm=0")])) == 0


def test_start_offsets_are_in_no_change_and_the_runs_without_them_are_beside() -> None:
    early = rank_with_collective(0, work=10_000, collective=50_000, clock=0)
    late = rank_with_collective(1, work=15_000, collective=20_000, clock=0)
    table = what_if([early, late], [parse_scale("class:computation=3")])
    columns = {column.name: column.values for column in table.columns}
    assert (columns["after"][0], columns["without_start_offsets"][0]) == (90.015, 65.015)
    assert "the start offset of rank 1, 25.0 µs, is as measured" in table.note


def test_classes_of_work_are_each_twice_as_fast_and_a_delay_is_no_work() -> None:
    g = GraphBuilder()
    delay = g.delay(0, 30_000)
    g.activity("gemm", 30_000, 40_000, after=[(delay, STREAM_ORDER)])
    rows = classes_twice_as_fast([g.build()]).rows()
    assert [(row["change"], row["before"], row["after"]) for row in rows] == [("computation", 70, 50)]


def test_answers_are_ranges_where_waits_are_known_by_order_alone() -> None:
    g = GraphBuilder()
    copy = g.activity("Memcpy", 0, 40_000, stream=9)
    first = g.activity("first", 0, 40_000)
    g.activity("gemm", 40_000, 20_000, after=[(first, STREAM_ORDER), (copy, EVENT_WAIT | DependencyKind.CALL_ORDER)])
    table = what_if([g.build()], [parse_scale("Memcpy=2"), parse_scale("Memcpy=0")])
    reason = "1 wait is known only from the order of calls and delayed nothing when measured"
    assert table.note.endswith(f". Answers are ranges: {reason}")
    rows = [(row["after"], row["after_low"], row["after_high"]) for row in table.rows()]
    assert rows == [(100, 80, 100), (60, 60, 60), (60, 60, 60)]
    certain = what_if([g.build()], [parse_scale("Memcpy=0")])
    assert [column.name for column in certain.columns] == [
        "change",
        "nodes",
        "matched",
        "before",
        "after",
        "saved",
        "saved_pct",
    ]
    assert "order" not in certain.note


def test_each_change_says_to_how_many_nodes_it_applies_and_how_long_these_took(
    given: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    changes = ["--scale", "gemm=0.5", "--scale", "gemm 1=0.5", "--scale", "class:communication=0.5"]
    rows = as_json(capfd, given["pair"], "--only", "critical_path", *changes)["what_if"]
    assert [(row["nodes"], row["matched"]) for row in rows] == [(2, 100), (1, 50), (0, 0), (2, 100)]
    assert rows[2]["saved"] == 0


@pytest.mark.parametrize("more", [[], ["--only", "critical_path"]])
def test_a_change_is_answered_as_recorded_and_without_a_profiler(
    more: list[str], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    traces = data / "gpu" / "small"
    rows = as_json(capfd, traces, "--scale", "class:host=0.5", *more)["what_if"]
    assert [row["run"] for row in rows] == ["as recorded", "without a profiler"]
    assert [row["before"] / 2000 for row in rows] == pytest.approx([24.47, 3.66], rel=0.01)
    assert [row["saved_pct"] for row in rows] == pytest.approx([50, 50], abs=1)
    assert "run" not in as_json(capfd, data / "training", "--scale", "class:host=0.5", *more)["what_if"][0]
