"""Host ops: their host and device time by op, name, thread and shapes, and what the main thread did in each step.

A phase is known by what PyTorch records, or by what users name their annotations. Nested time counts once: as waiting
for the device, else as data loading, the optimizer, forward, backward, waiting for threads or ranks, in this order.
"""

from collections.abc import Mapping

import numpy as np

from ...schema import columns
from ...schema.columns import ABSENT, Bool, Categorical, Groups, Int64, Rows, groupby
from ...schema.linked import FOREVER, are_step_marks
from ..replay import HostOps, Phase, phase_intervals
from .rank import WHOLE_RUN, AnalysisOptions, RankTrace, are_annotations, per_rank
from .table import Columns, Table, tabulate, us

NO_OPS = "no host op with a time was recorded"
NO_LAUNCHES = "no activity was launched by a recorded host op"
HOST_PHASES = ("forward_and_other", "backward", "optimizer", "data_loading", "waiting", "between_ops")
"""The columns of the phases, which add up to the step."""
PHASES = ("for_device", *(phase.value for phase in Phase), "for_threads")
"""The phases in the order in which time that belongs to several counts."""
Keys = Mapping[str, Categorical | Int64]


def _by_kind(rank: RankTrace, row: Rows, keys: Keys) -> tuple[Groups, Bool]:
    """Returns the groups of ops equal in all `keys`, and which rows lie in no op of their group: only these add up."""
    numbers = (key.codes if isinstance(key, Categorical) else key for key in keys.values())
    kind = columns.group_ids(*(number.astype(np.int64) for number in numbers))
    return groupby(kind[row]), rank.tree.is_outermost(kind)[row]


def device_time_of_ops(rank: RankTrace) -> tuple[Int64, Int64, Int64]:
    """Returns for each op the device time (ns) of its own activities and of its subtree's, and the number of these."""
    ops, op_row = rank.linked.ops, rank.linked.activities.op_row
    launched = op_row >= 0
    self_time = columns.group_sums(op_row[launched], rank.durations[launched], len(ops))
    count = columns.group_sums(op_row[launched], 1, len(ops))
    return self_time, rank.tree.subtrees(np.add, self_time), rank.tree.subtrees(np.add, count)


