"""Bytes of tensors that are live while a node runs, on the device that it runs on."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64, rows_by_number
from ...schema.linked import HOST
from ..context import ConversionContext
from ..work import highest_within, lifetimes, live_bytes


class LiveBytes(NamedTuple):
    """Bytes for each node of the host's timeline and each activity; ABSENT where no tensors are recorded."""

    host: Int64
    activities: Int64


def most_live_bytes(context: ConversionContext) -> LiveBytes:
    """Returns the most bytes that are live on the host during each slice of an op, and the bytes that are live on the
    device when each activity is launched. O(n log n).

    The host allocates and frees memory in its own order, ahead of the device.
    """
    storages, timeline = lifetimes(context.linked.ops), context.timeline
    host, activities = (np.full(count, ABSENT) for count in (len(timeline), len(context.linked.activities)))
    slices = np.flatnonzero((timeline.op_row >= 0) & ~timeline.is_wait)
    on_host = storages.where(storages.device == HOST)
    if len(on_host.storage):
        host[slices] = highest_within(live_bytes(on_host), timeline.start[slices], timeline.end[slices])
    has_call = np.flatnonzero(context.linked.activities.call_row >= 0)
    device = _as_tensors_number(context.linked.activities.device, storages.device)
    launched = rows_by_number(has_call, device)
    for number, living in rows_by_number(np.flatnonzero(storages.device != HOST), storages.device).items():
        if (rows := launched.get(number)) is None:
            continue
        curve = live_bytes(storages.where(living))
        activities[rows] = highest_within(curve, context.launched[rows], context.launched[rows])
    return LiveBytes(host, activities)


def _as_tensors_number(device: Int64, of_tensors: Int64) -> Int64:
    """Returns the device numbers of activities as tensors number the devices.

    PyTorch numbers the devices that a process sees, some profilers those of the machine. A single device is the same.
    """
    ran, named = np.unique(device), np.unique(of_tensors[of_tensors != HOST])
    return np.broadcast_to(named, device.shape) if len(ran) == len(named) == 1 else device
