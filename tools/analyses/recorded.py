"""Reads from a device trace the arguments that linking does not need: bytes of copies, hardware counters, shapes of ops.

They are found again by what a linked trace keeps of the same rows: start and correlation of an activity; thread, start and name of an op.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from ...linker.categories import MEMORY_CATEGORIES, Role, role_of
from ...schema.columns import Int64
from ...schema.command import progress_bytes
from ...schema.errors import DataError
from ...schema.files import open_input
from ...schema.json_stream import ArrayReader, decode
from ...schema.linked import Activities
from ...schema.numbers import identity, integer
from ...schema.times import nanoseconds

log = logging.getLogger("execgraph")

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
    """`copied` holds bytes by (start, correlation), `shapes` the input shapes of ops by (thread, start, name) as JSON text."""

    copied: dict[tuple[int, int], int] = field(default_factory=dict)
    ranges: list[ProfilerRange] = field(default_factory=list)
    shapes: dict[tuple[int, int, str], str] = field(default_factory=dict)

    def bytes_of(self, activities: Activities) -> Int64:
        """The bytes that each activity copied or set, -1 where none were recorded."""
        keys = zip(activities.start.tolist(), activities.correlation.tolist(), strict=True)
        return np.fromiter((self.copied.get(key, -1) for key in keys), np.int64, len(activities))


class _Event(msgspec.Struct, gc=False):
    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)


class _CopyArgs(msgspec.Struct):
    bytes: Any = None
    size: Any = None
    correlation: Any = None


class _OpArgs(msgspec.Struct):
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default_factory=msgspec.Raw)


def read_recorded_arguments(path: str, shapes: bool = True) -> RecordedArguments:
    """Reads them from `path` in one pass, the shapes of ops only where asked for.

    A damaged file is read as far as it goes, which is said. Raises DataError when there is no such file.
    """
    found = RecordedArguments()
    with open_input(path) as stream, progress_bytes("read arguments", None) as bar:
        reader: ArrayReader[_Event] = ArrayReader(stream, path, "traceEvents", _Event, bar.update)
        for _, events in reader:
            _add(found, events, shapes)
    bare = reader.document.lstrip()[:1] == b"["
    text = b'{"traceEvents":' + reader.document + b"}" if bare else reader.document
    try:
        _add(found, decode(text, _File, path).events, shapes)
    except DataError:
        log.warning("warning: %s: bytes of copies, counters and shapes behind the damage are not known", path)
    found.ranges.sort(key=lambda one: (one.device, one.start))
    return found


def _add(found: RecordedArguments, events: Iterable[_Event], shapes: bool) -> None:
    copies: list[_Event] = []
    ranges: list[_Event] = []
    ops: list[_Event] = []
    wanted = dict.fromkeys(MEMORY_CATEGORIES, copies) | {PROFILER_RANGE: ranges}
    for event in events:
        category = str(event.cat or "").lower()
        rows = wanted.get(category)
        if rows is None and shapes and role_of(category) is Role.OP:
            rows = ops
        if rows is not None and event.ph == "X" and bytes(event.args):
            rows.append(event)
    _add_copies(found, copies)
    _add_ranges(found, ranges)
    _add_shapes(found, ops)


def _add_copies(found: RecordedArguments, events: list[_Event]) -> None:
    for event, start in zip(events, _starts(events), strict=True):
        args = _arguments(event, _CopyArgs)
        size = integer(args.bytes if args.bytes is not None else args.size, -1)
        if size >= 0:
            found.copied[start, integer(args.correlation, 0)] = size


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
