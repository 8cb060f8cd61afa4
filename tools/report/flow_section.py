"""The data flow of one step on the page: boxes that open and close, and what flows between them."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import orjson

from ...schema.columns import ABSENT, rows_of
from ...schema.graph import ExecutionGraph
from ...schema.linked import Ops
from ..analyses import RankTrace
from ..view import (
    Box,
    DataFlow,
    Selection,
    TensorTexts,
    data_flow,
    figures_of,
    full_text,
    kind_of,
    label_of,
    layered,
    link_text,
    links,
    median_step,
    open_boxes,
    path_times,
    phases_of,
    share_of_path,
    view,
    weight,
)

ON_PAGE, OPEN, HEAVY, ON_PATH = 500, 36, 5, 0.01
"""How many boxes can be seen at once on a page at most, how many are at first, how many of the heaviest are marked, and
the least share of the critical path that is.
"""


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
    flow = data_flow(seen, title, path_ns, texts=_texts(seen, rank.linked.ops))
    return flow if len(flow.boxes) else None


def _texts(graph: ExecutionGraph, ops: Ops) -> TensorTexts:
    """Returns the tensors of the ops, which graphs for analyses do not hold; none where only a graph is given."""
    if not len(ops):
        return TensorTexts(np.empty(0, np.int64), [], [])
    op_id = graph.integers("op_id")
    first_slices = np.flatnonzero((graph.integers("slice") == 0) & (op_id != ABSENT))
    op_rows = rows_of(ops.id, op_id[first_slices])
    nodes, op_rows = first_slices[op_rows >= 0], op_rows[op_rows >= 0]
    return TensorTexts(nodes, [*ops.inputs.take(op_rows)], [*ops.outputs.take(op_rows)])


def flow_section(flow: DataFlow) -> FlowSection:
    """Returns what the page shows of a data flow."""
    opened = open_boxes(flow.root, ON_PAGE, ON_PAGE)
    flow_links = links(flow.flows, flow.boxes, opened)
    boxes = _Boxes(flow, opened)
    layers = layered(flow.root, flow_links)
    kinds = sorted({kind_of(link) for link in flow_links.values()})
    arrows = [
        [boxes.number[source], boxes.number[target], kinds.index(kind_of(link)), link_text(link)]
        for (source, target), link in flow_links.items()
    ]
    phases = phases_of(flow.root)
    outermost = [phases] if phases else layers[flow.root]
    shown = [[boxes.shown(box, layers) for box in layer] for layer in outermost]
    return FlowSection(flow.title, shown, kinds, orjson.dumps({"kinds": kinds, "arrows": arrows}))


class _Boxes:
    """Numbers the boxes, and describes them for the page."""

    def __init__(self, flow: DataFlow, opened: Collection[Box]) -> None:
        self.flow, self.opened = flow, opened
        self.number = {box: number for number, box in enumerate(flow.root.walk())}
        self.at_first = open_boxes(flow.root, OPEN)
        closed = [box for box in flow.root.walk() if box not in opened and box.around in opened]
        self.heavy = {*sorted(closed, key=self._share)[-HEAVY:]}

    def _share(self, box: Box) -> float:
        return weight(box, self.flow.root) / (weight(self.flow.root, self.flow.root) or 1)

    def shown(self, box: Box, layers: dict[Box, list[list[Box]]]) -> FlowBox:
        """Returns a box with all that is in it."""
        on_path = share_of_path(self.flow, box) >= ON_PATH
        looks = box.kind.label, "heavy" * (box in self.heavy and self._share(box) > 0), "on-path" * on_path
        inner = layers.get(box, []) if box in self.opened else []
        return FlowBox(
            number=self.number[box],
            label=label_of(box),
            figures=figures_of(self.flow, box),
            title=full_text(self.flow, box),
            look=" ".join(filter(None, looks)),
            share=100 * self._share(box),
            is_open=box in self.at_first,
            layers=[[self.shown(each, layers) for each in layer] for layer in inner],
        )
