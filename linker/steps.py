"""Finds steps that are no whole iterations: a recording may begin or end inside one, or each iteration has several."""

import re
from typing import NamedTuple

import numpy as np

from ..schema import linked
from ..schema.columns import Bool, Int64, isin
from ..schema.machine import AGREEING
from .readers import DeviceTrace

STEP = re.compile(re.escape(linked.STEP_MARK) + r"(\d{1,18})$")
OUTSIDE, MUCH_OUTSIDE = 0.05, 0.25
"""A step is cut if more of its ops are in no step, of its thread or of all; in 90 sound traces 0 and 0.08 at most."""
FEWER, MUCH_FEWER = 0.9, 0.5
"""So is a step that holds fewer ops, if the others agree or rows end before its mark, else one with much fewer."""
ALIKE, APART, COMPARED = 0.7, 0.5, 64
"""Steps of one kind have this share of their ops in common, those of two kinds less; so many steps are compared."""


class Period(NamedTuple):
    """From `start` up to but without `end`, ns on the device trace's clock."""

    start: int
    end: int

    def in_words(self, zero: int) -> str:
        """Returns start and end in µs after `zero` (ns)."""
        return " to ".join(f"{(time - zero) / 1000:.3f}" for time in self) + " µs"


class UnevenSteps(NamedTuple):
    """What is said of steps that are no whole iterations, how many are `whole` (-1: all), and the `period` of these."""

    period: Period | None = None
    said: str = ""
    whole: int = -1


def marked_steps(device: DeviceTrace) -> dict[int, Period]:
    """Returns the steps by number; where several threads mark a step, the first mark counts."""
    ops, steps = device.ops, dict[int, Period]()
    rows = np.flatnonzero(ops.name.where(lambda name: STEP.match(name) is not None))
    for row in rows[np.argsort(ops.start[rows], kind="stable")].tolist():
        number = int(ops.name[row].removeprefix(linked.STEP_MARK))
        steps.setdefault(number, Period(int(ops.start[row]), int(ops.end[row])))
    return steps


def uneven_steps(device: DeviceTrace, are_ops_odd: bool) -> UnevenSteps:
    """Returns which steps are cut, by the ops that are in none and those of other steps, and whether they alternate.

    Ops that are odd (lost, or with wrong times) may be those of other steps: then nothing is known.
    """
    if are_ops_odd:
        return UnevenSteps()
    ops, marks = device.ops, np.array([*marked_steps(device).values()], np.int64).reshape(-1, 2)
    is_op = ~ops.annotation & ~linked.are_step_marks(ops.name) & (ops.end > ops.start)

    def inside() -> tuple[Int64, Bool]:
        step = np.searchsorted(marks[:, 0], ops.start, "right") - 1
        return step, is_op & (step >= 0) & (ops.start < np.append(marks[:, 1], 0)[step])

    step, is_in = inside()
    # marks that hold no op are mere points in time, or follow the last iteration
    marks = marks[np.bincount(step[is_in], minlength=len(marks)) > 0]
    if not len(marks):
        return UnevenSteps()
    (step, is_in), (begin, end) = inside(), marks.T
    count, names = np.bincount(step[is_in], minlength=len(begin)), len(ops.name.table)

    def runs(number: int) -> Int64:
        return np.bincount(ops.name.codes[is_in & (step == number)], minlength=names)

    def at_edge(number: int, edge: int) -> bytes:
        rows = np.flatnonzero(is_in & (step == number % len(begin)))
        codes = ops.name.codes[rows[np.argsort(ops.start[rows], kind="stable")]]
        return (codes[-AGREEING:] if edge else codes[:AGREEING]).tobytes()

    if kinds := _kinds([runs(number) for number in range(min(len(begin), COMPARED))]):
        said = f"steps alternate between {kinds} kinds, of {' and '.join(f'{of:,}' for of in count[:kinds])} ops"
        asked = f"is prof.step() called {kinds} times an iteration, or do some do other work (gradient accumulation)?"
        return UnevenSteps(said=f"{device.path}: {said}; times a step are not those of an iteration; {asked}", whole=0)
    if device.window or ops.name.equal(linked.INCOMPLETE_STEP).any():
        return UnevenSteps()
    is_marking = isin(ops.thread, ops.thread[linked.are_step_marks(ops.name)])
    is_outside = np.zeros(len(begin) + 1, np.bool_)
    for chosen, least in ((is_op & is_marking, OUTSIDE), (is_op, MUCH_OUTSIDE)):
        outside = np.bincount(step[chosen & ~is_in] + 1, minlength=len(begin) + 1)
        usual = np.median(np.bincount(step[chosen & is_in], minlength=len(begin)))
        is_outside |= (outside >= AGREEING) & (outside > least * usual)
    first, last = ops.start[is_op].min(), ops.end[is_op].max()
    for table in (device.calls, device.activities):
        first, last = min(first, table.start.min(initial=first)), max(last, table.end.max(initial=last))
    is_idle = np.array([first - begin[0], end[-1] - last]) > OUTSIDE * (end - begin)[[0, -1]]

    def is_cut(edge: int, neighbour: int) -> bool:
        others = np.delete(count, edge)
        if not len(others):
            return bool(is_idle[edge] and is_outside[-1 - edge])
        agree = len(others) > 1 and others.min() >= FEWER * others.max()
        common = np.minimum(*(runs(number % len(begin)) for number in (edge, neighbour))).sum()
        least = (FEWER if agree or is_idle[edge] else MUCH_FEWER) * others.min()
        # one that begins, or ends, as its neighbour does is shorter in the middle
        is_short = bool(FEWER * count[edge] <= common <= count[edge] < least)
        return is_short and at_edge(edge, edge) != at_edge(neighbour, edge)

    cut = is_cut(0, min(1, len(begin) - 1)), is_cut(-1, -min(2, len(begin)))
    edges = is_outside[0] or cut[0], is_outside[-1] or cut[1]
    if not is_outside.any() and not any(cut):
        return UnevenSteps()
    whole = 0 if is_outside[1:-1].any() else max(len(begin) - sum(cut), 0)
    where = " and ".join(["begins"] * bool(edges[0]) + ["ends"] * bool(edges[1]))
    what = f"the recording {where} inside a step" if where else "marks of steps were lost"
    what += f" ({outside.sum():,} ops are in none)" * bool(outside.sum())
    meaning = f"only whole steps are linked, {whole}" if whole else "no step is whole, so times a step are not known"
    said = f"{device.path}: {what}; {meaning}; record whole steps"
    start = int(begin[min(int(cut[0]), len(begin) - 1)]) if edges[0] else linked.NEVER
    until = int(begin[-1] if cut[1] else end[-1]) if edges[1] else linked.FOREVER
    return UnevenSteps(Period(start, until) if whole else None, said, whole)


def _kinds(steps: list[Int64]) -> int:
    """Returns after how many steps the same ops run again, if no step runs those of the next one; else 0."""
    for apart in range(1, len(steps)):
        pairs = zip(steps, steps[apart:], strict=False)
        alike = [np.minimum(*pair).sum() / np.maximum(*pair).sum() for pair in pairs]
        if apart == 1 and max(alike) >= APART:
            break
        if apart > 1 and min(alike) >= ALIKE:
            return apart
    return 0
