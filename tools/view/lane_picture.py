"""Draws an execution graph as SVG: threads and streams as lanes over time, dependencies between lanes as arrows."""

import math
import re
from collections.abc import Iterator

import numpy as np

from ...converter.timeline import IDLE
from ...schema.columns import Int64, shortened
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from ..replay import WAITS, Classes, NodeClass, gather
from .drawing import curve, lane_names, short_name, svg, xml_text

LEFT, TOP, RIGHT, LANE, BAR, FOOT, UNIT = 150, 34, 16, 46, 22, 34, 60
NARROWEST, WIDEST, PER_NODE = 1200, 12_000, 14
CHARACTER, THINNEST, BEND = 6.6, 0.6, 15
"""Sizes in px: the picture and its parts, a letter, the narrowest bar, an arrow's bend."""
SHORTEST_US = 1e-3

LOOKS = (*(node_class.label for node_class in NodeClass), "waiting", "idle")
"""How nodes are drawn: as their class, as waiting if the host only waits, or as idle between recorded host work."""
REASONS = (*(label for _, label in WAITS), "unknown")
WAITING = re.compile(r"Synchronize")
STYLE = """
text{font:11px system-ui,sans-serif;fill:#39424d}.lane{stroke:#e6eaee}.tick{stroke:#eef1f4}.paper{fill:#fff}
.inside{font-size:10.5px;fill:#fff;pointer-events:none}.bar:hover{stroke:#000;stroke-width:1.5}.sought{stroke:#c2185b;stroke-width:2.5}
.host{fill:#8b9aab}.waiting{fill:#c9d2db}.idle{fill:#e9edf1}.unrecorded{fill:#dde3e9}.computation{fill:#3b78b5}.communication{fill:#d07d22}.memory{fill:#5d9140}
.waiting+.inside,.idle+.inside,.unrecorded+.inside{fill:#5b6672}
path{fill:none}.launch{stroke:#a9b4c0;stroke-width:.7}.host-sync{stroke:#138a7e;stroke-width:1.4}.event-wait{stroke:#c23b3b;stroke-width:1.4}
.hand-off{stroke:#7a4fb5;stroke-width:1.4}.collective,.tensor-flow{stroke:#b5642a;stroke-width:1.4}.stream-order,.program-order,.unknown{stroke:#777}
@media(prefers-color-scheme:dark){text{fill:#c3ccd6}.paper{fill:#14181d}.lane{stroke:#2a323b}.tick{stroke:#20262d}.bar:hover{stroke:#fff}
.waiting,.unrecorded{fill:#333d48}.idle{fill:#252d35}.host{fill:#66788b}.launch{stroke:#566473}.waiting+.inside,.idle+.inside,.unrecorded+.inside{fill:#aeb9c4}}
"""


def draw_lanes(
    graph: ExecutionGraph, origin_ns: int, outlined: int | None = None, time_us: tuple[float, float] | None = None
) -> str:
    """Returns the picture of nodes with times, in µs from `origin_ns`, one outlined; raises DataError for none."""
    scene = _Scene(graph, origin_ns, time_us)
    parts = [
        f'<clipPath id="plot"><rect x="{LEFT}" width="{scene.width - LEFT - RIGHT:.1f}" height="{scene.bottom}"/></clipPath>',
        *scene.axis(), *scene.lanes(),
        '<g clip-path="url(#plot)">' if time_us else "<g>", *scene.bars(outlined), *scene.arrows(), "</g>",
        *scene.legend(),
    ]  # fmt: skip
    return svg(scene.width, scene.bottom + FOOT, STYLE, parts)


def looks(graph: ExecutionGraph, classes: Classes) -> Int64:
    """Returns for each node the position in LOOKS of how it is drawn."""
    host = classes == NodeClass.HOST
    waits = host & graph.name.where(lambda name: bool(WAITING.search(name)))
    positions = np.where(waits, LOOKS.index("waiting"), classes)
    return np.where(host & graph.name.equal(IDLE), LOOKS.index("idle"), positions).astype(np.int64)


