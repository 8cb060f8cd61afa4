"""Checks that the tables of a linked trace from a file do not contradict each other."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..columns import ABSENT, Categorical, Int32, Int64
from .linked_trace import LinkedTrace

LATEST = 1 << 62
"""ns; sums and differences of two times up to it stay in 64 bits."""
MOST_APART = 1 << 61


def contradiction(linked: LinkedTrace) -> str:
    """Returns in words what is wrong with the trace, an empty text if nothing is. O(n log n)."""
    return next(_contradictions(linked), "")


def _contradictions(linked: LinkedTrace) -> Iterator[str]:
    for name, table in _tables(linked).items():
        sizes = {len(column) for column in _columns(table)}
        if len(sizes) > 1:
            yield f"the columns of {name} have {min(sizes)} to {max(sizes)} rows"
    activities, calls = linked.activities, linked.calls
    for what, rows, count in (
        ("calls", activities.call_row, len(calls)),
        ("calls", linked.host_waits.call_row, len(calls)),
        ("communications", activities.communication_row, len(linked.communications)),
        ("communications", linked.ops.communication_row, len(linked.communications)),
        _codes("names of calls", calls.name),
        *(_codes("call sites of calls", column) for column in (calls.module, calls.python_function) if column),
    ):
        if (wrong := rows[(rows < -1) | (rows >= count)]).size:
            yield f"row {wrong[0]} of the {what} is referred to, and there are {count}"
    if (calls.name.codes < 0).any():
        yield "a call has no name"
    if (linked.host_waits.call_row < 0).any():
        yield "a wait of the host is in no call"
    ids, occurrences = np.unique(np.concatenate((linked.ops.id, activities.id)), return_counts=True)
    if (occurrences > 1).any():
        yield f"{occurrences[occurrences > 1][0]} nodes have the id {ids[occurrences > 1][0]}"
    if untimed := int((activities.start == ABSENT).sum()):
        yield f"{untimed} activities have no time"
    yield from _wrong_times(linked)


def _codes(what: str, column: Categorical) -> tuple[str, Int64 | Int32, int]:
    return what, column.codes, len(column.table)


def _tables(linked: LinkedTrace) -> dict[str, Any]:
    """Returns the tables by their names in the file."""
    return {
        "ops": linked.ops,
        "calls": linked.calls,
        "activities": linked.activities,
        "device_waits": linked.device_waits,
        "host_waits": linked.host_waits,
        "handoffs": linked.handoffs,
    }


def _columns(table: Any) -> list[Any]:
    """Returns the columns with a value for each row, that is all but `extra`."""
    columns = [getattr(table, name) for name in table.__slots__ if name != "extra"]
    columns = [column for column in columns if column is not None]
    return [column.codes if isinstance(column, Categorical) else column for column in columns]


def _wrong_times(linked: LinkedTrace) -> Iterator[str]:
    first, last = LATEST, -LATEST
    for name, table in (("ops", linked.ops), ("calls", linked.calls), ("activities", linked.activities)):
        timed = table.start != ABSENT
        start, end = table.start[timed], table.end[timed]
        if (np.maximum(np.abs(start), np.abs(end)) > LATEST).any():
            yield f"times of {name} are beyond any clock"
        elif (end < start).any():
            yield f"{int((end < start).sum())} {name} end before they begin"
        first, last = min(first, int(start.min(initial=LATEST))), max(last, int(end.max(initial=-LATEST)))
    handoffs = linked.handoffs
    for column in (handoffs.source_time, handoffs.target_time, handoffs.waiting_since, linked.host_waits.since):
        times = column[column != ABSENT]
        first, last = min(first, int(times.min(initial=LATEST))), max(last, int(times.max(initial=-LATEST)))
    # other linkers mix times since 1970 with others
    if last - first > MOST_APART:
        yield "its times are further apart than any clock shows"
