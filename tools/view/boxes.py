"""The calls of a graph as boxes in boxes: phases of training, modules, ops, what these called and launched.

Boxes with nothing but one box in them become one with it. Where many boxes lie beside each other, those of one name do.

Which boxes are open, what flows between those that are seen, and the layers in which boxes lie: each below all from
which something flows to it.

The data flow of a graph, or of a part of one, ready to be drawn.
"""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ...linker.modules import SEPARATOR
from ...schema.columns import ABSENT, Int64, group_sums
from ...schema.graph import ExecutionGraph
from ..phase_names import BACKWARD_PASS, FORWARD_PASS, PHASES, REST, phase_of
from ..replay import NodeClass, Replay, node_classes, pieces_of
from .calls import Calls, Flows, TensorTexts, calls_of, flows_of, recorded_texts
from .names import short_name

MANY, ALIKE = 16, 4
"""More boxes beside each other than MANY are summed up by name, and in any case more than ALIKE of one name."""
DEEPEST = 40
"""Boxes are at most so deep in each other; what would be deeper lies beside."""
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


class _Tree:
    """Makes the boxes, each after the one around it."""

    def __init__(self, label: str) -> None:
        self.root = Box(label, True, 0)
        self.groups: dict[tuple[str, ...], Box] = {(): self.root}

    def group(self, path: tuple[str, ...], first: int) -> Box:
        """Returns the group of this path, made where there was none."""
        if path not in self.groups:
            self.groups[path] = self.add(self.group(path[:-1], first), path[-1], first, is_group=True)
        return self.groups[path]

    def add(self, around: Box, label: str, first: int, is_group: bool = False) -> Box:
        """Returns a new box in another."""
        box = Box(label, is_group, first, around, around.depth + 1)
        around.inner.append(box)
        return box


