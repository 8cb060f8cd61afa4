"""Finds hand-offs between host threads: a worker runs because another thread, the caller, called it and is blocked
until the worker is done.

The caller of an autograd worker is found by the sequence numbers of its ops, which forward ops of the caller share.
The callers of other workers are inferred from timing.

A gap of a thread is a time in which it may be blocked, as it neither computes nor is in a call. A caller with a gap
from 20 to 100 µs, in which its worker runs ops from 30 to 80, gives two hand-offs: at 30 from caller to worker, and at
80 back. The worker's ops within one gap are a segment.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..schema.columns import ABSENT, TOLERANCE, Categorical, Int64, rows_by_number, split_groups
from ..schema.linked import FOREVER, NEVER, Calls, Ops, Provenance, ThreadHandoffs, are_step_marks
from ..schema.machine import ANY_THREAD, ENOUGH, LatencyStats, latency_stats
from .forward_threads import ForwardThreads
from .thread_activity import ThreadActivity, activity_by_thread

AUTOGRAD = "autograd::engine::evaluate_function"


class WorkerSegment(NamedTuple):
    """Ops of a worker from `first` to `last`, during a gap of its caller. Times in ns.

    `idle_since` is when the worker had last done something, ABSENT for never. `begun` is when its first op really
    began, which may be slightly before the gap. A gap before the caller's first op begins at NEVER, one after its last
    op ends at FOREVER.
    """

    worker: int
    caller: int
    gap_start: int
    gap_end: int
    first: int
    last: int
    idle_since: int
    begun: int

    @property
    def waiting_since(self) -> int:
        """Since when the worker waited to be called, ABSENT where that does not follow: all before was no work."""
        return self.begun if self.idle_since == ABSENT and self.begun < self.first else self.idle_since


class Wait(NamedTuple):
    """One row of ThreadHandoffs."""

    source_thread: int
    source_time: int
    target_thread: int
    target_time: int
    waiting_since: int
    known_by: str


def thread_handoffs(
    ops: Ops, parent: Int64, calls: Calls, transfers: Iterable[Wait], transfer_threads: Int64
) -> ThreadHandoffs:
    """Returns the hand-offs of one process: those around its transfers, and those of its other threads.

    O(n log n) in ops and calls, whatever the number of threads.
    """
    work = (ops.start != ABSENT) & ~are_step_marks(ops.name) & ~np.isin(ops.thread, transfer_threads)
    of_thread = rows_by_number(np.flatnonzero(work), ops.thread)
    if len(of_thread) < 2:
        return _handoff_table(transfers)
    activity = activity_by_thread(ops, parent, calls, of_thread)
    largest_first = sorted(of_thread, key=lambda thread: -len(of_thread[thread]))
    callers = _callers(ops, of_thread, largest_first)
    main = next((thread for thread in largest_first if thread not in callers), largest_first[0])

    segments = [
        segment
        for thread in activity
        if thread in callers
        for segment in _segments(thread, callers[thread], activity[thread], activity[callers[thread]])
    ]
    recorded = {main, *callers, *callers.values()}
    workers = {thread: worker for thread, worker in activity.items() if thread not in recorded}
    by_timing = _by_timing(workers, main, activity[main], _wake_latency(segments))
    return _handoff_table([*transfers, *_recorded(segments), *by_timing])


def _callers(ops: Ops, of_thread: dict[int, Int64], largest_first: list[int]) -> dict[int, int]:
    """Returns the caller of each autograd worker, by the ops of each thread."""
    callers: dict[int, int] = {}
    is_backward = (ops.fw_tid > 0) | ops.name.where(lambda name: name.startswith(AUTOGRAD))
    forward = ForwardThreads(ops, of_thread, is_backward)
    for thread in reversed(largest_first):
        rows = of_thread[thread]
        sequence = ops.seq_id[rows[is_backward[rows]]]
        caller = forward.of(np.unique(sequence[sequence >= 0]))
        # if two threads ran each other's backward ops, the larger one is the caller
        if caller not in (None, thread) and callers.get(caller) != thread:
            callers[thread] = caller
    return callers


def _segments(thread: int, caller: int, worker: ThreadActivity, calling: ThreadActivity) -> Iterable[WorkerSegment]:
    """Yields the worker's outermost ops, grouped by the caller's gap that contains them."""
    boundaries, is_gap = calling.boundaries, calling.may_wait
    gap = np.full(len(worker.top_start), -1, np.int64)
    # an op that begins or ends slightly outside a gap belongs to it, as two threads read their clocks
    for early in (0, TOLERANCE):
        interval = np.searchsorted(boundaries, worker.top_start + early, side="right") - 1
        inside = is_gap[interval] & (worker.top_end - TOLERANCE <= boundaries[interval + 1])
        gap = np.where((gap < 0) & inside, interval, gap)
    for rows in split_groups(np.arange(len(gap)), gap):
        interval = gap[rows[0]]
        if interval < 0:
            continue
        gap_start, gap_end = int(boundaries[interval]), int(boundaries[interval + 1])
        begun = int(worker.top_start[rows[0]])
        first, last = max(begun, gap_start), min(int(worker.top_end[rows].max()), gap_end)
        # at the gap's start a worker whose op began slightly before it seems to be busy
        idle_since = worker.idle_since(begun)
        idle_since = first if idle_since == begun else idle_since
        yield WorkerSegment(thread, caller, gap_start, gap_end, first, last, idle_since, begun)


def _wake_latency(segments: list[WorkerSegment]) -> LatencyStats:
    """Returns how long a thread of this run takes to go on when another one calls it or returns to it."""
    called = [segment.first - segment.gap_start for segment in segments if segment.gap_start != NEVER]
    returned = [segment.gap_end - segment.last for segment in segments if segment.gap_end != FOREVER]
    stats = latency_stats(np.array(called + returned, np.int64))
    return stats if stats.count >= ENOUGH else ANY_THREAD


def _recorded(segments: list[WorkerSegment]) -> Iterable[Wait]:
    """Yields the call and the return of each segment.

    One call starts all workers of a gap: workers that begin at 30 and 34 µs were both called at 30, and the second one
    was idle for 4 µs, if it was idle before.
    """
    by_gap: dict[tuple[int, int], list[WorkerSegment]] = defaultdict(list)
    for segment in segments:
        by_gap[segment.caller, segment.gap_start].append(segment)
    record = Provenance.RECORD.value
    for group in by_gap.values():
        called, returned = min(segment.first for segment in group), max(segment.last for segment in group)
        for segment in group:
            worker, caller, since = segment.worker, segment.caller, segment.waiting_since
            started = called if since <= called else segment.first
            yield Wait(caller, called, worker, started, since, record)
            if segment.gap_end != FOREVER:
                yield Wait(worker, segment.last, caller, returned, called, record)


def _by_timing(
    workers: dict[int, ThreadActivity], main: int, calling: ThreadActivity, latency: LatencyStats
) -> Iterable[Wait]:
    """Yields hand-offs between the main thread and workers that only the times show to be called by it."""
    called: dict[int, int] = {}
    for thread, worker in workers.items():
        for segment in _prompt_segments(thread, main, worker, calling, latency):
            called[segment.gap_start] = min(segment.first, called.get(segment.gap_start, segment.first))
            yield Wait(main, segment.first, thread, segment.first, segment.waiting_since, Provenance.TIMING.value)
    yield from _returns_by_timing(workers, main, calling, latency, called)


def _prompt_segments(
    thread: int, main: int, worker: ThreadActivity, calling: ThreadActivity, latency: LatencyStats
) -> Iterable[WorkerSegment]:
    """Yields the segments of a worker that was idle and started right after a gap of the main thread began."""
    for segment in _segments(thread, main, worker, calling):
        was_idle = segment.idle_since == ABSENT or segment.first - segment.idle_since >= latency.median
        if was_idle and segment.first - segment.gap_start <= latency.upper:
            yield segment


def _returns_by_timing(
    workers: dict[int, ThreadActivity],
    main: int,
    calling: ThreadActivity,
    latency: LatencyStats,
    called: dict[int, int],
) -> Iterable[Wait]:
    """Yields a return for each gap of the main thread that ends right after an op of a worker.

    The gap must be long enough for a call, or `called` holds when a worker was called in it, by the gap's start.
    """
    begin, end = calling.boundaries[1:-2], calling.boundaries[2:-1]
    long_enough = (end - begin >= latency.median) | np.isin(begin, list(called))
    threads = np.repeat([*workers], [len(worker.top_end) for worker in workers.values()])
    ends = np.concatenate([begin[:0], *(worker.top_end for worker in workers.values())])
    order = np.argsort(ends, kind="stable")
    threads, ends = threads[order], ends[order]
    until = np.searchsorted(ends, end + TOLERANCE, side="right")
    last = np.minimum(np.append(ends, NEVER)[until - 1], end)
    returned = calling.may_wait[1:-1] & long_enough & (np.maximum(begin, end - latency.upper) < last)
    since = np.searchsorted(ends, last)
    for gap in np.flatnonzero(returned).tolist():
        # if several workers ended then, the one with the smallest number returned
        thread = int(threads[since[gap] : until[gap]].min())
        gap_start, time = int(begin[gap]), int(last[gap])
        yield Wait(thread, time, main, time, called.get(gap_start, gap_start), Provenance.TIMING.value)


def _handoff_table(waits: Iterable[Wait]) -> ThreadHandoffs:
    rows = list(waits)
    numbers = np.array([row[:-1] for row in rows], np.int64).reshape(-1, 5)
    source_thread, source_time, target_thread, target_time, since = numbers.T
    known_by = Categorical.of(row.known_by for row in rows)
    return ThreadHandoffs(source_thread, source_time, target_thread, target_time, since, known_by)
