"""Which boxes are open, what flows between those that are seen, and the layers in which boxes lie: each below all from
which something flows to it.
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from .boxes import Box
from .flows import Flows

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
