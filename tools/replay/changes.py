"""Changes of a what-if replay: factors for the durations of nodes, `REGEX=F`, `class:CLASS=F` or `bound:RESOURCE=F`.

`bound:compute=0.5` stands for a device with twice the operations per second, `bound:memory=0.5` for twice the
bandwidth. `class:host` includes idle time between ops, but not work that the trace did not record. What limits a kernel
is told by the roofline model: one with more operations per byte than the ratio of the device's peaks is compute-bound,
else memory-bound (Williams, Waterman and Patterson, Roofline, 2009). Measured time does not count: a kernel far below
its roof is also limited by something else.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...schema.arguments import given, non_negative, wrong_argument
from ...schema.columns import ABSENT, Bool, Categorical, Floats, Int64, Rows, rows_by_number, rows_of_each, time_text
from ...schema.device_peaks import Peak, peak_of
from ...schema.errors import Remedy, RequestError, Spelled
from ...schema.graph import DEVICE_NAME, Delay, DependencyKind, ExecutionGraph
from .workload import Classes, NodeClass, Workload, cut_off_ns, node_classes, slot_pools_by_device

UNKNOWN_DEVICE = Peak(*[0.0] * len(Peak._fields))
TF32 = re.compile(r"tf32|xf32|_s1688|_s161616|tensorop_s\d", re.IGNORECASE)
"""How cuBLAS, CUTLASS, cuDNN and hipBLASLt name kernels that compute with fp32 operands on the matrix engines."""
Factors = npt.NDArray[np.float64]
SCALABLE = {
    kind.label: kind
    for kind in (NodeClass.HOST, NodeClass.COMPUTATION, NodeClass.COMMUNICATION, NodeClass.MEMORY, NodeClass.DELAY)
}


class Bound(Enum):
    """What limits a kernel."""

    COMPUTE = "compute"
    MEMORY = "memory"


TARGETS: Mapping[str, tuple[Mapping[str, NodeClass | Bound], str]] = {
    "bound:": ({bound.value: bound for bound in Bound}, "nothing is bound by {}, only by {}"),
    "class:": (SCALABLE, "there is no class {}, only {}"),
}
"""By the start of a selector what may follow it, and how anything else is refused."""


class Kernels(NamedTuple):
    """The work of kernels by columns: `element` is the size of an element in bytes, `time` how long each took (ns).

    Unknown numbers are ABSENT.
    """

    name: Categorical
    device: Int64
    operations: Int64
    bytes: Int64
    element: Int64
    time: Int64


def kernels_of(graph: ExecutionGraph, rows: Rows) -> Kernels:
    """Returns the work of these nodes as the graph has it."""
    attributes = "device", "num_ops", "tensor_size", "element_size"
    columns = *(graph.integers(name)[rows] for name in attributes), graph.duration_ns[rows]
    return Kernels(graph.name.take(rows), *columns)


class Roofline(NamedTuple):
    """Of each kernel its device's peak FLOP/s for its number format and for tf32, and bytes/s, and the least seconds
    that it needs for its operations, `compute`, and for its bytes, `memory`; NaN if work or peak is unknown.
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
    for number, rows in rows_of_each(kernels.device).items():
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
    """Returns the peak of each device by number, from its recorded name, with `overrides` of fields of Peak.

    Devices without a known peak are left out.
    """
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
    """Multiplies the durations of a class of nodes, of kernels that a resource limits, or of nodes by name.

    `peaks` override fields of Peak, for all devices, where a resource is the target. `spec` is what messages call it.

    >>> import execgraph as eg, re
    >>> graph = eg.link("tests/data/training", rank=0).to_graph()
    >>> graph.what_if([eg.Scale("gemm=0.5", re.compile("gemm"), 0.5)]).saved_us > 0
    True

    Raises:
        TypeError: `target` is no compiled regular expression, or `factor` is no number.
        ValueError: The factor is below 0 or not finite.
    """

    spec: str
    target: NodeClass | Bound | re.Pattern[str]
    factor: float
    peaks: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.target, NodeClass | Bound | re.Pattern):
            raise wrong_argument("Scale(target=…)", 'a compiled regular expression, as re.compile("gemm")', self.target)
        non_negative(self.factor, "Scale(factor=…)")

    def matches(self, graph: ExecutionGraph, classes: Classes) -> Bool:
        """Returns which nodes of the graph are scaled."""
        if isinstance(self.target, NodeClass):
            return np.asarray(classes == self.target)
        if isinstance(self.target, re.Pattern):
            pattern = self.target
            return graph.name.where(lambda name: pattern.search(name) is not None)
        roof = roofline(kernels_of(graph, np.arange(len(graph))), recorded_peaks(graph, self.peaks))
        return np.asarray(roof.bound_by(self.target) & (classes == NodeClass.COMPUTATION))


