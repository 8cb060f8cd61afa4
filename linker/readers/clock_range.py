"""Drops rows of a device trace that are further from the others than any recording lasts."""

from dataclasses import replace

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.linked import LONGEST_RECORDING
from ...schema.reasons import Reason
from .device_rows import DeviceTrace
from .selection import select, select_rows


def within_a_recording(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace without rows that begin more than LONGEST_RECORDING before or after its middle op or activity.

    The dropped rows are counted. Sums and differences of the remaining times fit 64 bits.
    """
    work = np.sort(np.concatenate((device.ops.start, device.activities.start)))
    if not len(work):
        return device
    middle = int(work[len(work) // 2])
    if device.recording_start is not None and abs(device.recording_start - middle) > LONGEST_RECORDING:
        device = replace(device, recording_start=None)
    near = {name: _near(getattr(device, name).start, middle) for name in ("ops", "calls", "activities", "syncs")}
    if device.python is not None:
        near["python"] = _near(device.python.start, middle)
    queued = _near(device.queue_events.start, middle)
    dropped = sum(int((~rows).sum()) for rows in (*near.values(), queued))
    if not dropped:
        return device
    device.skipped[Reason.UNUSABLE_TIME] += dropped
    device.notes.append(
        f"{device.path}: {dropped} events begin more than a year from the middle of the trace and are left out; "
        "their times are in another unit, or of another clock; give ts in µs of one clock"
    )
    return select(replace(device, queue_events=select_rows(device.queue_events, queued)), **near)


def _near(start: Int64, middle: int) -> Bool:
    return np.abs(start - middle) <= LONGEST_RECORDING
