"""Reads one rank for the analyses: its traces, or its execution graph alone.

The device trace is read once, with what linking does not need of it. Of a graph alone, activities and communication
are known; analyses that need ops or calls then return no rows and say so.
"""

import re
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np

from ...converter.convert import convert
from ...converter.options import Options as ConvertOptions
from ...converter.ranks import recorded_groups
from ...converter.work import KernelWork
from ...linker.details import moved_times
from ...linker.link import link, linked_details, noted
from ...linker.readers import INSTANT, DeviceTrace, one_rank, read_device_trace, read_host_trace
from ...linker.windows import EVERYTHING, Window
from ...schema import linked
from ...schema.columns import ABSENT, BytesColumn, CallRows, Categorical, CommunicationRows, Int64, OpRows
from ...schema.graph import DEVICE_NAME, CollectiveType, ExecutionGraph, NodeType
from ...schema.linked import LinkedTrace, kineto
from ...schema.progress import OnProgress, unseen
from ..replay import COMMUNICATION_TYPES, losses
from .modules import with_modules
from .rank import NO_ALLOCATIONS, Allocations, ProfilerRange, RankTrace, Recorded, activity_rows, span_ns

READ_STAGES = 4
"""The host trace is read, the device trace is read, both are linked, and converted to a graph."""
PROFILER_RANGE = "cuda_profiler_range"
MEMORY = "[memory]"
HOST_TYPE, HOST = 0, -1
"""PyTorch's number for the device type of the host, and the device number of the host here."""
GRAPH_ALONE = "an execution graph alone: tables of host ops and calls are empty; findings on launches follow from its dependencies"
NOTHING: dict[str, Any] = {
    **dict.fromkeys(("name", "op_schema", "known_by"), Categorical.of(())),
    **dict.fromkeys(("inputs", "outputs"), BytesColumn.of(())), "extra": {},
    **dict.fromkeys(("module", "python_function", "process", "external_id")),
}  # fmt: skip
MARKS, CAPTURED = (b'"str"', b'"annotation"'), re.compile(rb'"kernel"\s*:')
Decoded = TypeVar("Decoded")


def read_rank(
    device_path: str,
    host_path: str | None = None,
    rank: int | None = None,
    *,
    graph: bool = True,
    window: Window = EVERYTHING,
    memory: bool = True,
    modules: bool = False,
    detail_path: str | None = None,
    on_progress: OnProgress = unseen,
) -> RankTrace:
    """Reads and links the traces of one rank, or of the part of it in `window`, and converts them to a graph.

    `rank` is that of traces that record none (else 0), or of a merged trace. `modules` reads Python's calls, which the
    detail trace has if the device trace does not. Raises DataError if the files cannot be used.
    """
    host = read_host_trace(host_path) if host_path else None
    on_progress(1)
    device, recorded = read_recorded(device_path, rank, of_ops=host is None, memory=memory, modules=modules)
    allocations = NO_ALLOCATIONS
    if detail_path and (memory or modules):
        with noted(device.notes):
            device.detail, of_detail = read_recorded(detail_path, rank, of_ops=False, memory=memory, modules=modules)
            allocations = of_detail.allocations
    on_progress(1)
    trace = link(host, device, rank, window=window)
    if len(allocations.time) and (details := linked_details(trace, host, device.detail)):
        thread, time = moved_times(trace, details, allocations.thread, allocations.time)
        moved = allocations._replace(thread=thread, time=time, process=np.full(len(time), trace.info.pid))
        recorded.allocations, recorded.are_of_details = moved.where(np.argsort(time, kind="stable")), True
    on_progress(1)
    if window != EVERYTHING:
        # those between the first start and the last end on the host of the part
        last = max(int(table.end.max(initial=linked.NEVER)) for table in (trace.ops, trace.calls))
        time = recorded.allocations.time
        recorded.allocations = recorded.allocations.where((time >= span_ns(trace)[0]) & (time <= last))
    read = RankTrace(max(trace.info.rank, 0), trace, recorded=recorded, path=device_path)
    if graph:
        read.graph = graph_of(trace, read.work)
    on_progress(1)
    return read


def graph_of(trace: LinkedTrace, work: KernelWork | None = None) -> ExecutionGraph:
    """Converts a trace, with annotations if it has no modules, to a graph without tensors, which no analysis reads."""
    return convert(with_modules(trace), ConvertOptions(io="none"), work=work)


