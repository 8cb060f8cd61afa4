"""Hand-off between host threads: a worker runs because another thread, the caller, called it and is blocked until the
worker is done.

The caller of an autograd worker is known by the sequence numbers of its ops, which forward ops of the caller share.
Other workers are known only by timing.

A caller that is quiet from 20 to 100 µs while its worker runs ops from 30 to 80 gives two hand-offs: at 30 from the
caller to the worker, at 80 back. Such a stretch of the worker's ops is a burst.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...schema.columns import (
    ABSENT,
    TOLERANCE,
    Categorical,
    Int64,
    rows_by_number,
    split_groups,
)
from ...schema.linked import Calls, Ops, Provenance, ThreadHandoffs
from ...schema.machine import ANY_THREAD, ENOUGH, LatencyStats, latency_stats
from ...schema.traces import FOREVER, NEVER, are_step_marks
from .forward_threads import ForwardThreads
from .thread_activity import ThreadActivity, activity_by_thread

AUTOGRAD = "autograd::engine::evaluate_function"


class WorkerSegment(NamedTuple):
    """Ops of a worker from `first` to `last`, while its caller was quiet. Times in ns.

    `since` is when the worker had last done something, ABSENT for never. A caller that was quiet from its start on, or
    to its end, is so from NEVER, or until FOREVER.
    """

    worker: int
    caller: int
    quiet_from: int
    quiet_until: int
    first: int
    last: int
    since: int


class Wait(NamedTuple):
    """One row of ThreadHandoffs."""

    source_thread: int
    source_time: int
    target_thread: int
    target_time: int
    waiting_since: int
    found: str


def thread_handoffs(
    ops: Ops, parent: Int64, calls: Calls, transfers: Iterable[Wait], transfer_threads: Int64
) -> ThreadHandoffs:
    """Returns the hand-offs of one process: those around its transfers, and those of its other threads.

    O(n log n) in ops and calls, on however many threads.
    """
    work = (ops.start != ABSENT) & ~are_step_marks(ops.name) & ~np.isin(ops.thread, transfer_threads)
    of_thread = rows_by_number(np.flatnonzero(work), ops.thread)
    if len(of_thread) < 2:
        return _columns(transfers)
    did = activity_by_thread(ops, parent, calls, of_thread)
    largest_first = sorted(of_thread, key=lambda number: -len(of_thread[number]))
    callers = _callers(ops, of_thread, largest_first)
    main = next((number for number in largest_first if number not in callers), largest_first[0])

    bursts = [
        burst
        for number in did
        if number in callers
        for burst in _bursts(number, callers[number], did[number], did[callers[number]])
    ]
    told = {main, *callers, *callers.values()}
    others = {number: activity for number, activity in did.items() if number not in told}
    return _columns([*transfers, *_waits(bursts), *_by_timing(others, main, did[main], _usual(bursts))])


def _callers(ops: Ops, of_thread: dict[int, Int64], largest_first: list[int]) -> dict[int, int]:
    """Returns the caller of each autograd worker, by the ops of each thread."""
    callers: dict[int, int] = {}
    is_backward = (ops.fw_tid > 0) | ops.name.where(lambda name: name.startswith(AUTOGRAD))
    forward = ForwardThreads(ops, of_thread, is_backward)
    for number in reversed(largest_first):
        rows = of_thread[number]
        sequence = ops.seq_id[rows[is_backward[rows]]]
        caller = forward.of(np.unique(sequence[sequence >= 0]))
        # of two threads that each ran the backward ops of the other one the larger is the caller
        if caller not in (None, number) and callers.get(caller) != number:
            callers[number] = caller
    return callers


def _bursts(number: int, caller: int, worker: ThreadActivity, calling: ThreadActivity) -> Iterable[WorkerSegment]:
    """Yields the worker's outermost ops, grouped by the quiet stretch of the caller that holds them."""
    edges, is_quiet = calling.boundaries, calling.may_wait
    stretch = np.full(len(worker.top_start), -1, np.int64)
    # what begins or ends a little outside a quiet stretch, as two threads read their clocks, belongs to it
    for early in (0, TOLERANCE):
        place = np.searchsorted(edges, worker.top_start + early, side="right") - 1
        inside = is_quiet[place] & (worker.top_end - TOLERANCE <= edges[place + 1])
        stretch = np.where((stretch < 0) & inside, place, stretch)
    for rows in split_groups(np.arange(len(stretch)), stretch):
        place = stretch[rows[0]]
        if place < 0:
            continue
        quiet_from, quiet_until = int(edges[place]), int(edges[place + 1])
        first = max(int(worker.top_start[rows[0]]), quiet_from)
        last = min(int(worker.top_end[rows].max()), quiet_until)
        yield WorkerSegment(number, caller, quiet_from, quiet_until, first, last, worker.idle_since(first))


