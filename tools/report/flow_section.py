"""The data flow of one step on the page: boxes that open and close, and what flows between them."""

import numpy as np
import orjson

from ...schema.columns import ABSENT, OpRows, rows_of
from ..analyses import RankTrace
from ..view import Box, DataFlow, Selection, ShownFlow, data_flow, median_step, path_times, view

ON_PAGE, OPEN = 500, 36
"""How many boxes can be seen at once on a page at most, and how many are at first."""


def step_flow(rank: RankTrace) -> DataFlow | None:
    """Returns the data flow of a rank's step of median length, of the whole run if no steps are marked; None where
    there is nothing to show.
    """
    graph, replay, ops = rank.graph, rank.replayed(), rank.linked.ops
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


class FlowSection:
    """What the page shows of a data flow: boxes by number, those of the `opened` ones that are open at first, and the
    kinds of arrows between the boxes that are seen.
    """

    def __init__(self, flow: DataFlow) -> None:
        self.flow, self.shown = flow, ShownFlow(flow, flow.open_boxes(ON_PAGE, ON_PAGE))
        self.number = {box: number for number, box in enumerate(flow.root.walk())}
        self.open_at_first = flow.open_boxes(OPEN)
        self.kinds = sorted({link.kind for link in self.shown.links.values()})

    def layers(self, box: Box) -> list[list[Box]]:
        """Returns the layers of what is seen in a box."""
        return self.shown.layers.get(box, []) if box in self.shown.opened else []

    def look(self, box: Box) -> str:
        """Returns the classes of a box in the page's style."""
        looks = box.kind.label, "heavy" * (box in self.shown.heavy), "on-path" * self.flow.is_on_path(box)
        return " ".join(filter(None, looks))

    @property
    def arrows(self) -> bytes:
        """The arrows as JSON, each the numbers of its boxes, the position of its kind, and its text."""
        arrows = [
            [self.number[source], self.number[target], self.kinds.index(link.kind), link.text]
            for (source, target), link in self.shown.links.items()
        ]
        return orjson.dumps({"kinds": self.kinds, "arrows": arrows})