@per_rank
def per_op_device_time(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns the device time of each host op: of what it launched itself, and with everything that it called."""
    ops, (self_time, subtree, count) = rank.linked.ops, device_time_of_ops(rank)
    rows = np.flatnonzero((count > 0) & (ops.start != ABSENT))
    rows = rows[np.argsort(ops.start[rows], kind="stable")]

    def by(name: str, title: str, keys: Keys) -> Table:
        groups, is_outermost = _by_kind(rank, rows, keys)
        groups = groups.largest_first(groups.sum(subtree[rows] * is_outermost))
        cells: Columns = {
            **{key: values.take(rows[groups.first]) for key, values in keys.items()}, "ops": groups.count(),
            "self": us(groups.sum(self_time[rows])), "subtree": us(groups.sum(subtree[rows] * is_outermost)),
            "count": groups.sum(count[rows] * is_outermost),
        }  # fmt: skip
        return tabulate(f"per_op_device_time_{name}", f"Device time per op {title}", cells, empty=NO_LAUNCHES)

    by_name = by("by_name", "name", {"name": ops.name})
    by_shape = by("by_shape", "name and input shapes", {"name": ops.name, "shape": rank.shapes})
    cells: Columns = {
        "op": ops.id[rows], "name": ops.name.take(rows), "thread": ops.thread[rows],
        "start": us(rank.since_begin(ops.start[rows])), "self": us(self_time[rows]), "subtree": us(subtree[rows]),
        "count": count[rows],
    }  # fmt: skip
    return tabulate("per_op_device_time", "Device time per op", cells, "", by_name, by_shape, empty=NO_LAUNCHES)


@per_rank
def host_time_per_op(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns the host time of ops by name and thread, and by name and shapes, with and without the ops they call."""
    ops, rows = rank.linked.ops, rank.timed_ops
    self_time, time = ops.exclusive[rows], (ops.end - ops.start)[rows]

    def by(name: str, title: str, keys: Keys, *details: Table) -> Table:
        groups, is_outermost = _by_kind(rank, rows, keys)
        groups = groups.largest_first(groups.sum(self_time))
        cells: Columns = {
            **{key: values.take(rows[groups.first]) for key, values in keys.items()}, "count": groups.count(),
            "total": us(groups.sum(time * is_outermost)), "self": us(groups.sum(self_time)),
            "mean": us(groups.mean(time)),
        }  # fmt: skip
        return tabulate(name, f"Host time per op name and {title}", cells, "", *details, empty=NO_OPS)

    by_shape = by("host_time_per_op_by_shape", "input shapes", {"name": ops.name, "shape": rank.shapes})
    return by("host_time_per_op", "thread", {"name": ops.name, "thread": ops.thread}, by_shape)


@per_rank
def host_phases(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns what the main thread did in each step: forward, backward, optimizer, data loading, Python between ops."""
    thread, names, spans = _main_thread(rank)
    phases = _phase_intervals(rank, thread) if names else {}
    so_far, before = [np.empty((2, 0), np.int64)], np.zeros(len(names), np.int64)
    times = dict.fromkeys(PHASES, before)
    for name in PHASES if phases else ():
        so_far.append(phases[name])
        covered = columns.covered_within(spans, columns.union(columns.Intervals(*np.concatenate(so_far, axis=1))))
        times[name], before = covered - before, covered
    length = spans.end - spans.start
    cells: Columns = {
        "step": names, "time": us(length), **{name: us(times[name]) for name in HOST_PHASES[:4]},
        "waiting": us(times["for_device"] + times["for_threads"]), "between_ops": us(length - before),
    }  # fmt: skip
    return tabulate("host_phases", "Host time by phase of the step", cells, empty=NO_OPS)


def _main_thread(rank: RankTrace) -> tuple[int, list[str], columns.Intervals]:
    """Returns the thread that marks steps, else the busiest (0: none), and its steps, from mark to mark, or the run."""
    ops, timed = rank.linked.ops, rank.timed_ops
    marks, thread = timed[are_step_marks(ops.name)[timed]], 0
    if len(marks):
        thread = int(ops.thread[marks[0]])
        marks = marks[ops.thread[marks] == thread]
        marks = marks[np.argsort(ops.start[marks], kind="stable")]
        start = np.clip(ops.start[marks], rank.begin, max(rank.end, rank.begin))
        end = np.minimum(np.append(start[1:], ops.end[marks[-1:]]), rank.end)
        return thread, ops.name[marks], columns.Intervals(start, np.maximum(end, start))
    if len(timed):
        groups = groupby(ops.thread[timed])
        thread = int(ops.thread[timed[groups.first[groups.sum(ops.exclusive[timed]).argmax()]]])
    count = min(len(timed), 1)
    return thread, [WHOLE_RUN][:count], columns.Intervals(np.array([rank.begin])[:count], np.array([rank.end])[:count])


def _phase_intervals(rank: RankTrace, thread: int) -> dict[str, Int64]:
    """Returns by phase the starts and the ends (ns) of what belongs to it."""
    linked, ops, timed = rank.linked, rank.linked.ops, rank.timed_ops
    annotates = are_annotations(ops) | are_step_marks(ops.name)
    on_main = np.zeros(len(ops), np.bool_)
    on_main[timed] = ops.thread[timed] == thread
    # which ops another op is around, annotations and steps aside; host traces name an op that had ended as the parent
    # of the step after it: that one is around nothing later
    is_timed, tree = ops.start != ABSENT, rank.tree
    until = np.append(np.where(is_timed, ops.end, FOREVER), FOREVER)
    is_op, inside = np.append(~annotates & is_timed, False), np.zeros(len(ops) + 1, np.bool_)
    for rows in tree.levels:
        parent = tree.parent[rows]
        inside[rows] = (inside[parent] | is_op[parent]) & (ops.start[rows] < until[parent])
    calls, handoffs = linked.calls, linked.handoffs
    waits = np.unique(linked.host_waits.call_row)
    waits = waits[calls.thread[waits] == thread]
    is_blocked = (handoffs.target_thread == thread) & (handoffs.waiting_since != ABSENT)
    phases = phase_intervals(HostOps(ops.name, ops.start, ops.end, timed, on_main, annotates, inside[:-1]))
    return {
        "for_device": np.stack((calls.start[waits], calls.end[waits])),
        "for_threads": np.stack((handoffs.waiting_since[is_blocked], handoffs.target_time[is_blocked])),
        **{phase.value: spans for phase, spans in phases.items()},
    }