class Matched(msgspec.Struct, frozen=True):
    """What a change applies to: how many nodes, and how long they took when recorded (µs)."""

    spec: str
    nodes: int
    time_us: float

    @property
    def text(self) -> str:
        """Says how many nodes, and how long they took."""
        return f"{self.nodes:,} {self.of_spec}"

    @property
    def of_spec(self) -> str:
        """Says after a number of nodes by what they were chosen, and how long they took."""
        return f"node{'' if self.nodes == 1 else 's'} by {self.spec}, which took {time_text(self.time_us)}"


Changes = Mapping[str, float] | Sequence[Scale]
"""What is changed: a factor by what it applies to, or a list of these."""


def parse_scale(spec: str) -> Scale:
    """Reads `REGEX=F`, `class:CLASS=F` or `bound:RESOURCE=F`, split at the last `=`.

    Raises ValueError for an unusable factor, an unknown class or resource, or a broken regular expression.

    >>> parse_scale("class:host=0.5").factor
    0.5
    """
    selector, separator, number = spec.rpartition("=")
    if not separator or not selector:
        raise ValueError(f"{spec!r} is not REGEX=FACTOR or class:CLASS=FACTOR")
    target = _target(selector)
    try:
        factor = float(number)
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor >= 0):
        raise ValueError(f"{spec!r}: the factor {number!r} is not a number of 0 or more")
    return Scale(spec, target, factor)


def given_changes(changes: Changes, call: str) -> list[Scale]:
    """Returns the changes that a caller gives, by what they apply to or as a list; `call` is what the caller wrote.

    >>> [scale.spec for scale in given_changes({"class:host": 0.5}, "replay(graph, changes)")]
    ['class:host=0.5']

    Raises TypeError for anything else, and ValueError for a change that cannot be made.
    """
    if isinstance(changes, Mapping):
        selectors = [given(selector, str, f"{call} for what a factor applies to", "a text") for selector in changes]
        return [
            Scale(f"{selector}={number}", _target(selector), non_negative(number, f"{call} for {selector!r}"))
            for selector, number in zip(selectors, changes.values(), strict=True)
        ]
    if not isinstance(changes, list | tuple) or not all(isinstance(change, Scale) for change in changes):
        raise wrong_argument(call, 'changes such as {"class:communication": 0.5}', changes)
    return list(changes)


def _target(selector: str) -> NodeClass | Bound | re.Pattern[str]:
    for start, (targets, refusal) in TARGETS.items():
        if selector.startswith(start):
            name = selector.removeprefix(start)
            if name not in targets:
                raise ValueError(f"{selector!r}: {refusal.format(repr(name), ', '.join(targets))}")
            return targets[name]
    try:
        return re.compile(selector)
    except re.error as error:
        raise ValueError(f"{selector!r} is not a regular expression: {error}") from error


def matched(graphs: Sequence[ExecutionGraph], *changes: Scale) -> Matched:
    """Returns what at least one of the changes applies to."""
    nodes, time_ns = 0, 0
    for graph in graphs:
        classes = node_classes(graph)
        chosen = np.logical_or.reduce([change.matches(graph, classes) for change in changes])
        nodes, time_ns = nodes + int(chosen.sum()), time_ns + int(graph.duration_ns[chosen].sum())
    return Matched(", ".join(change.spec for change in changes), nodes, time_ns / 1000)


