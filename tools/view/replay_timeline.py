"""Writes a replay as a Chrome trace for Perfetto: for each rank the measured run and the replay as two processes.

Each has a track per host thread and device stream, and counters of live bytes if nodes record them, and starts at 0.
Dependencies between tracks are flows, which Perfetto draws as arrows from the end of a slice to the start of another.
Events are written as they are made, in constant memory besides the columns. Nodes without a recorded time are in the
replay only, metadata nodes in neither.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import orjson

from ...schema.columns import ABSENT, Bool, Int64, is_group_start, rows_by_number
from ...schema.graph import DependencyKind
from ...schema.io import open_output
from ..replay import NodeClass, Replay
from .names import lane_names

EVENTS_AT_ONCE = 10_000
HOST = -1
CATEGORIES = [node_class.label for node_class in NodeClass]
START_OF_FLOW, END_OF_FLOW = '"ph":"s"', '"ph":"f","bp":"e"'


class Process(NamedTuple):
    """One process of the trace: a rank's rows with their start and duration, and its table of names as JSON strings."""

    name: str
    rank: int
    names: list[str]
    row: Int64
    start_ns: Int64
    duration_ns: Int64


class FlowEnds(NamedTuple):
    """The ends of a process's flows in the order of its events: those of event i are `first[i]` up to `first[i + 1]`.

    `dependency` is a position in the dependencies of the replay, whose target is the event if `is_target`.
    """

    first: Int64
    dependency: Int64
    is_target: Bool


def write_timeline(replay: Replay, path: str) -> None:
    """Writes the complete trace or nothing, compressed if the name ends in .gz."""
    names = lane_names(replay.work)
    with open_output(path) as stream:
        stream.write(b'{"displayTimeUnit": "ns", "traceEvents": [\n')
        # process 0 would be the kernel's idle task to Perfetto
        for pid, process in enumerate(_processes(replay), start=1):
            stream.write(b"" if pid == 1 else b",\n")
            stream.write(b",\n".join(_track_names(replay, names, pid, process)))
            flows = _flow_ends(replay, process)
            for first in range(0, len(process.row), EVENTS_AT_ONCE):
                events = ",\n".join(_events(replay, pid, process, flows, slice(first, first + EVENTS_AT_ONCE)))
                stream.write(b",\n" + events.encode())
            for counter in _live_bytes(replay, pid, process):
                stream.write(b",\n" + counter.encode())
        stream.write(b"\n]}\n")


def _processes(replay: Replay) -> Iterator[Process]:
    work = replay.work
    is_drawn = work.node_class != NodeClass.METADATA
    # an activity is cut at the start of the next one on its stream, as viewers need events of a track to nest
    overlap = np.concatenate([graph.integers("overlap_ns", 0) for graph in work.graphs])
    measured = work.measured_end_ns - work.measured_start_ns - overlap
    bounds = [*work.first_row.tolist(), len(work)]
    for rank, label in enumerate(work.rank_labels()):
        names = [orjson.dumps(name).decode() for name in [*work.graphs[rank].name.table, ""]]
        rows = np.arange(bounds[rank], bounds[rank + 1])
        rows = rows[is_drawn[rows]]
        timed = rows[work.is_timed[rows]]
        yield Process(f"rank {label} measured", rank, names, timed, work.measured_start_ns[timed], measured[timed])
        lasted = replay.end_ns[rows] - replay.start_ns[rows]
        yield Process(f"rank {label} replay", rank, names, rows, replay.start_ns[rows], lasted)


def _track_names(replay: Replay, names: list[str], pid: int, process: Process) -> Iterator[bytes]:
    yield _metadata("process_name", pid, 0, {"name": process.name})
    yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
    lanes = zip(replay.work.lanes, names, strict=True)
    for tid, (lane, name) in enumerate(lanes, start=1):
        if lane.rank == process.rank:
            yield _metadata("thread_name", pid, tid, {"name": name})
            yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})


def _metadata(what: str, pid: int, tid: int, content: dict[str, str | int]) -> bytes:
    return orjson.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": content})


def _flow_ends(replay: Replay, process: Process) -> FlowEnds:
    """Returns the flows of the dependencies between nodes of this process on different tracks."""
    work = replay.work
    event = np.full(len(work), -1)
    event[process.row] = np.arange(len(process.row))
    is_drawn = (event[work.source] >= 0) & (event[work.target] >= 0)
    dependency = np.flatnonzero(is_drawn & (work.lane[work.source] != work.lane[work.target]))
    end = event[np.concatenate((work.target[dependency], work.source[dependency]))]
    order = np.argsort(end, kind="stable")
    return FlowEnds(
        np.searchsorted(end[order], np.arange(len(process.row) + 1)),
        np.tile(dependency, 2)[order],
        order < len(dependency),
    )


def _events(replay: Replay, pid: int, process: Process, flows: FlowEnds, part: slice) -> Iterator[str]:
    """Yields the events of these rows, each followed by the ends of its flows, as Perfetto ties a flow to the slice
    that began last on its track.
    """
    work, rows = replay.work, process.row[part]
    graph, graph_rows = work.graphs[process.rank], rows - work.first_row[process.rank]
    columns = zip(
        (work.lane[rows] + 1).tolist(),
        process.start_ns[part].tolist(),
        process.duration_ns[part].tolist(),
        graph.name.codes[graph_rows].tolist(),
        work.node_class[rows].tolist(),
        graph.id[graph_rows].tolist(),
        flows.first[:-1][part].tolist(),
        flows.first[1:][part].tolist(),
        strict=True,
    )
    for tid, start, duration, name, node_class, node, first_flow, last_flow in columns:
        yield (
            f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_us(start)},"dur":{_us(duration)},'
            f'"name":{process.names[name]},"cat":"{CATEGORIES[node_class]}","args":{{"id":{node}}}}}'
        )
        for flow in range(first_flow, last_flow):
            dependency = int(flows.dependency[flow])
            yield (
                f'{{{END_OF_FLOW if flows.is_target[flow] else START_OF_FLOW},"pid":{pid},"tid":{tid},"ts":{_us(start)},'
                f'"name":"{_reason(int(work.kind[dependency]))}","cat":"dependency",'
                f'"id":{dependency + pid * len(work.source)}}}'
            )


def _reason(kind: int) -> str:
    """Returns the first reason of a dependency in words."""
    return next((bit.label for bit in DependencyKind if kind & bit), "unknown")


def _live_bytes(replay: Replay, pid: int, process: Process) -> Iterator[str]:
    """Yields counters of the host and of each device: the live bytes at the start of each node that records them."""
    graph, graph_rows = replay.work.graphs[process.rank], process.row - replay.work.first_row[process.rank]
    value, device = graph.integers("live_bytes")[graph_rows], graph.integers("device", HOST)[graph_rows]
    recorded = np.flatnonzero(value != ABSENT)
    recorded = recorded[np.argsort(process.start_ns[recorded], kind="stable")]
    for number, rows in rows_by_number(recorded, device).items():
        rows = rows[is_group_start(value[rows])]
        name = "live bytes of the host" if number == HOST else f"live bytes of device {number}"
        for start, bytes_ in zip(process.start_ns[rows].tolist(), value[rows].tolist(), strict=True):
            yield f'{{"ph":"C","pid":{pid},"ts":{_us(start)},"name":"{name}","args":{{"bytes":{bytes_}}}}}'


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"
