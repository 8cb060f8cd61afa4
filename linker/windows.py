"""Finds the part of a trace to link, by steps, an annotation, the clock or what both files cover, and cuts it out. The
whole trace is linked first, so that a part keeps what only that can tell. Borders never cut a call: in a period from
100 to 200 µs, a thread with a call from 190 to 215 has the part up to 215.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np

from ..schema import linked
from ..schema.arguments import WHOLE, given, two_ends
from ..schema.columns import ABSENT, Bool, CommunicationRows, Int64, Intervals, Lookup
from ..schema.errors import RequestError, nearest
from ..schema.reasons import Counts, Reason
from .match import Match, are_ops
from .readers import DeviceTrace, KeptRows, select_linked
from .steps import Period, marked_steps

SMALLEST_REST = 0.05
"""Up to this share of a file's ops may lie before or after all that the other file holds: these are single lost ops."""
STEPS_NAMED = 8
ALL = "all"
OF_SEVERAL = re.compile(rf"(.+):(\d{{1,18}}|{ALL})", re.DOTALL)


class Window(msgspec.Struct, frozen=True, array_like=True):
    """The part of a trace that was requested; with several fields, what they have in common.

    Attributes:
        steps: The first step, and the one after the last.
        annotation: The name of an annotation, `NAME:K` or `NAME:all`, see `annotation_period`.
        clock: Start and end in µs after the trace's start.

    >>> import execgraph as eg
    >>> part = eg.link("tests/data/training", rank=0, window=eg.Window(clock=(0, 1000)))
    >>> 0 < len(part.activities) < 63
    True

    Raises:
        TypeError: A field is of another kind.
        ValueError: The window ends before it begins.
    """

    steps: tuple[int, int] | None = None
    annotation: str | None = None
    clock: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Checks that each part begins before it ends."""
        if self.steps is not None:
            two_ends(self.steps, "Window(steps=…)", "the first step and the one after the last, as (1, 2)", WHOLE)
        if self.clock is not None:
            two_ends(self.clock, "Window(clock=…)", "start and end in µs, as (0, 1500)")
        if self.annotation is not None:
            given(self.annotation, str, "Window(annotation=…)", "the name of an annotation")

    @property
    def is_of_steps(self) -> bool:
        """Whether it begins and ends where steps do."""
        return self.clock is None and self.annotation is None


EVERYTHING = Window()


def given_window(window: object, call: str) -> Window:
    """Returns the window that a caller gives; `call` is what the caller wrote. Raises TypeError for anything else."""
    return given(window, Window, call, "a Window, such as Window(steps=(1, 2))")


def period_of(device: DeviceTrace, window: Window, period: Period) -> Period:
    """Returns the period of a window, within another period. Raises DataError where the trace does not hold it."""
    if window.clock is not None:
        period = common(period, clock_span(device, *window.clock))
    if window.steps is not None:
        period = common(period, step_span(device, *window.steps))
    if window.annotation is not None:
        period = annotation_period(device, window.annotation, period)
    return period


def common(left: Period, right: Period) -> Period:
    """Returns the overlap of two periods; it ends before it starts where there is none."""
    return Period(max(left.start, right.start), min(left.end, right.end))


def whole(device: DeviceTrace) -> Period:
    """Returns the period from the first start to the last end of all rows."""
    tables = (device.ops, device.calls, device.activities)
    first = min(int(table.start.min(initial=linked.FOREVER)) for table in tables)
    return Period(first, max(int(table.end.max(initial=linked.NEVER)) for table in tables) + 1)


def marked(device: DeviceTrace) -> Period | None:
    """Returns the period of complete steps, if a window began with warming up or ended within one; else None."""
    ops, steps = device.ops, marked_steps(device)
    cut_off = ops.start[ops.name.where(lambda name: name == linked.INCOMPLETE_STEP)].min(initial=linked.FOREVER)
    end = int(cut_off) if (ops.start > cut_off).any() else linked.FOREVER
    if not steps or (device.window != "device" and end == linked.FOREVER):
        return None
    start = min(steps.values()).start if device.window == "device" else linked.NEVER
    return common(whole(device), Period(start, end))


def trace_start(device: DeviceTrace) -> int:
    """Returns when recording began (ns), which viewers show as 0; the first start where this is not recorded."""
    first = whole(device).start
    return first if device.recording_start is None else min(first, device.recording_start)


def clock_span(device: DeviceTrace, begin: float, end: float) -> Period:
    """Returns the period from `begin` to `end` µs after the trace's start. Raises DataError where nothing is in it."""
    trace, zero = whole(device), trace_start(device)
    period = Period(zero + round(begin * 1000), zero + round(end * 1000))
    if common(period, trace).start >= common(period, trace).end:
        first, last = ((time - zero) / 1000 for time in trace)
        raise RequestError(
            f"{device.path}: nothing lies between {begin:g} and {end:g} µs; the trace's events are from {first:.0f} "
            f"to {last:.0f} µs"
        )
    return period


