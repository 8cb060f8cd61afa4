"""The calls in a graph, what flows between them, and the calls as boxes in boxes.

Boxes with nothing but one box in them become one with it; where many lie beside each other, those of one name do. A
tensor is known by its id, and where no call made it, by the last call that wrote its storage.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...linker.modules import SEPARATOR
from ...schema.columns import BytesColumn, Int64, Keys, asof_backward, group_ids, group_sums, shortened
from ...schema.graph import DependencyKind, ExecutionGraph
from ...schema.linked import AUTOGRAD, USER_SCOPE, Arguments, Tensors
from ..replay import Calls, NodeClass, Phase, gather, node_classes, phases_of
from .drawing import short_name

DATA = 0
"""The kind of a flow that is a tensor."""
ORDERS = DependencyKind.PROGRAM_ORDER | DependencyKind.LAUNCH | DependencyKind.STREAM_ORDER | DependencyKind.CALL_ORDER
"""Reasons that are shown only where no tensors were recorded."""
MANY, ALIKE = 16, 4
"""More boxes beside each other than MANY are summed up by name, and in any case more than ALIKE of one name."""
DEEPEST = 40
"""Boxes are at most so deep in each other; what would be deeper lies beside."""
LONGEST = 32
"""The most letters of a box's name."""
REST = "the rest"
PHASES = "data loading", "forward and other", "backward", "optimizer", REST
LARGEST_CLASSES = (NodeClass.COMMUNICATION, NodeClass.COMPUTATION, NodeClass.MEMORY, NodeClass.HOST)


class Flows(NamedTuple):
    """Flows from one call to a later one: their kinds, DATA or the bits of a dependency, and bytes of the tensors."""

    source: Int64
    target: Int64
    kind: Int64
    size: Int64


def recorded_tensors(graph: ExecutionGraph) -> Tensors:
    """Returns the tensors that a graph holds, none if it was made without them; `row` is that of the op's node."""
    texts = graph.tensors
    sides = ((), ()) if texts is None else (texts.input_values, texts.output_values)
    columns = (BytesColumn.of(b'{"values":%s}' % (text or b"[]") for text in side) for side in sides)
    tensors = Arguments(*columns).tensors
    return tensors if texts is None else tensors._replace(row=texts.rows[tensors.row])


def flows_of(graph: ExecutionGraph, calls: Calls, tensors: Tensors) -> Flows:
    """Returns what flows between calls, each pair once for each kind; `row` of tensors is that of the op's node."""
    data, work = _tensor_flows(graph, calls, tensors), gather([graph])
    source, target = calls.of_row[work.source], calls.of_row[work.target]
    between = (source >= 0) & (target >= 0) & (source != target)
    if len(data.source):
        between &= (work.kind & ~(ORDERS | DependencyKind.INFERRED)) != 0
    others = Flows(source[between], target[between], work.kind[between], np.zeros(between.sum(), np.int64))
    flows = Flows(*map(np.concatenate, zip(data, others, strict=True)))
    number = group_ids(flows.kind != DATA, flows.source, flows.target, flows.kind)
    first = np.unique(number, return_index=True)[1]
    size = group_sums(number, flows.size, len(first))
    return Flows(flows.source[first], flows.target[first], flows.kind[first], size)


def _tensor_flows(graph: ExecutionGraph, calls: Calls, tensors: Tensors) -> Flows:
    accesses = tensors._replace(row=calls.of_row[tensors.row])
    accesses = accesses.where(accesses.row >= 0)
    writes, reads = accesses.where(accesses.is_output), accesses.where(~accesses.is_output)
    # a result that shares the storage of an argument, though the op's schema marks nothing as changed, is a view
    changes = graph.texts("op_schema").where(lambda text: "!" in text)[calls.first_row]
    key = group_ids(np.concatenate((reads.row, writes.row)), np.concatenate((reads.storage, writes.storage)))
    is_view = np.isin(key[len(reads.row) :], key[: len(reads.row)]) & ~changes[writes.row]
    reads = _innermost(reads, calls)
    source = _last_writer(_innermost(writes, calls), reads, calls, "tensor")
    in_place = _innermost(writes.where(~is_view), calls)
    source = np.where(source < 0, _last_writer(in_place, reads, calls, "storage"), source)
    flows = Flows(source, reads.row, np.full(len(source), DATA), reads.elements * reads.size)
    return Flows(*(column[source >= 0] for column in flows))


