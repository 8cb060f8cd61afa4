"""What holds the host up besides synchronising calls: blocking copies, a launch queue that is full, and polls of
threads that look on.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import (
    ABSENT,
    Bool,
    Int64,
    rows_of_each,
)
from ...schema.linked import Activities, Calls, Provenance
from ...schema.machine import MachineCalibration, latency_stats, of_each, of_name
from ...schema.traces import FOREVER, NEVER
from ..submissions import CallSites

FULL_QUEUE = 500
"""Launches under way above which one more may have to wait for room: drivers queue about a thousand, event calls among
them.
"""


class ImplicitHostWaits(NamedTuple):
    """Calls that do not return before the activities `source` have ended; their threads wait from `since` on."""

    call_row: Int64
    source: Int64
    since: Int64
    found: Provenance


NOTHING = np.empty(0, np.int64)


def blocking_copies(
    activities: Activities, calls: Calls, machine: MachineCalibration, places: CallSites
) -> ImplicitHostWaits:
    """Copies that their calls waited for, judged by place: a call that waits returns a wake-up after the copy has
    ended, one that does not when the copy has yet to be launched, or, where it is not known how long that takes, when
    launches usually return. Never waited for is what is asynchronous, and pinned or on the device.
    """
    asynchronous = calls.name.where(lambda name: "Async" in name)
    unwaited = activities.name.where(lambda name: "Pinned" in name or "DtoD" in name)
    rows = np.flatnonzero((activities.call_row >= 0) & activities.category.where(lambda cat: "memcpy" in cat))
    rows = rows[~(asynchronous[activities.call_row[rows]] & unwaited[rows])]
    rows = rows[np.argsort(calls.start[activities.call_row[rows]], kind="stable")]
    call = activities.call_row[rows]
    # both are measured on the clocks of the trace, so that it does not matter by how much these are off
    waited = activities.end[rows] + of_each(machine.sync_return_latency, calls.name.take(call)).median
    latency = of_each(machine.launch, calls.name.take(call)).median
    measured = calls.name.where(lambda name: of_name(machine.launch, name).count > 0)[call]
    brief = 0 if measured.all() else _brief(activities, calls)
    unheld = np.where(measured, activities.start[rows] - latency, calls.start[call] + brief)
    speaks = calls.end[call] - (waited + unheld) / 2
    of_places = places.of(call.tolist(), activities.name.codes[rows].tolist())
    held = np.array([one for place in of_places if np.median(speaks[place]) > 0 for one in place], np.int64)
    return ImplicitHostWaits(call[held], rows[held], np.full(len(held), ABSENT), Provenance.RECORD)


def _brief(activities: Activities, calls: Calls) -> int:
    """Returns how long calls that launch kernels usually take."""
    launching = activities.call_row[(activities.call_row >= 0) & activities.category.equal("kernel")]
    return latency_stats((calls.end - calls.start)[np.unique(launching)]).median if len(launching) else 0


def full_queue(activities: Activities, calls: Calls) -> ImplicitHostWaits:
    """Returns a launch that found the queue full waited for room: until the last activity ended before the time that a
    launch takes.

    How long launches take is seen from those of the same name with few others under way. O(n log n).
    """
    rows, first, last = _launched(activities, len(calls))
    start, end = calls.start[rows], calls.end[rows]
    begun, over = np.sort(start), np.sort(last)
    under_way = np.searchsorted(begun, start) - np.searchsorted(over, start, side="right")
    if not len(rows) or under_way.max() < FULL_QUEUE:
        return ImplicitHostWaits(NOTHING, NOTHING, NOTHING, Provenance.TIMING)
    empty, longest = _unhindered(calls.name.codes[rows].astype(np.int64), end - start, under_way < FULL_QUEUE // 2)
    source = _last_ended(activities, np.minimum(end - empty // 2, first))
    held = (under_way >= FULL_QUEUE) & (end - start > longest) & (np.append(activities.end, NEVER)[source] > start)
    return ImplicitHostWaits(rows[held], source[held], start[held], Provenance.TIMING)


def _launched(activities: Activities, calls: int) -> tuple[Int64, Int64, Int64]:
    """Returns those of so many calls that launched, and when the first of each one's activities started and the last
    one ended.
    """
    first, last = np.full(calls, FOREVER, np.int64), np.full(calls, NEVER, np.int64)
    called = activities.call_row >= 0
    rows = activities.call_row[called]
    np.minimum.at(first, rows, activities.start[called])
    np.maximum.at(last, rows, activities.end[called])
    launching = np.flatnonzero(first < FOREVER)
    return launching, first[launching], last[launching]


def _last_ended(activities: Activities, times: Int64) -> Int64:
    """Returns the activity that ended last before each time, or then, -1 for none."""
    by_end = np.argsort(activities.end, kind="stable")
    place = np.searchsorted(activities.end[by_end], times, side="right") - 1
    return np.where(place >= 0, by_end[place], -1) if len(by_end) else place


def _unhindered(name: Int64, length: Int64, unhindered: Bool) -> tuple[Int64, Int64]:
    """Returns for each launch how long the unhindered ones of its name usually and at most took; where there are none,
    all of that name.
    """
    median, most = np.zeros((2, len(name)), np.int64)
    for mine in rows_of_each(name).values():
        free = latency_stats(length[mine[unhindered[mine]]] if unhindered[mine].any() else length[mine])
        median[mine], most[mine] = free.median, free.upper
    return median, most


def on_observer_threads(calls: Calls, activities: Activities, thread_of_ops: Int64) -> Bool:
    """Returns the calls of threads that run no op and launch nothing, such as the watchdog of a communication library."""
    launching = calls.thread[activities.call_row[activities.call_row >= 0]]
    return ~np.isin(calls.thread, np.union1d(launching, thread_of_ops))


def observer_waits(calls: Calls, activities: Activities, looks_on: Bool) -> ImplicitHostWaits:
    """Returns what a thread that only looks on does at some point of the run, it would do at that point of a faster or
    slower run too: each of its calls follows the activity that ended last before it, if that was after the thread's
    call before.
    """
    rows = np.flatnonzero(looks_on)
    rows = rows[np.lexsort((calls.start[rows], calls.thread[rows]))]
    follows = np.flatnonzero(calls.thread[rows[1:]] == calls.thread[rows[:-1]])
    row, since = rows[follows + 1], calls.end[rows[follows]]
    source = _last_ended(activities, calls.start[row])
    kept = np.append(activities.end, NEVER)[source] > since
    return ImplicitHostWaits(row[kept], source[kept], since[kept], Provenance.TIMING)
