"""What the main thread of the host did in each step: forward, backward, optimizer, data loading, Python between ops.

A phase is known by what PyTorch records (`autograd::engine::evaluate_function`, `Optimizer.step#SGD.step`,
`enumerate(DataLoader)#…`), or by what users name their annotations. Nested time counts once: as waiting for the device,
else as data loading, the optimizer, forward, backward, waiting for other threads or ranks, in this order.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Intervals, covered_within, union
from ...schema.linked import FOREVER, LinkedTrace, Ops, are_step_marks, op_tree
from ..phase_names import AUTOGRAD, BACKWARD, FORWARD, LOADER, OPTIMIZER
from .annotations import are_annotations
from .first_start import first_start_ns, last_end_ns
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .steps import WHOLE_RUN
from .table import Column, Table, microseconds, rank_column

NO_OPS = "no host op with a time was recorded"
PHASES = ("for_device", "data_loading", "optimizer", "forward", "backward", "for_threads")
"""The phases in the order in which time that belongs to several counts."""


class _Steps(NamedTuple):
    """Steps of the main thread, from each mark to the next, or the whole run."""

    name: list[str]
    spans: Intervals


def _table(rank: RankTrace, _: AnalysisOptions) -> Table:
    linked = rank.linked
    timed = np.flatnonzero(linked.ops.start != ABSENT)
    thread = _main_thread(linked.ops, timed) if len(timed) else 0
    steps = _steps(linked, timed, thread)
    phases = _phase_intervals(linked, timed, thread) if len(timed) else {}
    so_far, before = Intervals(*np.empty((2, 0), np.int64)), np.zeros(len(steps.name), np.int64)
    times = dict.fromkeys(PHASES, before)
    for name in PHASES if phases else ():
        so_far = union(_joined(so_far, phases[name]))
        covered = covered_within(steps.spans, so_far)
        times[name], before = covered - before, covered
    length = steps.spans.end - steps.spans.start
    columns = [
        rank_column(rank.rank, len(steps.name)),
        Column("step", "", steps.name),
        microseconds("time", length),
        *(microseconds(name, times[name]) for name in ("forward", "backward", "optimizer", "data_loading")),
        microseconds("waiting", times["for_device"] + times["for_threads"]),
        microseconds("between_ops", length - before),
    ]
    return Table(NAME, "Host time by phase of the step", columns, "" if steps.name else NO_OPS)


def step_starts(linked: LinkedTrace) -> Int64:
    """Returns the starts (ns) of the marked steps, in order."""
    ops = linked.ops
    return np.unique(ops.start[are_step_marks(ops.name) & (ops.start != ABSENT)])


def _main_thread(ops: Ops, timed: Int64) -> int:
    """Returns the thread that marks steps, else the one of most of the time in ops."""
    marks = timed[are_step_marks(ops.name)[timed]]
    if len(marks):
        return int(ops.thread[marks[0]])
    threads, number = np.unique(ops.thread[timed], return_inverse=True)
    return int(threads[np.bincount(number, ops.exclusive[timed]).argmax()])


def _steps(linked: LinkedTrace, timed: Int64, thread: int) -> _Steps:
    ops = linked.ops
    of_thread = timed[ops.thread[timed] == thread]
    marks = of_thread[are_step_marks(ops.name)[of_thread]]
    marks = marks[np.argsort(ops.start[marks], kind="stable")]
    if len(marks):
        first, last = first_start_ns(linked), last_end_ns(linked)
        start = np.clip(ops.start[marks], first, max(last, first))
        end = np.minimum(np.append(start[1:], ops.end[marks[-1:]]), last)
        return _Steps([ops.name[row] for row in marks.tolist()], Intervals(start, np.maximum(end, start)))
    if not len(of_thread):
        return _Steps([], Intervals(*np.empty((2, 0), np.int64)))
    whole = Intervals(*(np.array([time]) for time in (first_start_ns(linked), last_end_ns(linked))))
    return _Steps([WHOLE_RUN], whole)


def _phase_intervals(linked: LinkedTrace, timed: Int64, thread: int) -> dict[str, Intervals]:
    ops = linked.ops
    annotates = are_annotations(ops) | are_step_marks(ops.name)
    is_autograd = ops.name.where(lambda name: name.startswith(AUTOGRAD))
    loads, steps = (ops.name.where(lambda name, key=key: key.search(name) is not None) for key in (LOADER, OPTIMIZER))  # type: ignore[misc]
    forward, backward = (
        annotates & ops.name.where(lambda name, key=key: key.search(name) is not None)  # type: ignore[misc]
        for key in (FORWARD, BACKWARD)
    )
    on_main = np.zeros(len(ops), np.bool_)
    on_main[timed] = ops.thread[timed] == thread
    outermost = on_main & ~_inside_ops(ops, annotates) & ~annotates & ~is_autograd
    calls, handoffs = linked.calls, linked.handoffs
    waits = np.unique(linked.host_waits.call_row)
    waits = waits[calls.thread[waits] == thread]
    is_blocked = (handoffs.target_thread == thread) & (handoffs.waiting_since != ABSENT)
    return {
        "for_device": Intervals(calls.start[waits], calls.end[waits]),
        "for_threads": Intervals(handoffs.waiting_since[is_blocked], handoffs.target_time[is_blocked]),
        "data_loading": _of(ops, on_main & loads),
        "optimizer": _of(ops, on_main & steps),
        "forward": _of(ops, outermost | (on_main & forward)),
        "backward": _joined(_passes(ops, is_autograd & (ops.start != ABSENT), outermost), _of(ops, on_main & backward)),
    }


def _inside_ops(ops: Ops, annotates: Bool) -> Bool:
    """Returns which ops another op is around, annotations and steps aside.

    Host traces name an op that had ended as the parent of the step after it: that one is around nothing later.
    """
    tree, is_timed = op_tree(ops), ops.start != ABSENT
    until = np.append(np.where(is_timed, ops.end, FOREVER), FOREVER)
    is_op, inside = np.append(~annotates & is_timed, False), np.zeros(len(ops) + 1, np.bool_)
    for rows in tree.levels:
        parent = tree.parent[rows]
        inside[rows] = (inside[parent] | is_op[parent]) & (ops.start[rows] < until[parent])
    return inside[:-1]


def _of(ops: Ops, chosen: Bool) -> Intervals:
    return Intervals(ops.start[chosen], ops.end[chosen])


def _joined(a: Intervals, b: Intervals) -> Intervals:
    return Intervals(np.concatenate((a.start, b.start)), np.concatenate((a.end, b.end)))


def _passes(ops: Ops, is_autograd: Bool, outermost: Bool) -> Intervals:
    """Returns the backward passes: from the first to the last autograd op without an op of the main thread between."""
    rows = np.flatnonzero(is_autograd)
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    if not len(rows):
        return Intervals(*np.empty((2, 0), np.int64))
    until, others = np.maximum.accumulate(ops.end[rows]), np.sort(ops.start[outermost])
    apart = np.searchsorted(others, ops.start[rows[1:]]) > np.searchsorted(others, until[:-1])
    first = np.flatnonzero(np.append(True, apart))
    return Intervals(ops.start[rows[first]], until[np.append(first[1:] - 1, len(rows) - 1)])


NAME = "host_phases"
host_phases = per_rank(NAME, _table)
