"""Reads a device trace, and in the same pass hardware counters, allocations and the program's marks of graph nodes."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...linker.readers import INSTANT, DeviceTrace, one_rank, read_device_trace
from ...schema.columns import ABSENT, Bool, Int64
from ...schema.linked import identities, identity, integer, integers, nanoseconds

PROFILER_RANGE = "cuda_profiler_range"
MEMORY = "[memory]"
HOST_TYPE, HOST = 0, -1
"""PyTorch's number for the device type of the host, and the device number of the host here."""


class ProfilerRange(NamedTuple):
    """The hardware counters of one kernel, or of a range that the user chose; `start` (ns) only gives the order."""

    name: str
    device: int
    start: int
    counters: dict[str, float]


class Allocations(NamedTuple):
    """Allocations (`size` in bytes) and releases (`size` below 0) in order of time (ns); `device` is -1 for the host.

    `allocated` and `reserved` are the totals (bytes) after each; -1 if not recorded.
    """

    time: Int64
    process: Int64
    thread: Int64
    device: Int64
    address: Int64
    size: Int64
    allocated: Int64
    reserved: Int64

    def where(self, chosen: "Bool | Int64") -> "Allocations":
        """Returns the chosen rows."""
        return Allocations(*(column[chosen] for column in self))


def no_allocations() -> Allocations:
    """Returns columns without rows."""
    return Allocations(*np.empty((8, 0), np.int64))


@dataclass(slots=True)
class Recorded:
    """What a device trace records besides work and waits.

    `marks` are texts by graph node that the program gave during capture with PyTorch's `mark_kernels`, and that
    `torch.cuda._annotate_cuda_graph_trace` writes into the trace.
    """

    ranges: list[ProfilerRange] = field(default_factory=list)
    allocations: Allocations = field(default_factory=no_allocations)
    marks: dict[int, str] = field(default_factory=dict)


def read_recorded(
    path: str, rank: int | None = None, *, of_ops: bool = True, memory: bool = True, modules: bool = False
) -> tuple[DeviceTrace, Recorded]:
    """Reads a rank's device trace, and in the same pass what linking does not need of it.

    With `of_ops` the arguments of ops are read, with `memory` allocations, with `modules` Python's calls. Raises
    DataError as reading and linking do.
    """
    ranges: list[ProfilerRange] = []
    marks: dict[int, str] = {}
    pieces = [no_allocations()]
    every_rank = read_device_trace(
        path,
        tee=partial(_add, ranges, marks, pieces if memory else None),
        arguments=of_ops,
        keep_categories=(INSTANT,) if memory else (),
        modules=modules,
    )
    device = one_rank(every_rank, rank)
    ranges.sort(key=lambda range_: (range_.device, range_.start))
    allocations = Allocations(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))
    return device, Recorded(ranges, _allocations_of_rank(allocations, every_rank, device, rank), marks)


class _Event(msgspec.Struct, gc=False):
    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


class _Memory(msgspec.Struct, gc=False):
    """The arguments of an allocation."""

    size: Any = msgspec.field(name="Bytes", default=None)
    address: Any = msgspec.field(name="Addr", default=None)
    device: Any = msgspec.field(name="Device Id", default=None)
    type: Any = msgspec.field(name="Device Type", default=None)
    allocated: Any = msgspec.field(name="Total Allocated", default=None)
    reserved: Any = msgspec.field(name="Total Reserved", default=None)


class _Node(msgspec.Struct, gc=False):
    """The arguments of an activity of a graph, with those that PyTorch adds if it was marked."""

    node: Any = msgspec.field(name="graph node id", default=None)
    text: Any = msgspec.field(name="str", default=None)
    annotation: Any = None


class _Marked(msgspec.Struct, gc=False):
    args: _Node | None = None


MARKS = b'"str"', b'"annotation"'
NODES = msgspec.json.Decoder(list[_Marked])
EVENTS = msgspec.json.Decoder(list[_Event])
MEMORY_ARGUMENTS = msgspec.json.Decoder(_Memory)


def _add(
    ranges: list[ProfilerRange], marks: dict[int, str], allocations: list[Allocations] | None, text: bytes
) -> None:
    """Adds the records in a list of events; most lists hold none and are not decoded a second time."""
    if any(mark in text for mark in MARKS):
        _add_marks(marks, NODES.decode(text))
    wants_memory = allocations is not None and MEMORY.encode() in text
    if not wants_memory and PROFILER_RANGE.encode() not in text:
        return
    events = EVENTS.decode(text)
    ranges += _ranges([event for event in events if str(event.cat or "").lower() == PROFILER_RANGE])
    if allocations is not None and wants_memory:
        allocations.append(_allocations([event for event in events if event.name == MEMORY and bytes(event.args)]))


def _add_marks(marks: dict[int, str], events: list[_Marked]) -> None:
    for event in events:
        arguments = event.args or _Node()
        node, mark = (
            integer(arguments.node, 0),
            arguments.text if isinstance(arguments.text, str) else arguments.annotation,
        )
        if node > 0 and isinstance(mark, str):
            marks[node] = mark


def _ranges(events: list[_Event]) -> list[ProfilerRange]:
    events = [event for event in events if event.ph == "X" and bytes(event.args)]
    return [
        ProfilerRange(
            str(event.name),
            identity(event.pid),
            start,
            {name: float(value) for name, value in _arguments(event).items() if type(value) in (int, float)},
        )
        for event, start in zip(events, _times(events).tolist(), strict=True)
    ]


def _times(events: list[_Event]) -> Int64:
    return nanoseconds([bytes(event.ts).strip(b'"').decode() for event in events])


def _arguments(event: _Event) -> dict[str, Any]:
    """Returns an event's arguments; none if they are malformed."""
    try:
        return msgspec.json.decode(event.args, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _allocations(events: list[_Event]) -> Allocations:
    """Returns the allocations that have a time and a size."""
    arguments = [_memory(event) for event in events]
    device = integers([memory.device for memory in arguments], 0)
    rows = Allocations(
        time=_times(events),
        process=identities([event.pid for event in events]),
        thread=identities([event.tid for event in events]),
        device=np.where(
            integers([memory.type for memory in arguments], HOST_TYPE) == HOST_TYPE, HOST, np.maximum(device, 0)
        ),
        address=integers([memory.address for memory in arguments], 0),
        size=integers([memory.size for memory in arguments], 0),
        allocated=integers([memory.allocated for memory in arguments], -1),
        reserved=integers([memory.reserved for memory in arguments], -1),
    )
    return rows.where((rows.time != ABSENT) & (rows.size != 0))


def _memory(event: _Event) -> _Memory:
    try:
        return MEMORY_ARGUMENTS.decode(event.args)
    except msgspec.DecodeError:
        return _Memory()


def _allocations_of_rank(
    allocations: Allocations, every_rank: DeviceTrace, device: DeviceTrace, rank: int | None
) -> Allocations:
    """Returns the allocations of the rank's processes in order of time; a merged trace's times are moved back."""
    merged = next((record for record in every_rank.merged if record.rank == rank), None)
    if merged is not None:
        processes, time = [*merged.processes], allocations.time - merged.time_shift_ns
    else:
        processes, time = device.processes, allocations.time
    rows = np.flatnonzero(np.isin(allocations.process, processes))
    return allocations._replace(time=time).where(rows[np.argsort(time[rows], kind="stable")])
