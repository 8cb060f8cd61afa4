"""Which part of a trace is linked: the time period that steps, an annotation or the clock give, and the one that both
files cover.

Spans that follow each other share no moment and leave none out between them.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...schema.errors import RequestError, nearest
from ...schema.traces import FOREVER, NEVER, STEP_MARK
from ..matching import Match
from ..readers import DeviceTrace

STEP = re.compile(re.escape(STEP_MARK) + r"(\d{1,18})$")
SMALLEST_REST = 0.05
"""Share of a file's ops before or after all that the other file holds, up to which they are single ops that got lost
there.
"""
STEPS_NAMED = 8
ALL = "all"
OF_SEVERAL = re.compile(rf"(.+):(\d{{1,18}}|{ALL})", re.DOTALL)


class Period(NamedTuple):
    """From `start` up to but without `end`, ns on the device trace's clock."""

    start: int
    end: int

    def in_words(self, zero: int) -> str:
        """Returns where it lies, counted from `zero`."""
        return " to ".join(f"{(time - zero) / 1000:.3f}" for time in self) + " µs"


class Window(NamedTuple):
    """The part that is asked for, by all that is given: steps from the first up to but without the second number, the
    first or another annotation of a name, and two times in µs after the trace's start.
    """

    steps: tuple[int, int] | None = None
    annotation: str | None = None
    clock: tuple[float, float] | None = None


EVERYTHING = Window()


def period_of(device: DeviceTrace, window: Window, period: Period) -> Period:
    """Returns the period that a window has in a trace, within another one. Raises DataError where the trace does not
    hold what is asked for.
    """
    if window.clock is not None:
        period = common(period, clock_span(device, *window.clock))
    if window.steps is not None:
        period = common(period, step_span(device, *window.steps))
    if window.annotation is not None:
        period = annotation_period(device, window.annotation, period)
    return period


def common(left: Period, right: Period) -> Period:
    """Returns what two periods have in common; one that ends before it starts for nothing."""
    return Period(max(left.start, right.start), min(left.end, right.end))


def whole(device: DeviceTrace) -> Period:
    """Returns from the first start to the last end of any row."""
    tables = (device.ops, device.calls, device.activities)
    first = min(int(table.start.min(initial=FOREVER)) for table in tables)
    return Period(first, max(int(table.end.max(initial=NEVER)) for table in tables) + 1)


def trace_start(device: DeviceTrace) -> int:
    """Returns when recording began, where viewers put 0; the first start where the trace does not say it."""
    first = whole(device).start
    return first if device.recording_start is None else min(first, device.recording_start)


def clock_span(device: DeviceTrace, begin: float, end: float) -> Period:
    """Returns from `begin` to `end` µs after the trace's start. Raises DataError for a period that holds nothing of the
    trace.
    """
    trace, zero = whole(device), trace_start(device)
    period = Period(zero + round(begin * 1000), zero + round(end * 1000))
    if common(period, trace).start >= common(period, trace).end:
        first, last = ((time - zero) / 1000 for time in trace)
        raise RequestError(
            f"{device.path}: nothing lies between {begin:g} and {end:g} µs; the trace's events are from {first:.0f} to {last:.0f} µs"
        )
    return period


def step_span(device: DeviceTrace, first: int, end: int) -> Period:
    """Returns the steps from number `first` up to but without `end`, by the ProfilerStep#N annotations.

    A step lasts until the next begins, the last until its own end. Raises DataError when one of them is not in the
    trace.
    """
    steps = _steps(device)
    missing = [number for number in range(first, min(end, first + len(steps) + 1)) if number not in steps]
    if missing or end <= first:
        held = f"steps {_listing(steps)}" if steps else "no ProfilerStep#N annotation"
        raise RequestError(f"{device.path}: no step {(missing or [first])[0]} to link; the trace holds {held}")
    after = [period.start for number, period in steps.items() if number >= end and period.start > steps[end - 1].start]
    return Period(steps[first].start, min(after, default=steps[end - 1].end))


