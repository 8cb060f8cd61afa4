"""Hardware counters of each kernel (CUPTI range profiler), with the op that launched it and its FLOP.

The profiler records one range per kernel without times, so the k-th range of a device belongs to its k-th kernel
launch. If counts or names disagree, no range is attached to an op.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.linked import LinkedTrace, op_tree
from .annotations import op_path
from .classes import ActivityClass, activity_classes
from .rank_trace import Analysis, AnalysisOptions, RankTrace
from .recorded import ProfilerRange
from .table import Column, Table, integers

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


class KernelCounters(NamedTuple):
    """The counters of a kernel; if its launch is unknown, `correlation` is -1 and `op_stack` is ""."""

    rank: int
    op_stack: str
    kernel: str
    correlation: int
    counters: dict[str, float]


class RankCounters(NamedTuple):
    """The counters of one rank's kernels, and why some could not be attached to ops."""

    rank: int
    measured: list[KernelCounters]
    note: str


class Launch(NamedTuple):
    """A kernel launch; `kernel` is "" if the profiler recorded no activities, which is usual."""

    op_row: int
    correlation: int
    kernel: str


def _rank_counters(rank: RankTrace, _: AnalysisOptions) -> RankCounters:
    ranges = rank.recorded.ranges if rank.recorded is not None else []
    tree = op_tree(rank.linked.ops) if ranges else None
    measured: list[KernelCounters] = []
    notes = []
    for device in sorted({range_.device for range_ in ranges}):
        device_ranges = [range_ for range_ in ranges if range_.device == device]
        launches = _launches(rank.linked, device, several=len({range_.device for range_ in ranges}) > 1)
        problem = _mismatch(device_ranges, launches)
        if problem:
            notes.append(f"device {device}: {problem}, so that no range could be attached to its op")
            measured += [KernelCounters(rank.rank, "", range_.name, -1, range_.counters) for range_ in device_ranges]
            continue
        for range_, launch in zip(device_ranges, launches, strict=True):
            stack = STACK.join(op_path(rank.linked, tree, launch.op_row)) if tree is not None else ""
            measured.append(KernelCounters(rank.rank, stack, range_.name, launch.correlation, range_.counters))
    return RankCounters(rank.rank, measured, "; ".join(notes) if ranges else NO_RANGES)


def _launches(linked: LinkedTrace, device: int, several: bool) -> list[Launch]:
    """Returns the kernel launches of a device in order: from its recorded kernels, else from the launch calls.

    Calls do not record their device, so they are used only if ranges were recorded on a single device.
    """
    activities, calls = linked.activities, linked.calls
    kernels = (activities.device == device) & (activities.call_row >= 0)
    rows = np.flatnonzero(kernels & (activity_classes(activities) != ActivityClass.MEMORY))
    if len(rows):
        rows = rows[np.lexsort((activities.start[rows], calls.start[activities.call_row[rows]]))]
        return [
            Launch(op, correlation, activities.name[row])
            for row, op, correlation in zip(
                rows.tolist(), activities.op_row[rows].tolist(), activities.correlation[rows].tolist(), strict=True
            )
        ]
    if several:
        return []
    rows = np.flatnonzero(calls.name.where(lambda name: bool(KERNEL_LAUNCH.search(name))))
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    columns = calls.op_row[rows].tolist(), calls.correlation[rows].tolist()
    return [Launch(op, correlation, "") for op, correlation in zip(*columns, strict=True)]


def _mismatch(ranges: Sequence[ProfilerRange], launches: Sequence[Launch]) -> str:
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


def _over_ranks(parts: Sequence[RankCounters], _: AnalysisOptions) -> Table:
    rows = [row for part in parts for row in part.measured]
    counters = list(dict.fromkeys(name for row in rows for name in row.counters))
    columns = [
        integers("rank", [row.rank for row in rows]),
        Column("op_stack", "", [row.op_stack for row in rows]),
        Column("kernel", "", [row.kernel for row in rows]),
        integers("correlation", [row.correlation for row in rows]),
        Column("flops", "", np.array([flops(row.counters) for row in rows], np.float64)),
        *(
            Column(name, "", np.array([row.counters.get(name, np.nan) for row in rows], np.float64))
            for name in counters
        ),
    ]
    notes = [f"rank {part.rank}: {part.note}" for part in parts if part.note and part.note != NO_RANGES]
    return Table(NAME, "CUPTI counters", columns, "; ".join(notes) if rows else NO_RANGES)


NAME = "cupti_counters"
cupti_counters = Analysis(NAME, _rank_counters, _over_ranks)