def _innermost(accesses: Tensors, calls: Calls) -> Tensors:
    """Returns the accesses, by call, without those of a call that called one which accesses the same tensor."""
    caller = calls.parent[accesses.row]
    key = group_ids(np.concatenate((accesses.row, caller)), np.tile(accesses.tensor, 2))
    return accesses.where(~np.isin(key[: len(caller)], key[len(caller) :]))


def _last_writer(writes: Tensors, reads: Tensors, calls: Calls, known_by: str) -> Int64:
    """Returns the call that last wrote what each read reads, before the reader began; -1 for none."""
    written, read = getattr(writes, known_by), getattr(reads, known_by)
    ended = calls.last_row[writes.row]
    order = np.lexsort((ended, written))
    last_write = asof_backward(Keys(written[order], ended[order]), Keys(read, calls.first_row[reads.row] - 1))
    return np.append(writes.row[order], -1)[last_write]


@dataclass(slots=True, eq=False)
class Box:
    """Calls of one name, or a group: a phase, a module, an annotation. Times are ns of the box with all in it."""

    label: str
    is_group: bool
    first: int
    around: "Box | None" = None
    depth: int = 0
    inner: "list[Box]" = field(default_factory=list)
    calls: int = 0
    time: Int64 = field(default_factory=lambda: np.zeros((2, len(NodeClass)), np.int64))
    critical_ns: int = 0
    sought: bool = False
    part_of: "Box | None" = None
    """The box that this one became one with."""

    @property
    def title(self) -> str:
        """Its name, shortened, and how many calls it is of."""
        name = shortened(self.label, LONGEST)
        return f"{name} ×{self.calls:,}" if self.calls > 1 else name

    @property
    def device_ns(self) -> int:
        """The time of its activities."""
        return int(self.time[1].sum())

    @property
    def host_ns(self) -> int:
        """The time of its host nodes."""
        return int(self.time[0].sum())

    @property
    def kind(self) -> NodeClass:
        """The class that takes most of its time; its host's own work counts only where there is nothing else."""
        time = self.time.sum(axis=0)
        others = [node_class for node_class in LARGEST_CLASSES if node_class != NodeClass.HOST and time[node_class]]
        return max(others, key=lambda node_class: time[node_class], default=NodeClass.HOST)

    def shown(self) -> "Box":
        """Returns the box that it became one with, or itself."""
        box = self
        while box.part_of is not None:
            box = box.part_of
        return box

    def path(self) -> "list[Box]":
        """Returns the boxes around it and itself, the outermost first."""
        boxes, box = [self], self
        while box.around is not None:
            box = box.around
            boxes.append(box)
        return boxes[::-1]

    def walk(self) -> "Iterator[Box]":
        """Yields the box and all in it."""
        yield self
        for box in self.inner:
            yield from box.walk()


