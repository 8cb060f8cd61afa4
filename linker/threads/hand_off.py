"""Hand-over between host threads: a worker runs because another thread called it and is blocked until the worker is done.

Autograd workers are known by the sequence numbers of their ops, which a forward op on the calling thread shares; other workers only by
their timing. A burst is a stretch of a worker's ops during which the caller did nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, TOLERANCE, Bool, Int64, Strings, innermost, split_groups
from ...schema.linked import Calls, Found, HandOvers, Ops
from ...schema.machine import ANY_THREAD, ENOUGH, Usual, usual
from ...schema.traces import FOREVER, NEVER, are_step_marks

AUTOGRAD = "autograd::engine::evaluate_function"


class Burst(NamedTuple):
    """Times in ns; `since` is when the worker had last done something, ABSENT for never."""

    worker: int
    caller: int
    quiet_from: int
    quiet_until: int
    first: int
    last: int
    since: int


class Wait(NamedTuple):
    """One row of HandOvers."""

    source_thread: int
    source_time: int
    target_thread: int
    target_time: int
    waiting_since: int
    found: str


class _Thread(NamedTuple):
    """What a host thread did: its boundaries in time; of the stretches between two of them those in which it may be blocked and those
    in which it certainly did nothing; its outermost ops."""

    boundaries: Int64
    may_wait: Bool
    idle: Bool
    top_start: Int64
    top_end: Int64


def hand_overs(ops: Ops, parent: Int64, calls: Calls, transfers: Iterable[Wait], transfer_threads: Int64) -> HandOvers:
    """The hand-overs of one process: those around its transfers, and those of its other threads.

    O(n log n) in ops and calls for a bounded number of threads.
    """
    work = np.flatnonzero((ops.start != ABSENT) & ~are_step_marks(ops.name) & ~np.isin(ops.thread, transfer_threads))
    numbers, sizes = np.unique(ops.thread[work], return_counts=True)
    if len(numbers) < 2:
        return _columns(transfers)
    threads = {number: _thread(ops, parent, calls, work, number) for number in numbers.tolist()}
    callers = {number: _forward_thread(ops, work, number) for number in numbers.tolist()}
    by_size = numbers[np.argsort(-sizes, kind="stable")].tolist()
    known: dict[int, int] = {}
    for number in reversed(by_size):
        caller = callers[number]
        # of two threads that each ran the backward ops of the other one the larger is the caller
        if caller not in (None, number) and known.get(caller) != number:
            known[number] = caller
    main = next((number for number in by_size if number not in known), by_size[0])
    bursts: list[Burst] = []
    for number in numbers.tolist():
        if number in known:
            bursts += _bursts(number, known[number], threads[number], threads[known[number]])
    others = [number for number in threads if number != main and number not in known and number not in known.values()]
    by_timing = _by_timing({number: threads[number] for number in others}, main, threads[main], _usual(bursts))
    return _columns([*transfers, *_waits(bursts), *by_timing])


def _thread(ops: Ops, parent: Int64, calls: Calls, work: Int64, number: int) -> _Thread:
    mine = work[ops.thread[work] == number]
    called = np.flatnonzero(calls.thread == number)
    times = (ops.start[mine], ops.end[mine], calls.start[called], calls.end[called])
    boundaries = np.unique(np.concatenate(times))
    real = np.full(len(ops), -1, np.int64)
    real[mine] = np.arange(len(mine))
    outer = np.where(parent[mine] >= 0, real[parent[mine]], -1)
    middle = (boundaries[:-1] + boundaries[1:]) // 2
    owner = innermost(
        np.full(len(middle), number), middle, middle, ops.thread[mine], ops.start[mine], ops.end[mine], outer
    )
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith("aten::"))
    may_wait = np.where(owner >= 0, ~computes[mine[owner]], True) if len(mine) else np.ones(len(middle), np.bool_)
    in_call = _covered(boundaries, calls.start[called], calls.end[called])
    top = mine[outer < 0]
    top = top[np.argsort(ops.start[top], kind="stable")]
    return _Thread(boundaries, may_wait & ~in_call, (owner < 0) & ~in_call, ops.start[top], ops.end[top])


def _covered(boundaries: Int64, start: Int64, end: Int64) -> Bool:
    """Which of the stretches between boundaries lie inside one of the spans, whose ends are boundaries."""
    change = np.zeros(len(boundaries), np.int64)
    np.add.at(change, np.searchsorted(boundaries, start), 1)
    np.add.at(change, np.searchsorted(boundaries, end), -1)
    return np.cumsum(change)[:-1] > 0


def _forward_thread(ops: Ops, work: Int64, worker: int) -> int | None:
    """The thread whose forward ops share the sequence numbers of the worker's backward ops, None for threads without any."""
    mine = work[ops.thread[work] == worker]
    is_backward = (ops.fw_tid > 0) | ops.name.where(lambda name: name.startswith(AUTOGRAD))
    backward = mine[is_backward[mine] & (ops.seq_id[mine] >= 0)]
    forward = work[~is_backward[work] & (ops.seq_id[work] >= 0)]
    forward = forward[np.isin(ops.seq_id[forward], ops.seq_id[backward])]
    counts = Counter(ops.thread[forward].tolist()).most_common(1)
    return counts[0][0] if counts else None


