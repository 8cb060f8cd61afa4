"""A part of a long trace: the time span that steps, an annotation or the clock give, and the rows of both traces that belong to it.

Spans that follow each other share no call and no activity and leave none out between them, so that what is linked of each adds up.
"""

import re
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, Int64
from ..schema.errors import DataError
from .device_rows import CallRows, DeviceTrace, OpRows
from .host_trace import HostTrace
from .launches import launching_calls
from .match import STEP_MARK, Match, is_op
from .selection import select, select_nodes

STEP = re.compile(re.escape(STEP_MARK) + r"(\d{1,18})$")


class Span(NamedTuple):
    """From `start` up to but without `end`, ns on the device trace's clock."""

    start: int
    end: int


def whole(device: DeviceTrace) -> Span:
    """From the first start to the last end of any row."""
    tables = (device.ops, device.calls, device.activities)
    starts, ends = (np.concatenate([getattr(table, name) for table in tables]) for name in ("start", "end"))
    return Span(int(starts.min(initial=1 << 62)), int(ends.max(initial=-(1 << 62))) + 1)


def clock_span(device: DeviceTrace, begin: float, end: float) -> Span:
    """From `begin` to `end` µs after the trace's start. Raises DataError for a span that holds nothing of the trace."""
    trace = whole(device)
    span = Span(trace.start + round(begin * 1000), trace.start + round(end * 1000))
    if span.start >= min(span.end, trace.end):
        length = (trace.end - trace.start) / 1000
        raise DataError(
            f"{device.path}: nothing lies between {begin:g} and {end:g} µs; the trace is {length:.0f} µs long"
        )
    return span


def step_span(device: DeviceTrace, first: int, end: int) -> Span:
    """The steps from number `first` up to but without `end`, by the ProfilerStep#N annotations.

    A step lasts until the next begins, the last until its own end. Raises DataError when one of them is not in the trace.
    """
    numbers = {
        code: int(found.group(1)) for code, name in enumerate(device.ops.name.table) if (found := STEP.match(name))
    }
    rows = np.flatnonzero(np.isin(device.ops.name.codes, list(numbers)))
    steps: dict[int, Span] = {}
    for row in rows[np.argsort(device.ops.start[rows], kind="stable")].tolist():
        span = Span(int(device.ops.start[row]), int(device.ops.end[row]))
        steps.setdefault(numbers[int(device.ops.name.codes[row])], span)
    missing = [number for number in range(first, min(end, first + len(steps) + 1)) if number not in steps]
    if missing or end <= first:
        held = f"steps {min(steps)} to {max(steps)}" if steps else "no ProfilerStep#N annotation"
        raise DataError(f"{device.path}: no step {(missing or [first])[0]} to link; the trace holds {held}")
    after = [span.start for number, span in steps.items() if number >= end and span.start > steps[end - 1].start]
    return Span(steps[first].start, min(after, default=steps[end - 1].end))


def annotation_span(device: DeviceTrace, name: str, within: Span) -> Span:
    """The first annotation of that name that begins in a span. Raises DataError when there is none."""
    ops = device.ops
    named = np.array([text == name for text in ops.name.table] + [False], np.bool_)[ops.name.codes]
    rows = np.flatnonzero(named & ops.annotation & (ops.start >= within.start) & (ops.start < within.end))
    if not len(rows):
        raise DataError(f"{device.path}: no annotation named {name!r} in that part of the trace")
    row = rows[np.argmin(ops.start[rows])]
    return Span(int(ops.start[row]), min(int(ops.end[row]), within.end))


