"""Draws the data flow of a graph as SVG: boxes in boxes by module and op, what flows between them as arrows."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ...schema.errors import DataError, Spelled
from .calls import Box
from .data_flow import DataFlow, ShownFlow
from .drawing import curve, svg, xml_text

PAD, HEAD, ACROSS, DOWN, WRAPPED, APART = 12, 26, 16, 28, 10, 56
"""Sizes in px: around boxes, a box's title, and between boxes, layers, rows of one layer, and phases."""
WIDEST_ROW = 620
"""Layers that are wider, px, are broken into rows."""
Size = tuple[float, float]
HEADS = {"down": "m-3 -5l3 5 3 -5", "right": "m-5 -3l5 3 -5 3", "left": "m5 -3l-5 3 5 3"}
OUT, FARTHER, FARTHEST = 14, 14, 44
"""How far an arrow goes around, px: at least, a px more for so many px of length, and that much more at most."""
MOST = 72
"""So many closed boxes are drawn at most, so that people can read the picture."""
LETTER, SMALL_LETTER, NARROWEST, WIDEST, HIGH = 8.0, 5.6, 96, 320, 40
"""Sizes in px: a letter of a name and of other text, the width of a closed box, and its height."""
TOP, MARGIN, OUTSIDE = 62, 16, 44
"""Sizes in px: the heading, around the picture, and the room for arrows that go around the last box."""
STYLE = """
text{font:11.5px system-ui,sans-serif;fill:#27313b}.paper{fill:#fff}.small{font-size:10px;fill:#66727f}
.title{font-size:14px;font-weight:600}.name{font-weight:600}
.group{fill:#f3f6f9;stroke:#ccd5de}.op{fill:#fbfcfd;stroke:#ccd5de}.box{stroke-width:1.2}.heavy{stroke-width:2.6}
.host{fill:#e4e9ee;stroke:#8b9aab}.computation{fill:#dbe8f5;stroke:#3b78b5}
.communication{fill:#f8e6d2;stroke:#d07d22}.memory{fill:#e3eedb;stroke:#5d9140}.bar{stroke:none}
.bar.host{fill:#8b9aab}.bar.computation{fill:#3b78b5}.bar.communication{fill:#d07d22}.bar.memory{fill:#5d9140}
.sought{stroke:#c2185b;stroke-width:3}.path-mark{fill:#c2185b;stroke:none}
path{fill:none;stroke-width:1.2}path.far{opacity:.6}path.between{opacity:.4}
path.critical,path:hover{stroke-width:2.6;opacity:1}
.data{stroke:#7d8b99}.host-sync{stroke:#138a7e}.event-wait{stroke:#c23b3b}.hand-off{stroke:#7a4fb5}
.collective,.tensor-flow{stroke:#b5642a}
.launch,.stream-order,.program-order,.other-order{stroke:#b3bcc6;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){text{fill:#dde5ec}.paper{fill:#11161b}.small{fill:#93a1ae}
.group{fill:#182027;stroke:#36424e}.op{fill:#141b21;stroke:#36424e}.data{stroke:#7b8a99}
.host{fill:#2a343e;stroke:#73869a}.computation{fill:#1f3349;stroke:#5593cf}
.communication{fill:#46301b;stroke:#e0924a}.memory{fill:#273a1f;stroke:#79b05a}}
"""


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


class _Line(NamedTuple):
    """Boxes beside each other: the room between them and below them, the width and height of all, px."""

    boxes: list[Box]
    apart: float
    below: float
    width: float
    height: float


def draw_flow(flow: DataFlow) -> str:
    """Returns the picture. Raises DataError where there is nothing in it."""
    if not flow.root.inner:
        problem = "no selected node is an op, a call or an activity, so there is no data flow to draw"
        lanes = Spelled("--picture lanes", 'picture="lanes"')
        raise DataError(f"{problem}; give ", lanes, ", or write .dot or .graphml")
    drawing = _Drawing(flow)
    place = drawing.put(MARGIN, TOP, flow.root)
    heading, end_of_heading = drawing.heading()
    width, height = max(place.right + OUTSIDE, end_of_heading) + MARGIN, place.bottom + MARGIN
    return svg(width, height, STYLE, (*heading, *drawing.frames(), *drawing.arrows(), *drawing.closed_boxes()))


