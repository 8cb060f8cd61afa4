"""Places boxes: layers below each other, phases of training beside each other, and around boxes the box that they are
in.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from ..phase_names import PHASES
from .boxes import Box
from .layers import Rows

PAD, HEAD, ACROSS, DOWN, WRAPPED, APART = 12, 26, 16, 28, 10, 56
"""Sizes in px: around boxes in a box, its title, and the room between boxes: beside each other, between layers, between
rows of one layer, and between phases.
"""
WIDEST_ROW = 620
"""Layers that are wider, px, are broken into rows."""


class Place(NamedTuple):
    """Where a box lies, px."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The x of its right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The y of its lower side."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """The y of its middle."""
        return self.y + self.height / 2


def phases_of(root: Box) -> list[Box]:
    """Returns the outermost boxes in the order of the phases; none if they are no phases."""
    if not all(box.label in PHASES for box in root.inner):
        return []
    return sorted(root.inner, key=lambda box: PHASES.index(box.label))


@dataclass(slots=True)
class Placement:
    """Places of boxes. `closed_size` returns the width and height of a box that is not open, `title_width` the width of
    the title of one that is.
    """

    root: Box
    opened: Collection[Box]
    layers: dict[Box, Rows]
    closed_size: Callable[[Box], tuple[float, float]]
    title_width: Callable[[Box], float]
    places: dict[Box, Place] = field(default_factory=dict)
    phases: list[Box] = field(default_factory=list)
    """The phases from left to right; none if the outermost boxes are no phases."""
    _sizes: dict[Box, tuple[float, float]] = field(default_factory=dict)

    def put(self, x: float, y: float) -> Place:
        """Places all boxes right of and below a point, and returns the place of all together."""
        self.phases = phases_of(self.root)
        self._measure(self.root)
        self._put(self.root, x, y)
        return self.places[self.root]

    def _measure(self, box: Box) -> None:
        """Stores the size of a box and of all in it."""
        if box not in self.opened:
            self._sizes[box] = self.closed_size(box)
            return
        for inner in box.inner:
            self._measure(inner)
        if box is self.root and self.phases:
            width = self._width(self.phases, APART)
            self._sizes[box] = width, self._height(self.phases)
            return
        lines = self._lines(box)
        width = max([self.title_width(box), *(self._width(line) for line, _ in lines)])
        self._sizes[box] = width + 2 * PAD, HEAD + PAD - DOWN + sum(self._height(line) + room for line, room in lines)

    def _put(self, box: Box, x: float, y: float) -> None:
        """Stores the places of a box and of all in it."""
        width, height = self._sizes[box]
        self.places[box] = Place(x, y, width, height)
        if box is self.root and self.phases:
            self._put_line(self.phases, x, y, APART)
        elif box in self.opened:
            y += HEAD
            for line, room in self._lines(box):
                self._put_line(line, x + (width - self._width(line)) / 2, y, ACROSS)
                y += self._height(line) + room

    def _put_line(self, line: list[Box], x: float, y: float, room: float) -> None:
        for box in line:
            self._put(box, x, y)
            x += self._sizes[box][0] + room

    def _lines(self, box: Box) -> list[tuple[list[Box], float]]:
        """Returns the rows of boxes in a box, each with the room below it: layers, the wide ones in several rows."""
        lines: list[tuple[list[Box], float]] = []
        for row in self.layers.get(box, []):
            line: list[Box] = []
            for inner in row:
                if line and self._width([*line, inner]) > WIDEST_ROW:
                    lines.append((line, WRAPPED))
                    line = []
                line.append(inner)
            lines.append((line, DOWN))
        return lines

    def _width(self, line: list[Box], room: float = ACROSS) -> float:
        return sum(self._sizes[box][0] for box in line) + room * (len(line) - 1)

    def _height(self, line: list[Box]) -> float:
        return max(self._sizes[box][1] for box in line)
