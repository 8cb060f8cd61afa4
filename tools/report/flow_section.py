"""The data flow of one step on the page: boxes that open and close, and what flows between them."""

from typing import NamedTuple

import numpy as np
import orjson

from ...schema.columns import ABSENT, OpRows, rows_of
from ...schema.graph import ExecutionGraph
from ...schema.linked import Ops, Tensors
from ..analyses import RankTrace
from ..view import Box, DataFlow, Selection, ShownFlow, data_flow, median_step, path_times, view

ON_PAGE, OPEN = 500, 36
"""How many boxes can be seen at once on a page at most, and how many are at first."""


class FlowBox(NamedTuple):
    """A box on the page: its texts, classes and share of all time (%), and the layers of what is in it."""

    number: int
    label: str
    figures: str
    title: str
    look: str
    share: float
    is_open: bool
    layers: "list[list[FlowBox]]"


class FlowSection(NamedTuple):
    """What the page shows: whose step it is, the outermost boxes in layers, the kinds of arrows, and arrows as JSON.

    An arrow is the numbers of its boxes, the position of its kind, and its text.
    """

    title: str
    layers: list[list[FlowBox]]
    kinds: list[str]
    arrows: bytes


def step_flow(rank: RankTrace) -> DataFlow | None:
    """Returns the data flow of a rank's step of median length, of the whole run if no steps are marked; None where
    there is nothing to show.
    """
    graph, replay = rank.graph, rank.replayed()
    if graph is None or replay is None:
        return None
    step = median_step(graph)
    seen = view(graph, Selection(step=step)).graph
    path_ns = path_times(replay)[graph.rows_of(seen.id)]
    title = f"rank {rank.rank}, {f'step {step}' if step is not None else 'the whole run'}"
    flow = data_flow(seen, title, path_ns, tensors=_tensors(seen, rank.linked.ops))
    return flow if len(flow.boxes) else None


def _tensors(graph: ExecutionGraph, ops: Ops) -> Tensors | None:
    """Returns the tensors of the ops, which graphs for analyses do not hold; None where only a graph is given."""
    if not len(ops):
        return None
    op_id = graph.integers("op_id")
    nodes = np.flatnonzero((graph.integers("slice") == 0) & (op_id != ABSENT))
    op_rows = rows_of(ops.id, op_id[nodes])
    nodes, op_rows = nodes[op_rows >= 0], op_rows[op_rows >= 0]
    tensors = ops.arguments.tensors.of(OpRows(op_rows))
    return tensors._replace(row=nodes[tensors.row])


def flow_section(flow: DataFlow) -> FlowSection:
    """Returns what the page shows of a data flow."""
    shown = ShownFlow(flow, flow.open_boxes(ON_PAGE, ON_PAGE))
    number = {box: number for number, box in enumerate(flow.root.walk())}
    at_first = flow.open_boxes(OPEN)

    def layers_of(box: Box) -> list[list[FlowBox]]:
        return [[described(inner) for inner in layer] for layer in shown.layers.get(box, []) if box in shown.opened]

    def described(box: Box) -> FlowBox:
        looks = box.kind.label, "heavy" * (box in shown.heavy), "on-path" * flow.is_on_path(box)
        return FlowBox(
            number[box],
            box.title,
            flow.figures(box),
            flow.full_text(box),
            " ".join(filter(None, looks)),
            100 * flow.share(box),
            box in at_first,
            layers_of(box),
        )

    kinds = sorted({link.kind for link in shown.links.values()})
    arrows = [
        [number[source], number[target], kinds.index(link.kind), link.text]
        for (source, target), link in shown.links.items()
    ]
    json = orjson.dumps({"kinds": kinds, "arrows": arrows})
    return FlowSection(flow.title, layers_of(flow.root), kinds, json)