class _Drawing:
    """Opens and places boxes, and draws them: layers below each other, phases of training beside each other."""

    def __init__(self, flow: DataFlow) -> None:
        self.flow, self.root, self.has_phases = flow, flow.root, bool(flow.phases())
        self.shown = ShownFlow(flow, flow.open_boxes(MOST))
        self.sizes: dict[Box, Size] = {}
        self.lines: dict[Box, list[_Line]] = {}
        self.places: dict[Box, Place] = {}
        self._measure(self.root)

    def _measure(self, box: Box) -> None:
        """Stores the size of a box and of all in it, and the lines in which these lie."""
        title, figures = LETTER * len(box.title), SMALL_LETTER * len(self.flow.figures(box))
        if box not in self.shown.opened:
            self.sizes[box] = min(max(max(title, figures) + 22, NARROWEST), WIDEST), HIGH
            return
        for inner in box.inner:
            self._measure(inner)
        layers = self.shown.layers.get(box, [])
        is_row_of_phases = box is self.root and self.has_phases
        lines = self.lines[box] = [self._line(layers[0], APART, 0)] if is_row_of_phases else [*self._wrapped(layers)]
        widths, height = [line.width for line in lines], sum(line.height + line.below for line in lines)
        if is_row_of_phases:
            self.sizes[box] = max(widths), height
        else:
            self.sizes[box] = max(title + figures, *widths) + 2 * PAD, HEAD + PAD - DOWN + height

    def _line(self, boxes: list[Box], apart: float, below: float) -> _Line:
        widths, heights = zip(*(self.sizes[box] for box in boxes), strict=True)
        return _Line(boxes, apart, below, sum(widths) + apart * (len(boxes) - 1), max(heights))

    def _wrapped(self, layers: list[list[Box]]) -> Iterator[_Line]:
        """Yields layers as lines, the wide ones in several."""
        for layer in layers:
            line: list[Box] = []
            for box in layer:
                if line and self._line([*line, box], ACROSS, 0).width > WIDEST_ROW:
                    yield self._line(line, ACROSS, WRAPPED)
                    line = []
                line.append(box)
            yield self._line(line, ACROSS, DOWN)

    def put(self, x: float, y: float, box: Box) -> Place:
        """Places a box right of and below a point, and returns its place."""
        width, height = self.sizes[box]
        self.places[box] = Place(x, y, width, height)
        y += 0 if box is self.root and self.has_phases else HEAD
        for line in self.lines.get(box, []):
            line_x = x + (width - line.width) / 2
            for inner in line.boxes:
                line_x = self.put(line_x, y, inner).right + line.apart
            y += line.height + line.below
        return self.places[box]

    def heading(self) -> tuple[list[str], float]:
        """Returns the title and a line of the colours and arrows that occur, and where it ends."""
        parts = [f'<text class="title" x="{MARGIN}" y="22">{xml_text(self.flow.title)}</text>']
        x = float(MARGIN)
        box = '<rect class="box {}" x="{}" y="34" width="12" height="12" rx="2"/>'
        arrow, mark = '<path class="{}" d="M{} 40h14"/>', '<rect class="{}" x="{}" y="34" width="4" height="12"/>'
        entries = [(kind, kind, box) for kind in dict.fromkeys(each.kind.label for each in self.shown.closed)]
        entries += [(kind, kind, arrow) for kind in sorted(link.kind for link in self.shown.links.values())]
        entries += [("on the critical path", "path-mark", mark)] if self.root.critical_ns else []
        for label, look, drawn in dict.fromkeys(entries):
            parts.append(drawn.format(look.replace(" ", "-"), x))
            parts.append(f'<text class="small" x="{x + 19:.1f}" y="44">{label}</text>')
            x += 19 + SMALL_LETTER * len(label) + 18
        of = "device" if self.root.device_ns else "host"
        last = f"bars: share of the {of} time; thick frames: the most of it"
        parts.append(f'<text class="small" x="{x:.1f}" y="44">{last}</text>')
        return parts, x + SMALL_LETTER * len(last)

    def frames(self) -> Iterator[str]:
        """Yields the open boxes, outer ones first."""
        for box in self.root.walk():
            if box in self.shown.opened and box is not self.root:
                place, look = self.places[box], "group" if box.is_group else "op"
                yield self._rect(box, f"{look} sought" if box.sought else look, 6)
                yield f'<text class="name" x="{place.x + PAD:.1f}" y="{place.y + 17:.1f}">{xml_text(box.title)} '
                yield f'<tspan class="small">{self.flow.figures(box)}</tspan></text>'

    def closed_boxes(self) -> Iterator[str]:
        """Yields the boxes that are not open."""
        for box in self.shown.closed:
            x, y, width, height = self.places[box]
            kind, bar = box.kind.label, (width - 2) * self.flow.share(box)
            yield self._rect(box, f"box {kind}" + " heavy" * (box in self.shown.heavy) + " sought" * box.sought, 4)
            if bar >= 0.5:
                place = f'x="{x + 1:.1f}" y="{y + height - 4:.1f}" width="{bar:.1f}" height="3"'
                yield f'<rect class="bar {kind}" {place}/>'
            if self.flow.is_on_path(box):
                place = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="4" height="{height - 2}"'
                yield f'<rect class="path-mark" {place}/>'
            yield f'<text class="name" x="{x + 11:.1f}" y="{y + 16:.1f}">{xml_text(box.title)}</text>'
            yield f'<text class="small" x="{x + 11:.1f}" y="{y + 30:.1f}">{self.flow.figures(box)}</text>'

    def _rect(self, box: Box, look: str, round_: int) -> str:
        x, y, width, height = self.places[box]
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_}"'
        return f'<rect class="{look}" {place}><title>{xml_text(self.flow.full_text(box))}</title></rect>'

    def arrows(self) -> Iterator[str]:
        """Yields what flows between the closed boxes."""
        on_path = {box for box in self.shown.closed if self.flow.is_on_path(box)}
        path = pairwise(self.shown.seen_as(self.flow.boxes[call]) for call in self.flow.path.tolist())
        critical = {ends for ends in path if {*ends} <= on_path}
        for (source, target), link in self.shown.links.items():
            way, look = self._way(source, target)
            look = f"{link.kind.replace(' ', '-')} {look}" + " critical" * ((source, target) in critical)
            title = xml_text(f"{source.title} → {target.title}\n{link.text}")
            yield f'<path class="{look}" d="{way}"><title>{title}</title></path>'

    def _way(self, source: Box, target: Box) -> tuple[str, str]:
        """Returns the path of an arrow, and how prominent it is: `near`, `far`, or `between` boxes of two groups."""
        a, b = self.places[source], self.places[target]
        of_two_phases = self.has_phases and source.path()[1] is not target.path()[1]
        if of_two_phases or (a.y < b.bottom and b.y < a.bottom):
            look = "near" if source.around is target.around else "between"
            if a.right <= b.x:
                bend = max((b.x - a.right) / 2, 4)
                return curve((a.right, a.middle), (bend, 0), (b.x, b.middle), (-bend, 0), HEADS["right"]), look
            if b.right <= a.x:
                bend = max((a.x - b.right) / 2, 4)
                return curve((a.x, a.middle), (-bend, 0), (b.right, b.middle), (bend, 0), HEADS["left"]), look
        gap = b.y - a.bottom
        if 0 < gap <= 3 * DOWN:
            start, end = (a.x + a.width / 2, a.bottom), (b.x + b.width / 2, b.y)
            return curve(start, (0, gap / 2), end, (0, -gap / 2), HEADS["down"]), "near"
        start, end = (a.right, a.y + 0.7 * a.height), (b.right, b.y + 0.3 * b.height)
        farthest = max(a.right, b.right) + OUT + min(abs(end[1] - start[1]) / FARTHER, FARTHEST)
        return curve(start, (farthest - a.right, 0), end, (farthest - b.right, 0), HEADS["left"]), "far"
