"""Finds hand-offs between host threads, and what each thread did over time: its ops, and when it may have been blocked.
A worker's caller is found by the sequence numbers of its ops, or by timing: a caller with a gap from 20 to 100 µs, in
which its worker runs ops from 30 to 80, gives two hand-offs, at 30 from caller to worker, and at 80 back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..schema import columns
from ..schema.columns import ABSENT, Bool, Categorical, Floats, Int64, ThreadIntervals
from ..schema.linked import AUTOGRAD, FOREVER, NEVER, Calls, Ops, Provenance, ThreadHandoffs, are_step_marks
from ..schema.machine import ANY_THREAD, LatencyStats, latency_stats

MADE_WITHIN = 500_000
"""ns in which a thread that another one makes begins to work."""
AT_ONCE = 1 << 16
"""Stretches of time that are looked up at once."""
SHARED = 256
"""Threads that count of those whose forward ops share a sequence number; each counts its own, so a run has few."""
RECURRING, LOOKED_BACK = 3, 8
"""Gaps so often alike tell what they are together, from the last points of other threads before they end."""
CERTAIN = 3
"""The logarithm of how much likelier than chance a wait has to be, beside that of how many kinds of gaps there are."""


class Gap(NamedTuple):
    """A stretch of time in which a thread may have been blocked, in ns; ABSENT and FOREVER for an open end."""

    begin: int
    end: int


@dataclass(slots=True, repr=False)
class ThreadActivity(columns.SummaryRepr):
    """What a thread did, in ns: `boundaries` are the times at which an op or call begins or ends, after NEVER and
    before FOREVER; `may_wait` and `idle` are of the intervals between. If it runs aten::add from 20 to 30 in an
    annotation from 0 to 100, it may have been blocked in [0, 20] and [30, 100], computed in [20, 30], and was never
    idle.
    """

    boundaries: Int64
    may_wait: Bool
    idle: Bool
    top_start: Int64
    top_end: Int64
    kind: Int64
    op_ends: Bool

    def idle_since(self, time: int) -> int:
        """Returns when the thread had last done something before `time`: that if it was busy then, ABSENT for never."""
        interval = int(np.searchsorted(self.boundaries, time)) - 1
        if interval < 1:
            return ABSENT
        return int(self.boundaries[interval]) if self.idle[interval] else time

    def gap_at(self, time: int) -> Gap:
        """Returns the gap that `time` is in or the start of, an empty one at `time` where the thread was busy."""
        interval = int(np.searchsorted(self.boundaries, time, side="right")) - 1
        begin = int(self.boundaries[interval]) if interval else ABSENT
        return Gap(begin, int(self.boundaries[interval + 1])) if self.may_wait[interval] else Gap(time, time)

    def waiting_for(self, row: Gap, since: int, until: int, others: Int64) -> Gap | None:
        """Returns the gap in which the thread waited for what is recorded as `row`, None if it did not seem to wait.
        This is the longest gap from `since` on that began before `until` and the row's end. It ended near that end,
        nearer than to the `others`, or the thread did nothing else in between.
        """
        first, last = 1 + np.searchsorted(self.boundaries[1:-2], (since, min(row.end + 1, until)))
        end, stopped = min(row.end, until), self.boundaries[first + 1 : last + 1]
        late = end - stopped
        of_another = np.searchsorted(others, stopped - late, side="right") < np.searchsorted(others, end)
        may_be_late = (late <= ANY_THREAD.upper) & (stopped > row.begin) & ~of_another
        fits = self.may_wait[first:last] & ((late <= 0) | may_be_late)
        lengths = np.where(fits, np.diff(self.boundaries[first : last + 1]), 0)
        if not lengths.any():
            return None
        longest = int(first + lengths.argmax())
        gap = Gap(int(self.boundaries[longest]), int(self.boundaries[longest + 1]))
        nothing_else = gap.begin == since and gap.end >= end
        return gap if nothing_else or abs(gap.end - end) <= gap.end - gap.begin else None


def thread_activities(
    ops: Ops, parent: Int64, calls: Calls, of_thread: dict[int, Int64], *, computes: Bool
) -> Callable[[int], ThreadActivity]:
    """Returns a function that finds what a thread did when first asked; it may be blocked unless an op computes."""
    calls_of, none = columns.rows_of_each(calls.thread), np.empty(0, np.int64)
    position = np.full(len(ops), -1, np.int64)

    def of_one(start: Int64, end: Int64) -> ThreadIntervals:
        return ThreadIntervals(np.broadcast_to(np.int64(0), len(start)), start, end)

    @cache
    def activity(thread: int) -> ThreadActivity:
        rows, called = of_thread.get(thread, none), calls_of.get(thread, none)
        position[rows] = np.arange(len(rows))
        enclosing = parent[rows]
        on_thread = (enclosing >= 0) & (ops.thread[enclosing] == thread)
        enclosing = np.where(on_thread, position[enclosing], -1)
        start, end, called_at, returned = ops.start[rows], ops.end[rows], calls.start[called], calls.end[called]
        boundaries = np.concatenate(([NEVER], start, end, called_at, returned, [FOREVER]))
        name, of_call = 2 * ops.name.codes[rows].astype(np.int64), np.full(len(called), -2)
        kind = np.concatenate(([-3], name, name + 1, of_call, of_call + 1, [-3]))
        order = np.argsort(boundaries, kind="stable")  # fastest for what is mostly in order
        order = order[columns.is_group_start(boundaries[order])]
        boundaries, kind = boundaries[order], kind[order]
        thread_of = np.broadcast_to(np.int64(0), len(boundaries))
        in_call = columns.is_covered(thread_of, boundaries, of_one(called_at, returned))[:-1]
        nested = columns.NestedIntervals(of_one(start, end), enclosing)
        pieces = (boundaries[at : at + AT_ONCE + 1] for at in range(0, len(boundaries) - 1, AT_ONCE))
        middles = ((piece[:-1] + piece[1:]) // 2 for piece in pieces)
        innermost = np.concatenate([nested.innermost(of_one(middle, middle)) for middle in middles])
        # no op (-1) computes nothing
        may_wait, idle = ~np.append(computes[rows], False)[innermost] & ~in_call, (innermost < 0) & ~in_call
        top = np.flatnonzero(enclosing < 0)
        top = top[np.argsort(start[top], kind="stable")]
        ended = (np.arange(len(order)) > 0) & columns.isin(boundaries, end)
        return ThreadActivity(boundaries, may_wait, idle, start[top], end[top], kind, ended)

    return activity


class ForwardThreads:
    """The threads of `forward` ops, with a row per sequence number and thread: how many ops, and the first of them."""

    def __init__(self, ops: Ops, forward: Int64) -> None:
        forward = forward[ops.seq_id[forward] >= 0]
        sequence, thread = ops.seq_id[forward], ops.thread[forward]
        order = np.lexsort((forward, thread, sequence))
        starts = np.flatnonzero(columns.is_group_start(sequence[order], thread[order]))
        count, first = np.diff(np.append(starts, len(order))), order[starts]
        # within each number in the order of the threads' first ops
        order = np.lexsort((forward[first], sequence[first]))
        order = order[columns.cumcount(sequence[first[order]]) < SHARED]
        self._count, first = count[order], first[order]
        self._sequence, self._thread, self._row = sequence[first], thread[first], forward[first]

    def most_frequent(self, sequences: Int64) -> int | None:
        """Returns the thread that ran most forward ops of these distinct numbers, of several the first; else None."""
        begin, end = (np.searchsorted(self._sequence, sequences, side) for side in ("left", "right"))
        length = end - begin
        rows = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
        if not len(rows):
            return None
        threads, number = np.unique(self._thread[rows], return_inverse=True)
        count, first = np.zeros(len(threads), np.int64), np.full(len(threads), self._row.max())
        np.add.at(count, number, self._count[rows])
        np.minimum.at(first, number, self._row[rows])
        return int(threads[np.lexsort((first, -count))[0]])


class WorkerSegment(NamedTuple):
    """A worker's ops during a gap of its caller (ns); `idle_since` is ABSENT for never, `begun` may precede the gap."""

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
    """Returns the hand-offs of a process: around its transfers, and of its other threads, however many. O(n log n)."""
    work = (ops.start != ABSENT) & ~are_step_marks(ops.name) & ~columns.isin(ops.thread, transfer_threads)
    of_thread = columns.rows_by_number(np.flatnonzero(work), ops.thread)
    if len(of_thread) < 2:
        return _handoff_table(transfers)
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith("aten::"))
    activity = thread_activities(ops, parent, calls, of_thread, computes=computes)
    largest_first = sorted(of_thread, key=lambda thread: -len(of_thread[thread]))
    callers = _callers(ops, of_thread, largest_first)
    main = next((thread for thread in largest_first if thread not in callers), largest_first[0])

    segments = [
        segment
        for thread in of_thread
        if thread in callers
        for segment in _segments(thread, callers[thread], activity(thread), activity(callers[thread]))
    ]
    # how long a thread of this run takes to go on when another one calls it or returns to it
    woken = [segment.first - segment.gap_start for segment in segments if segment.gap_start != NEVER]
    woken += [segment.gap_end - segment.last for segment in segments if segment.gap_end != FOREVER]
    recorded = {main, *callers, *callers.values()}
    workers = {thread: activity(thread) for thread in of_thread if thread not in recorded}
    latency = latency_stats(np.array(woken, np.int64)).or_if_few(ANY_THREAD)
    known = [*transfers, *_recorded(segments)]
    gaps = Gaps({thread: activity(thread) for thread in of_thread if thread not in callers}, latency.median, known)
    return _handoff_table([*known, *gaps.waits(_by_timing(workers, main, activity(main), latency))])


