"""Rows that were recorded twice: equal in everything that tells one row from another, and counted."""

from typing import Any

import pytest
from execgraph.linker.readers.device_trace import without_duplicates
from execgraph.schema.reasons import Reason
from support.tables import ActivityRow, CallRow, OpRow, SyncRow, device_trace

OP = OpRow(1500, 2500, rf_id=3, external_id=4, event_index=5)
CALL = CallRow(1500, 2500, correlation=3)
ACTIVITY = ActivityRow(1500, 2500, correlation=3, graph_node=4)
SYNC = SyncRow(1500, 2500)
TABLES = {"ops": OP, "calls": CALL, "activities": ACTIVITY, "syncs": SYNC}


def left(table: str, *rows: Any) -> tuple[int, int]:
    """How many of the rows are left, and how many were counted as duplicates."""
    trace = without_duplicates(device_trace(**{table: rows}))
    return len(getattr(trace, table).start), trace.skipped[Reason.RECORDED_TWICE]


@pytest.mark.parametrize("table", TABLES)
def test_of_equal_rows_the_first_is_left_wherever_they_stand(table: str) -> None:
    row = TABLES[table]
    assert left(table, row, row) == (1, 1)
    assert left(table, row, row._replace(start=7), row, row._replace(start=9999), row) == (3, 2)
    assert left(table, row) == (1, 0)
    assert left(table) == (0, 0)


def differing() -> list[tuple[str, str]]:
    told_apart = {
        "ops": ("start", "end", "name", "process", "thread", "rf_id", "external_id", "event_index"),
        "calls": ("start", "end", "name", "process", "thread", "correlation"),
        "activities": ("start", "end", "name", "process", "device", "stream", "correlation", "graph_node"),
        "syncs": (
            *("start", "end", "kind", "process", "device", "stream"),
            *("correlation", "wait_stream", "record_correlation", "event"),
        ),
    }
    return [(table, name) for table, names in told_apart.items() for name in names]


@pytest.mark.parametrize(("table", "name"), differing())
def test_rows_that_differ_in_anything_are_both_left(table: str, name: str) -> None:
    row = TABLES[table]
    other = row._replace(**{name: "other" if isinstance(getattr(row, name), str) else getattr(row, name) + 1})
    assert left(table, row, other) == left(table, other, row) == (2, 0)


@pytest.mark.parametrize(
    ("row", "count"),
    [(OpRow(), 0), (OpRow(rf_id=1), 1), (OpRow(external_id=1), 1), (OpRow(event_index=0), 1)],
    ids=["none", "record function id", "external id", "event index"],
)
def test_an_op_is_known_by_any_of_its_ids(row: OpRow, count: int) -> None:
    assert left("ops", row, row) == (2 - count, count)


@pytest.mark.parametrize(("table", "row"), [("calls", CALL), ("activities", ACTIVITY)])
def test_rows_without_a_correlation_are_no_duplicates(table: str, row: Any) -> None:
    assert left(table, *[row._replace(correlation=0)] * 2) == (2, 0)
    assert left(table, *[row._replace(correlation=-1)] * 2) == (1, 1)


def test_rows_that_a_sort_puts_between_equal_ones_do_not_hide_them() -> None:
    rows = [CALL, CALL._replace(correlation=9), CALL, CALL._replace(end=9000), CALL._replace(correlation=9)]
    assert left("calls", *rows) == (3, 2)


# traces in whole µs


def test_in_whole_microseconds_equal_activities_of_a_launch_of_several_are_kept() -> None:
    first, later = ActivityRow(1000, 2000, correlation=3), ActivityRow(5000, 6000, correlation=3)
    assert left("activities", first, first, later) == (3, 0)
    assert left("activities", first, first) == (1, 1)
    assert left("activities", first, first, later._replace(correlation=4)) == (2, 1)


def test_in_nanoseconds_they_are_duplicates() -> None:
    first, later = ActivityRow(1000, 2000, correlation=3), ActivityRow(5001, 6000, correlation=3)
    assert left("activities", first, first, later) == (2, 1)


def test_duplicates_of_all_tables_are_counted_together() -> None:
    trace = without_duplicates(device_trace(**{table: [row, row] for table, row in TABLES.items()}))
    assert trace.skipped == {Reason.RECORDED_TWICE: 4}
