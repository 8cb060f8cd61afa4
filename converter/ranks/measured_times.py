"""When the nodes of a rank's graph ran, on the host's clock."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import ExecutionGraph, NodeType
from ...schema.linked import FOREVER


class MeasuredTimes(NamedTuple):
    """When the rank began, in ns on the host's clock, and when each node started and ended, in ns since then."""

    begin_ns: int
    start_ns: Int64
    end_ns: Int64


def measured_times(graph: ExecutionGraph) -> MeasuredTimes:
    """Returns when each node ran as measured, including the overlap that was cut off its duration."""
    start = graph.host_clock_start_ns
    delay = graph.integers("host_delay_ns", 0)
    # a graph without host begins with the host delay of its first activity
    before = np.where((graph.data_deps.lengths() == 0) & (delay > 0), graph.integers("gap_ns", 0) + delay, 0)
    timed = graph.type != NodeType.METADATA
    begin = int((start - before)[timed].min(initial=FOREVER)) if timed.any() else 0
    end = start + graph.duration_ns + graph.integers("overlap_ns", 0)
    return MeasuredTimes(begin, start - begin, end - begin)