def queue_waits(handed_over: Int64, calls: Calls) -> Iterable[Wait]:
    """Yields the waits of threads for queued work, each from the end of its last call on if that was earlier."""
    source, queued, target, taken = handed_over[:, handed_over[1] <= handed_over[3]]
    order = np.lexsort((calls.end, calls.thread))
    ends = columns.Keys(calls.thread[order], calls.end[order])
    last = columns.asof_backward(ends, columns.Keys(target, taken))
    ended = np.where(last >= 0, ends.value[last], ABSENT)
    is_busy = (last >= 0) & (ended >= queued)
    woken, since = (np.where(is_busy, taken, time) for time in (queued, ended))
    times = zip(*(column.tolist() for column in (source, queued, target, woken, since)), strict=True)
    for caller, at, worker, until, begin in times:
        yield Wait(caller, at, worker, until, begin, Provenance.RECORD.value)


def _callers(ops: Ops, of_thread: dict[int, Int64], largest_first: list[int]) -> dict[int, int]:
    """Returns the caller of each autograd worker, by the ops of each thread."""
    callers: dict[int, int] = {}
    is_backward = (ops.fw_tid > 0) | ops.name.where(lambda name: name.startswith(AUTOGRAD))
    work = np.concatenate([*of_thread.values()])
    forward = ForwardThreads(ops, work[~is_backward[work]])
    for thread in reversed(largest_first):
        rows = of_thread[thread]
        sequence = ops.seq_id[rows[is_backward[rows]]]
        caller = forward.most_frequent(np.unique(sequence[sequence >= 0]))
        # if two threads ran each other's backward ops, the larger one is the caller
        if caller not in (None, thread) and callers.get(caller) != thread:
            callers[thread] = caller
    return callers


