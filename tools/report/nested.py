"""What lies in each other on the page: modules as an icicle graph, each below the one that calls it, as wide as its
time; and the data flow of one step, as boxes that open and close.
"""

from typing import Any

import numpy as np

from ...schema.columns import ABSENT, OpRows, rows_of
from ..analyses import RankTrace, Table
from ..view import Box, DataFlow, Selection, ShownFlow, data_flow, median_step, path_times, view
from .cells import Row
from .drawing import SERIES, Chart, axis, chart, data, hover

MOST = 2000
NARROWEST, MOST_RANKS = 0.001, 4
MODULE, LETTER = 22, 6.4
"""Sizes in px: the height of a module in the graph, the width of a letter."""


def modules(table: Table) -> list[Chart]:
    """Returns a graph of device time, or of host time without a device, for each of the first ranks whose modules take
    time.
    """
    of = "device" if np.asarray(table["device_subtree"], np.float64).any() else "host"
    of_rank: dict[int, list[Row]] = {}
    for row in table.rows():
        times = {"time": row[f"{of}_subtree"] or 0.0, "self": row[f"{of}_self"]}
        of_rank.setdefault(row["rank"], []).append(row | times)
    ranks = [*of_rank.items()][:MOST_RANKS]
    prefix = "rank {}, " if len(of_rank) > 1 else ""
    return [chart for rank, rows in ranks for chart in _icicles(rows, f"{prefix.format(rank)}time on the {of}")]


def _icicles(rows: list[Row], title: str) -> list[Chart]:
    ends, bars, whole = [0.0], list[Row](), sum(row["time"] for row in rows if not row["depth"])
    for row in rows:
        # after its earlier siblings, within its parent
        begin = ends[row["depth"]]
        end = begin + row["time"]
        ends[row["depth"] :] = [end, begin]
        kind = row["name"].rpartition("_")[0] or row["name"]
        if row["time"] > NARROWEST * whole:
            bars.append({**row, "kind": kind, "from": begin, "to": end, "of_all": 100 * row["time"] / whole})
    drawn = sorted(bars, key=lambda bar: bar["from"] - bar["to"])[:MOST]
    if not drawn:
        return []
    tooltip = hover("path", "time [µs]", "of_all [%]", "self [µs]", "critical_pct [%]", "ops []", "activities []")
    scale = {"domain": [0, whole], "nice": False}
    shared = {
        "x": axis("from [µs]", "time", scale=scale, axis={"tickCount": 6, "grid": False}),
        "y": {"field": "depth", "type": "ordinal", "title": None, "axis": None},
        "tooltip": tooltip,
    }
    kinds = {"field": "kind", "type": "nominal", "scale": {"range": SERIES}, "legend": None}
    boxes = {
        "mark": {"type": "rect", "stroke": "var(--paper)", "fillOpacity": 0.45},
        "encoding": shared | {"x2": {"field": "to"}, "color": kinds},
    }
    letters = f"(datum.to - datum.from) / {whole} * width / {LETTER} - 2"
    names = {
        "transform": [{"calculate": f"{letters} > 2 ? truncate(datum.name, {letters}) : ''", "as": "label"}],
        "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 11.5, "color": "var(--ink)", "clip": True},
        "encoding": shared | {"text": {"field": "label", "type": "nominal"}},
    }
    return [
        chart(
            MODULE * (1 + max(bar["depth"] for bar in drawn)),
            title={"text": title, "anchor": "start", "color": "var(--muted)", "fontSize": 12},
            data=data(drawn, "name", "kind", "depth", "from", "to", *(told["field"] for told in tooltip)),
            layer=[boxes, names],
        )
    ]


ON_PAGE, OPEN = 500, 36
"""How many boxes can be seen at once on a page at most, and how many are at first."""


def step_flow(rank: RankTrace) -> DataFlow | None:
    """Returns the data flow of a rank's step of median length, of the whole run if no steps are marked; None where
    there is nothing to show.
    """
    graph, replay, ops = rank.graph, rank.replay, rank.linked.ops
    if graph is None or replay is None:
        return None
    step = median_step(graph)
    seen = view(graph, Selection(step=step)).graph
    path_ns = path_times(replay)[graph.rows_of(seen.id)]
    title = f"rank {rank.rank}, {f'step {step}' if step is not None else 'the whole run'}"
    tensors = None
    if len(ops):  # graphs for analyses hold no tensors, the ops do
        op_id = seen.integers("op_id")
        nodes = np.flatnonzero((seen.integers("slice") == 0) & (op_id != ABSENT))
        op_rows = rows_of(ops.id, op_id[nodes])
        nodes, op_rows = nodes[op_rows >= 0], op_rows[op_rows >= 0]
        tensors = ops.arguments.tensors.of(OpRows(op_rows))
        tensors = tensors._replace(row=nodes[tensors.row])
    flow = data_flow(seen, title, path_ns, tensors=tensors)
    return flow if len(flow.boxes) else None


def flow_boxes(flow: DataFlow) -> dict[str, Any]:
    """Returns what the page shows of a data flow: boxes by number in layers, those that are `open` at first and all
    with the layers of what is seen in them; arrows, each the numbers of its boxes, the position of its kind, its text.
    """
    shown, open_at_first = ShownFlow(flow, flow.open_boxes(ON_PAGE, ON_PAGE)), flow.open_boxes(OPEN)
    number = {box: position for position, box in enumerate(flow.root.walk())}
    kinds = sorted({link.kind for link in shown.links.values()})

    def layers(box: Box) -> list[list[dict[str, Any]]]:
        return [[*map(described, layer)] for layer in shown.layers.get(box, ())] if box in shown.opened else []

    def described(box: Box) -> dict[str, Any]:
        looks = "box", box.kind.label, "heavy" * (box in shown.heavy), "on-path" * flow.is_on_path(box)
        return {
            "number": number[box],
            "title": box.title,
            "figures": flow.figures(box),
            "text": flow.full_text(box),
            "share": flow.share(box),
            "look": " ".join(filter(None, looks)),
            "open": box in open_at_first,
            "layers": layers(box),
        }

    links = shown.links.items()
    arrows = [[number[source], number[target], kinds.index(link.kind), link.text] for (source, target), link in links]
    return {"title": flow.title, "kinds": kinds, "arrows": arrows, "layers": layers(flow.root)}
