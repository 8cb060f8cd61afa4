"""Changes of a what-if replay: factors or times for the durations of nodes, by name, class, module, phase and so on.

By the roofline model (Williams, Waterman and Patterson, 2009) a kernel with more operations per byte than its device's
peaks is bound by compute, else by memory. Measured time does not count: other things limit a kernel far below its roof.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...linker.modules import SEPARATOR
from ...schema import columns
from ...schema.arguments import given, non_negative, wrong_argument
from ...schema.columns import ABSENT, Bool, Categorical, Floats, Int64, Intervals, Ns, Rows, group_sums, time_text
from ...schema.device_peaks import Peak, peak_of
from ...schema.errors import Remedy, RequestError, Spelled, nearest
from ...schema.graph import DEVICE_NAME, STEP_START, Delay, DependencyKind, ExecutionGraph
from ...schema.linked import FOREVER, LONGEST_RECORDING
from ...schema.machine import LONGEST
from ..terminal import list_names
from .calls import Phase, calls_of, phases_of, within
from .workload import Classes, NodeClass, Workload, cut_off_ns, node_classes, slot_pools_by_device

UNKNOWN_DEVICE = Peak(*[0.0] * len(Peak._fields))
TF32 = re.compile(r"tf32|xf32|_s1688|_s161616|tensorop_s\d", re.IGNORECASE)
"""How cuBLAS, CUTLASS, cuDNN and hipBLASLt name kernels that compute with fp32 operands on the matrix engines."""
Factors = npt.NDArray[np.float64]
RANKS_NAMED, NAMES_SHOWN, NAME_SHOWN = 8, 3, 40
SCALABLE = {
    kind.label: kind
    for kind in (NodeClass.HOST, NodeClass.COMPUTATION, NodeClass.COMMUNICATION, NodeClass.MEMORY, NodeClass.DELAY)
}


class Bound(Enum):
    """What limits a kernel."""

    COMPUTE = "compute"
    MEMORY = "memory"


class Named(NamedTuple):
    """Work whose module, or an op, annotation or call around which, matches: `by` says which."""

    by: str
    pattern: "re.Pattern[str]"


Target = NodeClass | Bound | Phase | Named | re.Pattern[str]
MODULE, UNDER = "module:", "under:"
TARGETS: Mapping[str, tuple[Mapping[str, NodeClass | Bound | Phase], str]] = {
    "bound:": ({bound.value: bound for bound in Bound}, "nothing is bound by {}, only by {}"),
    "class:": (SCALABLE, "there is no class {}, only {}"),
    "phase:": ({phase.value: phase for phase in Phase}, "there is no phase {}, only {}"),
}
"""By the start of a selector what may follow it, and how anything else is refused."""
RANK = "rank:"
OF_RANK = re.compile(RANK + r"(\d+)/(.+)", re.DOTALL)
BEYOND_CLOCKS = "{} would take longer than any clock shows: give a smaller factor or time"
BEGIN = re.compile(r"\w+:(?!:)")
TIME = re.compile(r"(.+?)(ns|[uµ]s|ms|s)")
NS = {"n": 1, "u": 1e3, "µ": 1e3, "m": 1e6, "s": 1e9}
"""The unit of a time by its first letter."""


class Kernels(NamedTuple):
    """The work of kernels: `element` is the size of an element in bytes, `time` is in ns; ABSENT if unknown."""

    name: Categorical
    device: Int64
    operations: Int64
    bytes: Int64
    element: Int64
    time: Int64


def kernels_of(graph: ExecutionGraph, rows: Rows) -> Kernels:
    """Returns the work of these nodes as the graph has it."""
    attributes = "device", "num_ops", "tensor_size", "element_size"
    numbers = *(graph.integers(name)[rows] for name in attributes), graph.duration_ns[rows]
    return Kernels(graph.name.take(rows), *numbers)


class Roofline(NamedTuple):
    """Of each kernel its device's peak FLOP/s, in its format and tf32, and bytes/s, and the least time (s) it takes.

    `compute` is for its operations, `memory` for its bytes; NaN if work or peak is unknown.
    """

    peak_speed: Floats
    tf32_speed: Floats
    peak_bandwidth: Floats
    compute: Floats
    memory: Floats

    def bound_by(self, bound: Bound) -> Bool:
        """Returns which kernels this resource limits, where both times are known and one is above 0."""
        takes_time = (self.compute > 0) | (self.memory > 0)
        chosen = self.compute > self.memory if bound is Bound.COMPUTE else self.compute <= self.memory
        return np.asarray(takes_time & chosen)


def roofline(kernels: Kernels, peaks: Mapping[int, Peak]) -> Roofline:
    """Returns what the peaks of their devices allow the kernels. O(n log n).

    Where a kernel with fp32 operands is faster than the ordinary units can be, it ran on the matrix engines. No
    operations take no time, even in a format that the device does not have.
    """
    speed, tf32_speed, bandwidth = np.full((3, len(kernels.device)), np.nan)
    tf32 = kernels.name.where(lambda name: TF32.search(name) is not None)
    for number, rows in columns.rows_of_each(kernels.device).items():
        if (peak := peaks.get(number)) is None:
            continue
        rate = peak.tflops(kernels.element[rows])
        if peak.tf32:
            faster = kernels.operations[rows] > 1e3 * rate * np.maximum(kernels.time[rows], 0)
            on_engines = tf32[rows] | (faster & (kernels.time[rows] > 0))
            rate = np.where(on_engines & (kernels.element[rows] == 4), peak.tf32, rate)
        speed[rows], tf32_speed[rows], bandwidth[rows] = rate * 1e12, peak.tf32 * 1e12, peak.memory * 1e9
    speed, tf32_speed, bandwidth = (np.where(peak > 0, peak, np.nan) for peak in (speed, tf32_speed, bandwidth))
    operations, moved = (np.where(amount != ABSENT, amount, np.nan) for amount in (kernels.operations, kernels.bytes))
    compute, memory = np.where(operations == 0, 0.0, operations / speed), np.where(moved == 0, 0.0, moved / bandwidth)
    return Roofline(speed, tf32_speed, bandwidth, compute, memory)


def device_peaks(names: Mapping[int, str], overrides: Mapping[str, float] | None = None) -> dict[int, Peak]:
    """Returns the peak of each device by number, as far as its name tells, with `overrides` of fields of Peak."""
    recorded = {device: peak_of(name) or UNKNOWN_DEVICE for device, name in names.items()}
    peaks = {device: peak._replace(**(overrides or {})) for device, peak in recorded.items()}
    return {device: peak for device, peak in peaks.items() if peak != UNKNOWN_DEVICE}


def recorded_peaks(graph: ExecutionGraph, overrides: Mapping[str, float] | None = None) -> dict[int, Peak]:
    """Returns the peaks of the devices that ran activities of the graph, as `device_peaks` does."""
    numbers = np.unique(graph.integers("device")[graph.is_activity]).tolist()
    names = {number: str(graph.metadata.get(f"{DEVICE_NAME}{number}", "")) for number in numbers}
    return device_peaks(names, overrides)


@dataclass(frozen=True, slots=True)
class Scale:
    """Multiplies the durations of nodes: of a class, of kernels that a resource limits, of a phase, by module, by what
    they are within, or by name. `rank` says of which rank alone.

    Instead of a factor, `each_ns` is how long each occurrence takes: in how much time some of its work runs.
    `peaks` override fields of Peak, for all devices, where a resource is the target. `spec` is what messages call it.

    >>> import execgraph as eg, re
    >>> graph = eg.link("tests/data/training", rank=0).to_graph()
    >>> graph.what_if([eg.Scale("gemm=0.5", re.compile("gemm"), 0.5)]).saved_us > 0
    True

    Raises:
        TypeError: `target` is no compiled regular expression, or `factor` is no number.
        ValueError: The factor is below 0 or too large, or a time is given for a class or what a resource limits.
    """

    spec: str
    target: Target
    factor: float
    peaks: Mapping[str, float] = field(default_factory=dict)
    rank: int | None = None
    each_ns: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.target, NodeClass | Bound | Phase | Named | re.Pattern):
            raise wrong_argument("Scale(target=…)", 'a compiled regular expression, as re.compile("gemm")', self.target)
        if max(non_negative(self.factor, "Scale(factor=…)"), self.each_ns or 0) > FOREVER:
            raise ValueError(BEYOND_CLOCKS.format(repr(self.spec)))
        if self.each_ns is not None:
            non_negative(self.each_ns, "Scale(each_ns=…)")
            if isinstance(self.target, NodeClass | Bound):
                raise ValueError(f"{self.spec!r}: give a factor here; times are for names, under:, module: and phase:")

    def matches(self, graph: ExecutionGraph, classes: Classes) -> Bool:
        """Returns which nodes of the graph are scaled."""
        target = self.target
        if self.rank not in (None, graph.number("rank", -1)):
            return np.zeros(len(graph), np.bool_)
        if isinstance(target, NodeClass):
            return np.asarray(classes == target)
        if isinstance(target, re.Pattern):
            return graph.name.where(lambda name: target.search(name) is not None)
        if isinstance(target, Phase):
            return np.asarray(phases_of(graph) == [*Phase].index(target))
        if isinstance(target, Named):
            module = graph.texts("module").where(lambda path: target.pattern.search(path) is not None)
            return module if target.by == MODULE else within(graph, target.pattern) >= 0
        roof = roofline(kernels_of(graph, np.arange(len(graph))), recorded_peaks(graph, self.peaks))
        return np.asarray(roof.bound_by(target) & (classes == NodeClass.COMPUTATION))

    def factors(self, graph: ExecutionGraph, chosen: Bool, duration_ns: Ns) -> Floats:
        """Returns the factor of each node: that of the change for those chosen, else 1."""
        if self.each_ns is None:
            return np.where(chosen, self.factor, 1.0)
        rows = np.flatnonzero(chosen)
        each = columns.group_ids(self._occurrences(graph)[rows])
        end = graph.host_clock_start_ns[rows] + duration_ns[rows]
        start = graph.host_clock_start_ns[rows] - _within_gaps(graph)[rows]
        order = np.lexsort((start, each))
        spans = Intervals(start[order], end[order])
        until = np.maximum(columns.busy_until(each[order], spans), spans.start)
        busy = group_sums(each[order], np.maximum(spans.end - until, 0), int(each.max(initial=-1)) + 1)
        if self.each_ns and (none := int((busy == 0).sum())):
            raise RequestError(f"scale {self.spec}: {none:,} of {len(busy):,} took no time, and cannot be given one")
        factor = np.ones(len(graph))
        factor[rows] = (self.each_ns / np.maximum(busy, 1))[each]
        return factor

    def _occurrences(self, graph: ExecutionGraph) -> Int64:
        """Returns a number for each node, the same for those of one occurrence."""
        if isinstance(self.target, Named) and self.target.by == UNDER:
            return within(graph, self.target.pattern)
        calls, rows = calls_of(graph), np.arange(len(graph))
        if not isinstance(self.target, Named | Phase):
            return np.where(calls.of_row >= 0, np.append(calls.first_row, -1)[calls.of_row], rows)
        begun = [int(str(time)) for name, time in graph.metadata.items() if name.startswith(STEP_START)]
        if not begun:
            raise RequestError(f"scale {self.spec}: the graph has no steps whose time could be set; give a factor")
        # what a device runs is of the step that launched it
        parent = np.append(calls.parent, -1)[calls.of_row]
        launched = graph.is_activity & (parent >= 0)
        begin = graph.host_clock_start_ns[np.where(launched, calls.first_row[parent], rows)]
        return np.searchsorted(np.sort(begun), begin, side="right").astype(np.int64)


class Matched(msgspec.Struct, frozen=True):
    """What a change applies to: how many nodes, how long they take without it (µs), and their names if several."""

    spec: str
    nodes: int
    time_us: float
    names: list[str] = []

    def of_spec(self, steps: int = 0) -> str:
        """Says after a number of nodes by what they were chosen, and how long they took in all, or in each step."""
        names = list_names([columns.shortened(name, NAME_SHOWN) for name in self.names], NAMES_SHOWN)
        time = f"{time_text(self.time_us / max(steps, 1))} of work {'a step' if steps else 'in all'}"
        of_spec = f"node{'' if self.nodes == 1 else 's'} by {self.spec} ({time})"
        return f"{of_spec}: {names}" if names else of_spec


Changes = Mapping[str, float | str] | Sequence[Scale | str]
"""What is changed: a factor, or a time such as "20ms", by what it applies to, or a list of these."""


def parse_scale(spec: str) -> Scale:
    """Reads `SELECTOR=F` or `SELECTOR=TIME`, split at the last `=`; see TARGETS for selectors. Raises ValueError.

    >>> parse_scale("class:host=0.5").factor, parse_scale("rank:1/under:load=20ms").each_ns
    (0.5, 20000000.0)
    """
    selector, separator, number = spec.rpartition("=")
    if not separator or not selector:
        selector = re.sub(r":[\d.]*$", "", spec)  # a factor behind a colon
        what = "names nothing: write gemm" if separator or not selector else f"has no factor: write {selector}"
        raise ValueError(f"{spec!r} {what}=0.5")
    time, of_rank = TIME.fullmatch(number.strip()), OF_RANK.fullmatch(selector)
    try:
        factor = float(time[1]) * NS[time[2][0]] if time else float(number)
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor >= 0):
        raise ValueError(f"{spec!r}: the factor {number!r} is not a number of 0 or more, nor a time such as 20ms")
    target = _target(of_rank[2] if of_rank else selector)
    rank = int(of_rank[1]) if of_rank else None
    return Scale(spec, target, 1.0 if time else factor, rank=rank, each_ns=factor if time else None)


def given_changes(changes: Changes, call: str) -> list[Scale]:
    """Returns the changes that a caller gives, by what they apply to or as a list; `call` is what the caller wrote.

    >>> [scale.spec for scale in given_changes({"class:host": 0.5, "under:load": "20ms"}, "replay(graph, changes)")]
    ['class:host=0.5', 'under:load=20ms']

    Raises TypeError for anything else, and ValueError for a change that cannot be made.
    """
    if isinstance(changes, Mapping):
        selectors = [given(selector, str, f"{call} for what a factor applies to", "a text") for selector in changes]
        for selector, number in zip(selectors, changes.values(), strict=True):
            if not isinstance(number, str):
                non_negative(number, f"{call} for {selector!r}")
        changes = [f"{selector}={number}" for selector, number in changes.items()]
    if not isinstance(changes, list | tuple) or not all(isinstance(change, Scale | str) for change in changes):
        raise wrong_argument(call, 'changes such as {"class:communication": 0.5}', changes)
    return [parse_scale(change) if isinstance(change, str) else change for change in changes]


def _target(selector: str) -> Target:
    for start, (targets, refusal) in TARGETS.items():
        if selector.startswith(start):
            name = selector.removeprefix(start)
            if name not in targets:
                raise ValueError(f"{selector!r}: {refusal.format(repr(name), ', '.join(targets))}")
            return targets[name]
    if selector in SCALABLE:
        way = f"write class:{selector}, or ({selector}) for the names"
        raise ValueError(f"{selector!r} may be a class or a name: {way}")
    if selector.startswith(RANK):
        raise ValueError(f"{selector!r}: write rank:N/SELECTOR once, such as rank:1/under:load")
    by = next((start for start in (MODULE, UNDER) if selector.startswith(start)), "")
    regex = selector.removeprefix(by)
    if "…" in regex:  # a name as tables cut it
        regex = ".*".join(map(re.escape, regex.split("…")))
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise ValueError(f"{selector!r} is not a regular expression: {error}") from error
    if by and not pattern.pattern:
        raise ValueError(f"{selector!r} names nothing: give a regular expression behind the colon")
    return Named(by, pattern) if by else pattern


def matched(work: Workload, *changes: Scale) -> Matched:
    """Returns what at least one of the changes of an unchanged workload applies to."""
    nodes, time_ns, by_name = 0, 0, Counter[str]()
    for graph, first in zip(work.graphs, work.first_row.tolist(), strict=True):
        classes = node_classes(graph)
        chosen = np.logical_or.reduce([change.matches(graph, classes) for change in changes])
        times_ns = work.duration_ns[first : first + len(graph)] + _within_gaps(graph)
        nodes, time_ns = nodes + int(chosen.sum()), time_ns + int(times_ns[chosen].sum())
        codes = graph.name.codes.copy()
        for target in (change.target for change in changes):  # what is under a name is chosen by that name
            if isinstance(target, Named) and target.by == UNDER:
                call = within(graph, target.pattern)
                codes[call >= 0] = graph.name.codes[calls_of(graph).first_row[call[call >= 0]]]
        chosen &= codes >= 0
        time_of = np.bincount(codes[chosen], times_ns[chosen], len(graph.name.table))
        by_name.update({graph.name.table[code]: time_of[code] for code in np.flatnonzero(time_of).tolist()})
    is_by_name = any(isinstance(change.target, re.Pattern | Named) for change in changes) and len(by_name) > 1
    names = [name for name, _ in by_name.most_common()] if is_by_name else []
    return Matched(", ".join(change.spec for change in changes), nodes, time_ns / 1000, names)


def _within_gaps(graph: ExecutionGraph) -> Ns:
    """Returns how long each call of the host goes on after what it waited for, in which hipFree does all its work."""
    return np.where(graph.is_activity, 0, np.maximum(graph.integers("gap_ns", 0), 0))


def scale_workload(work: Workload, scale: Sequence[Scale]) -> Workload:
    """Returns the measured workload with changed durations, in which waits for slots are those of the replay.

    Raises RequestError for a change that matches nothing, as it may be misspelled, and for two times of a node.
    """
    factor, delay_factor, timed_by = np.ones(len(work)), np.ones(len(work)), np.full(len(work), -1)
    rows = [slice(first, first + len(graph)) for first, graph in zip(work.first_row, work.graphs, strict=True)]
    # times come last, as they hold whatever else changes their nodes
    for number, change in sorted(enumerate(scale), key=lambda item: item[1].each_ns is not None):
        found = False
        for graph, part in zip(work.graphs, rows, strict=True):
            chosen = change.matches(graph, work.node_class[part])
            factors = change.factors(graph, chosen, work.duration_ns[part])
            if change.each_ns is not None:
                others = timed_by[part][chosen & (timed_by[part] >= 0) & (factors != factor[part])]
                if len(others):
                    other = scale[int(others[0])].spec
                    raise RequestError(f"scale {change.spec}: {other} sets another time for some of the same work")
                factor[part][chosen], timed_by[part][chosen] = 1.0, number
            factor[part] *= factors
            found |= bool(chosen.any())
            if change.target == NodeClass.HOST and change.rank in (None, graph.number("rank", -1)):
                delay_factor[part] *= change.factor
                found |= bool(work.host_delay_ns[part].any())
        if not found:
            raise RequestError(f"scale {change.spec}: {_why_nothing(change, work.graphs)}")
    return scale_nodes(work, factor, delay_factor)


def _why_nothing(change: Scale, graphs: Sequence[ExecutionGraph]) -> str:
    """Returns why a scale matches no node, and what to give instead."""
    target = change.target
    ranks = [graph.number("rank", -1) for graph in graphs]
    if change.rank is not None and change.rank not in ranks:
        known = ", ".join(str(rank) for rank in ranks[:RANKS_NAMED] if rank >= 0)
        return f"there is no rank {change.rank}: the graphs {f'are of ranks {known}' if known else 'record no rank'}"
    if isinstance(target, Bound):
        peaks = [peak for graph in graphs for peak in recorded_peaks(graph, change.peaks).values()]
        if not any(peak.memory for peak in peaks):
            return f"the peaks of the devices are not known by their names: give them with {Remedy.PEAK}"
        return f"no kernel of known work is {target.value}-bound: scale class:{NodeClass.COMPUTATION.label}"
    if isinstance(target, NodeClass | Phase):
        start = "class:" if isinstance(target, NodeClass) else "phase:"
        others = {label: replace(change, target=value) for label, value in TARGETS[start][0].items()}
        pairs = [(graph, node_classes(graph)) for graph in graphs]
        there = [label for label, of in others.items() if any(of.matches(*pair).any() for pair in pairs)]
        name = target.label if isinstance(target, NodeClass) else target.value
        on_cpu = " (no GPU was recorded; ask about an op by its name, as '^aten::mm$=0.5')"
        lacks = "" if any(graph.is_activity.any() for graph in graphs) else on_cpu
        return f"there is no {name} in these graphs{lacks}, only {', '.join(there) or 'other work'}"
    names = dict.fromkeys(graph.name.table[code] for graph in graphs for code in np.unique(graph.name.codes).tolist())
    where, is_module = "in its name", isinstance(target, Named) and target.by == MODULE
    if isinstance(target, Named):
        where = "in its module" if is_module else "around it"
        if is_module:
            paths = [path for graph in graphs for path in graph.texts("module").table]
            names = dict.fromkeys(part for path in sorted(paths, key=len) for part in path.split(SEPARATOR))
            if not names:
                return f"no module was recorded: capture with modules=True, and build with {Remedy.MODULES}"
    word = target.pattern.pattern if isinstance(target, Named) else target.pattern
    if any(word in name and not re.search(word, name) for name in names):
        return f"{word!r} is a regular expression: for that name write {re.escape(word)}"
    begin = BEGIN.match(word)  # such as undr:load
    like = nearest(begin[0], (RANK, MODULE, UNDER, *TARGETS), listed=False) if begin else ""
    hint = Spelled("trace-view and trace-report show the names", "the table `nodes` of a graph has the names")
    near = nearest(word, [*names, *(name.rpartition("::")[2] for name in names)], listed=is_module)
    return f"no node has {word!r} {where}{like or near or f': {hint}'}"


def scale_nodes(work: Workload, factor: Factors, host_delay_factor: Factors | float = 1.0) -> Workload:
    """Returns the measured workload with durations and host delays times factors, of each node its own.

    Raises RequestError for times beyond any clock.
    """
    graphs = work.graphs
    host_delay = np.rint(work.host_delay_ns * host_delay_factor)
    # what was cut off is in the gaps, and scales with the duration
    cut_off = np.concatenate([np.where(graph.is_activity, cut_off_ns(graph), 0) for graph in graphs])
    changed = np.maximum(np.rint((work.duration_ns + cut_off) * factor - cut_off), 0)
    lag = np.rint(work.lag_ns * factor[work.target])
    if not changed.sum() + np.abs(lag).sum() + host_delay.sum() < LONGEST_RECORDING:
        raise RequestError(BEYOND_CLOCKS.format("the changed run"))
    duration = changed.astype(np.int64)
    slot_pool, first_pool = work.slot_pool.copy(), 0
    if (factor != 1).any():
        for graph, first_row in zip(graphs, work.first_row.tolist(), strict=True):
            # the full devices whose slots activities take are counted over all ranks
            pool_of = {number: position for position, number in enumerate(slot_pools_by_device(graph), first_pool)}
            first_pool += len(pool_of)
            activities = np.flatnonzero(graph.is_activity)
            for number, rows in columns.rows_by_number(activities, graph.integers("device")).items():
                slot_pool[first_row + rows] = pool_of.get(number, -1)
    slot_pool[work.node_class == NodeClass.COMMUNICATION] = -1
    if slot_pool.max(initial=-1) >= 0:
        # the replay itself makes nodes wait for a free slot
        duration[np.concatenate([graph.integers("delay", 0) for graph in graphs]) == Delay.CONTENTION] = 0
    wait = work.wait_ns + host_delay.astype(np.int64) - work.host_delay_ns
    # before a wait, what is left of an idle call is host work of its name; the latency of a return is not, unless the
    # call goes on longer than any takes to return, as hipFree does
    is_return = (work.kind & DependencyKind.HOST_SYNC != 0) & (work.lag_ns <= LONGEST)
    is_call = (work.node_class[work.target] == NodeClass.HOST) & ~is_return
    lag = np.where(is_call, lag.astype(np.int64), work.lag_ns)
    return replace(work, wait_ns=wait, host_delay_ns=host_delay, duration_ns=duration, lag_ns=lag, slot_pool=slot_pool)