def step_span(device: DeviceTrace, first: int, end: int) -> Period:
    """Returns the period of the steps from `first` up to but without `end`; DataError when one is missing."""
    steps = marked_steps(device)
    missing = [number for number in range(first, min(end, first + len(steps) + 1)) if number not in steps]
    if missing or end <= first:
        present = f"steps {_numbers_in_words(steps)}" if steps else "no ProfilerStep#N annotation"
        raise RequestError(f"{device.path}: no step {(missing or [first])[0]} to link; the trace holds {present}")
    after = [period.start for number, period in steps.items() if number >= end and period.start > steps[end - 1].start]
    return Period(steps[first].start, min(after, default=steps[end - 1].end))


def _numbers_in_words(numbers: Iterable[int]) -> str:
    """Returns numbers in words, consecutive ones as a range: 3 to 5, 9."""
    # numbers that follow each other are all as far from their position
    runs = groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
    ranges = [[number for _, number in run] for _, run in runs]
    ranges_in_words = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in ranges]
    return ", ".join([*ranges_in_words[:STEPS_NAMED], *["…"] * (len(ranges_in_words) > STEPS_NAMED)])


def annotation_period(device: DeviceTrace, name: str, within: Period) -> Period:
    """Returns the period of the first annotation NAME, of NAME:K after K others, or NAME:all; DataError for none."""
    annotations, which, same = _annotations(device, within), "0", name
    if name not in annotations and (of_several := OF_SEVERAL.fullmatch(name)):
        same, which = of_several.groups()
    periods = annotations.get(same)
    if not periods:
        suggestion = nearest(name, [*annotations]) or ": it has no annotations there"
        raise RequestError(f"{device.path}: no annotation named {name!r} in that part of the trace{suggestion}")
    if which == ALL:
        return Period(periods[0].start, max(period.end for period in periods))
    if int(which) >= len(periods):
        raise RequestError(
            f"{device.path}: {len(periods)} annotations are named {same!r} in that part of the trace, {same}:0 to "
            f"{same}:{len(periods) - 1}"
        )
    return periods[int(which)]


def _annotations(device: DeviceTrace, within: Period) -> dict[str, list[Period]]:
    """Returns the periods of annotations that begin within a period, cut to it, by name in the order of the file."""
    ops, annotations = device.ops, defaultdict[str, list[Period]](list)
    rows = np.flatnonzero(ops.annotation & (ops.start >= within.start) & (ops.start < within.end))
    for row in rows.tolist():
        annotations[ops.name[row]].append(Period(int(ops.start[row]), min(int(ops.end[row]), within.end)))
    for periods in annotations.values():
        periods.sort(key=lambda period: period.start)
    return annotations


def host_period(device: DeviceTrace, match: Match) -> Period | None:
    """Returns the period of a device trace that a host trace covers; None for all of it except single lost ops."""
    ops, matched = device.ops, np.zeros(len(device.ops.start), np.bool_)
    matched[match.device_row] = True
    if not matched.any():
        return None
    first, last = int(ops.start[matched].min()), int(ops.end[matched].max())
    before, after = ~matched & (ops.end <= first), ~matched & (ops.start >= last)
    if before.sum() + after.sum() <= SMALLEST_REST * len(matched):
        return None
    trace = whole(device)
    return Period(first if before.any() else trace.start, int(ops.start[after].min(initial=trace.end)))


def ends_within_step(device: DeviceTrace, period: Period) -> bool:
    """Returns whether a step goes on after the period, as where the end of a host trace is missing."""
    return any(
        step.start < period.end < step.end - SMALLEST_REST * (step.end - step.start)
        for step in marked_steps(device).values()
    )


