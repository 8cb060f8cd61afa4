"""Operations and bytes for the roofline mode of a simulator, which divides one by the other for every computation.

A computation takes as long there as its operations at the peak or its bytes, whichever is longer; its measured duration
is not read. With a `Roofline`, computation without known work gets the work of its measured time at both peaks, so that
its duration stays.
"""

import re
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool
from ...schema.device_peaks import peak_of
from ...schema.graph import ExecutionGraph, NodeType

FIRST_BYTES = 1 << 16
"""Least bytes of a node without dependencies: the simulator stops at an event of 0 ns at its start, and no memory moves
so many bytes within 1 ns.
"""
HALF_NS = 0.5
"""Added to measured times, as the simulator truncates to whole ns."""


class Roofline(NamedTuple):
    """The peaks of a device per second: 10**12 floating-point operations, and 10**9 bytes of memory traffic."""

    tflops: float
    memory_gb_s: float


def roofline_of(text: str) -> Roofline:
    """Returns the peaks for DEVICE:FORMAT, from the table of devices, or TFLOPS:GB/S. Raises ValueError for other text.

    >>> roofline_of("V100:fp32"), roofline_of("312:2039")
    (Roofline(tflops=15.7, memory_gb_s=900), Roofline(tflops=312.0, memory_gb_s=2039.0))
    """
    device, _, number_format = text.rpartition(":")
    numbers = [float(part) if re.fullmatch(r"\d+(\.\d+)?", part) else 0.0 for part in (device, number_format)]
    if all(numbers):
        return Roofline(*numbers)
    peak = peak_of(device)
    if peak is None:
        raise ValueError(f"{text!r} is not DEVICE:FORMAT of a device whose peaks are known; TFLOPS:GB/S says them")
    formats = {name: tflops for name, tflops in peak._asdict().items() if tflops and name != "memory"}
    if number_format not in formats:
        raise ValueError(f"{text!r}: the peaks of {device} that are known are of {', '.join(formats)}")
    return Roofline(formats[number_format], peak.memory)


def has_work(graph: ExecutionGraph) -> Bool:
    """Returns which computations of the device have known operations and bytes."""
    has_both = (graph.integers("num_ops") != ABSENT) & (graph.integers("tensor_size") != ABSENT)
    return np.asarray(computes(graph) & has_both)


def computes(graph: ExecutionGraph) -> Bool:
    """Returns which nodes are computations of the device."""
    return np.asarray((graph.type == NodeType.COMP) & (graph.integers("is_cpu_op", 0) == 0))


def for_roofline(graph: ExecutionGraph, peaks: Roofline | None = None) -> int:
    """Gives computations of the device at least one operation and one byte, in place; returns how many have unknown
    work.

    Nodes that only move bytes then take the time of their bytes. Without `peaks`, nodes that take no time, such as
    delays, take none, and unknown work stays unknown. With `peaks` both get the work of `duration_micros` at either
    peak.
    """
    computing, has_known_work = computes(graph), has_work(graph)
    waits = computing & ~has_known_work & (graph.is_delay | (graph.duration_ns == 0))
    if peaks or has_known_work.any():
        operations, moved = graph.integers("num_ops"), graph.integers("tensor_size")
        needs_work = computing if peaks else has_known_work | waits
        least = np.where(graph.data_deps.lengths() == 0, FIRST_BYTES, 1)
        if peaks:
            time = graph.duration_micros * 1000 + HALF_NS
            operations = np.where(has_known_work, operations, (time * peaks.tflops * 1e3).astype(np.int64))
            moved = np.where(has_known_work, moved, (time * peaks.memory_gb_s).astype(np.int64))
        graph.attributes["num_ops"] = np.where(needs_work, np.maximum(operations, 1), operations)
        graph.attributes["tensor_size"] = np.where(needs_work, np.maximum(moved, least), moved)
    return int((computing & ~has_known_work & ~waits).sum())