def _usual(bursts: list[WorkerSegment]) -> LatencyStats:
    """Returns how long a thread of this run takes to go on when another one calls it or returns to it."""
    called = [burst.first - burst.quiet_from for burst in bursts if burst.quiet_from != NEVER]
    returned = [burst.quiet_until - burst.last for burst in bursts if burst.quiet_until != FOREVER]
    found = latency_stats(np.array(called + returned, np.int64))
    return found if found.count >= ENOUGH else ANY_THREAD


def _waits(bursts: list[WorkerSegment]) -> Iterable[Wait]:
    """Yields a call and its return per burst.

    One call starts all workers of a quiet stretch: workers that begin at 30 and 34 µs were both called at 30, and the
    second one was idle for 4 µs, if it was idle before.
    """
    together: dict[tuple[int, int], list[WorkerSegment]] = defaultdict(list)
    for burst in bursts:
        together[burst.caller, burst.quiet_from].append(burst)
    found = Provenance.RECORD.value
    for group in together.values():
        called, returned = min(burst.first for burst in group), max(burst.last for burst in group)
        for burst in group:
            started = called if burst.since == ABSENT or burst.since <= called else burst.first
            yield Wait(burst.caller, called, burst.worker, started, burst.since, found)
            if burst.quiet_until != FOREVER:
                yield Wait(burst.worker, burst.last, burst.caller, returned, called, found)


def _by_timing(
    workers: dict[int, ThreadActivity], main: int, calling: ThreadActivity, wake: LatencyStats
) -> Iterable[Wait]:
    """Hand-offs between the main thread and workers of which only the times tell that it called them."""
    called: dict[int, int] = {}
    for number, worker in workers.items():
        for burst in _prompt_bursts(number, main, worker, calling, wake):
            called[burst.quiet_from] = min(burst.first, called.get(burst.quiet_from, burst.first))
            yield Wait(main, burst.first, number, burst.first, burst.since, Provenance.TIMING.value)
    yield from _returns_by_timing(workers, main, calling, wake, called)


def _prompt_bursts(
    number: int, main: int, worker: ThreadActivity, calling: ThreadActivity, wake: LatencyStats
) -> Iterable[WorkerSegment]:
    """Bursts of a worker that had been idle and started right after the main thread fell quiet: it was called."""
    for burst in _bursts(number, main, worker, calling):
        idle = burst.since == ABSENT or burst.first - burst.since >= wake.median
        if idle and burst.first - burst.quiet_from <= wake.upper:
            yield burst


def _returns_by_timing(
    workers: dict[int, ThreadActivity], main: int, calling: ThreadActivity, wake: LatencyStats, called: dict[int, int]
) -> Iterable[Wait]:
    """Yields the main thread, quiet for a while, goes on right after a worker's op has ended.

    `called` tells when it called a worker in the quiet stretch that begins at a time.
    """
    begin, end = calling.boundaries[1:-2], calling.boundaries[2:-1]
    long_enough = (end - begin >= wake.median) | np.isin(begin, list(called))
    numbers = np.repeat([*workers], [len(worker.top_end) for worker in workers.values()])
    ends = np.concatenate([begin[:0], *(worker.top_end for worker in workers.values())])
    order = np.argsort(ends, kind="stable")
    numbers, ends = numbers[order], ends[order]
    until = np.searchsorted(ends, end + TOLERANCE, side="right")
    last = np.minimum(np.append(ends, NEVER)[until - 1], end)
    returned = calling.may_wait[1:-1] & long_enough & (np.maximum(begin, end - wake.upper) < last)
    since = np.searchsorted(ends, last)
    for stretch in np.flatnonzero(returned).tolist():
        # of several that ended then the one with the smallest number
        number = int(numbers[since[stretch] : until[stretch]].min())
        from_time, time = int(begin[stretch]), int(last[stretch])
        yield Wait(number, time, main, time, called.get(from_time, from_time), Provenance.TIMING.value)


def _columns(waits: Iterable[Wait]) -> ThreadHandoffs:
    rows = list(waits)
    numbers = np.array([row[:-1] for row in rows], np.int64).reshape(-1, 5)
    source_thread, source_time, target_thread, target_time, since = numbers.T
    found = Categorical.of(row.found for row in rows)
    return ThreadHandoffs(source_thread, source_time, target_thread, target_time, since, found)
