"""How long two runs and their steps took, and what each rank spent that time on: first what is faster, then why."""

from collections import defaultdict

import numpy as np

from .first_start import first_start_ns, last_end_ns
from .host_phases import host_phases
from .rank_trace import AnalysisOptions, RankTrace
from .steps import WHOLE_RUN, steps_of
from .table import Column, Table, microseconds
from .temporal_breakdown import device_times

NAME = "trace_diff_runs"
STEP, WITHOUT_PROFILER, RUN = "step", "step without a profiler", "run"
WHOLE = (STEP, WITHOUT_PROFILER, RUN)
"""The parts that are no part of another one."""
HOST_PHASES = ("forward", "backward", "optimizer", "data_loading", "waiting", "between_ops")


class RunLengths:
    """Of one run: the lengths of its ranks and steps, and the sums over ranks of what these were spent on (ns); and how
    long a step takes without a profiler, 0 where no rank knows.
    """

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.steps: list[int] = []
        self.step_without_profiler = 0
        self.parts: dict[str, float] = defaultdict(float)

    def add(self, rank: RankTrace) -> None:
        """Adds a rank."""
        linked = rank.linked
        length = max(last_end_ns(linked) - first_start_ns(linked), 0)
        self.runs.append(length)
        self.step_without_profiler = max(self.step_without_profiler, linked.info.step_without_profiler_ns)
        steps = steps_of(linked)
        if steps.name != [WHOLE_RUN]:
            self.steps += (steps.end - steps.start).tolist()
        for device in device_times(rank):
            self.parts["device: computing"] += device.compute
            self.parts["device: communication and copies"] += device.busy - device.compute
            self.parts["device: idle"] += length - device.busy
        _, phases = host_phases.of_rank(rank, AnalysisOptions())
        for name in HOST_PHASES:
            self.parts[f"host: {name.replace('_', ' ')}"] += 1000 * float(np.sum(phases[name]))

    def times(self, per_step: bool) -> dict[str, float]:
        """Returns the times of the longest rank and the median step, then the parts: of a rank, or of a step of it."""
        whole = {STEP: float(np.median(self.steps))} if self.steps else {}
        whole |= {WITHOUT_PROFILER: float(self.step_without_profiler)} if self.step_without_profiler else {}
        whole |= {RUN: float(max(self.runs, default=0))}
        count = len(self.steps) if per_step else len(self.runs)
        return whole | {name: time / max(count, 1) for name, time in self.parts.items()}


def run_difference(a: RunLengths, b: RunLengths) -> Table:
    """Returns a row for the step and for the run, then for their parts, the largest difference first."""
    per_step = bool(a.steps and b.steps)
    before, after = (run.times(per_step) for run in (a, b))
    is_known = {STEP: per_step, WITHOUT_PROFILER: before.keys() & after.keys() >= {WITHOUT_PROFILER}}
    names = [name for name in dict.fromkeys([*before, *after]) if is_known.get(name, True)]
    whole = [name for name in WHOLE if name in names]
    parts = [name for name in names if name not in whole and (before.get(name) or after.get(name))]
    names = [*whole, *sorted(parts, key=lambda name: -abs(after.get(name, 0.0) - before.get(name, 0.0)))]
    times = np.array([[run.get(name, 0.0) for run in (before, after)] for name in names], np.float64).reshape(-1, 2)
    if not a.runs and not b.runs:
        names, times = [], times[:0]
    change = np.divide(times[:, 1] - times[:, 0], times[:, 0], out=np.full(len(names), np.nan), where=times[:, 0] > 0)
    columns = [
        Column("part", "", names),
        microseconds("a", times[:, 0]),
        microseconds("b", times[:, 1]),
        microseconds("difference", times[:, 1] - times[:, 0]),
        Column("change", "%", 100 * change),
    ]
    return Table(NAME, "Run A and run B", columns, _note(max(len(a.runs), len(b.runs)), per_step))


def _note(ranks: int, per_step: bool) -> str:
    """Returns what each row is the figure of."""
    if not ranks:
        return "neither run has a rank"
    slowest, of_ranks = ("run: the slowest rank; ", " of all ranks") if ranks > 1 else ("", "")
    step = f"step: the median{of_ranks}; " if per_step else ""
    return f"{step}{slowest}parts: the mean of a {STEP if per_step else 'rank'}{of_ranks if per_step else ''}"