def _bursts(number: int, caller: int, worker: _Thread, calling: _Thread) -> Iterable[Burst]:
    """The worker's ops, grouped by the quiet stretch of the caller that holds them."""
    edges = np.concatenate(([NEVER], calling.boundaries, [FOREVER]))
    open_stretch = np.concatenate(([True], calling.may_wait, [True]))
    stretch = np.full(len(worker.top_start), -1, np.int64)
    # what begins or ends a little outside a quiet stretch, as two threads read their clocks, belongs to it
    for early in (0, TOLERANCE):
        place = np.searchsorted(edges, worker.top_start + early, side="right") - 1
        inside = open_stretch[place] & (worker.top_end - TOLERANCE <= edges[place + 1])
        stretch = np.where((stretch < 0) & inside, place, stretch)
    for rows in split_groups(np.arange(len(stretch)), stretch):
        if stretch[rows[0]] < 0:
            continue
        quiet_from, quiet_until = edges[stretch[rows[0]] : stretch[rows[0]] + 2].tolist()
        start, last = max(int(worker.top_start[rows[0]]), quiet_from), int(worker.top_end[rows].max())
        yield Burst(number, caller, quiet_from, quiet_until, start, min(last, quiet_until), _idle_since(worker, start))


def _usual(bursts: list[Burst]) -> Usual:
    """How long a thread of this run takes to go on when another one calls it or returns to it."""
    called = [burst.first - burst.quiet_from for burst in bursts if burst.quiet_from != NEVER]
    returned = [burst.quiet_until - burst.last for burst in bursts if burst.quiet_until != FOREVER]
    found = usual(np.array(called + returned, np.int64))
    return found if found.count >= ENOUGH else ANY_THREAD


def _idle_since(thread: _Thread, time: int) -> int:
    """When a thread that starts something at `time` had last done something: then, if it was busy up to it; ABSENT for never."""
    place = int(np.searchsorted(thread.boundaries, time)) - 1
    if place < 0:
        return ABSENT
    return time if place < len(thread.idle) and not thread.idle[place] else int(thread.boundaries[place])


def _waits(bursts: list[Burst]) -> Iterable[Wait]:
    """A call and its return per burst. One call starts all workers of a quiet stretch; how much later each began is its own idle time."""
    together: dict[tuple[int, int], list[Burst]] = defaultdict(list)
    for burst in bursts:
        together[burst.caller, burst.quiet_from].append(burst)
    found = Found.RECORD.value
    for group in together.values():
        called, returned = min(burst.first for burst in group), max(burst.last for burst in group)
        for burst in group:
            started = called if burst.since == ABSENT or burst.since <= called else burst.first
            yield Wait(burst.caller, called, burst.worker, started, burst.since, found)
            if burst.quiet_until != FOREVER:
                yield Wait(burst.worker, burst.last, burst.caller, returned, called, found)


def _calls_by_timing(number: int, main: int, worker: _Thread, calling: _Thread, wake: Usual) -> Iterable[Burst]:
    """Bursts of a worker that had been idle and started right after the main thread fell quiet: it was called."""
    for burst in _bursts(number, main, worker, calling):
        idle = burst.since == ABSENT or burst.first - burst.since >= wake.median
        if idle and burst.first - burst.quiet_from <= wake.most:
            yield burst


def _by_timing(workers: dict[int, _Thread], main: int, calling: _Thread, wake: Usual) -> Iterable[Wait]:
    """Calls, and returns: the main thread, quiet for a while, goes on right after a worker's op has ended."""
    found = Found.TIMING.value
    called: dict[int, int] = {}
    for number, worker in workers.items():
        for burst in _calls_by_timing(number, main, worker, calling, wake):
            called[burst.quiet_from] = min(burst.first, called.get(burst.quiet_from, burst.first))
            yield Wait(main, burst.first, number, burst.first, burst.since, found)
    quiet = np.diff(calling.boundaries) >= wake.median
    quiet |= np.isin(calling.boundaries[:-1], list(called))
    for stretch in np.flatnonzero(calling.may_wait & quiet).tolist():
        begin, end = int(calling.boundaries[stretch]), int(calling.boundaries[stretch + 1])
        ends = {number: min(_last_end(worker, end + TOLERANCE), end) for number, worker in workers.items()}
        number = max(ends, key=lambda n: ends[n], default=-1)
        if number != -1 and max(begin, end - wake.most) < ends[number]:
            yield Wait(number, ends[number], main, ends[number], called.get(begin, begin), found)


def _last_end(thread: _Thread, time: int) -> int:
    """When the thread's last outermost op before `time` ended."""
    place = int(np.searchsorted(thread.top_end, time, side="right")) - 1
    return int(thread.top_end[place]) if place >= 0 else NEVER


def _columns(waits: Iterable[Wait]) -> HandOvers:
    rows = list(waits)
    return HandOvers(
        source_thread=np.array([row.source_thread for row in rows], np.int64),
        source_time=np.array([row.source_time for row in rows], np.int64),
        target_thread=np.array([row.target_thread for row in rows], np.int64),
        target_time=np.array([row.target_time for row in rows], np.int64),
        waiting_since=np.array([row.waiting_since for row in rows], np.int64),
        found=Strings.of(row.found for row in rows),
    )
