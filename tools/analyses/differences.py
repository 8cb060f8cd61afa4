"""Two runs compared: how long they and their steps took, and for what, by name and shape, call path and module.

Ranks of a run are summed. Times of ops and calls are host time, of kernels device time. Runs of different numbers of
steps are compared by what a step has.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...schema.columns import ABSENT, Categorical, Int64, Interner, groupby
from ..replay import noise_of
from .device_time import device_times
from .modules import BY_ANNOTATION, NOTHING, module_tree, names_of_modules, shares, with_modules
from .ops import HOST_PHASES, device_time_of_ops, host_phases
from .rank import WHOLE_RUN, ActivityClass, AnalysisOptions, RankTrace
from .table import Columns, Quantity, Table, ints, named, ratio, tabulate, us

OP, CALL, KERNEL = "op", "call", "kernel"
STEP_NUMBER = re.compile(r"^(ProfilerStep#)\d+$")
PATH = " > "
ROOT = -1
NO_ITEMS = "neither run has an op, a call or an activity"
NO_RANKS = "neither run has a rank"
STEP, WITHOUT_PROFILER, RUN = "step", "unprofiled step", "run"
DATA_WITHOUT_PROFILER = "unprofiled wait for data"
WHOLE = (STEP, WITHOUT_PROFILER, RUN)
"""The parts that are no part of another one."""
OF_HOST, DEVICE_IDLE = "host: ", "device: idle"
SYMPTOMS = (DEVICE_IDLE, f"{OF_HOST}waiting")
"""The parts that follow from what other parts take."""
Key = TypeVar("Key", bound=Hashable)
Sums = Mapping[Key, Sequence[float]]
CallTreeNode = tuple[int, str, str]
"""A node of the merged call tree: the number of the node above it, its kind and its name."""


class RunTotals:
    """The sums of one run over its ranks: `work` by node of the call tree and shape, `modules` by path, times in ns.

    The runs that are compared share the numbers of `nodes`. `step_without_profiler` is 0 where no rank knows it, and
    `noise` by how many % such steps differ; `data_without_profiler` is how long they wait for data, -1 if unknown.
    """

    def __init__(self, nodes: Interner[CallTreeNode], ranks: Iterable[RankTrace]) -> None:
        self.nodes = nodes
        self.work = defaultdict[tuple[int, str], list[float]](lambda: [0, 0, 0])
        self.modules = defaultdict[str, list[float]](lambda: [0, 0, 0])
        self.uses_annotations = False
        self.runs, self.steps, self.step_without_profiler = list[int](), list[int](), 0
        self.noise, self.data_without_profiler = 0.0, -1
        self.parts = defaultdict[str, float](float)
        for rank in ranks:
            with_labels = with_modules(rank.linked)
            uses_annotations = with_labels is not rank.linked
            self.uses_annotations |= uses_annotations
            sums = shares(with_labels, "module", annotations=uses_annotations)
            device, host = np.nan_to_num(sums.device), np.nan_to_num(sums.host)
            _add(self.modules, sums.label, sums.ops + sums.activities, device, host)
            self._add_lengths(rank)
            self._add_work(rank)

    def _add_lengths(self, rank: RankTrace) -> None:
        length = max(rank.end - rank.begin, 0)
        self.runs.append(length)
        info, has_devices = rank.linked.info, len(rank.linked.activities) > 0
        self.step_without_profiler = max(self.step_without_profiler, info.step_without_profiler_ns)
        self.data_without_profiler = max(self.data_without_profiler, info.data_wait_without_profiler_ns)
        if info.step_without_profiler_ns > 0:
            noise = noise_of(info.step_without_profiler_ns, info.measured or {}, is_of_devices=has_devices)
            self.noise = max(self.noise, noise)
        if rank.steps.name != [WHOLE_RUN]:
            self.steps += (rank.steps.end - rank.steps.start).tolist()
        times = device_times(rank)
        busy_ns, compute_ns = times.of() - times.by_set[:, 0], times.of(ActivityClass.COMPUTATION)
        for busy, compute in zip(busy_ns.tolist(), compute_ns.tolist(), strict=True):
            self.parts["device: computing"] += compute
            self.parts["device: communication and copies"] += busy - compute
            self.parts[DEVICE_IDLE] += length - busy
        _, phases = host_phases.of_rank(rank, AnalysisOptions())
        for name in HOST_PHASES:
            self.parts[f"{OF_HOST}{name.replace('_', ' ')}"] += 1000 * float(np.sum(phases[name]))

    def _add_work(self, rank: RankTrace) -> None:
        """Adds the ops that have times, and all calls and activities; the others, such as threads, are in no path."""
        ops, calls, activities, timed = rank.linked.ops, rank.linked.calls, rank.linked.activities, rank.timed_ops
        names = Categorical(ops.name.codes, [STEP_NUMBER.sub(r"\1", name) for name in ops.name.table])
        is_timed, node = ops.start != ABSENT, np.full(len(ops) + 1, ROOT, np.int64)
        for rows in rank.tree.levels:
            node[rows] = node[rank.tree.parent[rows]]
            row = rows[is_timed[rows]]
            node[row] = self._nodes_below(OP, node[row], names.take(row))
        of_ops = device_time_of_ops(rank)[1][timed]
        self._add_nodes(node[timed], rank.shapes.take(timed), of_ops, (ops.end - ops.start)[timed])
        called, device = calls.end - calls.start, rank.durations
        of_calls = self._nodes_below(CALL, node[calls.op_row], calls.name)
        self._add_nodes(of_calls, Categorical.nulls(len(calls)), 0 * called, called)
        of_activities = self._nodes_below(KERNEL, node[activities.op_row], activities.name)
        self._add_nodes(of_activities, named(rank.shapes, activities.op_row), device, 0 * device)

    def _nodes_below(self, kind: str, parents: Int64, name: Categorical) -> Int64:
        groups = groupby(parents, name.codes)
        keys = zip(parents[groups.first].tolist(), [kind] * len(groups), name[groups.first], strict=True)
        return ints(self.nodes[key] for key in keys)[groups.number]

    def _add_nodes(self, node: Int64, shape: Categorical, device: Int64, host: Int64) -> None:
        groups = groupby(node, shape.codes)
        keys = zip(node[groups.first].tolist(), shape[groups.first], strict=True)
        _add(self.work, keys, groups.count(), groups.sum(device), groups.sum(host))

    def work_by(self, key_of: Callable[[int, str], Key]) -> Sums[Key]:
        """Returns the sums of the work by a key that follows from the node and the shape."""
        sums = defaultdict[Key, list[float]](lambda: [0, 0, 0])
        _add(sums, (key_of(*key) for key in self.work), *np.array([*self.work.values()], object).reshape(-1, 3).T)
        return sums

    def times(self, per_step: bool) -> dict[str, float]:
        """Returns the times of the longest rank and the median step, then the parts: of a rank, or of a step of it."""
        whole = {STEP: float(np.median(self.steps))} if self.steps else {}
        whole |= {WITHOUT_PROFILER: float(self.step_without_profiler)} if self.step_without_profiler else {}
        whole |= {RUN: float(max(self.runs, default=0))}
        if self.step_without_profiler and self.data_without_profiler >= 0:
            whole |= {DATA_WITHOUT_PROFILER: float(self.data_without_profiler)}
        count = len(self.steps) if per_step else len(self.runs)
        return whole | {name: time / max(count, 1) for name, time in self.parts.items()}


def _add(sums: defaultdict[Key, list[float]], keys: Iterable[Key], *columns: npt.NDArray[Any]) -> None:
    for key, *values in zip(keys, *(column.tolist() for column in columns), strict=True):
        sums[key] = [total + value for total, value in zip(sums[key], values, strict=True)]


def _side_by_side(
    keys: Sequence[Key], a: Sums[Key], b: Sums[Key], steps: Sequence[float] = ()
) -> list[npt.NDArray[Any]]:
    """Returns counts, device times and host times as rows of (a, b), of a step where runs have so many `steps`."""
    sums = np.array([[run.get(key, (0, 0, 0)) for run in (a, b)] for key in keys]).reshape(-1, 2, 3)
    return [*np.moveaxis(np.round(sums / np.reshape(steps, (2, 1)), 3) if steps else sums, 2, 0)]


def _steps_of_both(a: RunTotals, b: RunTotals) -> list[float]:
    """Returns how many steps a rank of each run has; none where these are equal, or not known."""
    steps = [len(run.steps) / max(len(run.runs), 1) for run in (a, b)]
    return steps if min(steps) > 0 and steps[0] != steps[1] else []


def trace_diff(before: Iterable[RankTrace], after: Iterable[RankTrace]) -> Table:
    """Compares ops, runtime calls and kernels of two runs (a: `before`, b: `after`), the largest difference first."""
    nodes = Interner[CallTreeNode]()
    a, b = RunTotals(nodes, before), RunTotals(nodes, after)
    keys = [*nodes]
    # by kind, name and shape; calls have no shape
    of_a, of_b = (run.work_by(lambda node, shape: (*keys[node][1:], shape)) for run in (a, b))
    items = sorted(of_a.keys() | of_b.keys())
    steps = _steps_of_both(a, b)
    counts, device, host = _side_by_side(items, of_a, of_b, steps)
    is_kernel = np.array([kind == KERNEL for kind, *_ in items], np.bool_)
    times = np.where(is_kernel[:, None], device, host)
    order = np.argsort(-np.abs(times[:, 1] - times[:, 0]), kind="stable")
    kind, name, shape = zip(*(items[row] for row in order.tolist()), strict=True) if items else ((),) * 3
    columns: Columns = {
        "kind": [*kind], "name": [*name], "shape": [*shape],
        **_compared(counts[order], times[order], time=times[order]),
    }  # fmt: skip
    details = _tree(keys, a, b), _modules(a, b), _runs(a, b)
    note = ""
    if steps:
        note = f"of a step: run A has {steps[0]:g} steps, run B {steps[1]:g}"
    elif bool(a.steps) != bool(b.steps):
        note = f"of whole runs, as the steps of run {'A' if b.steps else 'B'} are not known"
    several = "sums over all ranks" if max(len(a.runs), len(b.runs)) > 1 else ""
    note = "; ".join(filter(None, (note, several)))
    return tabulate("trace_diff", "Trace diff", columns, note, *details, empty=NO_ITEMS)


def _compared(
    counts: npt.NDArray[Any], compared: npt.NDArray[Any], is_changed: bool = True, **times: npt.NDArray[Any]
) -> Columns:
    """Returns counts, times (ns), and the difference of what is compared; with `is_changed` also the kind of change."""
    difference = compared[:, 1] - compared[:, 0]
    by_count = np.diff(counts)[:, 0] * compared[:, 0] / np.maximum(counts[:, 0], 1e-9)
    is_count = 2 * by_count * np.sign(difference) > np.abs(difference)
    is_so = [
        counts[:, 0] == 0, counts[:, 1] == 0, is_count & (difference > 0), is_count, difference > 0, difference < 0,
    ]  # fmt: skip
    # a step has no whole number of what only some steps have
    whole = counts.astype(np.int64)
    numbers = whole.T if (whole == counts).all() else [Quantity("", np.round(column, 2)) for column in counts.T]
    categories = ["added", "removed", "more", "fewer", "slower", "faster"]
    category: list[str] = np.select(is_so, categories, "same").tolist()
    return {
        **({"category": category} if is_changed else {}),
        "difference": us(difference),
        **{f"count_{run}": column for run, column in zip("ab", numbers, strict=True)},
        **{f"{name}_{run}": us(column) for name, of in times.items() for run, column in zip("ab", of.T, strict=True)},
    }


def _tree(keys: Sequence[CallTreeNode], a: RunTotals, b: RunTotals) -> Table:
    """Returns a row for each node of the call tree, depth first."""
    paths = list[tuple[int, ...]]()
    for node, (above, _, _) in enumerate(keys):
        paths.append((*(paths[above] if above != ROOT else ()), node))
    paths.sort()
    of_a, of_b = (run.work_by(lambda node, _: node) for run in (a, b))
    counts, device, host = _side_by_side([path[-1] for path in paths], of_a, of_b, _steps_of_both(a, b))
    columns: Columns = {
        "depth": ints(len(path) - 1 for path in paths), "kind": [keys[path[-1]][1] for path in paths],
        "name": [keys[path[-1]][2] for path in paths], **_compared(counts, device, device_time=device, host_time=host),
        "path": [PATH.join(keys[node][2] for node in path) for path in paths],
    }  # fmt: skip
    title = "Trace diff by call path (difference of device time)"
    return tabulate("trace_diff_tree", title, columns, empty=NO_ITEMS)


def _modules(a: RunTotals, b: RunTotals) -> Table:
    """Returns a row for each module of either run, depth first; of host time if nothing ran on a device."""
    paths = list(dict.fromkeys([*a.modules, *b.modules]))
    paths, tree = module_tree(paths if any(paths) else [])
    self_sums = _side_by_side(paths, a.modules, b.modules, _steps_of_both(a, b))
    counts, device, host = (np.stack([tree.subtrees(np.add, run) for run in column.T], axis=1) for column in self_sums)
    times, kind = (device, "device") if device.any() else (host, "host")
    compared = _compared(counts, times, is_changed=False, device_time=device, host_time=host)
    columns: Columns = {**names_of_modules(paths), **compared, "path": paths}
    note = str(BY_ANNOTATION) if a.uses_annotations or b.uses_annotations else ""
    title = f"Trace diff by module (difference of {kind} time)"
    return tabulate("trace_diff_modules", title, columns, note, empty=NOTHING)


def _runs(a: RunTotals, b: RunTotals) -> Table:
    """Returns a row for the step, the run, and their parts; runs of different numbers of steps have no change."""
    per_step = bool(a.steps and b.steps)
    before, after = (defaultdict(float, run.times(per_step)) for run in (a, b))
    both = before.keys() & after.keys()
    # a graph of a run on CPUs has no times of activities
    has_times = max(a.runs, default=0) > 0 and max(b.runs, default=0) > 0
    is_known = {STEP: per_step, WITHOUT_PROFILER: WITHOUT_PROFILER in both, RUN: has_times,
                DATA_WITHOUT_PROFILER: DATA_WITHOUT_PROFILER in both}  # fmt: skip
    names = [name for name in dict.fromkeys([*before, *after]) if is_known.get(name, True)]
    whole = [name for name in WHOLE if name in names]
    parts = [name for name in names if name not in whole and (before[name] or after[name])]
    names = [*whole, *sorted(parts, key=lambda name: -abs(after[name] - before[name]))]
    times = np.array([[before[name], after[name]] for name in names], np.float64).reshape(-1, 2)
    is_compared = np.array([name != RUN or not _steps_of_both(a, b) for name in names], np.bool_)
    is_noisy = np.array([name == WITHOUT_PROFILER and min(a.noise, b.noise) > 0 for name in names], np.bool_)
    columns: Columns = {
        "part": names, "a": us(times[:, 0]), "b": us(times[:, 1]), "difference": us(times[:, 1] - times[:, 0]),
        "change": Quantity("%", 100 * ratio(np.diff(times)[:, 0], times[:, 0], is_compared & (times[:, 0] > 0))),
        "noise": Quantity("%", np.where(is_noisy, a.noise + b.noise, np.nan)),
    }  # fmt: skip
    several, step = max(len(a.runs), len(b.runs)) > 1, "step: the median{}; " if per_step else ""
    of_ranks, slowest = (" of all ranks", "run: the slowest rank; ") if several else ("", "")
    parts_of = f"parts: the mean of a {STEP}{of_ranks}" if per_step else "parts: the mean of a rank"
    note = f"{step.format(of_ranks)}{slowest}{parts_of}"
    return tabulate("trace_diff_runs", "Run A and run B", columns, note, empty=NO_RANKS)
