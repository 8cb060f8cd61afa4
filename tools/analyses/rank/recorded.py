"""A device trace and, in the same pass, what linking does not need of it: hardware counters."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from ....linker.readers import DeviceTrace, one_rank, read_device_trace
from ....schema.traces import identity, nanoseconds

T = TypeVar("T")

PROFILER_RANGE = "cuda_profiler_range"


class ProfilerRange(NamedTuple):
    """What the hardware counted during one kernel, or during a range that the user chose; `start` (ns) only tells the order."""

    name: str
    device: int
    start: int
    counters: dict[str, float]


@dataclass(slots=True)
class Recorded:
    """What a device trace records beside work and waits."""

    ranges: list[ProfilerRange] = field(default_factory=list)


def read_recorded(path: str, rank: int | None = None, of_ops: bool = True) -> tuple[DeviceTrace, Recorded]:
    """A rank's device trace, with the arguments of its ops where asked for, and this. Raises DataError as reading and linking do."""
    found = Recorded()
    device = one_rank(read_device_trace(path, also=partial(_add_ranges, found), arguments=of_ops), rank)
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


def _add_ranges(found: Recorded, text: bytes) -> None:
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
