"""The calls of a graph as boxes in boxes: phases of training, modules, ops, what these called and launched.

Boxes with nothing but one box in them become one with it. Where many boxes lie beside each other, those of one name do.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ...linker.modules import SEPARATOR
from ...schema.columns import ABSENT, Int64, group_sums
from ...schema.graph import ExecutionGraph
from ..phase_names import BACKWARD_PASS, FORWARD_PASS, PHASES, REST, phase_of
from ..replay import NodeClass, node_classes
from .calls import Calls
from .drawing import short_name

MANY, ALIKE = 16, 4
"""More boxes beside each other than MANY are summed up by name, and in any case more than ALIKE of one name."""
DEEPEST = 40
"""Boxes are at most so deep in each other; what would be deeper lies beside."""
LONGEST = 32
"""The most letters of a box's name."""
AUTOGRAD = re.compile("^autograd::engine::evaluate_function: ")
USER_SCOPE = 7
LARGEST_CLASSES = (NodeClass.COMMUNICATION, NodeClass.COMPUTATION, NodeClass.MEMORY, NodeClass.HOST)


@dataclass(slots=True, eq=False)
class Box:
    """Calls of one name, or a group: a phase, a module, an annotation of the user. Times are ns of the box with all in
    it: of the device, of the host, and on the critical path.

    `time` has the time of each class of nodes, on the host and of activities. `first` orders boxes by start. `calls`
    counts calls of this name.
    """

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
        name = self.label if len(self.label) <= LONGEST else f"{self.label[: LONGEST - 1]}…"
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
    short = [*(short_name(AUTOGRAD.sub("", name)) for name in graph.name.table), ""]
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
    _sum_up(root)
    _merge(root)
    return root, [box.shown() for box in boxes]


def _phases(graph: ExecutionGraph, calls: Calls) -> list[tuple[str, ...]]:
    """Returns the phase of training of each call, by the name of the outermost call around it; none if all are alike.

    A name that tells none is of the backward pass on a thread that begins with it. In a run with a backward pass it is
    of the forward pass if the backward pass comes next by name, and else of the rest, as logging after a step is.
    """
    roots, thread = calls.roots(), graph.integers("tid")[calls.first_row]
    outermost = np.unique(roots)
    by_name = {root: phase_of(graph.name[int(calls.first_row[root])]) for root in outermost.tolist()}
    first_phase: dict[int, str] = {}
    for root, number in zip(outermost.tolist(), thread[outermost].tolist(), strict=True):
        if number != ABSENT and first_phase.setdefault(number, by_name[root]) == BACKWARD_PASS:
            by_name[root] = by_name[root] or BACKWARD_PASS
    unnamed = REST if BACKWARD_PASS in by_name.values() else FORWARD_PASS
    of_root, following = dict[int, str](), ""
    for root in outermost[np.argsort(graph.start_ns[calls.first_row[outermost]], kind="stable")][::-1].tolist():
        of_root[root] = by_name[root] or (FORWARD_PASS if following == BACKWARD_PASS else unnamed)
        following = by_name[root] or following
    if len(set(of_root.values())) < 2:
        return [()] * len(calls)
    return [(of_root[root],) for root in roots.tolist()]


def _add_times(graph: ExecutionGraph, calls: Calls, critical_ns: Int64, boxes: list[Box]) -> None:
    rows = np.flatnonzero(calls.of_row >= 0)
    call, count = calls.of_row[rows], len(NodeClass)
    cell = (2 * call + graph.is_activity[rows]) * count + node_classes(graph)[rows]
    times = group_sums(cell, graph.duration_ns[rows], 2 * len(calls) * count)
    critical = group_sums(call, critical_ns[rows], len(calls)).tolist()
    for box, time, on_path in zip(boxes, times.reshape(-1, 2, count), critical, strict=True):
        box.time += time
        box.critical_ns += on_path


def _sum_up(box: Box) -> None:
    """Adds the times of what is in each box to its own."""
    for inner in box.inner:
        _sum_up(inner)
        box.time = box.time + inner.time
        box.critical_ns += inner.critical_ns


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
