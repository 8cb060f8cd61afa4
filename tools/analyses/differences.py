"""Two runs compared: how long they and their steps took and what that time was spent on, by name and shape, by call
path, which shows where a kernel was moved or fused, and by module.

Runs may have any number of ranks, which are read one by one and summed. Times of ops and calls are host time, of
kernels device time.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...schema.columns import ABSENT, Categorical, Int64, Interner, groupby
from .device_time import device_times
from .modules import BY_ANNOTATION, NOTHING, ModuleTree, shares, with_modules
from .ops import HOST_PHASES, device_time_of_ops, host_phases
from .rank import WHOLE_RUN, ActivityClass, AnalysisOptions, RankTrace
from .table import Columns, Quantity, Table, ints, named, ratio, tabulate, us

OP, CALL, KERNEL = "op", "call", "kernel"
STEP_NUMBER = re.compile(r"^(ProfilerStep#)\d+$")
PATH = " > "
ROOT = -1
NO_ITEMS = "neither run has an op, a call or an activity"
NO_RANKS = "neither run has a rank"
STEP, WITHOUT_PROFILER, RUN = "step", "step without a profiler", "run"
WHOLE = (STEP, WITHOUT_PROFILER, RUN)
"""The parts that are no part of another one."""
Key = TypeVar("Key", bound=Hashable)
Sums = Mapping[Key, Sequence[float]]


Item = tuple[str, str, str]
"""The kind, name and shape of ops, runtime calls or kernels; calls have no shape."""
CallTreeNode = tuple[int, str, str]
"""A node of the merged call tree: the number of the node above it, its kind and its name."""


class RunTotals:
    """The sums of one run over its ranks, times in ns: count and time by item; count, device time and host time by node
    of the call tree, and by module; and what the lengths of its ranks were spent on, `parts`.

    The numbers of the tree's nodes, `nodes`, are shared by the runs that are compared. `runs` and `steps` are the
    lengths of ranks and steps, `step_without_profiler` is 0 where no rank knows it.
    """

    def __init__(self, nodes: Interner[CallTreeNode]) -> None:
        self.nodes = nodes
        self.items = defaultdict[Item, list[float]](lambda: [0, 0])
        self.tree = defaultdict[int, list[float]](lambda: [0, 0, 0])
        self.modules = defaultdict[str, list[float]](lambda: [0.0, 0.0, 0.0])
        self.uses_annotations = False
        self.runs, self.steps, self.step_without_profiler = list[int](), list[int](), 0
        self.parts = defaultdict[str, float](float)

    def add(self, rank: RankTrace) -> None:
        """Adds a rank: its ops that have times, and all its calls and activities."""
        with_labels = with_modules(rank.linked)
        uses_annotations = with_labels is not rank.linked
        self.uses_annotations |= uses_annotations
        sums = shares(with_labels, "module", annotations=uses_annotations)
        _add(self.modules, sums.label, sums.ops + sums.activities, sums.device, np.nan_to_num(sums.host))
        self._add_lengths(rank)
        ops, calls, activities = rank.linked.ops, rank.linked.calls, rank.linked.activities
        names = Categorical(ops.name.codes, [STEP_NUMBER.sub(r"\1", name) for name in ops.name.table])
        timed, host, called, device = rank.timed_ops, ops.end - ops.start, calls.end - calls.start, rank.durations
        self._add_items(OP, names.take(timed), rank.shapes.take(timed), host[timed])
        self._add_items(CALL, calls.name, Categorical.nulls(len(calls)), called)
        self._add_items(KERNEL, activities.name, named(rank.shapes, activities.op_row), device)
        # ops without times, such as threads, are not in the paths
        is_timed, tree, node = ops.start != ABSENT, rank.tree, np.full(len(ops) + 1, ROOT, np.int64)
        for rows in tree.levels:
            node[rows] = node[tree.parent[rows]]
            timed_rows = rows[is_timed[rows]]
            node[timed_rows] = self._nodes_below(OP, node[timed_rows], names.take(timed_rows))
        self._add_nodes(node[timed], device_time_of_ops(rank).subtree[timed], host[timed])
        self._add_nodes(self._nodes_below(CALL, node[calls.op_row], calls.name), 0 * called, called)
        self._add_nodes(self._nodes_below(KERNEL, node[activities.op_row], activities.name), device, 0 * device)

    def _add_items(self, kind: str, name: Categorical, shape: Categorical, time: Int64) -> None:
        groups = groupby(name.codes, shape.codes)
        items = zip([kind] * len(groups), name[groups.first], shape[groups.first], strict=True)
        _add(self.items, items, groups.count(), groups.sum(time))

    def _nodes_below(self, kind: str, parents: Int64, name: Categorical) -> Int64:
        groups = groupby(parents, name.codes)
        keys = zip(parents[groups.first].tolist(), [kind] * len(groups), name[groups.first], strict=True)
        return ints(self.nodes[key] for key in keys)[groups.number]

    def _add_nodes(self, node: Int64, device: Int64, host: Int64) -> None:
        groups = groupby(node)
        _add(self.tree, node[groups.first].tolist(), groups.count(), groups.sum(device), groups.sum(host))

    def _add_lengths(self, rank: RankTrace) -> None:
        length = max(rank.end - rank.begin, 0)
        self.runs.append(length)
        self.step_without_profiler = max(self.step_without_profiler, rank.linked.info.step_without_profiler_ns)
        if rank.steps.name != [WHOLE_RUN]:
            self.steps += (rank.steps.end - rank.steps.start).tolist()
        times = device_times(rank)
        busy_ns, compute_ns = times.of() - times.by_set[:, 0], times.of(ActivityClass.COMPUTATION)
        for busy, compute in zip(busy_ns.tolist(), compute_ns.tolist(), strict=True):
            self.parts["device: computing"] += compute
            self.parts["device: communication and copies"] += busy - compute
            self.parts["device: idle"] += length - busy
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


def _add(sums: defaultdict[Key, list[float]], keys: Iterable[Key], *columns: npt.NDArray[Any]) -> None:
    for key, *values in zip(keys, *(column.tolist() for column in columns), strict=True):
        sums[key] = [total + value for total, value in zip(sums[key], values, strict=True)]


def _side_by_side(keys: Sequence[Key], a: Sums[Key], b: Sums[Key], columns: int) -> list[npt.NDArray[Any]]:
    """Returns each column of the sums of both runs, as rows of (a, b)."""
    nothing = (0,) * columns
    sums = np.array([[run.get(key, nothing) for run in (a, b)] for key in keys]).reshape(-1, 2, columns)
    return [*np.moveaxis(sums, 2, 0)]


def trace_diff(before: Iterable[RankTrace], after: Iterable[RankTrace]) -> Table:
    """Compares ops, runtime calls and kernels of two runs (a: `before`, b: `after`), the largest difference first.

    The detail `trace_diff_runs` compares the runs and their steps as a whole, `trace_diff_tree` has a row for each call
    path of either run, depth first, `trace_diff_modules` a row for each module.
    """
    nodes = Interner[CallTreeNode]()
    a, b = RunTotals(nodes), RunTotals(nodes)
    for run, ranks in ((a, before), (b, after)):
        for rank in ranks:
            run.add(rank)
    items = sorted(a.items.keys() | b.items.keys())
    counts, times = _side_by_side(items, a.items, b.items, 2)
    order = np.argsort(-np.abs(times[:, 1] - times[:, 0]), kind="stable")
    kind, name, shape = zip(*(items[row] for row in order.tolist()), strict=True) if items else ((),) * 3
    columns: Columns = {
        "kind": [*kind],
        "name": [*name],
        "shape": [*shape],
        **_compared(counts[order], times[order], time=times[order]),
    }
    details = _tree(nodes, a, b), _modules(a, b), _runs(a, b)
    return tabulate("trace_diff", "Trace diff", columns, "", *details, empty=NO_ITEMS)


def _compared(
    counts: npt.NDArray[Any], compared: npt.NDArray[Any], is_changed: bool = True, **times: npt.NDArray[Any]
) -> Columns:
    """Returns the columns of both runs: counts, times (ns), and the difference of what is compared.

    With `is_changed` a column says what is only in one run, and of the rest whether it became slower or faster.
    """
    difference = compared[:, 1] - compared[:, 0]
    is_so = [counts[:, 0] == 0, counts[:, 1] == 0, difference > 0, difference < 0]
    category: list[str] = np.select(is_so, ["added", "removed", "slower", "faster"], "same").tolist()
    return {
        **({"category": category} if is_changed else {}),
        "difference": us(difference),
        **{f"count_{run}": column.astype(np.int64) for run, column in zip("ab", counts.T, strict=True)},
        **{f"{name}_{run}": us(column) for name, of in times.items() for run, column in zip("ab", of.T, strict=True)},
    }


def _tree(nodes: Interner[CallTreeNode], a: RunTotals, b: RunTotals) -> Table:
    """Returns a row for each node of the call tree, depth first."""
    children, keys, rows = defaultdict[int, list[int]](list), list(nodes), list[tuple[int, int, str]]()
    for node, (above, _, _) in enumerate(keys):
        children[above].append(node)
    pending = [(0, node, keys[node][2]) for node in reversed(children[ROOT])]
    while pending:
        rows.append(pending.pop())
        depth, node, path = rows[-1]
        pending += [(depth + 1, child, f"{path}{PATH}{keys[child][2]}") for child in reversed(children[node])]
    counts, device, host = _side_by_side([node for _, node, _ in rows], a.tree, b.tree, 3)
    columns: Columns = {
        "depth": ints(depth for depth, _, _ in rows),
        "kind": [keys[node][1] for _, node, _ in rows],
        "name": [keys[node][2] for _, node, _ in rows],
        **_compared(counts, device, device_time=device, host_time=host),
        "path": [path for _, _, path in rows],
    }
    title = "Trace diff by call path (difference of device time)"
    return tabulate("trace_diff_tree", title, columns, empty=NO_ITEMS)


def _modules(a: RunTotals, b: RunTotals) -> Table:
    """Returns a row for each module of either run, including the modules in it, depth first.

    The difference is of device time, or of host time if nothing ran on a device.
    """
    paths = list(dict.fromkeys([*a.modules, *b.modules]))
    tree = ModuleTree.from_paths(paths if any(paths) else [])
    self_sums = _side_by_side(tree.path, a.modules, b.modules, 3)
    counts, device, host = (np.stack([tree.subtree(run) for run in column.T], axis=1) for column in self_sums)
    times, kind = (device, "device") if device.any() else (host, "host")
    columns: Columns = {
        **tree.columns,
        **_compared(counts, times, is_changed=False, device_time=device, host_time=host),
        "path": tree.path,
    }
    note = str(BY_ANNOTATION) if a.uses_annotations or b.uses_annotations else ""
    title = f"Trace diff by module (difference of {kind} time)"
    return tabulate("trace_diff_modules", title, columns, note, empty=NOTHING)


def _runs(a: RunTotals, b: RunTotals) -> Table:
    """Returns a row for the step and for the run, then for their parts, the largest difference first."""
    per_step = bool(a.steps and b.steps)
    before, after = (defaultdict(float, run.times(per_step)) for run in (a, b))
    is_known = {STEP: per_step, WITHOUT_PROFILER: before.keys() & after.keys() >= {WITHOUT_PROFILER}}
    names = [name for name in dict.fromkeys([*before, *after]) if is_known.get(name, True)]
    whole = [name for name in WHOLE if name in names]
    parts = [name for name in names if name not in whole and (before[name] or after[name])]
    names = [*whole, *sorted(parts, key=lambda name: -abs(after[name] - before[name]))]
    names = names if a.runs or b.runs else []
    times = np.array([[before[name], after[name]] for name in names], np.float64).reshape(-1, 2)
    columns: Columns = {
        "part": names,
        "a": us(times[:, 0]),
        "b": us(times[:, 1]),
        "difference": us(times[:, 1] - times[:, 0]),
        "change": Quantity("%", 100 * ratio(times[:, 1] - times[:, 0], times[:, 0])),
    }
    several, step = max(len(a.runs), len(b.runs)) > 1, "step: the median{}; " if per_step else ""
    of_ranks, slowest = (" of all ranks", "run: the slowest rank; ") if several else ("", "")
    parts_of = f"parts: the mean of a {STEP}{of_ranks}" if per_step else "parts: the mean of a rank"
    note = f"{step.format(of_ranks)}{slowest}{parts_of}"
    return tabulate("trace_diff_runs", "Run A and run B", columns, note, empty=NO_RANKS)
