"""A merged database to count in holds every activity, call, launch and edge, of databases of profilers as of traces."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_rocpd
from execgraph.schema.errors import DataError
from execgraph.tools.job import merge_for_counting, merging as counting
from support.databases import DIALECTS
from support.reports import Jobs, process_database, ranks_in, recorded_activities


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize("ranks", [2, 16])
def test_activities_are_counted_by_rank_and_device(jobs: Jobs, tmp_path: Path, ranks: int) -> None:
    merge_for_counting(ranks_in(jobs(ranks)), str(tmp_path / "merged.db"))
    counted = query(tmp_path / "merged.db", "SELECT rank, device, count(*) FROM activity GROUP BY 1, 2")
    before = recorded_activities(jobs(ranks))
    assert {(rank, device): count for rank, device, count in counted} == before
    assert query(tmp_path / "merged.db", "SELECT * FROM device ORDER BY 1, 2") == counted


def test_launches_are_those_that_linking_finds(jobs: Jobs, tmp_path: Path) -> None:
    merge_for_counting(ranks_in(jobs(2)), str(tmp_path / "merged.db"))
    pairs = (
        "SELECT call.name, call.correlation, activity.name FROM launch JOIN call ON call.id = launch.call "
        "JOIN activity ON activity.id = launch.activity WHERE launch.rank = {}"
    )
    for rank, path in ranks_in(jobs(2)):
        linked = link(None, read_device_trace(str(path)))
        activities, calls = linked.activities, linked.calls
        known = [
            (calls.name[call], int(calls.correlation[call]), activities.name[row])
            for row, call in enumerate(activities.call_row.tolist())
        ]
        assert Counter(query(tmp_path / "merged.db", pairs.format(rank))) == Counter(known)


def test_edges_nest_ops_and_chain_streams(jobs: Jobs, tmp_path: Path) -> None:
    merge_for_counting(ranks_in(jobs(2)), str(tmp_path / "merged.db"))
    outside = (
        "SELECT count(*) FROM edge JOIN ops AS outer ON outer.id = source JOIN ops AS inner ON inner.id = target "
        "WHERE kind = 'nested' AND (inner.start_ns < outer.start_ns OR inner.rank <> outer.rank OR inner.thread <> outer.thread)"
    )
    streams = (
        "SELECT count(*) FROM edge JOIN activities AS one ON one.id = source JOIN activities AS next ON next.id = target "
        "WHERE kind = 'stream' AND (one.start_ns > next.start_ns "
        "OR (one.rank, one.device, one.stream) <> (next.rank, next.device, next.stream))"
    )
    [(chained,)] = query(tmp_path / "merged.db", "SELECT count(*) FROM edge WHERE kind = 'stream'")
    [(lanes, activities)] = query(
        tmp_path / "merged.db", "SELECT count(DISTINCT rank || ' ' || device || ' ' || stream), count(*) FROM activity"
    )
    assert query(tmp_path / "merged.db", outside) == query(tmp_path / "merged.db", streams) == [(0,)]
    assert chained == activities - lanes


def test_documented_queries_run(jobs: Jobs, tmp_path: Path) -> None:
    merge_for_counting(ranks_in(jobs(2)), str(tmp_path / "merged.db"))
    examples = [line.strip() for line in (counting.__doc__ or "").splitlines() if line.strip().startswith("SELECT")]
    assert len(examples) >= 5
    assert [bool(query(tmp_path / "merged.db", example)) for example in examples if "NOT IN" not in example]


def test_a_database_for_counting_is_no_trace(jobs: Jobs, tmp_path: Path) -> None:
    merge_for_counting(ranks_in(jobs(2)), str(tmp_path / "merged.db"))
    with pytest.raises(DataError, match="several ranks merged into a database for counting"):
        read_rocpd(str(tmp_path / "merged.db"))


def test_databases_of_all_dialects_keep_ops_links_api_rows_and_ranges(tmp_path: Path) -> None:
    for pid, which in zip((700, 710, 720), DIALECTS, strict=True):
        process_database(tmp_path, which, pid)
    ranks = ranks_in(tmp_path)
    assert [path.name for _, path in ranks] == ["trace_700.db", "trace_710.db", "trace_720.db"]
    merge_for_counting(ranks, str(tmp_path / "merged.db"))
    assert query(tmp_path / "merged.db", "SELECT rank, device, count(*) FROM activity GROUP BY 1, 2") == [
        (0, 0, 2),
        (1, 0, 2),
        (2, 0, 2),
    ]
    assert query(tmp_path / "merged.db", "SELECT rank, pid FROM rank") == [(0, 700), (1, 710), (2, 720)]
    assert query(tmp_path / "merged.db", "SELECT rank, count(*), max(correlation) FROM call GROUP BY 1") == [
        (0, 2, 2),
        (1, 2, 2),
        (2, 2, 2),
    ]
    assert query(tmp_path / "merged.db", "SELECT rank, count(*) FROM launch GROUP BY 1") == [(0, 2), (1, 2), (2, 2)]
    assert query(tmp_path / "merged.db", "SELECT name, annotation, count(*) FROM op") == [("step", 1, 3)]
