"""How many bytes of tensors live while a node runs, on the device that it runs on."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64, rows_by_number
from ..context import ConversionContext
from ..storages import HOST, highest_within, lifetimes, live_bytes


class LiveBytes(NamedTuple):
    """Of each node of the host's timeline and of each activity; ABSENT where no tensor tells."""

    host: Int64
    activities: Int64


def most_live_bytes(context: ConversionContext) -> LiveBytes:
    """Returns of slices of ops the most that live on the host meanwhile, of activities what lives on their device when
    they are launched.

    Memory is got and given back in the order of the host, which launches ahead of the device. O(n log n).
    """
    storages, timeline = lifetimes(context.linked.ops), context.timeline
    host, activities = (np.full(count, ABSENT) for count in (len(timeline), len(context.linked.activities)))
    slices = np.flatnonzero((timeline.op_row >= 0) & ~timeline.is_wait)
    on_host = storages.where(storages.device == HOST)
    if len(on_host.storage):
        host[slices] = highest_within(live_bytes(on_host), timeline.start[slices], timeline.end[slices])
    called = np.flatnonzero(context.linked.activities.call_row >= 0)
    device = _as_tensors_number(context.linked.activities.device, storages.device)
    launched = rows_by_number(called, device)
    for number, living in rows_by_number(np.flatnonzero(storages.device != HOST), storages.device).items():
        if (rows := launched.get(number)) is None:
            continue
        steps = live_bytes(storages.where(living))
        activities[rows] = highest_within(steps, context.launched[rows], context.launched[rows])
    return LiveBytes(host, activities)


def _as_tensors_number(device: Int64, of_tensors: Int64) -> Int64:
    """PyTorch numbers the devices that a process sees, some profilers all of the machine: a single one is the same."""
    ran, named = np.unique(device), np.unique(of_tensors[of_tensors != HOST])
    return np.broadcast_to(named, device.shape) if len(ran) == len(named) == 1 else device
