"""The steps of a rank by the profiler's marks, and the step of each activity."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64
from ...schema.linked import LinkedTrace, are_step_marks
from .first_start import first_start_ns, last_end_ns

WHOLE_RUN = "whole run"
SLOWED = 0.98
"""A step without a profiler that takes at least this share of the recorded ones was hardly slowed by recording."""


class Steps(NamedTuple):
    """Steps in order of time: their names, starts and ends (ns), and for each activity the step that launched it, -1
    for none.

    A step ends when its mark and everything that it launched have ended. It starts with its mark, but not before the
    end of the step before it. No step is longer than the run: a mark may begin before the first op and end after all.
    """

    name: list[str]
    start: Int64
    end: Int64
    of_activity: Int64


def steps_of(linked: LinkedTrace) -> Steps:
    """Returns the steps marked by `ProfilerStep#N`; without marks the whole run is a step, without activities none."""
    launched = _launched(linked)
    marks = np.flatnonzero(are_step_marks(linked.ops.name) & (linked.ops.start != ABSENT))
    marks = marks[np.argsort(linked.ops.start[marks], kind="stable")]
    # of several threads that mark a step the first one counts
    marks = marks[np.sort(np.unique(linked.ops.name.codes[marks], return_index=True)[1])]
    if not len(marks):
        return _whole_run(linked, launched)
    begun = linked.ops.start[marks]
    of_activity = np.searchsorted(begun, launched, side="right") - 1
    until = linked.ops.end[marks].copy()
    inside = of_activity >= 0
    np.maximum.at(until, of_activity[inside], linked.activities.end[inside])
    first, last = first_start_ns(linked), last_end_ns(linked)
    until = np.clip(np.maximum.accumulate(until), first, max(last, first))
    start = np.clip(np.maximum(begun, np.append(begun[:1], until[:-1])), first, until)
    return Steps([linked.ops.name[row] for row in marks.tolist()], start, until, of_activity)


def faster_step_us(linked: LinkedTrace) -> float:
    """Returns how long a step takes without a profiler (µs); 0 where that is not known, or recorded steps take about
    as long.
    """
    marks = int(are_step_marks(linked.ops.name).sum())
    recorded_ns, without_ns = last_end_ns(linked) - first_start_ns(linked), linked.info.step_without_profiler_ns
    return without_ns / 1000 if 0 < marks * without_ns < SLOWED * recorded_ns else 0.0


def _whole_run(linked: LinkedTrace, launched: Int64) -> Steps:
    if not len(launched):
        return Steps([], launched, launched, launched)
    first, last = (np.array([time]) for time in (first_start_ns(linked), last_end_ns(linked)))
    return Steps([WHOLE_RUN], first, last, np.zeros(len(launched), np.int64))


def _launched(linked: LinkedTrace) -> Int64:
    """Returns the start (ns) of each activity's launch call, or of the activity if the call is unknown."""
    activities, calls = linked.activities, linked.calls
    launched, has_call = activities.start.copy(), activities.call_row >= 0
    launched[has_call] = calls.start[activities.call_row[has_call]]
    return launched
