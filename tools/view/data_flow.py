"""The data flow of a graph: what flows between its boxes, which of these are seen, and the layers in which they lie."""

import heapq
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

import numpy as np

from ...schema.columns import Int64, bytes_text, group_sums, time_text
from ...schema.graph import ExecutionGraph
from ...schema.linked import Tensors
from ..replay import WAITS, Replay, calls_of, pieces_of
from ..terminal import list_names
from .calls import DATA, PHASES, Box, Flows, box_tree, flows_of, recorded_tensors

FEW = 12
"""Ops are opened only while fewer boxes than this are seen."""
MIDDLE = 0.5
"""Where boxes lie in their layers, from 0 to 1, into which nothing flows."""
HEAVY, ON_PATH = 5, 0.01
"""How many of the heaviest boxes are marked; the least share of the critical path that is."""
LISTED = 12
DATA_LABEL, OTHER_LABEL = "data", "other order"
Rows = list[list[Box]]


@dataclass(slots=True)
class Link:
    """What flows from one box to another: kinds of flows, and how many bytes in how many tensors.

    >>> Link({DATA}, size=3 << 20, count=2).text, Link({8}).text
    ('2 tensors, 3.0 MiB', 'event wait')
    """

    kinds: set[int] = field(default_factory=set)
    size: int = 0
    count: int = 0

    @property
    def kind(self) -> str:
        """Data, or the most specific reason."""
        if DATA in self.kinds:
            return DATA_LABEL
        return next((label for bit, label in WAITS if any(kind & bit for kind in self.kinds)), OTHER_LABEL)

    @property
    def text(self) -> str:
        """What flows, in words."""
        if DATA not in self.kinds:
            return self.kind
        return f"{self.count:,} tensor{'s' if self.count > 1 else ''}, {bytes_text(self.size)}"


@dataclass(slots=True)
class DataFlow:
    """Boxes, the box of each call, and what flows between calls; `path` are the calls on the critical path."""

    title: str
    root: Box
    boxes: list[Box]
    flows: Flows
    path: Int64

    def weight(self, box: Box) -> int:
        """Returns the time of a box by which boxes are compared: on the device, on the host where nothing ran there."""
        return box.device_ns if self.root.device_ns else int(box.time.sum())

    def share(self, box: Box) -> float:
        """Returns the share of a box in all time by which boxes are compared."""
        return self.weight(box) / (self.weight(self.root) or 1)

    def share_of_path(self, box: Box) -> float:
        """Returns the share of the critical path that is spent in a box."""
        return box.critical_ns / (self.root.critical_ns or 1)

    def is_on_path(self, box: Box) -> bool:
        """Returns whether as much of the critical path is spent in a box as is marked."""
        return self.share_of_path(box) >= ON_PATH

    def figures(self, box: Box) -> str:
        """Returns the time of a box, and its share of the critical path."""
        time, share = self.weight(box), self.share_of_path(box)
        of = " device" if self.root.device_ns else ""
        figures = [f"{time_text(time / 1000)}{of}"] if time else []
        if not time and box.host_ns:
            figures.append(f"{time_text(box.host_ns / 1000)} host")
        if share >= 0.005:
            figures.append(f"{100 * share:.0f} % of path")
        return " · ".join(figures)

    def full_text(self, box: Box) -> str:
        """Returns all that is known of a box, in lines."""
        lines = [" / ".join(each.label for each in box.path()[1:])]
        lines += [f"{box.calls:,} calls"] if box.calls > 1 else []
        path = f", {100 * self.share_of_path(box):.1f} % of the critical path" if self.root.critical_ns else ""
        device = f"{time_text(box.device_ns / 1000)} on the device, " if self.root.device_ns else ""
        lines.append(f"{device}{time_text(box.host_ns / 1000)} on the host{path}")
        if box.inner:
            lines.append(f"in it: {list_names([each.title for each in box.inner], LISTED)}")
        return "\n".join(lines)

    def phases(self) -> list[Box]:
        """Returns the outermost boxes in the order of the phases; none if they are no phases."""
        if not all(box.label in PHASES for box in self.root.inner):
            return []
        return sorted(self.root.inner, key=lambda box: PHASES.index(box.label))

    def open_boxes(self, most: int, few: int = FEW) -> set[Box]:
        """Returns the boxes to open so that at most `most` are seen: groups and sought ones, then ops while few are."""
        around_sought = {around for box in self.root.walk() if box.sought for around in box.path()}
        opened, seen, order = set[Box](), 1, count()
        pending = [(False, False, 0, next(order), self.root)]
        while pending:
            is_op, *_, box = heapq.heappop(pending)
            if box is not self.root and (seen - 1 + len(box.inner) > most or (is_op and seen >= few)):
                continue
            opened.add(box)
            seen += len(box.inner) - 1
            for inner in box.inner:
                if inner.inner:
                    is_op = not (inner.is_group or inner in around_sought)
                    heapq.heappush(pending, (is_op, box is not self.root, -self.weight(inner), next(order), inner))
        return opened


