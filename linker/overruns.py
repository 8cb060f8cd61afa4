"""Finds durations that are too long: what a thread or stream does one after the other would run at once."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..schema.columns import CallRows, Int64, group_ids, isin, time_text
from ..schema.linked import NEVER, Activities, Calls, stream_sorted
from ..schema.machine import AGREEING, SLOWEST
from .communication import is_communication_kernel
from .readers import DeviceTrace
from .windows import trace_start

MATTERS = 0.01
"""A smaller share of the recording hardly changes a figure, and is no reason to doubt any."""
FASTEST_DRIFT = 500e-6
"""No clock that an operating system corrects drifts by more, as a share of the time (the limit of Linux)."""
Overrun = tuple[str, int, str]
"""Ops, calls or activities, how many of them last too long, and that with the longest of them in words."""


class Awaited(NamedTuple):
    """Calls that certainly waited for the device, and when what each awaited had ended, on the device's clock (ns)."""

    call_row: Int64
    end: Int64


class Overruns(NamedTuple):
    """The rows that last too long, and by how much at least (ns)."""

    row: Int64
    by: Int64


def overruns(device: DeviceTrace, call_row: CallRows, awaited: Awaited) -> Iterator[Overrun]:
    """Yields of ops, calls and activities how many last too long, if it matters, and the longest of them in words."""
    ops, calls, activities = device.ops, device.calls, device.activities
    # an annotation may end in another function than it began in
    is_op = np.flatnonzero(~ops.annotation)
    of_ops = _on_threads(ops.thread[is_op], ops.start[is_op], ops.end[is_op])
    of_streams = (
        on_streams(activities, call_row, calls), cut_communication(activities, call_row),
        beyond_return(activities, call_row, calls, awaited),
    )  # fmt: skip
    for kind, table, found in (
        ("ops", ops, Overruns(is_op[of_ops.row], of_ops.by)),
        ("calls", calls, _on_threads(calls.thread, calls.start, calls.end)),
        ("activities", activities, Overruns(*map(np.concatenate, zip(*of_streams, strict=True)))),
    ):
        rows = np.unique(found.row)
        if not len(rows) or found.by.sum() <= MATTERS * (table.end.max() - table.start.min()):
            continue
        longest = rows[np.argmax((table.end - table.start)[rows])]
        lasts, since = table.end[longest] - table.start[longest], table.start[longest] - trace_start(device)
        name = table.name[longest][:40].rstrip("(")
        which = f"{name}, {time_text(lasts / 1000)} from {since / 1000:.3f} µs of the trace"
        yield kind, len(rows), f"{len(rows):,} of {len(table.start):,} {kind} (the longest: {which})"


def _on_threads(thread: Int64, start: Int64, end: Int64) -> Overruns:
    """Returns what still runs when another one of its thread begins, and ends before that; few such rows are none."""
    order = np.lexsort((-end, start, thread))
    thread, start, end = group_ids(thread[order]), start[order], end[order]
    if not len(order):
        return Overruns(order, order)
    # of those before it on its thread, the one that ends last, and the one that began last
    extent = end.max() - start.min() + 1
    until = end - start.min() + thread * extent
    latest = np.maximum.accumulate(np.where(until >= np.maximum.accumulate(until), np.arange(len(order)), 0))
    later = np.arange(1, len(order))
    rows, by = list[Int64](), list[Int64]()
    for earlier in (latest[:-1], later - 1):
        is_cut = (thread[later] == thread[earlier]) & (start[later] < end[earlier])
        is_cut &= end[later] > end[earlier] + SLOWEST
        rows.append(order[earlier[is_cut]])
        by.append((end[earlier] - start[later])[is_cut])
    found = Overruns(np.concatenate(rows), np.concatenate(by))
    row, first = np.unique(found.row, return_index=True)
    return Overruns(row, found.by[first]) if len(row) >= AGREEING else Overruns(order[:0], order[:0])


def one_by_one(activities: Activities, call_row: CallRows) -> Int64:
    """Returns what streams run one at a time, in the order of each: all that takes time, but for CUDA graphs."""
    launched_by_call = np.bincount(call_row + 1)
    of_graph = (activities.graph_node > 0) | ((call_row >= 0) & (launched_by_call[call_row + 1] > 1))
    is_one = ~of_graph & (activities.stream >= 0) & (activities.end > activities.start)
    order = stream_sorted(activities)
    return order[is_one[order]]


def cut_communication(activities: Activities, call_row: CallRows) -> Overruns:
    """Returns the communication that runs on beside the next activity of its stream, for longer than other work."""
    order = one_by_one(activities, call_row)
    stream, communicates = activities.stream[order], is_communication_kernel(activities.name)[order]
    is_next = (stream[1:] == stream[:-1]) & (activities.device[order[1:]] == activities.device[order[:-1]])
    by = np.where(is_next, activities.end[order[:-1]] - activities.start[order[1:]], 0)
    longest = by[~communicates[1:] & ~communicates[:-1]].max(initial=0)
    cut = np.flatnonzero(communicates[:-1] & (by > longest))
    return Overruns(order[cut], by[cut])


def on_streams(activities: Activities, call_row: CallRows, calls: Calls) -> Overruns:
    """Returns the activities that outlast the next ones of their stream."""
    order = one_by_one(activities, call_row)
    stream, end = group_ids(activities.device[order], activities.stream[order]), activities.end[order]
    # where a clock steps back, activities run at once, too, but not in the order of their launches
    called = np.flatnonzero(call_row[order] >= 0)
    launched = calls.start[call_row[order[called]]]
    is_against = (launched[1:] < launched[:-1]) & (stream[called][1:] == stream[called][:-1])
    is_odd = isin(stream, stream[called][1:][is_against])
    count = max(len(order) - AGREEING, 0)
    outlasts = (stream[AGREEING:] == stream[:count]) & ~is_odd[:count]
    for next_one in range(1, AGREEING + 1):
        outlasts &= end[:count] > end[next_one : next_one + count]
    found = np.flatnonzero(outlasts)
    return Overruns(order[found], end[found] - activities.start[order[found + 1]])


def beyond_return(activities: Activities, call_row: CallRows, calls: Calls, awaited: Awaited) -> Overruns:
    """Returns the few activities that last longer than from their launch to the return of a call that awaited them."""
    order = np.argsort(activities.end)
    at = np.searchsorted(activities.end[order], awaited.end)
    row = order[np.minimum(at, len(order) - 1)] if len(order) else awaited.end[:0]
    waits = np.flatnonzero((activities.end[row] == awaited.end[: len(row)]) & (call_row[row] >= 0))
    row, wait = row[waits], awaited.call_row[waits]
    most = calls.end[wait] - calls.start[call_row[row]]
    by = activities.end[row] - activities.start[row] - most
    # where the clocks contradict each other, they are also apart at its start
    launched = np.flatnonzero(call_row >= 0)
    least = (calls.start[call_row[launched]] - activities.start[launched]).max(initial=NEVER)
    is_beyond = (by > SLOWEST + FASTEST_DRIFT * most) & (calls.end[wait] - activities.start[row] >= least)
    rows, first = np.unique(row[is_beyond], return_index=True)
    few = len(rows) if len(rows) < AGREEING else 0
    return Overruns(rows[:few], by[is_beyond][first][:few])