def _steps(device: DeviceTrace) -> dict[int, Period]:
    """Returns the steps by number; of one that several threads mark, the first mark."""
    names = device.ops.name
    numbers = {code: int(found.group(1)) for code, name in enumerate(names.table) if (found := STEP.match(name))}
    rows = np.flatnonzero(names.where(lambda name: STEP.match(name) is not None))
    steps: dict[int, Period] = {}
    for row in rows[np.argsort(device.ops.start[rows], kind="stable")].tolist():
        period = Period(int(device.ops.start[row]), int(device.ops.end[row]))
        steps.setdefault(numbers[int(names.codes[row])], period)
    return steps


def _listing(numbers: Iterable[int]) -> str:
    """Returns numbers in words, those that follow each other as a range: 3 to 5, 9."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{low} to {high}" if high > low else f"{low}" for low, high in ranges]
    return ", ".join([*texts[:STEPS_NAMED], *["…"] * (len(texts) > STEPS_NAMED)])


def annotation_period(device: DeviceTrace, name: str, within: Period) -> Period:
    """Returns the annotation of that name that begins first in a period; `NAME:K` is the one that K others of it
    precede, `NAME:all` from the first to the end of the last. Raises DataError when there is none.
    """
    found = _annotations(device, name, within)
    of_several = OF_SEVERAL.fullmatch(name)
    if not found and of_several:
        found, which = _annotations(device, of_several[1], within), of_several[2]
        if which == ALL and found:
            return Period(found[0].start, max(period.end for period in found))
        if found and int(which) >= len(found):
            raise RequestError(
                f"{device.path}: {len(found)} annotations are named {of_several[1]!r} in that part of the trace, "
                f"{of_several[1]}:0 to {of_several[1]}:{len(found) - 1}"
            )
        found = found[int(which) :] if found else []
    if not found:
        raise RequestError(
            f"{device.path}: no annotation named {name!r} in that part of the trace{_there(device, name, within)}"
        )
    return found[0]


def _there(device: DeviceTrace, name: str, within: Period) -> str:
    """Suggests the annotation meant by a name that none has, as the end of a message."""
    ops = device.ops
    begins = ops.annotation & (ops.start >= within.start) & (ops.start < within.end)
    codes, first = np.unique(ops.name.codes[begins], return_index=True)
    names = [ops.name.table[code] for code in codes[np.argsort(first)].tolist()]
    return nearest(name, names) or ": it has no annotations there"


def _annotations(device: DeviceTrace, name: str, within: Period) -> list[Period]:
    """Returns those of a name that begin in a period, in order of time, cut to it."""
    ops = device.ops
    rows = np.flatnonzero(
        ops.name.equal(name) & ops.annotation & (ops.start >= within.start) & (ops.start < within.end)
    )
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    times = zip(ops.start[rows].tolist(), ops.end[rows].tolist(), strict=True)
    return [Period(start, min(end, within.end)) for start, end in times]


def host_period(device: DeviceTrace, match: Match) -> Period | None:
    """Returns the part of a device trace that a host trace covers; None for all of it, but for single ops that got
    lost.

    It begins with the first op that both hold and lasts until the first one begins that the host trace, which was over,
    does not hold.
    """
    ops, matched = device.ops, np.zeros(len(device.ops.start), np.bool_)
    matched[match.device_row] = True
    if not matched.any():
        return None
    first, last = (
        int(ops.start.min(where=matched, initial=FOREVER)), int(ops.end.max(where=matched, initial=NEVER)),
    )  # fmt: skip
    before, after = ~matched & (ops.end <= first), ~matched & (ops.start >= last)
    if before.sum() + after.sum() <= SMALLEST_REST * len(matched):
        return None
    trace = whole(device)
    return Period(first if before.any() else trace.start, int(ops.start[after].min(initial=trace.end)))
