"""A rank that takes no part in a job, for a simulator that has no network of one rank."""

import numpy as np

from ...schema.choices import ASTRA_SIM
from ...schema.columns import Categorical, Ragged
from ...schema.graph import ExecutionGraph, NodeType
from .roofline import FIRST_BYTES


def idle_rank(rank: int) -> ExecutionGraph:
    """Returns a graph of one computation of 1 µs, in roofline mode of what it takes to last at all: one without nodes
    does not run.
    """
    one, none = np.ones(1, np.int64), Ragged.of([[]])
    return ExecutionGraph(
        id=one,
        name=Categorical.of(["no work"]),
        type=np.array([NodeType.COMP], np.uint8),
        data_deps=none,
        ctrl_deps=none,
        start_time_micros=one * 0,
        duration_micros=one,
        attributes={"is_cpu_op": one * 0, "num_ops": one, "tensor_size": one * FIRST_BYTES},
        metadata={"rank": rank, "target": ASTRA_SIM},
    )