def box_tree(graph: ExecutionGraph, calls: Calls, critical_ns: Int64, label: str) -> tuple[Box, list[Box]]:
    """Returns the outermost box, and the box of each call; `critical_ns` is each node's time on the critical path."""
    root, boxes = Box(label, True, 0), list[Box]()
    groups: dict[tuple[str, ...], Box] = {(): root}

    def added(around: Box, label: str, number: int, is_group: bool) -> Box:
        box = Box(label, is_group, number, around, around.depth + 1)
        around.inner.append(box)
        return box

    def group(path: tuple[str, ...], number: int) -> Box:
        if path not in groups:
            groups[path] = added(group(path[:-1], number), path[-1], number, True)
        return groups[path]

    modules, scope, phases = graph.texts("module"), graph.integers("scope"), _phases(graph, calls)
    short = [*(short_name(name.removeprefix(f"{AUTOGRAD}: ")) for name in graph.name.table), ""]
    names = [short[code] for code in graph.name.codes[calls.first_row].tolist()]
    for number, (row, parent) in enumerate(zip(calls.first_row.tolist(), calls.parent.tolist(), strict=True)):
        module = modules[row] if modules.codes[row] >= 0 else ""
        is_in_module = bool(module) and (parent < 0 or module != modules[int(calls.first_row[parent])])
        if parent >= 0 and not is_in_module:
            around = boxes[parent]
            if around.depth > DEEPEST:
                around = around.around or around
        else:
            around = group((*phases[number], *(module.split(SEPARATOR, DEEPEST // 2) if module else ())), number)
        is_annotation = bool(scope[row] == USER_SCOPE)
        is_around_itself = is_annotation and around.is_group and around.label == graph.name[row]
        box = around if is_around_itself else added(around, names[number], number, is_annotation)
        box.calls += 1
        boxes.append(box)
    _add_times(graph, calls, critical_ns, boxes)
    _merge(root)
    return root, [box.shown() for box in boxes]


def _phases(graph: ExecutionGraph, calls: Calls) -> list[tuple[str, ...]]:
    """Returns the phase of training of each call, that of the outermost call around it; none if all are alike."""
    names = [*(phase.value.replace("_", " ") for phase in Phase), REST]
    phases = phases_of(graph)[calls.first_row[calls.roots()]].tolist()
    return [(names[phase],) for phase in phases] if len({*phases}) > 1 else [()] * len(calls)


def _add_times(graph: ExecutionGraph, calls: Calls, critical_ns: Int64, boxes: list[Box]) -> None:
    """Adds the times of each call to its box and all around it."""
    rows = np.flatnonzero(calls.of_row >= 0)
    call, count = calls.of_row[rows], len(NodeClass)
    cell = (2 * call + graph.is_activity[rows]) * count + node_classes(graph)[rows]
    times = group_sums(cell, graph.duration_ns[rows], 2 * len(calls) * count)
    critical = group_sums(call, critical_ns[rows], len(calls)).tolist()
    for box, time, on_path in zip(boxes, times.reshape(-1, 2, count), critical, strict=True):
        for around in box.path():
            around.time += time
            around.critical_ns += on_path


def _merge(box: Box) -> None:
    """Makes one box of a box and the only one in it, and of boxes of one name where there are many."""
    _merge_alike(box)
    while len(box.inner) == 1 and box.around is not None:
        only = box.inner[0]
        if box.label in PHASES and only.is_group:
            break
        if box.is_group and only.is_group:
            box.label = f"{box.label} / {only.label}"
        box.is_group = box.is_group and only.is_group
        box.inner = _take_over(box, only)
        _merge_alike(box)
    for inner in box.inner:
        _merge(inner)


def _merge_alike(box: Box) -> None:
    """Makes one box of those in a box that have one name, if there are many."""
    names, by_label, kept = Counter(inner.label for inner in box.inner), dict[str, Box](), list[Box]()
    for inner in box.inner:
        is_one_of_many = len(box.inner) > MANY or names[inner.label] > ALIKE
        first = by_label.setdefault(inner.label, inner) if is_one_of_many else inner
        if first is inner:
            kept.append(inner)
            continue
        first.calls += inner.calls
        first.time = first.time + inner.time
        first.critical_ns += inner.critical_ns
        first.inner += _take_over(first, inner)
    box.inner = kept


def _take_over(box: Box, part: Box) -> list[Box]:
    """Makes one box part of another, and returns what was in it, for the other."""
    part.part_of = box
    for inner in part.inner:
        inner.around = box
    return part.inner
