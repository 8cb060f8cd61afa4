"""The data flow of a graph, or of a part of one, ready to be drawn."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...schema.columns import Int64, group_sums
from ...schema.graph import ExecutionGraph
from ..replay import Replay, pieces_of
from .boxes import Box, box_tree
from .calls import calls_of
from .flows import Flows, TensorTexts, flows_of, recorded_texts
from .layers import seen_as


@dataclass(slots=True)
class DataFlow:
    """Boxes, the box of each call, and what flows between calls. `critical_ns` is the time of the critical path in it;
    `path` are the calls on the critical path, in order of time.
    """

    title: str
    root: Box
    boxes: list[Box]
    flows: Flows
    critical_ns: int
    path: Int64

    def critical_links(self, opened: Collection[Box]) -> set[tuple[Box, Box]]:
        """Returns the pairs of seen boxes that follow each other on the critical path."""
        seen = [seen_as(self.boxes[call], opened) for call in self.path.tolist()]
        return {*pairwise(seen)}


def path_times(replay: Replay) -> Int64:
    """Returns each node's time (ns) on the critical path."""
    count, pieces = len(replay.work), pieces_of(replay)
    of_nodes = pieces.row < count
    return group_sums(pieces.row[of_nodes], pieces.time[of_nodes], count)


def data_flow(
    graph: ExecutionGraph,
    title: str,
    path_ns: Int64,
    *,
    texts: TensorTexts | None = None,
    sought: Collection[int] = (),
) -> DataFlow:
    """Returns the data flow of a graph.

    Args:
        graph: The graph.
        title: The title of the picture.
        path_ns: Each node's time on the critical path.
        texts: The tensors of its ops, where the graph does not hold them.
        sought: The ids of nodes whose boxes are to be outlined.
    """
    calls = calls_of(graph)
    root, boxes = box_tree(graph, calls, path_ns, title)
    for row in np.flatnonzero(np.isin(graph.id[calls.first_row], [*sought])).tolist():
        boxes[row].sought = True
    flows = flows_of(graph, calls, texts or recorded_texts(graph))
    on_path = calls.of_row[np.flatnonzero(path_ns)]
    return DataFlow(title, root, boxes, flows, root.critical_ns, on_path[on_path >= 0])
