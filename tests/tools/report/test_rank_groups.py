"""Thousands of ranks in little room: groups of similar ranks, outliers, lines and pages of constant length."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.tools.analyses import Column, Table
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.rank_rows import MOST_ROWS, ranges, rank_rows
from execgraph.tools.report import find_sources, report_on
from execgraph.tools.report.rank_groups import ALIKE, MANY, MOST, groups_table, in_words, of_ranks, rank_groups
from hypothesis import given, strategies as st


def tables_of(spans: list[float], computing: list[float] | None = None) -> dict[str, Table]:
    """What the analyses say of ranks that span and compute so many µs."""
    count = len(spans)
    rank, same = Column("rank", "", np.arange(count)), np.full(count, 50)
    facts = [rank, *(Column(name, "", same) for name in ("host_ops", "calls", "activities"))]
    busy = np.array(computing or spans, np.float64)
    times = [
        rank,
        Column("span", "µs", np.array(spans, np.float64)),
        Column("busy", "µs", busy),
        Column("compute", "µs", busy),
    ]
    return {"ranks": Table("ranks", "", facts), "temporal_breakdown": Table("temporal_breakdown", "", times)}


def test_few_ranks_are_all_shown() -> None:
    assert rank_groups(tables_of([100.0] * MANY)) == []


def test_ranks_that_are_alike_are_one_group_and_the_outlier_its_own() -> None:
    spans = [1000.0 + number % 5 for number in range(100)]
    spans[42] = 1500
    large, alone = rank_groups(tables_of(spans))
    assert alone == (42, [42])
    assert large.ranks == [rank for rank in range(100) if rank != 42]
    assert in_words([large, alone]).startswith("Of 100 ranks some are shown")


def test_roles_are_groups_though_they_take_equally_long() -> None:
    busy = [900.0, 500.0] * 20
    groups = rank_groups(tables_of([1000.0] * 40, busy))
    assert sorted(group.ranks[0] for group in groups) == [0, 1]
    assert {len(group.ranks) for group in groups} == {20}


@given(st.lists(st.floats(1, 1e6), min_size=MANY + 1, max_size=60))
def test_each_rank_is_in_one_group_and_near_its_own_if_there_are_few(spans: list[float]) -> None:
    groups = rank_groups(tables_of(spans))
    assert sorted(rank for group in groups for rank in group.ranks) == list(range(len(spans)))
    assert all(group.rank in group.ranks for group in groups)
    assert len(groups) <= MOST
    if len(groups) < MOST:
        middle = float(np.median(spans))
        assert all(
            abs(spans[one] - spans[group.rank]) <= ALIKE * middle * 1.001 for group in groups for one in group.ranks
        )


def test_of_tables_the_rows_of_the_shown_ranks_stay() -> None:
    table = tables_of([1.0, 2, 3])["temporal_breakdown"]
    assert of_ranks(table, [2, 0])["span"].tolist() == [1, 3]  # type: ignore[union-attr]
    without = Table("mine", "", [Column("name", "", ["a"])])
    assert of_ranks(without, []) is without


def test_the_table_of_groups_says_for_whom_each_stands() -> None:
    tables = tables_of([10.0] * 20 + [30.0])
    table = groups_table(rank_groups(tables), tables["ranks"])
    assert [(row["stands_for"], row["ranks"]) for row in table.rows()] == [(20, "0-19"), (1, "20")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("many")
    write_traces(simulate(build_job("ddp", ranks=MANY + 4, steps=1, layers=1)), folder)
    return report_on(find_sources([folder]))


def test_a_page_of_many_ranks_shows_those_that_stand_for_others(report: Any) -> None:
    shown = {group.rank for group in report.groups}
    assert 0 < len(shown) < MANY
    assert set(report.timeline.ranks) == shown
    assert set(report.page_table("kernel_breakdown")["rank"].tolist()) == shown
    assert len(set(report.tables["kernel_breakdown"]["rank"].tolist())) == MANY + 4
    assert report.twice_as_fast.note.startswith(f"{MANY + 4} ranks, which wait for each other; ")
    assert report.page_table("critical_path") is report.tables["critical_path"]


HEADINGS = ("rank", "nodes", "mark", "status")


def rows_of(count: int) -> list[tuple[str, ...]]:
    return [(str(rank), str(10 + rank % 3), "", "failed" if rank == 7 else "built") for rank in range(count)]


def test_of_few_ranks_each_has_a_line() -> None:
    assert len(rank_rows(HEADINGS, rows_of(MOST_ROWS), alike=("mark", "status"))) == MOST_ROWS + 1


def test_of_many_ranks_those_alike_share_one() -> None:
    head, built, failed = rank_rows(HEADINGS, rows_of(1000), alike=("mark", "status"))
    assert built.split() == ["0-6,", "8-999", "10–12", "built"]
    assert failed.split() == ["7", "11", "failed"]
    assert len({len(line.rpartition("  ")[0]) for line in (head, built, failed)}) == 1


def test_a_long_list_of_ranks_is_cut_and_counted() -> None:
    rows = [(str(2 * rank), "1", "", "built") for rank in range(100)]
    (_, line) = rank_rows(HEADINGS, rows, alike=("status",))
    assert "0, 2, 4, 6" in line
    assert "… 100 in all" in line


@given(st.sets(st.integers(0, 300), min_size=1))
def test_ranges_name_each_number_once(numbers: set[int]) -> None:
    named: list[int] = []
    for run in ranges(sorted(numbers)).split(", "):
        first, _, last = run.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(numbers)