class ThreadParts:
    """Each thread's part of a period: it begins and ends when the call that runs at the border returns."""

    def __init__(self, calls: linked.Calls, period: Period) -> None:
        self._threads, self._borders = np.unique(calls.thread), list[Int64]()
        for time in period:
            # the last one is that of threads without calls
            borders = np.full(len(self._threads) + 1, time, np.int64)
            running = np.flatnonzero((calls.start < time) & (calls.end > time))
            np.maximum.at(borders, np.searchsorted(self._threads, calls.thread[running]), calls.end[running])
            self._borders.append(borders)

    def of(self, thread: Int64) -> Intervals:
        """Returns when each thread's part begins and ends, ns. Starts may be at the former, ends at the latter."""
        number = np.searchsorted(self._threads, thread)
        number = np.where(np.append(self._threads, ABSENT)[number] == thread, number, -1)
        return Intervals(*(borders[number] for borders in self._borders))


class TracePart(NamedTuple):
    """A part of a linked trace, its calls among those of the whole, what was lost at its borders, how many ops cut."""

    trace: linked.LinkedTrace
    calls: Bool
    lost: Counts
    shortened: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing ran in it, though there may be step marks."""
        ops = self.trace.ops
        ran = (ops.end > ops.start) & ~linked.are_step_marks(ops.name)
        return not len(self.trace.activities) and not len(self.trace.calls) and not ran.any()


def of_both(trace: linked.LinkedTrace) -> TracePart:
    """Returns the trace without host ops before and after those that the device trace holds, if these are many."""
    calls, activities = (np.ones(len(table), np.bool_) for table in (trace.calls, trace.activities))
    ops, timed = trace.ops, trace.ops.start != ABSENT
    untimed, in_both = ~timed & are_ops(ops.name), timed & ops.recorded_by_host
    if in_both.any():
        first, last = ops.id[in_both].min(), ops.id[in_both].max()
        beyond = untimed & ((ops.id < first) | (ops.id > last))
        if beyond.sum() > SMALLEST_REST * (untimed.sum() + in_both.sum()):
            is_kept = _with_callers(ops, ~beyond)
            trace = trace if is_kept.all() else select_linked(trace, KeptRows(is_kept, calls, activities))
    return TracePart(trace, calls, Counts())


def cut(trace: linked.LinkedTrace, period: Period, asked_by: Lookup | None = None) -> TracePart:
    """Returns the part of a trace that belongs to a period: calls by their start, activities by their call. Ops that
    overlap the part are cut to it. Waits and hand-offs across the borders are lost: what they blocked starts as
    measured. An op communicates in the part in which the op that asked for it starts.
    """
    parts, activities = ThreadParts(trace.calls, period), trace.activities
    first, last = parts.of(trace.calls.thread)
    calls = (trace.calls.start >= first) & (trace.calls.start < last)
    in_period = (activities.start >= period.start) & (activities.start < period.end)
    kept_activities = np.where(activities.call_row >= 0, np.append(calls, False)[activities.call_row], in_period)
    kept_rows = KeptRows(_ops(trace.ops, parts), calls, kept_activities)
    part, lost = select_linked(trace, kept_rows), _crossing(trace, kept_rows)
    ops, shortened = _shortened(part.ops, parts)
    # what communicates in the parts of other ranks, too, is matched by order, but each rank begins it at another time
    begun_before, rows = ops.start > part.ops.start, np.arange(len(ops))
    request = rows if asked_by is None else asked_by.of(ops.id)
    asker = rows if asked_by is None else np.where(request < 0, rows, Lookup(ops.id, rows).of(request))
    is_late = (ops.communication_row >= 0) & ((asker < 0) | begun_before[asker])
    ops = replace(ops, communication_row=CommunicationRows(np.where(is_late, -1, ops.communication_row)))
    lost[Reason.CROSSING_COMMUNICATION] = int(is_late.sum())
    info = copy(part.info)
    info.backlog_until = _backlog(trace, kept_rows)
    if len(activities) and not len(part.activities):
        info.devices = {}
    waits, handoffs = part.host_waits, part.handoffs
    source, target = parts.of(handoffs.source_thread), parts.of(handoffs.target_thread)
    source_inside = (handoffs.source_time > source.start) & (handoffs.source_time <= source.end)
    target_inside = (handoffs.target_time >= target.start) & (handoffs.target_time < target.end)
    since = handoffs.waiting_since
    waits_inside = (since != ABSENT) & (since < target.end) & (handoffs.target_time > target.start)
    is_inside = source_inside & target_inside
    lost[Reason.CROSSING_HANDOFFS] = int(((source_inside | target_inside | waits_inside) & ~is_inside).sum())
    handoffs = linked.select_rows(replace(handoffs, waiting_since=_since(since, target)), is_inside)
    waits = replace(waits, since=_since(waits.since, parts.of(part.calls.thread[waits.call_row])))
    part = replace(part, info=info, ops=ops, host_waits=waits, handoffs=handoffs)
    return TracePart(part, calls, lost, shortened)


def _since(time: Int64, part: Intervals) -> Int64:
    """Returns the times, those before the part moved to its start; ABSENT stays."""
    return np.where(time == ABSENT, ABSENT, np.maximum(time, part.start))


def _ops(ops: linked.Ops, parts: ThreadParts) -> Bool:
    """Returns which ops overlap the part or, without times, belong to it, and which nodes are no ops."""
    timed, (first, last) = ops.start != ABSENT, parts.of(ops.thread)
    is_kept = timed & (ops.start < last) & ((ops.end > first) | (ops.start >= first))
    untimed, in_both = ~timed & are_ops(ops.name), np.flatnonzero(timed & ops.recorded_by_host)
    in_both = in_both[np.argsort(ops.id[in_both], kind="stable")]
    if len(in_both):
        before = in_both[np.maximum(np.searchsorted(ops.id[in_both], ops.id[untimed]) - 1, 0)]
        is_kept[untimed] = is_kept[before]
    return _with_callers(ops, is_kept | ~(timed | untimed))


def _with_callers(ops: linked.Ops, is_kept: Bool) -> Bool:
    """Adds to the kept ops those without times that called them."""
    untimed = ops.start == ABSENT
    row_of, rows = Lookup(ops.id, np.arange(len(ops))), np.flatnonzero(is_kept)
    while untimed.any() and len(rows):
        rows = np.unique(row_of.of(ops.parent_id[rows]))
        rows = rows[(rows >= 0) & untimed[rows] & ~is_kept[rows]]
        is_kept[rows] = True
    return is_kept


def _shortened(ops: linked.Ops, parts: ThreadParts) -> tuple[linked.Ops, int]:
    """Returns the ops with the times that they have inside the part, and how many were cut."""
    timed, (first, last) = ops.start != ABSENT, parts.of(ops.thread)
    start, end = np.where(timed, (np.maximum(ops.start, first), np.minimum(ops.end, last)), ABSENT)
    shorter = (start > ops.start) | (end < ops.end)
    parent = linked.op_parents(ops)
    child = np.flatnonzero(timed & (parent >= 0))
    child = child[shorter[parent[child]] & (ops.thread[parent[child]] == ops.thread[child])]
    inner = np.zeros(len(ops), np.int64)
    np.add.at(inner, parent[child], end[child] - start[child])
    exclusive = np.where(shorter, np.maximum(end - start - inner, 0), ops.exclusive)
    return replace(ops, start=start, end=end, exclusive=exclusive), int(shorter.sum())


def _backlog(trace: linked.LinkedTrace, kept_rows: KeptRows) -> dict[int, int]:
    """Returns for kept activities that waited for work outside the part, by id, when the last of it ended (ns)."""
    # they waited for the activity before them on their stream, or because the stream had to wait
    activities, waits = trace.activities, trace.device_waits
    before, outside = linked.previous_on_stream(activities), ~kept_rows.activities
    rows = np.flatnonzero(kept_rows.activities & (before >= 0))
    has_source = waits.source_row >= 0
    source = np.concatenate((before[rows], waits.source_row[has_source]))
    target = np.concatenate((rows, waits.target_row[has_source]))
    crossing = outside[source] & kept_rows.activities[target]
    until = np.full(len(activities), -1, np.int64)
    np.maximum.at(until, target[crossing], activities.end[source[crossing]])
    blocked = np.flatnonzero(until >= 0)
    return dict(zip(activities.id[blocked].tolist(), until[blocked].tolist(), strict=True))


def _crossing(trace: linked.LinkedTrace, kept_rows: KeptRows) -> Counts:
    """Returns how many waits of the device and of the host have one end in the part and one outside."""
    device, host, activities = trace.device_waits, trace.host_waits, kept_rows.activities
    has_source = host.source_row >= 0
    between = activities[device.source_row] ^ activities[device.target_row]
    awaited = activities[host.source_row[has_source]] ^ kept_rows.calls[host.call_row[has_source]]
    return Counts({Reason.CROSSING_DEVICE_WAITS: int(between.sum()), Reason.CROSSING_HOST_WAITS: int(awaited.sum())})
