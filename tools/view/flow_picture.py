"""Draws the data flow of a graph as SVG: boxes in boxes by module and op, what flows between them as arrows.

Phases of training lie beside each other. Hovering over a box or an arrow tells more; colours follow the viewer's light
or dark mode.
"""

from collections.abc import Iterator

from .arrows import way
from .boxes import Box
from .data_flow import DataFlow
from .flow_wording import figures_of, full_text, kind_of, label_of, link_text, share_of_path
from .layers import closed, layered, links, open_boxes, weight
from .placement import PAD, Placement
from .xml_text import xml_text

MOST = 72
"""So many closed boxes are drawn at most, so that people can read the picture."""
LETTER, SMALL_LETTER, NARROWEST, WIDEST, HIGH = 8.0, 5.6, 96, 320, 40
"""Sizes in px: a letter of a name and of other text, the width of a closed box, and its height."""
TOP, MARGIN, OUTSIDE = 62, 16, 44
"""Sizes in px: the heading, around the picture, and the room for arrows that go around the last box."""
HEAVY, ON_PATH = 5, 0.01
"""How many of the heaviest boxes are marked; the least share of the critical path that is."""
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


def draw_flow(flow: DataFlow) -> str:
    """Returns the picture."""
    return "\n".join(_Drawing(flow).parts())


class _Drawing:
    """Opens and places boxes, and draws them."""

    def __init__(self, flow: DataFlow) -> None:
        self.flow, self.root = flow, flow.root
        self.opened = open_boxes(flow.root, MOST)
        self.links = links(flow.flows, flow.boxes, self.opened)
        self.seen = [*closed(flow.root, self.opened)]
        heaviest = sorted(self.seen, key=lambda box: -weight(box, flow.root))[:HEAVY]
        self.heavy = {box for box in heaviest if weight(box, flow.root)}
        layers = layered(flow.root, self.links)
        self.placement = Placement(flow.root, self.opened, layers, self._closed_size, self._title_width)

    def parts(self) -> Iterator[str]:
        """Yields the picture."""
        place = self.placement.put(MARGIN, TOP)
        heading, end_of_heading = self._heading()
        width, height = max(place.right + OUTSIDE, end_of_heading) + MARGIN, place.bottom + MARGIN
        size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
        yield f'<style>{STYLE}</style><rect class="paper" width="100%" height="100%"/>'
        yield from heading
        yield from self._frames()
        yield from self._arrows()
        yield from self._closed_boxes()
        yield "</svg>\n"

    def _closed_size(self, box: Box) -> tuple[float, float]:
        width = max(LETTER * len(label_of(box)), SMALL_LETTER * len(figures_of(self.flow, box)))
        return min(max(width + 22, NARROWEST), WIDEST), HIGH

    def _title_width(self, box: Box) -> float:
        return LETTER * len(label_of(box)) + SMALL_LETTER * len(figures_of(self.flow, box))

    def _heading(self) -> tuple[list[str], float]:
        """Returns the title and a line of the colours and arrows that occur, and where it ends."""
        parts = [f'<text class="title" x="{MARGIN}" y="22">{xml_text(self.flow.title)}</text>']
        x = float(MARGIN)
        box = '<rect class="box {}" x="{}" y="34" width="12" height="12" rx="2"/>'
        arrow, mark = '<path class="{}" d="M{} 40h14"/>', '<rect class="{}" x="{}" y="34" width="4" height="12"/>'
        entries = [(kind, kind, box) for kind in dict.fromkeys(each.kind.label for each in self.seen)]
        entries += [(kind, kind, arrow) for kind in sorted(map(kind_of, self.links.values()))]
        entries += [("on the critical path", "path-mark", mark)] if self.flow.critical_ns else []
        for label, look, drawn in dict.fromkeys(entries):
            parts.append(drawn.format(look.replace(" ", "-"), x))
            parts.append(f'<text class="small" x="{x + 19:.1f}" y="44">{label}</text>')
            x += 19 + SMALL_LETTER * len(label) + 18
        of = "device" if self.root.device_ns else "host"
        last = f"bars: share of the {of} time; thick frames: the most of it"
        parts.append(f'<text class="small" x="{x:.1f}" y="44">{last}</text>')
        return parts, x + SMALL_LETTER * len(last)

    def _frames(self) -> Iterator[str]:
        """Yields the open boxes, outer ones first."""
        for box in self.root.walk():
            if box not in self.opened or box is self.root:
                continue
            place, look = self.placement.places[box], "group" if box.is_group else "op"
            yield self._rect(box, f"{look} sought" if box.sought else look, 6)
            yield f'<text class="name" x="{place.x + PAD:.1f}" y="{place.y + 17:.1f}">{xml_text(label_of(box))} '
            yield f'<tspan class="small">{figures_of(self.flow, box)}</tspan></text>'

    def _closed_boxes(self) -> Iterator[str]:
        """Yields the boxes that are not open."""
        total = weight(self.root, self.root) or 1
        for box in self.seen:
            x, y, width, height = self.placement.places[box]
            kind, bar = box.kind.label, (width - 2) * weight(box, self.root) / total
            yield self._rect(box, f"box {kind}" + " heavy" * (box in self.heavy) + " sought" * box.sought, 4)
            if bar >= 0.5:
                place = f'x="{x + 1:.1f}" y="{y + height - 4:.1f}" width="{bar:.1f}" height="3"'
                yield f'<rect class="bar {kind}" {place}/>'
            if share_of_path(self.flow, box) >= ON_PATH:
                place = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="4" height="{height - 2}"'
                yield f'<rect class="path-mark" {place}/>'
            yield f'<text class="name" x="{x + 11:.1f}" y="{y + 16:.1f}">{xml_text(label_of(box))}</text>'
            yield f'<text class="small" x="{x + 11:.1f}" y="{y + 30:.1f}">{figures_of(self.flow, box)}</text>'

    def _rect(self, box: Box, look: str, round_: int) -> str:
        x, y, width, height = self.placement.places[box]
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_}"'
        return f'<rect class="{look}" {place}><title>{xml_text(full_text(self.flow, box))}</title></rect>'

    def _arrows(self) -> Iterator[str]:
        """Yields what flows between the closed boxes."""
        on_path = {box for box in self.seen if share_of_path(self.flow, box) >= ON_PATH}
        critical = {ends for ends in self.flow.critical_links(self.opened) if {*ends} <= on_path}
        for (source, target), link in self.links.items():
            path, look = way(self.placement, source, target)
            look = f"{kind_of(link).replace(' ', '-')} {look}" + " critical" * ((source, target) in critical)
            title = xml_text(f"{label_of(source)} → {label_of(target)}\n{link_text(link)}")
            yield f'<path class="{look}" d="{path}"><title>{title}</title></path>'