class _Scene:
    """Host threads above streams, each sorted by number, with times in µs and the scale in px per µs."""

    def __init__(self, graph: ExecutionGraph, origin_ns: int, time_us: tuple[float, float] | None) -> None:
        self.graph = graph
        self.work = work = gather([graph])
        self.names, self.lane = lane_names(work), work.lane.tolist()
        drawn = np.flatnonzero(work.is_timed)
        if not len(drawn):
            lacking = "no selected node has a recorded time, so there are no lanes to draw"
            raise DataError(f"{lacking}; write .dot or .graphml")
        start = (graph.start_ns - origin_ns) / 1000
        end = start + graph.duration_ns / 1000
        first, last = float(start[drawn].min()), float(end[drawn].max())
        if time_us:
            first, last = max(first, time_us[0]), min(last, time_us[1])
        lanes, count = np.unique(work.lane[drawn], return_counts=True)
        order = sorted(lanes.tolist(), key=lambda lane: (work.lanes[lane].is_stream, work.lanes[lane]))
        self.middle = {lane: TOP + LANE * (row + 0.5) for row, lane in enumerate(order)}
        self.bottom = TOP + LANE * len(order)
        self.drawn, self.start, self.end = drawn.tolist(), start.tolist(), end.tolist()
        self.look = [LOOKS[look] for look in looks(graph, work.node_class).tolist()]
        self.width = min(max(NARROWEST, PER_NODE * int(count.max())), WIDEST)
        self.first_us, self.scale = first, (self.width - LEFT - RIGHT) / max(last - first, SHORTEST_US)

    def x(self, time_us: float) -> float:
        """Returns the x of a time, px."""
        return LEFT + (time_us - self.first_us) * self.scale

    def axis(self) -> Iterator[str]:
        """Yields ticks at round times, about one every 120 px."""
        rough = 120 / self.scale
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.999)
        last = self.first_us + (self.width - LEFT - RIGHT) / self.scale
        decimals = max(0, -math.floor(math.log10(step)))
        for number in range(math.ceil(self.first_us / step), math.floor(last / step) + 1):
            x = self.x(number * step)
            yield f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{self.bottom}"/>'
            yield f'<text x="{x:.1f}" y="{self.bottom + 16}" text-anchor="middle">{number * step:,.{decimals}f}</text>'
        yield f'<text x="{LEFT - UNIT}" y="{self.bottom + 16}" text-anchor="end">µs</text>'

    def lanes(self) -> Iterator[str]:
        """Yields a line and a name for each lane."""
        for lane, y in self.middle.items():
            yield f'<line class="lane" x1="{LEFT}" x2="{self.width - RIGHT}" y1="{y}" y2="{y}"/>'
            yield f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{self.names[lane]}</text>'

    def bars(self, outlined: int | None) -> Iterator[str]:
        """Yields the nodes, named as far as the name fits in."""
        for row in self.drawn:
            name, number, lane = self.graph.name[row], self.graph.id[row], self.lane[row]
            begin, lasts = self.start[row], self.end[row] - self.start[row]
            x, y = self.x(begin), self.middle[lane] - BAR / 2
            width = max(lasts * self.scale, THINNEST)
            look = self.look[row]
            node = f"{look}, node {number}, {self.names[lane]}"
            title = f"<title>{xml_text(name)}\n{node}\n{begin:,.3f} µs + {lasts:,.3f} µs</title>"
            look = f"{look} sought" if number == outlined else look
            yield f'<rect class="bar {look}" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{BAR}" rx="2">{title}</rect>'
            visible_from, label = max(x, LEFT), short_name(name)
            letters = int((x + width - visible_from - 8) / CHARACTER)
            if len(label) > letters:
                # a part that is too short to be recognised says nothing
                label = shortened(label, letters) if letters >= 6 else ""
            if label:
                yield f'<text class="inside" x="{visible_from + 4:.1f}" y="{y + BAR / 2 + 3.5}">{xml_text(label)}</text>'

    def arrows(self) -> Iterator[str]:
        """Yields an arrow for each dependency between lanes, from the end of its source to the start of its target."""
        work, lane, middle = self.work, self.lane, self.middle
        for source, target, kind in zip(work.source.tolist(), work.target.tolist(), work.kind.tolist(), strict=True):
            if lane[source] == lane[target] or {lane[source], lane[target]} - middle.keys():
                continue
            way = 1 if middle[lane[source]] < middle[lane[target]] else -1
            start = self.x(self.end[source]), middle[lane[source]] + way * BAR / 2
            end = self.x(self.start[target]), middle[lane[target]] - way * BAR / 2
            head = f"m-2.5 {-4 * way}l2.5 {4 * way} 2.5 {-4 * way}"
            path = curve(start, (0, way * BEND), end, (0, -way * BEND), head)
            yield f'<path class="{_reason(kind).replace(" ", "-")}" d="{path}"/>'

    def legend(self) -> Iterator[str]:
        """Yields a line of the colours and arrows that occur."""
        work, seen = self.work, {self.look[row] for row in self.drawn}
        across = work.lane[work.source] != work.lane[work.target]
        kinds = {_reason(kind) for kind in np.unique(work.kind[across]).tolist()}
        bar = '<rect class="{}" x="{}" y="10" width="12" height="12" rx="2"/>'
        arrow = '<path class="{}" d="M{} 16h12"/>'
        entries = [(label, bar) for label in LOOKS if label in seen]
        x = float(LEFT)
        for label, mark in (*entries, *((label, arrow) for label in REASONS if label in kinds)):
            yield mark.format(label.replace(" ", "-"), x) + f'<text x="{x + 17}" y="20">{label}</text>'
            x += 17 + CHARACTER * len(label) + 18


def _reason(kind: int) -> str:
    return next((label for bit, label in WAITS if kind & bit), REASONS[-1])