class ShownFlow:
    """What is seen while some boxes are open: the others in these, what flows between those, and their layers."""

    def __init__(self, flow: DataFlow, opened: set[Box]) -> None:
        self.flow, self.opened = flow, opened
        self.closed = [box for box in flow.root.walk() if box not in opened and box.around in opened]
        heaviest = sorted(self.closed, key=lambda box: -flow.weight(box))[:HEAVY]
        self.heavy = {box for box in heaviest if flow.weight(box)}

    def seen_as(self, box: Box) -> Box:
        """Returns the outermost box around a box, or itself, that is not open."""
        return next((each for each in box.path() if each not in self.opened), box)

    @cached_property
    def links(self) -> dict[tuple[Box, Box], Link]:
        """What flows between the boxes that are seen."""
        seen = [self.seen_as(box) for box in self.flow.boxes]
        flow_links: dict[tuple[Box, Box], Link] = defaultdict(Link)
        for source, target, kind, size in zip(*(column.tolist() for column in self.flow.flows), strict=True):
            ends = seen[source], seen[target]
            if ends[0] is not ends[1] and ends[0] not in ends[1].path() and ends[1] not in ends[0].path():
                link = flow_links[ends]
                link.kinds.add(kind)
                link.size += size
                link.count += 1
        return dict(flow_links)

    @cached_property
    def layers(self) -> dict[Box, Rows]:
        """The layers of what is in each box; of the outermost one the phases in one row, if it holds phases."""
        before: dict[Box, set[Box]] = defaultdict(set)
        for source, target in self.links:
            a, b = next((a, b) for a, b in zip(source.path(), target.path(), strict=False) if a is not b)
            before[b].add(a)
        layers = {box: _layers(box.inner, before) for box in self.flow.root.walk() if box.inner}
        phases = self.flow.phases()
        return layers | ({self.flow.root: [phases]} if phases else {})


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
    rows = [[box for box in in_order if layer[box] == number] for number in sorted({*layer.values()})]
    # each layer is sorted by where what flows into its boxes comes from
    position: dict[Box, float] = {}
    for row in rows:
        sources = {box: [position[source] for source in before[box] if source in position] for box in row}
        mean = {box: sum(positions) / len(positions) if positions else MIDDLE for box, positions in sources.items()}
        row.sort(key=mean.__getitem__)
        position |= {box: (number + MIDDLE) / len(row) for number, box in enumerate(row)}
    return rows


def path_times(replay: Replay) -> Int64:
    """Returns each node's time (ns) on the critical path."""
    nodes, pieces = len(replay.work), pieces_of(replay)
    of_nodes = pieces.row < nodes
    return group_sums(pieces.row[of_nodes], pieces.time[of_nodes], nodes)


def data_flow(
    graph: ExecutionGraph, title: str, path_ns: Int64, *, tensors: Tensors | None = None, sought: Collection[int] = ()
) -> DataFlow:
    """Returns the data flow of a graph. `path_ns` is each node's time on the critical path, `sought` are the ids of
    nodes whose boxes are to be outlined, and `tensors` those of its ops by row, where the graph does not hold them.
    """
    calls = calls_of(graph)
    root, boxes = box_tree(graph, calls, path_ns, title)
    for row in np.flatnonzero(np.isin(graph.id[calls.first_row], [*sought])).tolist():
        boxes[row].sought = True
    flows = flows_of(graph, calls, recorded_tensors(graph) if tensors is None else tensors)
    on_path = calls.of_row[np.flatnonzero(path_ns)]
    return DataFlow(title, root, boxes, flows, on_path[on_path >= 0])