def box_tree(graph: ExecutionGraph, calls: Calls, critical_ns: Int64, label: str) -> tuple[Box, list[Box]]:
    """Returns the outermost box, and the box of each call; `critical_ns` is each node's time on the critical path."""
    tree, boxes = _Tree(label), list[Box]()
    modules, scope = graph.texts("module"), graph.integers("scope")
    phases = _phases(graph, calls)
    short = [*(short_name(AUTOGRAD.sub("", name)) for name in graph.name.table), ""]
    names = [short[code] for code in graph.name.codes[calls.first_row].tolist()]
    columns = zip(calls.first_row.tolist(), calls.parent.tolist(), strict=True)
    for number, (row, parent) in enumerate(columns):
        module = modules[row] if modules.codes[row] >= 0 else ""
        is_in_module = bool(module) and (parent < 0 or module != modules[int(calls.first_row[parent])])
        if parent >= 0 and not is_in_module:
            around = boxes[parent]
            if around.depth > DEEPEST:
                around = around.around or around
        else:
            around = tree.group((*phases[number], *(module.split(SEPARATOR, DEEPEST // 2) if module else ())), number)
        is_annotation = bool(scope[row] == USER_SCOPE)
        is_around_itself = is_annotation and around.is_group and around.label == graph.name[row]
        box = around if is_around_itself else tree.add(around, names[number], number, is_group=is_annotation)
        box.calls += 1
        boxes.append(box)
    _add_times(graph, calls, critical_ns, boxes)
    _sum_up(tree.root)
    _merge(tree.root)
    return tree.root, [box.shown() for box in boxes]


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
    call, node_class, on_device = (
        calls.of_row[rows],
        node_classes(graph)[rows],
        graph.is_activity[rows].astype(np.int64),
    )
    count = len(NodeClass)
    times = group_sums((2 * call + on_device) * count + node_class, graph.duration_ns[rows], 2 * len(calls) * count)
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
        else:
            first.calls += inner.calls
            first.time = first.time + inner.time
            first.critical_ns += inner.critical_ns
            first.inner += _take_over(first, inner)
    box.inner = kept


def _take_over(box: Box, other: Box) -> list[Box]:
    """Makes one box part of another, and returns what was in it, for the other."""
    other.part_of = box
    for inner in other.inner:
        inner.around = box
    return other.inner


FEW = 12
"""Ops are opened only while fewer boxes than this are seen."""

MIDDLE = 0.5
"""Where boxes lie in their layers, from 0 to 1, into which nothing flows."""

Rows = list[list[Box]]


@dataclass(slots=True)
class Link:
    """What flows from one box to another: kinds of flows, and how many bytes in how many tensors."""

    kinds: set[int] = field(default_factory=set)
    size: int = 0
    count: int = 0


def weight(box: Box, root: Box) -> int:
    """Returns the time of a box by which boxes are compared: on the device, on the host where nothing ran there."""
    return box.device_ns if root.device_ns else int(box.time.sum())


def open_boxes(root: Box, most: int, few: int = FEW) -> set[Box]:
    """Returns the boxes to be shown with what is in them, so that at most `most` others are seen.

    Groups, and boxes with sought calls in them, are opened before ops, the outermost first, then the one of the most
    time. Ops are opened only while fewer than `few` boxes are seen.
    """
    opened, seen, order = {root}, len(root.inner), 0
    around_sought = {around for box in root.walk() if box.sought for around in box.path()}
    pending: list[tuple[bool, bool, int, int, Box]] = []

    def add(boxes: Iterable[Box]) -> None:
        nonlocal order
        for box in boxes:
            order += 1
            if box.inner:
                is_op = not (box.is_group or box in around_sought)
                heapq.heappush(pending, (is_op, box.around is not root, -weight(box, root), order, box))

    add(root.inner)
    while pending:
        box = heapq.heappop(pending)[-1]
        if seen - 1 + len(box.inner) <= most and (box.is_group or box in around_sought or seen < few):
            opened.add(box)
            seen += len(box.inner) - 1
            add(box.inner)
    return opened


def seen_as(box: Box, opened: Collection[Box]) -> Box:
    """Returns the outermost box around a box, or itself, that is not open."""
    return next((each for each in box.path() if each not in opened), box)


def links(flows: Flows, boxes: list[Box], opened: Collection[Box]) -> dict[tuple[Box, Box], Link]:
    """Returns what flows between the boxes that are seen; `boxes` are those of calls."""
    seen = {box: seen_as(box, opened) for box in set(boxes)}
    flow_links: dict[tuple[Box, Box], Link] = defaultdict(Link)
    for source, target, kind, size in zip(*(column.tolist() for column in flows), strict=True):
        ends = seen[boxes[source]], seen[boxes[target]]
        if ends[0] is not ends[1] and ends[0] not in ends[1].path() and ends[1] not in ends[0].path():
            link = flow_links[ends]
            link.kinds.add(kind)
            link.size += size
            link.count += 1
    return dict(flow_links)


def layered(root: Box, ends: Iterable[tuple[Box, Box]]) -> dict[Box, Rows]:
    """Returns the layers of what is in each box; `ends` are all pairs of boxes between which something flows."""
    before: dict[Box, set[Box]] = defaultdict(set)
    for source, target in ends:
        for a, b in zip(source.path(), target.path(), strict=False):
            if a is not b:
                before[b].add(a)
                break
    return {box: _layers(box.inner, before) for box in root.walk() if box.inner}


def _layers(boxes: list[Box], before: dict[Box, set[Box]]) -> Rows:
    in_order = sorted(boxes, key=lambda box: box.first)
    layer, after = dict[Box, int](), defaultdict[Box, list[Box]](list)
    last = 0
    for box in in_order:
        # of a loop, what leads back to an earlier box counts for nothing
        earlier = [source for source in before[box] if source in layer]
        for source in earlier:
            after[source].append(box)
        last = layer[box] = max((layer[source] + 1 for source in earlier), default=last if not before[box] else 0)
    for box in reversed(in_order):
        if not any(source in layer for source in before[box]) and after[box]:
            layer[box] = min(layer[target] for target in after[box]) - 1
    lowest = min(layer.values(), default=0)
    rows: Rows = [[] for _ in range(max(layer.values(), default=0) - lowest + 1)]
    for box in in_order:
        rows[layer[box] - lowest].append(box)
    return _untangled([row for row in rows if row], before)


def _untangled(rows: Rows, before: dict[Box, set[Box]]) -> Rows:
    """Sorts each layer by where what flows into its boxes comes from."""
    position: dict[Box, float] = {}
    for row in rows:
        sources = {box: [position[source] for source in before[box] if source in position] for box in row}
        mean = {box: sum(positions) / len(positions) if positions else MIDDLE for box, positions in sources.items()}
        row.sort(key=mean.__getitem__)
        position |= {box: (number + MIDDLE) / len(row) for number, box in enumerate(row)}
    return rows


def closed(root: Box, opened: Collection[Box]) -> Iterator[Box]:
    """Yields the boxes that are seen and not open."""
    for box in root.inner:
        if box in opened:
            yield from closed(box, opened)
        else:
            yield box


@dataclass(slots=True)
class DataFlow:
    """Boxes, the box of each call, and what flows between calls. `critical_ns` is the time of the critical path in it;
    `path` are the calls on the critical path, in order of time.
    """

    title: str
    root: Box
    boxes: list[Box]
    flows: Flows
    critical_ns: int
    path: Int64

    def critical_links(self, opened: Collection[Box]) -> set[tuple[Box, Box]]:
        """Returns the pairs of seen boxes that follow each other on the critical path."""
        seen = [seen_as(self.boxes[call], opened) for call in self.path.tolist()]
        return {*pairwise(seen)}


def path_times(replay: Replay) -> Int64:
    """Returns each node's time (ns) on the critical path."""
    count, pieces = len(replay.work), pieces_of(replay)
    of_nodes = pieces.row < count
    return group_sums(pieces.row[of_nodes], pieces.time[of_nodes], count)


def data_flow(
    graph: ExecutionGraph,
    title: str,
    path_ns: Int64,
    *,
    texts: TensorTexts | None = None,
    sought: Collection[int] = (),
) -> DataFlow:
    """Returns the data flow of a graph.

    Args:
        graph: The graph.
        title: The title of the picture.
        path_ns: Each node's time on the critical path.
        texts: The tensors of its ops, where the graph does not hold them.
        sought: The ids of nodes whose boxes are to be outlined.
    """
    calls = calls_of(graph)
    root, boxes = box_tree(graph, calls, path_ns, title)
    for row in np.flatnonzero(np.isin(graph.id[calls.first_row], [*sought])).tolist():
        boxes[row].sought = True
    flows = flows_of(graph, calls, texts or recorded_texts(graph))
    on_path = calls.of_row[np.flatnonzero(path_ns)]
    return DataFlow(title, root, boxes, flows, root.critical_ns, on_path[on_path >= 0])
