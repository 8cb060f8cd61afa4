"""Finds activities that begin before their stream can run them. A stream runs one activity at a time, in the order of
their launches, and after what it was told to wait for. Only kernels launched with attributes may begin beside the one
before them (programmatic dependent launch), and graphs run on streams of their own.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, CallRows, Int64, group_ids, isin, rows_of_each
from ..schema.linked import FOREVER, NEVER, Calls
from ..schema.machine import AGREEING, ANY_MACHINE
from .overruns import MATTERS, one_by_one
from .readers import DeviceTrace
from .waits import StreamQueues, SyncRecords, submitted_streams

WITH_ATTRIBUTES, OF_GRAPH = re.compile("LaunchKernelEx"), re.compile("GraphLaunch")
MOST_DAMAGED = 0.25
"""If less of the waits of one stream for another are too short, single rows may be damaged."""


class EarlyActivities(NamedTuple):
    """Activities that begin before their stream can run them, and what contradicts them, in words."""

    row: Int64
    words: str


def too_early(device: DeviceTrace, call_row: CallRows) -> EarlyActivities:
    """Returns the activities that begin before their stream can run them, without a few that chance explains."""
    activities, calls = device.activities, device.calls
    order = one_by_one(activities, call_row)
    order = order[~_named(calls, OF_GRAPH)[call_row[order]]]
    start, end, call = activities.start[order], activities.end[order], call_row[order]
    stream, at = group_ids(activities.device[order], activities.stream[order]), np.arange(len(order))
    # one that may begin beside the one before it does not begin beside two
    before = np.maximum(at - 1 - (_named(calls, WITH_ATTRIBUTES)[call] | (call < 0)), -1)
    by = np.where(np.append(stream, -1)[before] == stream, end[before] - start, 0)
    overlaps = by > ANY_MACHINE.upper
    is_few = overlaps.sum() < AGREEING and by[overlaps].sum() <= MATTERS * (end.max(initial=0) - start.min(initial=0))
    against = np.zeros(len(order), np.bool_)
    launched, returned = np.append(calls.start, NEVER)[call], np.append(calls.end, FOREVER)[call]
    against[1:] = (stream[1:] == stream[:-1]) & (returned[1:] < launched[:-1]) & (start[1:] > start[:-1])
    rows, words = list[Int64](), list[str]()
    for found, which in (
        (order[overlaps & ~is_few], "while the one before them runs"),
        (order[against], "before one that was launched earlier"),
        *_before_awaited(device, call_row),
    ):
        rows.append(found)
        words += [f"{len(found):,} {which}"] * bool(len(found))
    return EarlyActivities(np.unique(np.concatenate(rows)), ", ".join(words))


def _named(calls: Calls, pattern: "re.Pattern[str]") -> Bool:
    """Returns which calls are named so; the last one is for no call (-1)."""
    return np.append(calls.name.where(lambda name: pattern.search(name) is not None), False)


def _before_awaited(device: DeviceTrace, call_row: CallRows) -> Iterator[tuple[Int64, str]]:
    """Yields what begins before what its stream was told to wait for has ended, by the two streams."""
    activities, calls = replace(device.activities, call_row=call_row), device.calls
    if len(np.unique(activities.device)) != 1 or not len(device.syncs.start):
        return
    waits = SyncRecords(calls, device.syncs, device.event_records, StreamQueues(activities, calls)).stream_waits()
    source, target = np.full((2, len(waits.call_row)), -1)
    for key, rows, submitted in submitted_streams(activities, calls.start):
        awaited, waiting, rows = waits.awaited == key.stream, waits.waiting == key.stream, np.append(rows, -1)
        source[awaited] = rows[np.searchsorted(submitted, calls.start[waits.recorder[awaited]]) - 1]
        target[waiting] = rows[np.searchsorted(submitted, calls.start[waits.call_row[waiting]])]
    is_known = isin(source, order := one_by_one(activities, call_row)) & isin(target, order)
    is_known &= waits.waiting != waits.awaited
    is_early = is_known & (activities.end[source] - activities.start[target] > ANY_MACHINE.upper)
    for pair in rows_of_each(group_ids(waits.waiting, waits.awaited)).values():
        early = pair[is_early[pair]]
        if len(early) > MOST_DAMAGED * is_known[pair].sum():
            waiting, awaited = waits.waiting[pair[0]], waits.awaited[pair[0]]
            what = f"on stream {waiting} before what that waits for on stream {awaited} has ended"
            yield np.unique(target[early]), what