def _segments(thread: int, caller: int, worker: ThreadActivity, calling: ThreadActivity) -> Iterable[WorkerSegment]:
    """Yields the worker's outermost ops, grouped by the caller's gap that contains them."""
    boundaries, is_gap = calling.boundaries, calling.may_wait
    gap = np.full(len(worker.top_start), -1, np.int64)
    # an op that begins or ends slightly outside a gap belongs to it, as two threads read their clocks
    for early in (0, columns.TOLERANCE):
        interval = np.searchsorted(boundaries, worker.top_start + early, side="right") - 1
        inside = is_gap[interval] & (worker.top_end - columns.TOLERANCE <= boundaries[interval + 1])
        gap = np.where((gap < 0) & inside, interval, gap)
    for rows in columns.split_groups(np.arange(len(gap)), gap):
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


def _recorded(segments: list[WorkerSegment]) -> Iterable[Wait]:
    """Yields the call and the return of each segment."""
    # one call starts all workers of a gap: workers that begin at 30 and 34 µs were both called at 30, and the second
    # one was idle for 4 µs, if it was idle before
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
    """Yields hand-offs to idle workers that started right after a gap of the main thread began, and ended with it."""
    called, timing = dict[int, int](), Provenance.TIMING.value
    for thread, worker in workers.items():
        for segment in _segments(thread, main, worker, calling):
            was_idle = segment.idle_since == ABSENT or segment.first - segment.idle_since >= latency.median
            began = segment.first if segment.first - segment.gap_start <= latency.upper else segment.gap_start
            is_made = segment.idle_since == ABSENT and segment.first - segment.gap_start <= MADE_WITHIN
            has_returned = segment.gap_end - segment.last <= latency.upper
            if was_idle and (began == segment.first or (is_made and has_returned)):
                called[segment.gap_start] = min(began, called.get(segment.gap_start, began))
                yield Wait(main, began, thread, began, segment.waiting_since, timing)
    begin, end = calling.boundaries[1:-2], calling.boundaries[2:-1]
    long_enough = (end - begin >= latency.median) | columns.isin(begin, list(called))
    threads = np.repeat([*workers], [len(worker.top_end) for worker in workers.values()])
    ends = np.concatenate([begin[:0], *(worker.top_end for worker in workers.values())])
    order = np.argsort(ends, kind="stable")
    threads, ends = threads[order], ends[order]
    until = np.searchsorted(ends, end + columns.TOLERANCE, side="right")
    last = np.minimum(np.append(ends, NEVER)[until - 1], end)
    returned = calling.may_wait[1:-1] & long_enough & (np.maximum(begin, end - latency.upper) < last)
    since = np.searchsorted(ends, last)
    for gap in np.flatnonzero(returned).tolist():
        # if several workers ended then, the one with the smallest number returned
        thread = int(threads[since[gap] : until[gap]].min())
        gap_start, time = int(begin[gap]), int(last[gap])
        yield Wait(thread, time, main, time, called.get(gap_start, gap_start), timing)


