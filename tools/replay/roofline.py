"""Tells what limits a kernel on its device by the roofline model: operations, or the bytes that it moves.

A kernel with more operations per byte than the ratio of the device's peaks is compute-bound, else memory-bound
(Williams, Waterman and Patterson, Roofline, 2009). Measured time does not count: a kernel far below its roof is also
limited by something else.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Int64, rows_of_each
from ...schema.device_peaks import Peak, Summary, peak_of
from ...schema.graph import DEVICE_NAME, ExecutionGraph
from .node_class import Classes, NodeClass

UNKNOWN_DEVICE = Peak(*[0.0] * len(Peak._fields))
TF32 = re.compile(r"tf32|xf32|_s1688|_s161616|tensorop_s\d", re.IGNORECASE)
"""How cuBLAS, CUTLASS, cuDNN and hipBLASLt name kernels that compute with fp32 operands on the matrix engines."""


class Bound(Enum):
    """What limits a kernel."""

    COMPUTE = "compute"
    MEMORY = "memory"


class LeastTime(NamedTuple):
    """The least seconds that each kernel needs for its operations and for its bytes; NaN if work or peak is unknown."""

    compute: Summary
    memory: Summary

    def bound_by(self, bound: Bound) -> Bool:
        """Returns which kernels this resource limits, where both times are known and one is above 0."""
        takes_time = (self.compute > 0) | (self.memory > 0)
        chosen = self.compute > self.memory if bound is Bound.COMPUTE else self.compute <= self.memory
        return np.asarray(takes_time & chosen)


class Kernels(NamedTuple):
    """The work of kernels by columns: `element` is the size of an element in bytes, `time` how long each took (ns).

    Unknown numbers are ABSENT.
    """

    name: Categorical
    device: Int64
    operations: Int64
    bytes: Int64
    element: Int64
    time: Int64


def device_peaks(names: Mapping[int, str], overrides: Mapping[str, float] | None = None) -> dict[int, Peak]:
    """Returns the peak of each device by number, from its recorded name, with `overrides` of fields of Peak.

    Devices without a known peak are left out.
    """
    recorded = {device: peak_of(name) or UNKNOWN_DEVICE for device, name in names.items()}
    peaks = {device: peak._replace(**(overrides or {})) for device, peak in recorded.items()}
    return {device: peak for device, peak in peaks.items() if peak != UNKNOWN_DEVICE}


def least_time(kernels: Kernels, peaks: Mapping[int, Peak]) -> LeastTime:
    """Returns the least time of each kernel at the peaks of its device for its number format. O(n log n)."""
    compute, memory = roofs(kernels, peaks)
    operations = np.where(kernels.operations != ABSENT, kernels.operations, np.nan)
    moved = np.where(kernels.bytes != ABSENT, kernels.bytes, np.nan)
    # 0 operations take no time, even in a format that the device does not have
    return LeastTime(np.where(operations == 0, 0.0, operations / compute), np.where(moved == 0, 0.0, moved / memory))


def roofs(kernels: Kernels, peaks: Mapping[int, Peak]) -> tuple[Summary, Summary]:
    """Returns for each kernel its device's peak FLOP/s for its number format, and peak bytes/s; NaN if unknown.

    Where a kernel with fp32 operands is faster than the ordinary units can be, it ran on the matrix engines.
    """
    compute, memory = np.full((2, len(kernels.device)), np.nan)
    tf32 = kernels.name.where(lambda name: TF32.search(name) is not None)
    for number, rows in rows_of_each(kernels.device).items():
        if (peak := peaks.get(number)) is None:
            continue
        rate = peak.tflops(kernels.element[rows])
        if peak.tf32:
            faster = kernels.operations[rows] > 1e3 * rate * np.maximum(kernels.time[rows], 0)
            on_engines = tf32[rows] | (faster & (kernels.time[rows] > 0))
            rate = np.where(on_engines & (kernels.element[rows] == 4), peak.tf32, rate)
        compute[rows], memory[rows] = rate * 1e12, peak.memory * 1e9
    return np.where(compute > 0, compute, np.nan), np.where(memory > 0, memory, np.nan)


def recorded_peaks(graph: ExecutionGraph, overrides: Mapping[str, float] | None = None) -> dict[int, Peak]:
    """Returns the peaks of the devices that ran activities of the graph, as `device_peaks` does."""
    numbers = np.unique(graph.integers("device")[graph.is_activity]).tolist()
    names = {number: str(graph.metadata.get(f"{DEVICE_NAME}{number}", "")) for number in numbers}
    return device_peaks(names, overrides)


def bound_by(
    graph: ExecutionGraph, classes: Classes, bound: Bound, overrides: Mapping[str, float] | None = None
) -> Bool:
    """Returns which nodes are computation that this resource limits, as far as work and device are known."""
    device = graph.integers("device")
    columns = [*(graph.integers(name) for name in ("num_ops", "tensor_size", "element_size")), graph.duration_ns]
    times = least_time(Kernels(graph.name, device, *columns), recorded_peaks(graph, overrides))
    return np.asarray(times.bound_by(bound) & (classes == NodeClass.COMPUTATION))
