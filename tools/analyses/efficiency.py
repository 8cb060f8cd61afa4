"""The work of kernels: FLOP/s and bytes/s by op and shape against the device's peak, utilisation by step, and hardware
counters (CUPTI range profiler) with the op that launched each kernel.

Only computation counts for efficiency: for copies and communication see counters and collectives_over_ranks. The
profiler records one range per kernel without times, so the k-th range of a device belongs to its k-th kernel launch. If
counts or names disagree, no range is attached to an op.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Floats, Int64, OpRows, Rows, groupby
from ...schema.device_peaks import Peak
from ...schema.errors import Remedy
from ..replay import Bound, Kernels, device_peaks, least_time, roofs
from .rank import ActivityClass, Analysis, AnalysisOptions, ProfilerRange, RankTrace, activity_rows, per_rank
from .table import Columns, Quantity, Table, ints, pct, ratio, texts, us

NO_KERNELS = "no kernel computes anything"
FROM_CACHE = "cache"
PARTLY_COUNTED = "at least: the operations of some kernels are unknown; counted is the share of the time in the others"
KERNEL_LAUNCH = re.compile(r"Launch(Cooperative)?Kernel")
OPERATIONS = {"add": 1, "mul": 1, "fma": 2}
FLOPS = {
    f"smsp__sass_thread_inst_executed_op_{precision}{operation}_pred_on.sum": flops
    for precision in "hfd"
    for operation, flops in OPERATIONS.items()
}
"""Floating-point operations per instruction that each counter counts; a fused multiply-add does two."""
STACK = " > "
NO_RANGES = "no hardware counters were recorded (cuda_profiler_range)"


class _Work(NamedTuple):
    """The rank's computing activities: their rows, the op whose work each does (-1 for none), their time (ns), and the
    peaks of the devices.
    """

    row: Rows
    op_row: OpRows
    time: Int64
    kernels: Kernels
    peaks: dict[int, Peak]

    @property
    def has_operations(self) -> Bool:
        """Whether the operations of each are known."""
        return np.asarray(self.kernels.operations != ABSENT)


@per_rank
def efficiency(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns a row for each device, op, shape and number format, the longest first; kernels that no op launched go by
    their own names.
    """
    work = _work(rank, options)
    kernels, ops, names, of_op = work.kernels, rank.linked.ops, work.kernels.name, work.op_row >= 0
    label, shape = names.codes + len(ops.name.table), np.full(len(work.row), -1)
    label[of_op], shape[of_op] = ops.name.codes[work.op_row[of_op]], rank.shapes.codes[work.op_row[of_op]]
    groups = groupby(kernels.device, label, shape, kernels.element)
    groups = groups.largest_first(groups.sum(work.time))

    def summed(values: Int64) -> Floats:
        return np.bincount(groups.number, np.where(values == ABSENT, np.nan, values), len(groups)).astype(np.float64)

    first, time = groups.first, groups.sum(work.time)
    compute, memory = (roof[first] for roof in roofs(kernels, work.peaks))
    seconds, operations, moved = (
        np.where(time > 0, time, np.nan) / 1e9,
        summed(kernels.operations),
        summed(kernels.bytes),
    )
    # what moves faster than memory can came from a cache, whose peak is not known
    from_cache, least = moved / seconds > memory, least_time(kernels, work.peaks)
    bounds = np.select([least.bound_by(bound) for bound in Bound], [bound.value for bound in Bound], "")
    columns: Columns = {
        "device": kernels.device[first],
        "op": texts([*ops.name.table, *names.table], label[first]),
        "shape": texts(rank.shapes.table, shape[first]),
        "element": Quantity("B", np.where(kernels.element == ABSENT, 0, kernels.element)[first]),
        "kernels": groups.count(),
        "time": us(time),
        "intensity": Quantity("FLOP/B", ratio(operations, moved)),
        "speed": Quantity("TFLOP/s", operations / seconds / 1e12),
        "speed_pct": pct(operations / seconds, compute),
        "bandwidth": Quantity("GB/s", moved / seconds / 1e9),
        "bandwidth_pct": pct(moved / seconds, np.where(from_cache, np.nan, memory)),
        "bound": np.where(from_cache, FROM_CACHE, bounds[first]).tolist(),
        "peak_speed": Quantity("TFLOP/s", compute / 1e12),
        "peak_bandwidth": Quantity("GB/s", memory / 1e9),
    }
    details = (_by_step(rank, work),)
    note = _note(rank, work)
    return Table.from_columns(
        "efficiency", "Efficiency of kernels", columns, note=note, empty=NO_KERNELS, details=details
    )