class Gaps:
    """The gaps of several threads; those that begin and end alike are of one kind. A thread that waits goes on a usual
    time after another one has reached a certain point of its work. How much likelier than by chance the times since
    then are shows waits; a sleep may end so, too, but its own length differs less.
    """

    def __init__(self, activities: dict[int, ThreadActivity], shortest: int, known: list[Wait]) -> None:
        """A gap in which a thread may have waited takes `shortest` ns, and holds none of the `known` waits."""
        threads = sorted(activities)
        gaps = [(activities[thread], np.flatnonzero(activities[thread].may_wait[1:]) + 1) for thread in threads]
        self._thread = np.repeat(threads, [len(at) for _, at in gaps])
        self._begin, self._end = (np.concatenate([each.boundaries[at + side] for each, at in gaps]) for side in (0, 1))
        kinds = (np.concatenate([each.kind[at + side] for each, at in gaps]) for side in (0, 1))
        self._kind = columns.group_ids(*kinds)
        self._is_point = np.concatenate([each.op_ends[at] for each, at in gaps])
        may_wait = (self._end < FOREVER) & (self._end - self._begin >= shortest)
        may_wait[[row for wait in known if (row := self._row_of(wait)) >= 0]] = False
        self._gap, self._point = self._points_before(np.flatnonzero(may_wait))
        self._recurs = np.bincount(self._kind[may_wait], minlength=len(self._kind))[self._kind] >= RECURRING

    def _row_of(self, wait: Wait) -> int:
        """Returns the gap in which or at whose end a thread waited, -1 for none."""
        first, end = np.searchsorted(self._thread, (wait.target_thread, wait.target_thread + 1)).tolist()
        row = first + int(np.searchsorted(self._end[first:end], wait.target_time))
        return row if row < end and self._begin[row] <= wait.target_time else -1

    def waits(self, by_timing: Iterable[Wait]) -> Iterable[Wait]:
        """Yields the waits of gaps of kinds that recur, and of those `by_timing` those that these do not contradict."""
        late, likely = self._late_and_likelier()
        recurs = self._recurs[self._gap]
        certain = np.flatnonzero(recurs & (likely >= CERTAIN + np.log(max(len(np.unique(self._kind[self._gap])), 1))))
        certain = certain[np.lexsort((late[certain], self._gap[certain]))]
        certain = certain[columns.is_group_start(self._gap[certain])]
        decided = np.zeros(len(self._kind), np.bool_)
        for rows, is_decided in ((recurs & (likely <= 0), True), (likely > 0, False), (certain, True)):
            decided[self._gap[rows]] = is_decided
        yield from (wait for wait in by_timing if (row := self._row_of(wait)) < 0 or not decided[row])
        for gap, point in zip(self._gap[certain].tolist(), self._point[certain].tolist(), strict=True):
            begin, end = int(self._begin[gap]), int(self._end[gap])
            time, timing = min(int(self._begin[point]), end), Provenance.TIMING.value
            yield Wait(int(self._thread[point]), time, int(self._thread[gap]), time, begin, timing)

    def _late_and_likelier(self) -> tuple[Int64, Floats]:
        """Returns how much later than each point gaps ended, and how much likelier than chance (log) that is."""
        gap, point = self._gap, self._point
        late, length = np.maximum(self._end[gap] - self._begin[point], 1), self._end[gap] - self._begin[gap]
        by_chance = np.maximum(np.minimum(length, self._until_again()[point]), 1)
        pair = columns.group_ids(self._kind[gap], self._kind[point])
        count = np.bincount(pair)

        def mean(values: Any) -> Any:
            return np.bincount(pair, values) / count

        apart = [mean((time - mean(time)[pair]) ** 2) for time in (late, length)]
        likelier = count * (mean(np.log(by_chance)) - np.log(mean(late)) - 1)
        return late, np.where((apart[0] < apart[1]) | (count < RECURRING), likelier, 0)[pair]

    def _points_before(self, waiting: Int64) -> tuple[Int64, Int64]:
        """Returns pairs of a gap and a point that another thread reached within it, the last one of each kind."""
        points = np.flatnonzero(self._is_point)
        points = points[np.argsort(self._begin[points], kind="stable")]
        time, pairs = self._begin[points], [np.empty((2, 0), np.int64)]
        last = np.searchsorted(time, self._end[waiting] + columns.TOLERANCE, side="right") - 1
        for back in range(min(LOOKED_BACK, len(points))):
            point = points[last - back]
            fits = (last >= back) & (self._begin[point] > self._begin[waiting])
            fits &= self._thread[point] != self._thread[waiting]
            pairs.append(np.stack((waiting[fits], point[fits])))
        gap, point = np.concatenate(pairs, axis=1)
        is_last = columns.cumcount(gap, self._kind[point]) == 0
        return gap[is_last], point[is_last]

    def _until_again(self) -> Int64:
        """Returns how long after each point any thread reached one of its kind again; after the last as before it."""
        order = np.lexsort((self._begin, self._kind))
        apart = np.diff(self._begin[order])
        apart[columns.is_group_start(self._kind[order])[1:]] = FOREVER
        until = np.empty(len(order), np.int64)
        following, before = np.append(apart, FOREVER), np.append(FOREVER, apart)
        until[order] = np.where(following < FOREVER, following, before)
        return until


def _handoff_table(waits: Iterable[Wait]) -> ThreadHandoffs:
    rows = list(waits)
    numbers = np.array([row[:-1] for row in rows], np.int64).reshape(-1, 5)
    source_thread, source_time, target_thread, target_time, since = numbers.T
    known_by = Categorical.of(row.known_by for row in rows)
    return ThreadHandoffs(source_thread, source_time, target_thread, target_time, since, known_by)