def rank_of_graph(graph: ExecutionGraph) -> RankTrace:
    """Returns the rank of a graph, 0 if none is recorded. Activities have their recorded, untrimmed durations."""
    rows, recorded = activity_rows(graph), graph.metadata
    communicates = np.isin(graph.type[rows], COMMUNICATION_TYPES)
    pid, number, world_size = (linked.integer(recorded.get(name), -1) for name in ("pid", "rank", "world_size"))
    named = ((key.removeprefix(DEVICE_NAME), name) for key, name in recorded.items() if key.startswith(DEVICE_NAME))
    info = linked.TraceInfo(
        pid=pid, rank=number, world_size=world_size, base_time_ns=linked.integer(recorded.get("base_time_ns"), 0),
        source_host=str(recorded.get("source_host", "")), source_device=str(recorded.get("source_device", "")),
        devices={linked.integer(number, -1): str(name) for number, name in named},
    )  # fmt: skip
    trace = LinkedTrace(
        info=info, ops=_empty(linked.Ops), calls=_empty(linked.Calls),
        activities=_activities(graph, rows, np.where(communicates, np.cumsum(communicates) - 1, -1)),
        device_waits=_empty(linked.DeviceWaits), host_waits=_empty(linked.HostWaits),
        handoffs=_empty(linked.ThreadHandoffs), communications=_communications(graph, rows[communicates]), groups=[],
        report=linked.LinkReport(activities=len(rows), notes=[GRAPH_ALONE, *graph.notes], oddities=losses(graph)),
    )  # fmt: skip
    return RankTrace(max(trace.info.rank, 0), trace, graph)


def read_recorded(
    path: str,
    rank: int | None = None,
    *,
    of_ops: bool = True,
    memory: bool = True,
    modules: bool = False,
    kernels: bool = False,
) -> tuple[DeviceTrace, Recorded]:
    """Reads a rank's device trace, and in the same pass what linking does not need of it.

    `of_ops` reads arguments of ops, `kernels` what calls launch in captures. Raises DataError as linking does.
    """
    recorded, pieces = Recorded(kernels={} if kernels else None), [NO_ALLOCATIONS]
    every_rank = read_device_trace(
        path, tee=partial(_add, recorded, pieces if memory else None), arguments=of_ops,
        keep_categories=(INSTANT,) if memory else (), modules=modules,
    )  # fmt: skip
    device = one_rank(every_rank, rank)
    recorded.ranges.sort(key=lambda range_: (range_.device, range_.start))
    allocations = Allocations(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))
    processes, time = device.processes, allocations.time
    # a merged trace's times are moved back
    if merged := next((record for record in every_rank.merged if record.rank == rank), None):
        processes, time = [*merged.processes], time - merged.time_shift_ns
    rows = np.flatnonzero(np.isin(allocations.process, processes))
    recorded.allocations = allocations._replace(time=time).where(rows[np.argsort(time[rows], kind="stable")])
    return device, recorded


class _Arguments(msgspec.Struct, gc=False):
    """The arguments of an allocation, an activity of a graph or a captured call. Others are passed over."""

    graph: Any = msgspec.field(name="graph id", default=None)
    node: Any = msgspec.field(name="graph node id", default=None)
    kernel: Any = None
    correlation: Any = None
    text: Any = msgspec.field(name="str", default=None)
    annotation: Any = None
    size: Any = msgspec.field(name="Bytes", default=None)
    address: Any = msgspec.field(name="Addr", default=None)
    device: Any = msgspec.field(name="Device Id", default=None)
    type: Any = msgspec.field(name="Device Type", default=None)
    allocated: Any = msgspec.field(name="Total Allocated", default=None)
    reserved: Any = msgspec.field(name="Total Reserved", default=None)


class _Event(msgspec.Struct, gc=False):
    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()

    def arguments(self, decoder: "msgspec.json.Decoder[Decoded]") -> Decoded:
        """Returns its arguments; none if they are malformed."""
        try:
            return decoder.decode(self.args)
        except msgspec.DecodeError:
            return decoder.type()


EVENTS, ARGUMENTS = msgspec.json.Decoder(list[_Event]), msgspec.json.Decoder(_Arguments)
COUNTERS = msgspec.json.Decoder(dict[str, Any])


