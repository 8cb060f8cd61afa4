"""Finds the part of a trace to link: the period of steps, of an annotation or by the clock, and the one that both files
cover.

Periods that follow each other neither overlap nor leave a gap.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..schema.arguments import WHOLE, given, two_ends
from ..schema.errors import RequestError, nearest
from ..schema.linked import FOREVER, NEVER, STEP_MARK
from .match import Match
from .readers import DeviceTrace

STEP = re.compile(re.escape(STEP_MARK) + r"(\d{1,18})$")
SMALLEST_REST = 0.05
"""Up to this share of a file's ops may lie before or after all that the other file holds: these are single lost ops."""
STEPS_NAMED = 8
ALL = "all"
OF_SEVERAL = re.compile(rf"(.+):(\d{{1,18}}|{ALL})", re.DOTALL)


class Period(NamedTuple):
    """From `start` up to but without `end`, ns on the device trace's clock."""

    start: int
    end: int

    def in_words(self, zero: int) -> str:
        """Returns start and end in µs after `zero` (ns)."""
        return " to ".join(f"{(time - zero) / 1000:.3f}" for time in self) + " µs"


class _Parts(NamedTuple):
    steps: tuple[int, int] | None = None
    annotation: str | None = None
    clock: tuple[float, float] | None = None


class Window(_Parts):
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

    __slots__ = ()

    def __new__(
        cls,
        steps: tuple[int, int] | None = None,
        annotation: str | None = None,
        clock: tuple[float, float] | None = None,
    ) -> "Window":
        """Checks that each part begins before it ends."""
        if steps is not None:
            two_ends(steps, "Window(steps=…)", "the first step and the one after the last, as (1, 2)", WHOLE)
        if clock is not None:
            two_ends(clock, "Window(clock=…)", "start and end in µs, as (0, 1500)")
        if annotation is not None:
            given(annotation, str, "Window(annotation=…)", "the name of an annotation")
        return super().__new__(cls, steps, annotation, clock)

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
    first = min(int(table.start.min(initial=FOREVER)) for table in tables)
    return Period(first, max(int(table.end.max(initial=NEVER)) for table in tables) + 1)


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
    """Returns the period of the steps from number `first` up to but without `end`, by the ProfilerStep#N annotations.

    A step lasts until the next begins, the last one until its own end. Raises DataError when a step is missing.
    """
    steps = _steps(device)
    missing = [number for number in range(first, min(end, first + len(steps) + 1)) if number not in steps]
    if missing or end <= first:
        present = f"steps {_numbers_in_words(steps)}" if steps else "no ProfilerStep#N annotation"
        raise RequestError(f"{device.path}: no step {(missing or [first])[0]} to link; the trace holds {present}")
    after = [period.start for number, period in steps.items() if number >= end and period.start > steps[end - 1].start]
    return Period(steps[first].start, min(after, default=steps[end - 1].end))


def _steps(device: DeviceTrace) -> dict[int, Period]:
    """Returns the steps by number; where several threads mark a step, the first mark counts."""
    ops, steps = device.ops, dict[int, Period]()
    rows = np.flatnonzero(ops.name.where(lambda name: STEP.match(name) is not None))
    for row in rows[np.argsort(ops.start[rows], kind="stable")].tolist():
        number = int(ops.name[row].removeprefix(STEP_MARK))
        steps.setdefault(number, Period(int(ops.start[row]), int(ops.end[row])))
    return steps


def _numbers_in_words(numbers: Iterable[int]) -> str:
    """Returns numbers in words, consecutive ones as a range: 3 to 5, 9."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    ranges_in_words = [f"{low} to {high}" if high > low else f"{low}" for low, high in ranges]
    return ", ".join([*ranges_in_words[:STEPS_NAMED], *["…"] * (len(ranges_in_words) > STEPS_NAMED)])


def annotation_period(device: DeviceTrace, name: str, within: Period) -> Period:
    """Returns the period of the first annotation of a name that begins within a period.

    `NAME:K` is the one after K others of that name, `NAME:all` lasts from the first one to the end of the last. Raises
    DataError when there is none.
    """
    annotations = _annotations(device, within)
    periods, of_several = annotations.get(name, []), OF_SEVERAL.fullmatch(name)
    if not periods and of_several:
        periods, which = annotations.get(of_several[1], []), of_several[2]
        if which == ALL and periods:
            return Period(periods[0].start, max(period.end for period in periods))
        if periods and int(which) >= len(periods):
            raise RequestError(
                f"{device.path}: {len(periods)} annotations are named {of_several[1]!r} in that part of the trace, "
                f"{of_several[1]}:0 to {of_several[1]}:{len(periods) - 1}"
            )
        periods = periods[int(which) :] if periods else []
    if not periods:
        suggestion = nearest(name, [*annotations]) or ": it has no annotations there"
        raise RequestError(f"{device.path}: no annotation named {name!r} in that part of the trace{suggestion}")
    return periods[0]


def _annotations(device: DeviceTrace, within: Period) -> dict[str, list[Period]]:
    """Returns the periods of the annotations that begin within a period, cut to it, by name: the names in the order of
    the file, the periods of one in that of time.
    """
    ops, annotations = device.ops, defaultdict[str, list[Period]](list)
    rows = np.flatnonzero(ops.annotation & (ops.start >= within.start) & (ops.start < within.end))
    for row in rows.tolist():
        annotations[ops.name[row]].append(Period(int(ops.start[row]), min(int(ops.end[row]), within.end)))
    for periods in annotations.values():
        periods.sort(key=lambda period: period.start)
    return annotations


def host_period(device: DeviceTrace, match: Match) -> Period | None:
    """Returns the period of a device trace that a host trace covers, None for all of it except single lost ops.

    It lasts from the first op that both traces hold until the first op that begins after the end of the host trace.
    """
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
