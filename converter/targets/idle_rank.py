"""A rank that takes no part in a job, for a simulator that cannot run a network of one rank."""

import numpy as np

from ...schema.choices import ASTRA_SIM
from ...schema.columns import Categorical, NodeIds, Ragged
from ...schema.graph import ExecutionGraph, NodeType
from .roofline import FIRST_BYTES


def idle_rank(rank: int) -> ExecutionGraph:
    """Returns a graph of one computation of 1 µs, as a graph without nodes does not run; in roofline mode of the least
    work that takes any time.
    """
    ones, no_dependencies = np.ones(1, np.int64), Ragged.of([[]])
    return ExecutionGraph(
        id=NodeIds(ones),
        name=Categorical.of(["no work"]),
        type=np.array([NodeType.COMP], np.uint8),
        data_deps=no_dependencies,
        ctrl_deps=no_dependencies,
        start_time_micros=ones * 0,
        duration_micros=ones,
        attributes={"is_cpu_op": ones * 0, "num_ops": ones, "tensor_size": ones * FIRST_BYTES},
        metadata={"rank": rank, "target": ASTRA_SIM},
    )
