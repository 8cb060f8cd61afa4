"""Finds device times that cannot be right: in another unit, on another clock, or of activities that run all at once.

A wrong unit shows in three ways. Copies record bytes and bandwidth, which give their lengths. All starts together span
a power of a thousand times the time of the launches, though the order of launches and waits does not allow that. And on
a stream, which runs one activity at a time, several run for most of the time.
"""

import math

import numpy as np

from ..schema.columns import CallRows, Int64, group_ids, time_text
from ..schema.linked import stream_sorted
from ..schema.machine import AGREEING, MachineCalibration
from .contradiction import Contradiction
from .readers import DeviceTrace

UNIT = 1_000
"""The ratio of a unit of time to the next smaller one."""
SECOND = 1_000_000_000
"""ns, as bandwidths are per second."""


def other_units(device: DeviceTrace, call_row: CallRows, calibration: MachineCalibration) -> Contradiction | None:
    """Checks whether device times are a power of a thousand longer or shorter than other times of the trace."""
    copies, starts = _unit_of_copies(device), _unit_of_starts(device, call_row, calibration)
    power = copies or starts
    if not power:
        return None
    factor = f"{UNIT ** abs(power):,} times too {'long' if power > 0 else 'short'}"
    evidence = [
        *(["the bytes and bandwidth recorded of copies"] if copies else []),
        *(["the order of launches and waits"] if starts else []),
    ]
    what = f"device times are {factor}, by {' and by '.join(evidence)}"
    meaning = "durations, gaps and what depends on them are wrong by as much"
    return Contradiction(device.path, what, meaning, "give ts and dur in µs, as Kineto writes them, or record again")


def _unit_of_copies(device: DeviceTrace) -> int:
    """Returns the power of UNIT by which copies last longer than by their bytes and bandwidth.

    It is 0 where most are right, and where nothing is recorded.
    """
    rows = device.activities
    length = rows.end - rows.start
    copies = np.flatnonzero((rows.size > 0) & (rows.bandwidth > 0) & (length > 0))
    if not len(copies):
        return 0
    return _power(float(np.median(length[copies] * (rows.bandwidth[copies] / rows.size[copies]))) / SECOND)


def _unit_of_starts(device: DeviceTrace, call_row: CallRows, calibration: MachineCalibration) -> int:
    """Returns the power of UNIT by which the starts of activities span more time than their launches.

    It is 0 where the order of launches and waits allows that.
    """
    rows = np.flatnonzero(call_row >= 0)
    start, launch = device.activities.start[rows], device.calls.start[call_row[rows]]
    if len(rows) <= AGREEING:
        return 0
    starts, launches = (int(times.max() - times.min()) for times in (start, launch))
    if not starts or not launches:
        return 0
    power = _power(starts / launches)
    is_early = 2 * int((start < launch).sum()) > len(rows)
    return power if (power < 0 and is_early) or (power > 0 and calibration.clock_error_ns > launches) else 0


def _power(ratio: float) -> int:
    return round(math.log(ratio, UNIT))


def clock_apart(device: DeviceTrace, calibration: MachineCalibration) -> Contradiction | None:
    """Checks whether the clocks are further apart than the recording is long, by the order of launches and waits.

    Activities that only start long after their launches may have waited for earlier work.
    """
    first, last = _recording(device) if calibration.clock_offset_ns else (0, 0)
    if abs(calibration.clock_offset_ns) <= last - first:
        return None
    way = "ahead of" if calibration.clock_offset_ns < 0 else "behind"
    offset, recording = _time(abs(calibration.clock_offset_ns)), _time(last - first)
    what = f"the device's clock is {offset} {way} the host's, in a recording of {recording}"
    meaning = "device times are moved by as much, so that launch latencies are mere estimates"
    return Contradiction(device.path, what, meaning, "record host and device with one profiler, on one machine")


def _recording(device: DeviceTrace) -> tuple[int, int]:
    """Returns the first start and the last end of ops and calls of the host, ns."""
    tables = [table for table in (device.ops, device.calls) if len(table.start)]
    return min(int(table.start.min()) for table in tables), max(int(table.end.max()) for table in tables)


def overlapping_activities(device: DeviceTrace, call_row: CallRows) -> Contradiction | None:
    """Checks whether several activities run on a stream for longer than one does.

    Activities of a CUDA graph do not count: they may run at the same time.
    """
    rows = device.activities
    of_graph = (rows.graph_node > 0) | (_launched_by_call(call_row) > 1)
    order = stream_sorted(rows)
    order = order[~of_graph[order] & (rows.stream[order] >= 0) & (rows.end[order] > rows.start[order])]
    if len(order) <= AGREEING:
        return None
    numbers = group_ids(rows.device[order], rows.stream[order])
    stream = np.concatenate((numbers, numbers))
    time = np.concatenate((rows.start[order], rows.end[order]))
    change = np.repeat([1, -1], len(order))
    in_time = np.lexsort((change, time, stream))
    running = np.cumsum(change[in_time])[:-1]
    lasts = np.diff(time[in_time])
    if int(lasts[running > 1].sum()) <= int(lasts[running == 1].sum()):
        return None
    overlaps = (numbers[1:] == numbers[:-1]) & (rows.start[order][1:] < rows.end[order][:-1])
    first = order[np.argmax(overlaps)]
    what = (
        f"{int(overlaps.sum())} of {len(order)} activities still run when the next of their stream begins (the "
        f"first: correlation {rows.correlation[first]}, {rows.name[first][:40]}), and such overlaps are more than "
        "half of the busy time, though a stream runs one at a time"
    )
    meaning = "they are cut to the start of the next one, so that durations in the graph mean little"
    return Contradiction(
        device.path, what, meaning, "if a script changed the durations, use the original file, else record again"
    )


def _launched_by_call(call_row: CallRows) -> Int64:
    """Returns for each activity how many activities its call launched, 1 for an activity without a call."""
    counts = np.bincount(call_row + 1)
    counts[0] = 1
    return counts[call_row + 1]


def _time(ns: int) -> str:
    return time_text(ns / 1000)