def _add(recorded: Recorded, allocations: list[Allocations] | None, text: bytes) -> None:
    """Adds the records in a list of events; most lists hold none and are not decoded a second time."""
    has_marks, has_ranges = any(mark in text for mark in MARKS), PROFILER_RANGE.encode() in text
    has_memory = allocations is not None and MEMORY.encode() in text
    has_kernels = recorded.kernels is not None and CAPTURED.search(text) is not None
    if not (has_marks or has_ranges or has_memory or has_kernels):
        return
    events = [event for event in EVENTS.decode(text) if bytes(event.args)]
    for arguments in (event.arguments(ARGUMENTS) for event in events) if has_marks or has_kernels else ():
        node = int(kineto.graph_node(linked.integer(arguments.graph, -1), linked.integer(arguments.node, 0)))
        # what PyTorch adds to an activity of a graph that was marked
        marks = [mark for mark in (arguments.text, arguments.annotation) if isinstance(mark, str)]
        if node > 0 and marks:
            recorded.marks[node] = marks[0]
        if recorded.kernels is not None and isinstance(arguments.kernel, str):
            recorded.kernels[linked.integer(arguments.correlation, 0)] = arguments.kernel
    ranges = [event for event in events if event.ph == "X" and str(event.cat or "").lower() == PROFILER_RANGE]
    for event, start in zip(ranges, _times(ranges).tolist(), strict=True):
        given = event.arguments(COUNTERS).items()
        counters = {name: float(value) for name, value in given if type(value) in (int, float)}
        recorded.ranges.append(ProfilerRange(str(event.name), linked.identity(event.pid), start, counters))
    if allocations is not None and has_memory:
        allocations.append(_allocations([event for event in events if event.name == MEMORY]))


def _times(events: list[_Event]) -> Int64:
    return linked.nanoseconds([bytes(event.ts).strip(b'"').decode() for event in events])


def _allocations(events: list[_Event]) -> Allocations:
    """Returns the allocations that have a time and a size."""
    arguments = [event.arguments(ARGUMENTS) for event in events]

    def column(name: str, missing: int) -> Int64:
        return linked.integers([getattr(of_event, name) for of_event in arguments], missing)

    rows = Allocations(
        time=_times(events), process=linked.identities([event.pid for event in events]),
        thread=linked.identities([event.tid for event in events]),
        device=np.where(column("type", HOST_TYPE) == HOST_TYPE, HOST, np.maximum(column("device", 0), 0)),
        address=column("address", 0), size=column("size", 0), allocated=column("allocated", -1),
        reserved=column("reserved", -1),
    )  # fmt: skip
    return rows.where((rows.time != ABSENT) & (rows.size != 0))


def _empty(table: type) -> Any:
    names = [column.name for column in fields(table) if column.init]
    return table(**{name: NOTHING.get(name, np.empty(0, np.int64)) for name in names})


def _activities(graph: ExecutionGraph, rows: Int64, communication_row: Int64) -> linked.Activities:
    start, unknown = graph.start_ns[rows], np.full(len(rows), -1)
    module, python_function = (
        graph.texts(name).take(rows) if name in graph.attributes else None for name in ("module", "python_function")
    )
    return linked.Activities(
        id=graph.id[rows], name=graph.name.take(rows), category=graph.texts("cat").take(rows),
        device=graph.integers("device", -1)[rows], stream=graph.integers("stream", -1)[rows], start=start,
        end=start + (graph.duration_ns + graph.integers("overlap_ns", 0))[rows],
        correlation=graph.integers("correlation", 0)[rows], graph_node=unknown, size=unknown, bandwidth=unknown,
        call_row=CallRows(unknown), op_row=OpRows(unknown), communication_row=CommunicationRows(communication_row),
        module=module, python_function=python_function,
    )  # fmt: skip


def _communications(graph: ExecutionGraph, rows: Int64) -> list[linked.Communication]:
    """Returns the communications of these nodes. Their sizes are in bytes, which count as elements without a dtype."""
    recorded, named, purpose = graph.texts("pg_recorded"), graph.texts("pg_name"), graph.texts("pg_desc")
    groups = recorded_groups(graph)
    members, of_messages = [*groups.lists, ()], {NodeType.COMM_SEND: "send", NodeType.COMM_RECV: "recv"}
    kinds = {int(kind): kind.name.lower() for kind in CollectiveType}
    names = ("comm_type", "comm_size", "comm_seq", "comm_src", "comm_dst", "comm_tag")
    columns = (graph.integers(name, -1)[rows].tolist() for name in names)
    return [
        linked.Communication(
            # as traces record it
            name=of_messages.get(graph.type[row]) or kinds.get(kind, "coll"),
            in_elements=size,
            group=recorded[row] or named[row],
            description=purpose[row],
            ranks=list(members[groups.of_node[row]]),
            sequence=sequence,
            source=source,
            target=target,
            tag=tag,
        )
        for row, kind, size, sequence, source, target, tag in zip(rows.tolist(), *columns, strict=True)
    ]
