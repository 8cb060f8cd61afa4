"""What limits a kernel on its device, by the roofline model: operations, or the bytes that they need.

A kernel that does more operations per byte than the device can do while it moves one is bound by compute, else by memory (Williams,
Waterman and Patterson, Roofline, 2009). Time is not asked: a kernel far below its roof is bound by neither.
"""

from collections.abc import Mapping
from enum import Enum

import numpy as np

from ...schema.columns import ABSENT, Bool
from ...schema.device_peaks import Figures, Peak, peak_of
from ...schema.graph import DEVICE_NAME, ExecutionGraph

UNKNOWN_DEVICE = Peak(*[0.0] * len(Peak._fields))


class Bound(Enum):
    """What limits a kernel."""

    COMPUTE = "compute"
    MEMORY = "memory"


def device_peaks(graph: ExecutionGraph, given: Mapping[str, float] | None = None) -> dict[int, Peak]:
    """The peak of each device of the graph that is known, by number: by its recorded name, with what is `given` instead."""
    devices = np.unique(graph.integers("device")[graph.is_activity]).tolist()
    names = {device: str(graph.metadata.get(f"{DEVICE_NAME}{device}", "")) for device in devices}
    known = {device: peak_of(name) for device, name in names.items()}
    peaks = {device: (peak or UNKNOWN_DEVICE)._replace(**(given or {})) for device, peak in known.items()}
    return {device: peak for device, peak in peaks.items() if peak != UNKNOWN_DEVICE}


def roofs(graph: ExecutionGraph, peaks: Mapping[int, Peak]) -> tuple[Figures, Figures]:
    """For each node the FLOP/s and the bytes/s that its device can do at most for its number format; NaN where not known."""
    device, element = graph.integers("device"), graph.integers("element_size", 0)
    compute, memory = np.full((2, len(graph)), np.nan)
    for number, peak in peaks.items():
        own = graph.is_activity & (device == number)
        compute[own], memory[own] = peak.tflops(element[own]) * 1e12, peak.memory_gb_s * 1e9
    return np.where(compute > 0, compute, np.nan), np.where(memory > 0, memory, np.nan)


def bound_by(graph: ExecutionGraph, bound: Bound, given: Mapping[str, float] | None = None) -> Bool:
    """Which nodes are computation bound so, as far as their work and their device are known."""
    operations, moved = graph.integers("num_ops"), graph.integers("tensor_size")
    known = (operations != ABSENT) & (moved != ABSENT) & ((operations > 0) | (moved > 0))
    compute, memory = roofs(graph, device_peaks(graph, given))
    # what does no operations is bound by memory on any device with a memory
    takes = np.where(operations > 0, operations / compute, 0.0), np.where(moved > 0, moved / memory, 0.0)
    told = known & ~np.isnan(takes[0]) & ~np.isnan(takes[1])
    chosen = takes[0] > takes[1] if bound is Bound.COMPUTE else takes[0] <= takes[1]
    return np.asarray(told & chosen)
