"""Finds what blocks host and device without a synchronising call: copies that block, a full launch queue, what ended
right before a call returned, what observer threads saw, and waits that a device itself records.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, rows_of_each
from ...schema.linked import FOREVER, NEVER, Activities, Calls, HostWaits, Provenance, SyncCall, last_ended
from ...schema.machine import MachineCalibration, latency_stats, of_each, of_name
from ..readers import RecordedQueueEvents
from .process import Process
from .submissions import CallSites, StreamKey, StreamQueues

NO_ROWS = np.empty(0, np.int64)
FULL_QUEUE = 500
"""Launches in flight above which one more may wait for a slot: drivers queue about a thousand, event calls too."""


def queue_waits(rows: RecordedQueueEvents, queues: StreamQueues, start: list[int]) -> Iterator[tuple[int, int]]:
    """Yields for each wait the awaited activity and the blocked one, -1 for none; `start` has that of every activity.

    The awaited activity is the last one on the awaited stream before the event record, the blocked one the first on the
    waiting stream after the wait.
    """
    columns = (rows.device, rows.stream, rows.awaited, rows.sequence, rows.start, rows.end)
    events = list(zip(*(column.tolist() for column in columns), strict=True))
    recorded = {(device, stream, number): time for device, stream, awaited, number, time, _ in events if awaited < 0}
    for device, stream, awaited, number, wait_start, _ in events:
        if awaited < 0:
            continue
        time = recorded.get((device, awaited, number), NEVER)
        before, after = (queues.rows.get(StreamKey(device, key), NO_ROWS.data) for key in (awaited, stream))
        last = bisect_left(before, time, key=start.__getitem__) - 1
        # the blocked stream goes on while the event record that it waited for is still being made
        first = bisect_left(after, max(wait_start, time), key=start.__getitem__)
        yield before[last] if last >= 0 else -1, after[first] if first < len(after) else -1


class ImplicitHostWaits(NamedTuple):
    """Calls that do not return before the activities `source` have ended; their threads wait from `since` (ns) on."""

    call_row: Int64
    source: Int64
    since: Int64
    provenance: Provenance = Provenance.TIMING


def blocking_copies(
    activities: Activities, calls: Calls, calibration: MachineCalibration, call_sites: CallSites
) -> ImplicitHostWaits:
    """Returns the copies that their calls waited for, decided for each call site by the median.

    A call that waits returns soon after the copy has ended. One that does not wait returns before the copy is launched,
    or, where the launch latency is unknown, after the time that launches usually take. If a call returns at the end of
    a copy, as far as the clocks can tell, then the earlier of the two counts: a copy that is queued behind other work
    begins long after a call that does not wait has returned. Asynchronous copies of pinned memory or within the device
    are never waited for.
    """
    asynchronous = calls.name.where(lambda name: "Async" in name)
    unwaited = activities.name.where(lambda name: "Pinned" in name or "DtoD" in name)
    rows = np.flatnonzero((activities.call_row >= 0) & activities.category.where(lambda cat: "memcpy" in cat))
    rows = rows[~(asynchronous[activities.call_row[rows]] & unwaited[rows])]
    rows = rows[np.argsort(calls.start[activities.call_row[rows]], kind="stable")]
    call = activities.call_row[rows]
    # both latencies were measured on the clocks of the trace, so that a clock error cancels out
    blocking_return = activities.end[rows] + of_each(calibration.sync_return, calls.name.take(call)).median
    latency = of_each(calibration.launch, calls.name.take(call)).median
    is_measured = calls.name.where(lambda name: of_name(calibration.launch, name).count > 0)[call]
    launching = np.unique(activities.call_row[(activities.call_row >= 0) & activities.category.equal("kernel")])
    usual_launch = latency_stats((calls.end - calls.start)[launching]).median if len(launching) else 0
    before_copy, launched = activities.start[rows] - latency, calls.start[call] + usual_launch
    may_have_waited = calls.end[call] + calibration.time_error_ns >= activities.end[rows]
    earlier = np.where(may_have_waited, np.minimum(before_copy, launched), before_copy)
    lateness = calls.end[call] - (blocking_return + np.where(is_measured, earlier, launched)) / 2
    sites = call_sites.groups(call.tolist(), activities.name.codes[rows].tolist())
    blocking = np.array([copy for site in sites if np.median(lateness[site]) > 0 for copy in site], np.int64)
    return ImplicitHostWaits(call[blocking], rows[blocking], np.full(len(blocking), ABSENT), Provenance.RECORD)


def full_queue(activities: Activities, calls: Calls) -> ImplicitHostWaits:
    """Returns launches that waited as the queue was full, each for the last activity whose end left time to launch.

    How long launches take is measured on those of the same name with few others in flight; where there are none, on
    all of that name. O(n log n).
    """
    # when the first activity of each call started, and when the last one ended
    first_start, last_end = np.full(len(calls), FOREVER, np.int64), np.full(len(calls), NEVER, np.int64)
    called = activities.call_row >= 0
    np.minimum.at(first_start, activities.call_row[called], activities.start[called])
    np.maximum.at(last_end, activities.call_row[called], activities.end[called])
    rows = np.flatnonzero(first_start < FOREVER)
    start, end = calls.start[rows], calls.end[rows]
    in_flight = np.searchsorted(np.sort(start), start) - np.searchsorted(np.sort(last_end[rows]), start, side="right")
    if not len(rows) or in_flight.max() < FULL_QUEUE:
        return ImplicitHostWaits(NO_ROWS, NO_ROWS, NO_ROWS)
    median, longest = np.zeros((2, len(rows)), np.int64)
    for alike in rows_of_each(calls.name.codes[rows].astype(np.int64)).values():
        unhindered = alike[in_flight[alike] < FULL_QUEUE // 2]
        stats = latency_stats((end - start)[unhindered if len(unhindered) else alike])
        median[alike], longest[alike] = stats.median, stats.upper
    source = last_ended(activities.end, np.minimum(end - median // 2, first_start[rows]))
    blocked = (in_flight >= FULL_QUEUE) & (end - start > longest) & (np.append(activities.end, NEVER)[source] > start)
    return ImplicitHostWaits(rows[blocked], source[blocked], start[blocked])


def unexplained_waits(
    process: Process, waits: HostWaits, calibration: MachineCalibration, behind_unresolved: Bool
) -> ImplicitHostWaits:
    """Returns synchronising calls that lasted on after all that they are known to have waited for, with what ended last
    before they returned.

    `waits` are those known so far. What a record names needs no other explanation, except by the calls that are
    `behind_unresolved` waits. Work that was submitted after the call began was not awaited, nor was work that ended
    earlier before the return than waits usually do. Where a record names no work, the call itself may take as long as a
    return: only work that is seen to have ended before it returned explains it, not work that may have, by the error of
    the clocks. O(n log n).
    """
    calls, activities, timing = process.calls, process.activities, process.timing
    known_end = np.full(len(calls), NEVER, np.int64)
    has_source = waits.source_row >= 0
    is_recorded = waits.known_by.equal(Provenance.RECORD.value)
    np.maximum.at(known_end, waits.call_row[has_source], activities.end[waits.source_row[has_source]])
    is_blocking = np.isin(process.kinds, (SyncCall.STREAM_SYNC, SyncCall.EVENT_SYNC, SyncCall.DEVICE_SYNC))
    is_named = has_source & is_recorded & ~behind_unresolved[waits.call_row]
    is_blocking[waits.call_row[is_named]] = False
    rows = np.flatnonzero(is_blocking)
    error_ns = np.asarray(timing.return_error_ns)[rows]
    max_return_ns = of_each(calibration.sync_return, calls.name.take(rows)).upper + error_ns
    end = calls.end[rows]
    lasts_on = end - np.maximum(calls.start[rows], known_end[rows]) > max_return_ns
    rows, max_return_ns, end = rows[lasts_on], max_return_ns[lasts_on], end[lasts_on]
    max_lead_ns = np.asarray(timing.max_return_lead_ns).copy()
    max_lead_ns[waits.call_row[~has_source & is_recorded]] = 0
    source = last_ended(activities.end, end + max_lead_ns[rows])
    submitted = np.append(process.queues.submitted_until, NEVER)[source]
    ended = np.append(activities.end, NEVER)[source]
    is_prompt = (submitted <= calls.start[rows]) & (ended > np.maximum(calls.start[rows], end - max_return_ns))
    rows, source = rows[is_prompt], source[is_prompt]
    return ImplicitHostWaits(rows, source, np.full(len(rows), ABSENT))


def on_observer_threads(calls: Calls, activities: Activities, thread_of_ops: Int64) -> Bool:
    """Returns which calls are of threads that run no op and launch nothing, such as NCCL's watchdog."""
    launching = calls.thread[activities.call_row[activities.call_row >= 0]]
    return ~np.isin(calls.thread, np.union1d(launching, thread_of_ops))


def observer_waits(calls: Calls, activities: Activities, by_observer: Bool) -> ImplicitHostWaits:
    """Returns a wait for each call of an observer thread, for the activity that ended last before it.

    An observer would make the call at the same point of a faster or slower run, too. There is no wait if that activity
    ended before the thread's previous call did.
    """
    rows = np.flatnonzero(by_observer)
    rows = rows[np.lexsort((calls.start[rows], calls.thread[rows]))]
    follows = np.flatnonzero(calls.thread[rows[1:]] == calls.thread[rows[:-1]])
    row, since = rows[follows + 1], calls.end[rows[follows]]
    source = last_ended(activities.end, calls.start[row])
    is_new = np.append(activities.end, NEVER)[source] > since
    return ImplicitHostWaits(row[is_new], source[is_new], since[is_new])
