"""A device trace and, in the same pass, what linking does not need of it: bytes of copies and hardware counters.

Bytes are found again by what a linked trace keeps of the same rows: start and correlation of the activity.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from ...linker.device_rows import DeviceTrace
from ...linker.device_trace import read_device_trace
from ...linker.merged import one_rank
from ...schema.columns import Int64
from ...schema.linked import Activities
from ...schema.numbers import identity
from ...schema.times import nanoseconds

T = TypeVar("T")

PROFILER_RANGE = "cuda_profiler_range"


class ProfilerRange(NamedTuple):
    """What the hardware counted during one kernel, or during a range that the user chose; `start` (ns) only tells the order."""

    name: str
    device: int
    start: int
    counters: dict[str, float]


@dataclass(slots=True)
class RecordedArguments:
    """`copied` holds bytes by (start, correlation)."""

    copied: dict[tuple[int, int], int] = field(default_factory=dict)
    ranges: list[ProfilerRange] = field(default_factory=list)

    def bytes_of(self, activities: Activities) -> Int64:
        """The bytes that each activity copied or set, -1 where none were recorded."""
        keys = zip(activities.start.tolist(), activities.correlation.tolist(), strict=True)
        return np.fromiter((self.copied.get(key, -1) for key in keys), np.int64, len(activities))


def read_with_arguments(
    path: str, rank: int | None = None, of_ops: bool = True
) -> tuple[DeviceTrace, RecordedArguments]:
    """A rank's device trace, with the arguments of its ops where asked for, and these. Raises DataError as reading and linking do."""
    found = RecordedArguments()
    device = one_rank(read_device_trace(path, also=partial(_add_ranges, found), arguments=of_ops), rank)
    rows = device.activities
    sized = np.flatnonzero(rows.size >= 0)
    keys = zip(rows.start[sized].tolist(), rows.correlation[sized].tolist(), strict=True)
    found.copied = dict(zip(keys, rows.size[sized].tolist(), strict=True))
    found.ranges.sort(key=lambda one: (one.device, one.start))
    return device, found


class _Event(msgspec.Struct, gc=False):
    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


EVENTS = msgspec.json.Decoder(list[_Event])


def _add_ranges(found: RecordedArguments, text: bytes) -> None:
    """Most lists of events hold no range and are not decoded a second time."""
    if PROFILER_RANGE.encode() not in text:
        return
    ranges = (event for event in EVENTS.decode(text) if str(event.cat or "").lower() == PROFILER_RANGE)
    events = [event for event in ranges if event.ph == "X" and bytes(event.args)]
    starts = nanoseconds([bytes(event.ts).strip(b'"').decode() for event in events])
    for event, start in zip(events, starts.tolist(), strict=True):
        counters = {name: float(value) for name, value in _arguments(event).items() if type(value) in (int, float)}
        found.ranges.append(ProfilerRange(str(event.name), identity(event.pid), start, counters))


def _arguments(event: _Event) -> dict[str, Any]:
    """An event's arguments; none where they are not what they should be."""
    try:
        return msgspec.json.decode(event.args, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