def inside(
    host: HostTrace | None, device: DeviceTrace, match: Match | None, span: Span
) -> tuple[HostTrace | None, DeviceTrace]:
    """The rows of both traces that belong to a span; `match` is that of the whole traces.

    A call belongs to the span it starts in, whole, even if it returns later: a thread's part of the span begins and ends when the call
    that is running at the border returns. Ops that overlap that part are kept and cut to it. Activities belong to their launch call,
    whenever they ran, synchronisation records to the call that waits; those without a call to the time they started at. Of the host
    trace the nodes of kept ops stay, and a node without a counterpart goes with the next one by id that has one. What is outside is
    counted. O(n log n).
    """
    begin, end = (_borders(device.calls, time) for time in span)
    calls = _between(begin, end, device.calls)
    ops, start, stop = _cut_ops(device.ops, begin, end)
    activities, syncs = _of_calls(device, calls, span)
    part = select(device, ops, calls, activities, syncs)
    part.ops = replace(part.ops, start=start, end=stop)
    left_out = {"ops": ops, "calls": calls, "activities": activities, "synchronisation records": syncs}
    part.skipped = part.skipped + Counter(
        {f"{what} outside the window": int((~kept).sum()) for what, kept in left_out.items()}
    )
    cut = int((start > device.ops.start[ops]).sum() + (stop < device.ops.end[ops]).sum())
    part.noted = part.noted + Counter({"ops cut at the borders of the window": cut})
    return None if host is None or match is None else _nodes_inside(host, match, ops), part


def _of_calls(device: DeviceTrace, calls: Bool, span: Span) -> tuple[Bool, Bool]:
    """The activities and synchronisation records of the kept calls, and those without a call that start in the span."""
    call_row = launching_calls(device.activities, device.calls)
    launched = calls[call_row] if len(calls) else np.zeros(len(call_row), np.bool_)
    recorded = device.syncs.correlation
    return (
        np.where(call_row >= 0, launched, _starts_in(device.activities.start, span)),
        np.isin(recorded, device.calls.correlation[calls])
        | (_starts_in(device.syncs.start, span) & ~np.isin(recorded, device.calls.correlation)),
    )


def _starts_in(start: Int64, span: Span) -> Bool:
    return (start >= span.start) & (start < span.end)


class _Borders(NamedTuple):
    """Where a border lies on each of `threads`, sorted, and `elsewhere`."""

    threads: Int64
    times: Int64
    elsewhere: int

    def on(self, thread: Int64) -> Int64:
        place = np.minimum(np.searchsorted(self.threads, thread), max(len(self.threads) - 1, 0))
        if not len(self.threads):
            return np.full(len(thread), self.elsewhere, np.int64)
        return np.where(self.threads[place] == thread, self.times[place], self.elsewhere)


def _borders(calls: CallRows, time: int) -> _Borders:
    """The border at `time`: on threads that are in a call then, when that call returns."""
    running = np.flatnonzero((calls.start < time) & (calls.end > time))
    threads, place = np.unique(calls.thread[running], return_inverse=True)
    times = np.full(len(threads), time, np.int64)
    np.maximum.at(times, place, calls.end[running])
    return _Borders(threads, times, time)


def _between(begin: _Borders, end: _Borders, calls: CallRows) -> Bool:
    return (calls.start >= begin.on(calls.thread)) & (calls.start < end.on(calls.thread))


def _cut_ops(ops: OpRows, begin: _Borders, end: _Borders) -> tuple[Bool, Int64, Int64]:
    """The ops that overlap their thread's part of the span, and their starts and ends in it."""
    first, last = begin.on(ops.thread), end.on(ops.thread)
    kept = (ops.start < last) & ((ops.end > first) | (ops.start >= first))
    return kept, np.maximum(ops.start, first)[kept], np.minimum(ops.end, last)[kept]


def _nodes_inside(host: HostTrace, match: Match, ops: Bool) -> HostTrace:
    """The nodes of kept ops, those that are no ops, and unmatched ones that belong to them: ids are given in the order of starts."""
    order = np.argsort(host.id[match.host_row], kind="stable")
    ids, kept = host.id[match.host_row[order]], ops[match.device_row[order]]
    nodes = ~is_op(host)
    if len(ids):
        unmatched = np.setdiff1d(np.flatnonzero(is_op(host)), match.host_row)
        nodes[unmatched] = kept[np.minimum(np.searchsorted(ids, host.id[unmatched]), len(ids) - 1)]
        nodes[match.host_row] = ops[match.device_row]
    part = select_nodes(host, nodes)
    part.skipped = part.skipped + Counter({"host nodes outside the window": int((~nodes).sum())})
    return part
