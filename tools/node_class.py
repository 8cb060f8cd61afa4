"""What the time of a node is spent on: one class per node of an execution graph."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ..linker.categories import MEMORY_CATEGORIES
from ..schema.columns import Bool, Strings
from ..schema.graph import ExecutionGraph, NodeType

Classes = npt.NDArray[np.uint8]

UNRECORDED_WORK = ("carry-in", "unrecorded host")
"""Host nodes for what the trace did not record. `host idle` is not one: it is mostly Python at work between ops."""

COMMUNICATION_TYPES = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
MEMORY_TYPES = (NodeType.MEM_LOAD, NodeType.MEM_STORE)


class NodeClass(IntEnum):
    HOST = 0
    COMPUTATION = 1
    COMMUNICATION = 2
    MEMORY = 3
    UNRECORDED = 4
    METADATA = 5

    @property
    def label(self) -> str:
        return self.name.lower()


def node_classes(graph: ExecutionGraph) -> Classes:
    """The NodeClass of each of the graph's n nodes."""
    classes = np.where(graph.is_activity, NodeClass.COMPUTATION, NodeClass.HOST).astype(np.uint8)
    classes[_rows_with(graph.name, UNRECORDED_WORK) & ~graph.is_activity] = NodeClass.UNRECORDED
    classes[_rows_with(graph.texts("cat"), MEMORY_CATEGORIES) | np.isin(graph.type, MEMORY_TYPES)] = NodeClass.MEMORY
    classes[np.isin(graph.type, COMMUNICATION_TYPES)] = NodeClass.COMMUNICATION
    classes[graph.type == NodeType.METADATA] = NodeClass.METADATA
    return classes


def _rows_with(texts: Strings, wanted: tuple[str, ...]) -> Bool:
    # one row more than the table has, for the code -1 of rows without a text
    found = np.array([text.lower() in wanted for text in texts.table] + [False])
    return found[texts.codes]