def _work(rank: RankTrace, options: AnalysisOptions) -> _Work:
    """Returns the work computed from the traces, or of a graph alone the recorded work of its nodes."""
    activities = rank.linked.activities
    if len(rank.linked.ops) or rank.graph is None:
        op_row, columns = rank.work.op_row, [rank.work.operations, rank.work.bytes, rank.work.element]
    else:
        nodes = activity_rows(rank.graph)
        columns = [rank.graph.integers(name)[nodes] for name in ("num_ops", "tensor_size", "element_size")]
        op_row = OpRows(np.full(len(nodes), -1))
    row = np.flatnonzero(rank.classes == ActivityClass.COMPUTATION)
    numbers = [column[row] for column in (*columns, rank.durations)]
    kernels = Kernels(activities.name.take(row), activities.device[row], *numbers)
    op_row = OpRows(np.where(op_row >= 0, op_row, activities.op_row)[row])
    return _Work(row, op_row, rank.durations[row], kernels, device_peaks(_device_names(rank), options.peaks))


def _device_names(rank: RankTrace) -> dict[int, str]:
    """Returns the name of every device that ran something, "" if it was not recorded."""
    devices = np.unique(rank.linked.activities.device).tolist()
    return {device: rank.linked.info.devices.get(device, "") for device in devices}


def _note(rank: RankTrace, work: _Work) -> str:
    is_known = work.has_operations & (work.kernels.bytes != ABSENT)
    share = 100 * work.time[is_known].sum() / max(int(work.time.sum()), 1)
    notes = [f"the work of {is_known.sum():,} of {len(is_known):,} kernels is known, {share:.1f} % of their time"]
    cached = int((1e9 * np.nan_to_num(least_time(work.kernels, work.peaks).memory) > work.time).sum())
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


def _by_step(rank: RankTrace, work: _Work) -> Table:
    """Returns the model FLOPs utilisation: the time of a step's operations at peak speed over the step's time.

    `counted` is the share of the kernels' time in kernels whose operations are known; the others count as none.
    """
    steps, of_step = rank.steps, rank.steps.of_activity[work.row]
    inside = np.flatnonzero(of_step >= 0)
    groups = groupby(of_step[inside], work.kernels.device[inside])
    step, device = of_step[inside[groups.first]], work.kernels.device[inside[groups.first]]
    time, counted = (steps.end - steps.start)[step], np.where(work.has_operations, work.time, 0)
    operations = groups.sum(np.where(work.has_operations, work.kernels.operations, 0)[inside]).astype(np.float64)
    kernel_ns, counted_ns = (groups.sum(column[inside]) for column in (work.time, counted))
    least = np.nan_to_num(least_time(work.kernels, work.peaks).compute)[inside]
    least_seconds = np.array([least[rows].sum() for rows in groups.rows()], np.float64)
    columns: Columns = {
        "device": device,
        "step": texts(steps.name, step),
        "time": us(time),
        "operations": operations,
        "speed": Quantity("TFLOP/s", ratio(operations, time) / 1e3),
        "utilisation": pct(np.where(np.isin(device, [*work.peaks]), least_seconds * 1e9, np.nan), time),
        "counted": pct(counted_ns, kernel_ns),
    }
    note, title = PARTLY_COUNTED if (counted_ns < kernel_ns).any() else "", "Model FLOPs utilisation by step"
    return Table.from_columns("efficiency_by_step", title, columns, note=note, empty=NO_KERNELS)


class KernelCounters(NamedTuple):
    """The counters of a kernel; if its launch is unknown, `correlation` is -1 and `op_stack` is ""."""

    rank: int
    op_stack: str
    kernel: str
    correlation: int
    counters: dict[str, float]


