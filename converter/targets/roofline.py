"""Operations and bytes as the roofline mode of a simulator takes them: it divides one by the other, for every computation."""

import numpy as np

from ...schema.columns import ABSENT
from ...schema.graph import ExecutionGraph, NodeType

FIRST_BYTES = 1 << 16
"""Of what nothing precedes: the simulator stops at an event of 0 ns at its start, and no memory moves these within 1 ns."""


def for_roofline(graph: ExecutionGraph) -> int:
    """Gives every computation of the device whose work is known at least one operation and one byte, in place, and delays just these;
    how many there are whose work is not known.

    What only moves bytes then takes the time of its bytes; what does neither, as a delay, takes none.
    """
    computing = (graph.type == NodeType.COMP) & (graph.integers("is_cpu_op", 0) == 0)
    operations, moved = graph.integers("num_ops"), graph.integers("tensor_size")
    known = computing & ((operations != ABSENT) & (moved != ABSENT) | graph.is_delay)
    if (known & ~graph.is_delay).any():
        least = np.where(graph.data_deps.lengths() == 0, FIRST_BYTES, 1)
        graph.attributes["num_ops"] = np.where(known, np.maximum(operations, 1), operations)
        graph.attributes["tensor_size"] = np.where(known, np.maximum(moved, least), moved)
    return int((computing & ~known).sum())
