"""What the time of a node is spent on: one class per node of an execution graph."""

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ...schema.columns import Bool, Categorical
from ...schema.graph import ExecutionGraph, NodeType
from ...schema.linked import MEMORY_CATEGORIES

Classes = npt.NDArray[np.uint8]

UNRECORDED_WORK = ("unrecorded host",)
"""Names of host nodes for unrecorded work. `host idle` is not among them: it is mostly Python running between ops."""

COMMUNICATION_TYPES = (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL)
MEMORY_TYPES = (NodeType.MEM_LOAD, NodeType.MEM_STORE)
MEMORY_NAME = re.compile(r"__amd_rocclr_(copy|fill)Buffer|MEMORY_COPY_|dma_request$")
"""Names of copies and sets that are recorded as kernels: ROCm's runtime launches kernels for them, MTIA DMA requests.
"""


class NodeClass(IntEnum):
    """What the time of a node is spent on; DELAY is time that no dependency explains."""

    HOST = 0
    COMPUTATION = 1
    COMMUNICATION = 2
    MEMORY = 3
    UNRECORDED = 4
    METADATA = 5
    DELAY = 6

    @property
    def label(self) -> str:
        """The name in lower case."""
        return self.name.lower()


def node_classes(graph: ExecutionGraph) -> Classes:
    """Returns the NodeClass of each of the graph's n nodes."""
    classes = np.where(graph.is_activity, NodeClass.COMPUTATION, NodeClass.HOST).astype(np.uint8)
    classes[graph.name.equal(*UNRECORDED_WORK) & ~graph.is_activity] = NodeClass.UNRECORDED
    memory = graph.is_activity & moves_memory(graph.name, graph.texts("cat"))
    classes[memory | np.isin(graph.type, MEMORY_TYPES)] = NodeClass.MEMORY
    classes[np.isin(graph.type, COMMUNICATION_TYPES)] = NodeClass.COMMUNICATION
    classes[(graph.type == NodeType.METADATA) | graph.is_start_offset] = NodeClass.METADATA
    classes[graph.is_delay] = NodeClass.DELAY
    return classes


def moves_memory(name: Categorical, category: Categorical) -> Bool:
    """Returns which activities only copy or set memory: by category, or by name if the category is that of kernels."""
    by_category = category.where(lambda text: text.lower() in MEMORY_CATEGORIES)
    return by_category | name.where(lambda text: MEMORY_NAME.match(text) is not None)
