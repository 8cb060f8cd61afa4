"""The efficiency of kernels: FLOP/s and bytes/s by op and shape against the device's peak, and utilisation by step.

Only computation counts: for copies and communication see counters and collectives_over_ranks.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64, OpRows, split_groups
from ...schema.errors import Remedy
from ...schema.machine import Peak
from ..replay import Bound, Kernels, device_peaks, least_time, roofs
from .classes import ActivityClass, activity_classes
from .graph_alone import activity_rows
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .steps import steps_of
from .table import BytesColumn, Column, Floats, Table, integers, microseconds, percentage, rank_column

NO_KERNELS = "no kernel computes anything"
FROM_CACHE = "cache"
PARTLY_COUNTED = "at least: the operations of some kernels are unknown; counted is the share of the time in the others"


class _Work(NamedTuple):
    """The rank's computing activities: their rows, the op whose work each does (-1 for none), their time (ns), and the
    peaks of the devices.
    """

    row: Int64
    op_row: Int64
    time: Int64
    kernels: Kernels
    peaks: dict[int, Peak]


def _table(rank: RankTrace, options: AnalysisOptions) -> Table:
    work = _work(rank, options)
    groups = _kernel_groups(rank, work)
    by_step = _step_table(rank, work)
    return Table(NAME, "Efficiency of kernels", _columns(rank, work, groups), _note(rank, work), (by_step,))


def _work(rank: RankTrace, options: AnalysisOptions) -> _Work:
    """Returns the work computed from the traces, or of a graph alone the recorded work of its nodes."""
    activities = rank.linked.activities
    if len(rank.linked.ops) or rank.graph is None:
        kernel_work = rank.work()
        op_row, columns = kernel_work.op_row, [kernel_work.operations, kernel_work.bytes, kernel_work.element]
    else:
        nodes = activity_rows(rank.graph)
        columns = [rank.graph.integers(name)[nodes] for name in ("num_ops", "tensor_size", "element_size")]
        op_row = OpRows(np.full(len(nodes), -1))
    row = np.flatnonzero(activity_classes(activities) == ActivityClass.COMPUTATION)
    time = (activities.end - activities.start)[row]
    numbers = [*(column[row] for column in columns), time]
    kernels = Kernels(activities.name.take(row), activities.device[row], *numbers)
    op_row = OpRows(np.where(op_row >= 0, op_row, activities.op_row)[row])
    peaks = device_peaks(_device_names(rank), options.peaks)
    return _Work(row, op_row, time, kernels, peaks)


def _device_names(rank: RankTrace) -> dict[int, str]:
    """Returns the name of every device that ran something, "" if it was not recorded."""
    devices = np.unique(rank.linked.activities.device).tolist()
    return {device: rank.linked.info.devices.get(device, "") for device in devices}


def _note(rank: RankTrace, work: _Work) -> str:
    if not len(work.row):
        return NO_KERNELS
    is_known = (work.kernels.operations != ABSENT) & (work.kernels.bytes != ABSENT)
    share = 100 * work.time[is_known].sum() / max(int(work.time.sum()), 1)
    notes = [f"the work of {is_known.sum():,} of {len(is_known):,} kernels is known, {share:.1f} % of their time"]
    least = least_time(work.kernels, work.peaks).memory
    cached = int((1e9 * np.nan_to_num(least) > work.time).sum())
    if cached:
        notes.append(
            f"{cached:,} kernels move more bytes than memory can: what they read came from a cache, which bounds their op "
            "instead of memory where its kernels together are faster than memory"
        )
    names = _device_names(rank).items()
    without_peak = [f"{number} ({name or 'no name recorded'})" for number, name in names if number not in work.peaks]
    if without_peak:
        notes.append(f"no peak is known of device {', '.join(without_peak)}: give {Remedy.PEAK}")
    return "; ".join(notes)


class _Groups(NamedTuple):
    """Kernels of the same op and shape: the group `number` of each; for each group its label, shape and a kernel."""

    number: Int64
    label: list[str]
    shape: list[str]
    example: Int64


def _kernel_groups(rank: RankTrace, work: _Work) -> _Groups:
    """Groups kernels by device, op, shape and number format; kernels that no op launched go by their own names."""
    ops, names = rank.linked.ops, work.kernels.name
    shapes, of_op = rank.shapes(), work.op_row >= 0
    label, shape = names.codes + len(ops.name.table), np.full(len(work.row), -1)
    label[of_op], shape[of_op] = ops.name.codes[work.op_row[of_op]], shapes.codes[work.op_row[of_op]]
    keys = np.stack([work.kernels.device, label, shape, work.kernels.element], axis=1)
    _, example, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    labels, forms = [*ops.name.table, *names.table], [*shapes.table, ""]
    return _Groups(
        number.reshape(-1),
        [labels[code] for code in label[example].tolist()],
        [forms[code] for code in shape[example].tolist()],
        example,
    )


def _columns(rank: RankTrace, work: _Work, groups: _Groups) -> list[Column]:
    """Returns a row for each group, the longest first."""
    kernels, example, count = work.kernels, groups.example, len(groups.example)

    def summed(values: Int64) -> Floats:
        weights: Floats = np.where(values == ABSENT, np.nan, values)
        return np.bincount(groups.number, weights, count).astype(np.float64)

    time, operations, moved = summed(work.time), summed(kernels.operations), summed(kernels.bytes)
    order = np.argsort(-time, kind="stable")
    compute, memory = (roof[example][order] for roof in roofs(kernels, work.peaks))
    seconds = np.where(time > 0, time, np.nan)[order] / 1e9
    operations, moved, first = operations[order], moved[order], example[order]
    # what moves faster than memory can came from a cache, whose peak is not known
    from_cache = moved / seconds > memory
    return [
        rank_column(rank.rank, count),
        Column("device", "", kernels.device[first]),
        Column("op", "", [groups.label[group] for group in order.tolist()]),
        Column("shape", "", [groups.shape[group] for group in order.tolist()]),
        Column("element", "B", np.where(kernels.element == ABSENT, 0, kernels.element)[first]),
        Column("kernels", "", np.bincount(groups.number, minlength=count)[order]),
        microseconds("time", time[order]),
        Column("intensity", "FLOP/B", np.divide(operations, moved, out=np.full(count, np.nan), where=moved > 0)),
        Column("speed", "TFLOP/s", operations / seconds / 1e12),
        percentage("speed_pct", operations / seconds, compute),
        Column("bandwidth", "GB/s", moved / seconds / 1e9),
        percentage("bandwidth_pct", moved / seconds, np.where(from_cache, np.nan, memory)),
        Column("bound", "", np.where(from_cache, FROM_CACHE, _bounds(kernels, work)[first]).tolist()),
        Column("peak_speed", "TFLOP/s", compute / 1e12),
        Column("peak_bandwidth", "GB/s", memory / 1e9),
    ]


def _bounds(kernels: Kernels, work: _Work) -> BytesColumn:
    least = least_time(kernels, work.peaks)
    return np.select([least.bound_by(bound) for bound in Bound], [bound.value for bound in Bound], "")


def _step_table(rank: RankTrace, work: _Work) -> Table:
    """Returns the model FLOPs utilisation: the time of a step's operations at peak speed over the step's time.

    `counted` is the share of the kernels' time in kernels whose operations are known; the others count as none.
    """
    steps = steps_of(rank.linked)
    step, device = steps.of_activity[work.row], work.kernels.device
    order = np.lexsort((device, step))
    groups = split_groups(order[step[order] >= 0], step, device)
    rows = [(int(step[chosen[0]]), int(device[chosen[0]])) for chosen in groups]
    least = np.nan_to_num(least_time(work.kernels, work.peaks).compute)
    operations = np.where(work.kernels.operations == ABSENT, 0, work.kernels.operations)
    of_step = np.array([number for number, _ in rows], np.int64)
    time = (steps.end - steps.start)[of_step]
    done = np.array([operations[chosen].sum() for chosen in groups], np.float64)
    known_ns = np.where(work.kernels.operations == ABSENT, 0, work.time)
    kernel_ns, counted_ns = (
        np.array([column[chosen].sum() for chosen in groups], np.float64) for column in (work.time, known_ns)
    )
    least_seconds = np.array([least[chosen].sum() for chosen in groups], np.float64)
    has_peak = np.array([number in work.peaks for _, number in rows], np.bool_)
    columns = [
        rank_column(rank.rank, len(rows)),
        integers("device", [number for _, number in rows]),
        Column("step", "", [steps.name[number] for number in of_step.tolist()]),
        microseconds("time", time),
        Column("operations", "", done),
        Column("speed", "TFLOP/s", np.divide(done, time, out=np.full(len(rows), np.nan), where=time > 0) / 1e3),
        percentage("utilisation", np.where(has_peak, least_seconds * 1e9, np.nan), time),
        percentage("counted", counted_ns, kernel_ns),
    ]
    note = PARTLY_COUNTED if (counted_ns < kernel_ns).any() else ""
    return Table(f"{NAME}_by_step", "Model FLOPs utilisation by step", columns, note if rows else NO_KERNELS)


NAME = "efficiency"
efficiency = per_rank(NAME, _table)
