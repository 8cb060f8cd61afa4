"""A device trace and, in the same pass, what linking does not need of it: bytes of copies, hardware counters, shapes of ops.

They are found again by what a linked trace keeps of the same rows: start and correlation of an activity; thread, start and name of an op.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from ...linker.categories import Role, role_of
from ...linker.device_trace import DeviceTrace, read_device_trace
from ...linker.merged import one_rank
from ...schema.columns import Int64
from ...schema.linked import Activities
from ...schema.numbers import identity, integer
from ...schema.times import nanoseconds

T = TypeVar("T")

PROFILER_RANGE, SHAPES = "cuda_profiler_range", "Input Dims"


class ProfilerRange(NamedTuple):
    """What the hardware counted during one kernel, or during a range that the user chose; `start` (ns) only tells the order."""

    name: str
    device: int
    start: int
    counters: dict[str, float]


@dataclass(slots=True)
class RecordedArguments:
    """`copied` holds bytes by (start, correlation), `shapes` the input shapes of ops by (thread, start, name) as JSON text."""

    copied: dict[tuple[int, int], int] = field(default_factory=dict)
    ranges: list[ProfilerRange] = field(default_factory=list)
    shapes: dict[tuple[int, int, str], str] = field(default_factory=dict)

    def bytes_of(self, activities: Activities) -> Int64:
        """The bytes that each activity copied or set, -1 where none were recorded."""
        keys = zip(activities.start.tolist(), activities.correlation.tolist(), strict=True)
        return np.fromiter((self.copied.get(key, -1) for key in keys), np.int64, len(activities))


def read_with_arguments(
    path: str, rank: int | None = None, shapes: bool = True
) -> tuple[DeviceTrace, RecordedArguments]:
    """A rank's device trace and these arguments, the shapes of ops only where asked for. Raises DataError as reading and linking do."""
    found = RecordedArguments()
    device = one_rank(read_device_trace(path, also=partial(_add, found, shapes)), rank)
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
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


class _OpArgs(msgspec.Struct):
    shapes: msgspec.Raw = msgspec.field(name=SHAPES, default_factory=msgspec.Raw)


EVENTS = msgspec.json.Decoder(list[_Event])


def _add(found: RecordedArguments, shapes: bool, text: bytes) -> None:
    """Most lists of events hold nothing of the kind and are not decoded a second time."""
    if PROFILER_RANGE.encode() in text:
        _add_ranges(found, _chosen(text, lambda category: category == PROFILER_RANGE))
    if shapes and SHAPES.encode() in text:
        _add_shapes(found, _chosen(text, lambda category: role_of(category) is Role.OP))


def _chosen(text: bytes, wanted: Callable[[str], bool]) -> list[_Event]:
    """The complete events with arguments of the categories wanted."""
    events: Iterable[_Event] = EVENTS.decode(text)
    return [event for event in events if wanted(str(event.cat or "").lower()) and event.ph == "X" and bytes(event.args)]


def _add_ranges(found: RecordedArguments, events: list[_Event]) -> None:
    for event, start in zip(events, _starts(events), strict=True):
        args: dict[str, Any] = _arguments(event, dict)
        counters = {name: float(value) for name, value in args.items() if type(value) in (int, float)}
        found.ranges.append(ProfilerRange(str(event.name), identity(event.pid), start, counters))


def _add_shapes(found: RecordedArguments, events: list[_Event]) -> None:
    for event, start in zip(events, _starts(events), strict=True):
        text = bytes(_arguments(event, _OpArgs).shapes)
        if text:
            found.shapes[integer(event.tid, -1), start, str(event.name)] = text.decode().replace(" ", "")


def _arguments(event: _Event, kind: type[T]) -> T:
    """An event's arguments; none where they are not what they should be."""
    try:
        return msgspec.json.decode(event.args, type=kind)
    except msgspec.DecodeError:
        return kind()


def _starts(events: list[_Event]) -> list[int]:
    """Exact times, as the linked trace has them: decimal text, which a double would cut."""
    starts: list[int] = nanoseconds([bytes(event.ts).strip(b'"').decode() for event in events]).tolist()
    return starts