class _Launch(NamedTuple):
    """A kernel launch; `kernel` is "" if the profiler recorded no activities, which is usual."""

    op_row: int
    correlation: int
    kernel: str


def _rank_counters(rank: RankTrace, _: AnalysisOptions) -> tuple[list[KernelCounters], str]:
    """Returns the counters of a rank's kernels, and why some could not be attached to ops."""
    measured, problems = list[KernelCounters](), list[str]()
    devices = sorted({range_.device for range_ in rank.recorded.ranges})
    for device in devices:
        ranges = [range_ for range_ in rank.recorded.ranges if range_.device == device]
        launches = _kernel_launches(rank, device, several=len(devices) > 1)
        if problem := _mismatch(ranges, launches):
            problems.append(f"device {device}: {problem}, so that no range could be attached to its op")
            launches = [_Launch(-1, -1, "")] * len(ranges)
        measured += [
            KernelCounters(rank.rank, STACK.join(rank.op_path(op)), range_.name, correlation, range_.counters)
            for range_, (op, correlation, _) in zip(ranges, launches, strict=True)
        ]
    return measured, f"rank {rank.rank}: {'; '.join(problems)}" if problems else ""


def _kernel_launches(rank: RankTrace, device: int, several: bool) -> list[_Launch]:
    """Returns the kernel launches of a device in order: from its recorded kernels, else from the launch calls.

    Calls do not record their device, so they are used only if ranges were recorded on a single device.
    """
    activities, calls = rank.linked.activities, rank.linked.calls
    kernels = (activities.device == device) & (activities.call_row >= 0) & (rank.classes != ActivityClass.MEMORY)
    rows = np.flatnonzero(kernels)
    if len(rows):
        rows = rows[np.lexsort((activities.start[rows], calls.start[activities.call_row[rows]]))]
        columns = activities.op_row[rows].tolist(), activities.correlation[rows].tolist(), activities.name[rows]
        return [_Launch(*launch) for launch in zip(*columns, strict=True)]
    rows = np.flatnonzero(calls.name.where(lambda name: bool(KERNEL_LAUNCH.search(name)) and not several))
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    columns = calls.op_row[rows].tolist(), calls.correlation[rows].tolist(), [""] * len(rows)
    return [_Launch(*launch) for launch in zip(*columns, strict=True)]


def _mismatch(ranges: Sequence[ProfilerRange], launches: Sequence[_Launch]) -> str:
    if len(ranges) != len(launches):
        return f"{len(ranges)} ranges were recorded and {len(launches)} kernel launches"
    for number, (range_, launch) in enumerate(zip(ranges, launches, strict=True), 1):
        if launch.kernel and range_.name != launch.kernel:
            return f"range {number} is of {range_.name}, launch {number} of {launch.kernel}"
    return ""


def flops(counters: dict[str, float]) -> float:
    """Returns the floating-point operations outside tensor cores, NaN if none of their counters was recorded."""
    products = [counters[name] * each for name, each in FLOPS.items() if name in counters]
    return sum(products) if products else float("nan")


def _counters(parts: Sequence[tuple[list[KernelCounters], str]], _: AnalysisOptions) -> Table:
    """Returns a row for each kernel, with a column for each counter."""
    rows = [row for measured, _ in parts for row in measured]
    names = dict.fromkeys(name for row in rows for name in row.counters)
    columns: Columns = {
        "rank": ints(row.rank for row in rows),
        "op_stack": [row.op_stack for row in rows],
        "kernel": [row.kernel for row in rows],
        "correlation": ints(row.correlation for row in rows),
        "flops": np.array([flops(row.counters) for row in rows], np.float64),
        **{name: np.array([row.counters.get(name, np.nan) for row in rows], np.float64) for name in names},
    }
    note = "; ".join(filter(None, (note for _, note in parts)))
    return Table.from_columns("cupti_counters", "CUPTI counters", columns, note=note, empty=NO_RANGES)


cupti_counters = Analysis("cupti_counters", _rank_counters, _counters)