def scale_workload(work: Workload, scale: Sequence[Scale]) -> Workload:
    """Returns the measured workload with changed durations.

    Nodes that wait for a slot of their device then do so in the replay, instead of for as long as measured. Raises
    RequestError for a name or a resource that matches no node, which it may be misspelled to do. A class may be absent.
    """
    factor, classes = np.ones(len(work)), np.split(work.node_class, work.first_row[1:])
    for change in scale:
        pairs = zip(work.graphs, classes, strict=True)
        chosen = np.concatenate([change.matches(graph, of_graph) for graph, of_graph in pairs])
        factor[chosen] *= change.factor
        if not chosen.any() and not isinstance(change.target, NodeClass):
            raise RequestError(f"scale {change.spec}: {_why_nothing(change, work.graphs)}")
    of_host = math.prod(change.factor for change in scale if change.target == NodeClass.HOST)
    return scale_nodes(work, factor, of_host)


def _why_nothing(change: Scale, graphs: Sequence[ExecutionGraph]) -> str:
    """Returns why a scale matches no node, and what to give instead."""
    if isinstance(change.target, Bound):
        if not any(recorded_peaks(graph, change.peaks) for graph in graphs):
            return f"the peaks of the devices are not known by their names: give them with {Remedy.PEAK}"
        return f"no kernel of known work is {change.target.value}-bound: scale class:{NodeClass.COMPUTATION.label}"
    word = change.target.pattern if isinstance(change.target, re.Pattern) else change.spec
    names = Spelled("trace-view and trace-report show the names", "the table `nodes` of a graph has the names")
    hint = f"write class:{change.spec}" if word in SCALABLE else str(names)
    return f"no node has {word!r} in its name: {hint}"


def scale_nodes(work: Workload, factor: Factors, host_delay_factor: float = 1.0) -> Workload:
    """Returns the measured workload with each node's duration, and all host delays, multiplied by a factor."""
    graphs = work.graphs
    host_delay = np.rint(work.host_delay_ns * host_delay_factor).astype(np.int64)
    # what was cut off is in the gaps, and scales with the duration
    cut_off = np.concatenate([np.where(graph.is_activity, cut_off_ns(graph), 0) for graph in graphs])
    duration = np.maximum(np.rint((work.duration_ns + cut_off) * factor - cut_off).astype(np.int64), 0)
    slot_pool, first_pool = work.slot_pool.copy(), 0
    if (factor != 1).any():
        for graph, first_row in zip(graphs, work.first_row.tolist(), strict=True):
            # the full devices whose slots activities take are counted over all ranks
            pool_of = {number: position for position, number in enumerate(slot_pools_by_device(graph), first_pool)}
            first_pool += len(pool_of)
            for number, rows in rows_by_number(np.flatnonzero(graph.is_activity), graph.integers("device")).items():
                slot_pool[first_row + rows] = pool_of.get(number, -1)
    slot_pool[work.node_class == NodeClass.COMMUNICATION] = -1
    if slot_pool.max(initial=-1) >= 0:
        # the replay itself makes nodes wait for a free slot
        duration[np.concatenate([graph.integers("delay", 0) for graph in graphs]) == Delay.CONTENTION] = 0
    wait = work.wait_ns + host_delay - work.host_delay_ns
    # before a wait, what is left of an idle call is host work of its name; the latency of a return is not
    is_call = (work.node_class[work.target] == NodeClass.HOST) & (work.kind & DependencyKind.HOST_SYNC == 0)
    lag = np.where(is_call, np.rint(work.lag_ns * factor[work.target]).astype(np.int64), work.lag_ns)
    return replace(work, wait_ns=wait, host_delay_ns=host_delay, duration_ns=duration, lag_ns=lag, slot_pool=slot_pool)
