"""Makes the tables of a linked trace from those beside the nodes of its file: calls, waits and hand-offs, by row
instead of id.
"""

import numpy as np

from ..columns import ABSENT, Categorical, Int64, rows_of
from .layout import CallTable, HandoffTable, WaitTable
from .linked_trace import Activities, Calls, DeviceWaits, HostWaits, Ops, Provenance, ThreadHandoffs


def calls(table: CallTable, op_ids: Int64) -> Calls:
    """Returns the calls of the table; `op_ids` are the ids of the ops, by row."""

    def place(codes: list[int] | None) -> Categorical | None:
        return None if codes is None else Categorical(np.array(codes, np.int32), table.places)

    return Calls(
        name=Categorical(np.array(table.name, np.int32), table.names),
        thread=np.array(table.thread, np.int64),
        start=np.array(table.start_ns, np.int64),
        end=np.array(table.end_ns, np.int64),
        correlation=np.array(table.correlation, np.int64),
        op_row=_rows_or_none(op_ids, table.op),
        module=place(table.module),
        python_function=place(table.python_function),
    )


def assumed_calls(activities: Activities, ops: Ops) -> Calls:
    """Returns one launch per activity, at its op's end or its own start, the earlier one."""
    op, start = activities.op_row, activities.start
    known = op >= 0
    moment = start.copy()
    moment[known] = np.maximum(np.minimum(ops.end[op[known]], start[known]), ops.start[op[known]])
    thread = np.where(known, ops.thread[op], 0) if len(ops) else np.zeros(len(op), np.int64)
    return Calls(Categorical.of("launch" for _ in op), thread, moment, moment.copy(), np.zeros(len(op), np.int64), op)


def device_waits(table: WaitTable | None, sync_deps: list[tuple[int, int]], ids: Int64) -> DeviceWaits:
    """Returns those of the table, else those that chakra_trace_link found: (activity row, awaited id) pairs; it lists
    ids of ops, too.
    """
    if table:
        found = Categorical.of(found.value for found in table.found)
        return DeviceWaits(_rows_or_none(ids, table.source), _rows(ids, table.of), found)
    target, source = np.array(sync_deps, np.int64).reshape(-1, 2).T
    source = rows_of(ids, source)
    known = source >= 0
    return DeviceWaits(
        source[known], target[known], Categorical.of(Provenance.RECORD.value for _ in range(known.sum()))
    )


def host_waits(table: WaitTable | None, ids: Int64) -> HostWaits:
    """Returns those of the table, none where the file has none; `ids` are those of the activities, by row."""
    table = table or WaitTable([], [], [])
    return HostWaits(
        np.array(table.of, np.int64),
        _rows_or_none(ids, table.source),
        _column_of_times(table.since_ns),
        Categorical.of(found.value for found in table.found),
    )


def thread_handoffs(table: HandoffTable | None) -> ThreadHandoffs:
    """Returns those of the table, none where the file has none."""
    table = table or HandoffTable([], [], [], [], [], [])
    return ThreadHandoffs(
        np.array(table.source_thread, np.int64),
        np.array(table.source_ns, np.int64),
        np.array(table.target_thread, np.int64),
        np.array(table.target_ns, np.int64),
        _column_of_times(table.waiting_since_ns),
        Categorical.of(found.value for found in table.found),
    )


def _column_of_times(times: list[int | None]) -> Int64:
    return np.array([ABSENT if time is None else time for time in times], np.int64)


def _rows(ids: Int64, wanted: list[int]) -> Int64:
    """Returns the rows of these ids. Raises KeyError for one that is not there."""
    rows = rows_of(ids, np.array(wanted, np.int64))
    if (missing := np.flatnonzero(rows < 0)).size:
        raise KeyError(wanted[missing[0]])
    return rows


def _rows_or_none(ids: Int64, wanted: list[int]) -> Int64:
    """Returns as `_rows`, with -1 for a negative id."""
    rows = np.full(len(wanted), -1, np.int64)
    given = [place for place, identity in enumerate(wanted) if identity >= 0]
    rows[given] = _rows(ids, [wanted[place] for place in given])
    return rows
