"""Writes a replay as a Chrome trace for Perfetto: for each rank the measured run and the replay as two processes.

Each has a track per host thread and device stream, and counters of live bytes if nodes record them, and starts at 0.
Dependencies between tracks are flows, which Perfetto draws as arrows from the end of a slice to the start of another.
Events are written as they are made, in constant memory besides the columns. Nodes without a recorded time are in the
replay only, metadata nodes in neither.
"""

from collections.abc import Iterator

import numpy as np
import orjson

from ...schema.columns import ABSENT, Int64, is_group_start, rows_by_number
from ...schema.graph import DependencyKind
from ...schema.io import open_output, write_items
from ..replay import Classes, NodeClass, Replay
from .drawing import lane_names

EVENTS_AT_ONCE = 10_000
HOST = -1
CATEGORIES = [node_class.label for node_class in NodeClass]
START_OF_FLOW, END_OF_FLOW = '"ph":"s"', '"ph":"f","bp":"e"'


def write_timeline(replay: Replay, path: str) -> None:
    """Writes the complete trace or nothing, compressed if the name ends in .gz."""
    names = lane_names(replay.work)
    # process 0 would be the kernel's idle task to Perfetto
    processes = enumerate(_processes(replay), start=1)
    events = (event for pid, process in processes for event in process.events(pid, names))
    with open_output(path) as stream:
        stream.write(b'{"displayTimeUnit": "ns", "traceEvents": [')
        write_items(stream, events)
        stream.write(b"\n]}\n")


def _processes(replay: Replay) -> Iterator["_Process"]:
    work = replay.work
    is_drawn = work.node_class != NodeClass.METADATA
    # an activity is cut at the start of the next one on its stream, as viewers need events of a track to nest
    overlap = np.concatenate([graph.integers("overlap_ns", 0) for graph in work.graphs])
    measured = work.measured_end_ns - work.measured_start_ns - overlap
    bounds = [*work.first_row.tolist(), len(work)]
    for rank, label in enumerate(work.rank_labels()):
        rows = np.arange(bounds[rank], bounds[rank + 1])
        rows = rows[is_drawn[rows]]
        timed = rows[work.is_timed[rows]]
        name = f"rank {label} measured"
        yield _Process(replay, name, rank, timed, work.measured_start_ns[timed], measured[timed])
        lasted = replay.end_ns[rows] - replay.start_ns[rows]
        yield _Process(replay, f"rank {label} replay", rank, rows, replay.start_ns[rows], lasted)


class _Process:
    """One process of the trace: a rank's rows with their start and duration."""

    def __init__(self, replay: Replay, name: str, rank: int, rows: Int64, start_ns: Int64, duration_ns: Int64) -> None:
        self.work, self.name, self.rank = replay.work, name, rank
        self.graph, self.graph_rows = replay.work.graphs[rank], rows - replay.work.first_row[rank]
        self.rows, self.start_ns, self.duration_ns = rows, start_ns, duration_ns

    def events(self, pid: int, lane_names: list[str]) -> Iterator[str]:
        """Yields the names of the process and its tracks, the nodes and flows, and the counters."""
        yield _metadata("process_name", pid, 0, {"name": self.name})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
        for tid, (lane, name) in enumerate(zip(self.work.lanes, lane_names, strict=True), start=1):
            if lane.rank == self.rank:
                yield _metadata("thread_name", pid, tid, {"name": name})
                yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
        yield from self._nodes(pid)
        yield from self._live_bytes(pid)

    def _nodes(self, pid: int) -> Iterator[str]:
        """Yields the nodes, each followed by the ends of its flows, as Perfetto ties a flow to the slice that began
        last on its track. Flows are dependencies between nodes of this process on different tracks.
        """
        work, graph = self.work, self.graph
        names = [orjson.dumps(name).decode() for name in [*graph.name.table, ""]]
        event = np.full(len(work), -1)
        event[self.rows] = np.arange(len(self.rows))
        is_drawn = (event[work.source] >= 0) & (event[work.target] >= 0)
        flow = np.flatnonzero(is_drawn & (work.lane[work.source] != work.lane[work.target]))
        end = event[np.concatenate((work.target[flow], work.source[flow]))]
        order = np.argsort(end, kind="stable")
        # the ends at event i are those from first[i] up to first[i + 1]
        first = np.searchsorted(end[order], np.arange(len(self.rows) + 1))
        is_target, flow = order < len(flow), np.tile(flow, 2)[order]
        for begin in range(0, len(self.rows), EVENTS_AT_ONCE):
            part = slice(begin, begin + EVENTS_AT_ONCE)
            rows, graph_rows = self.rows[part], self.graph_rows[part]
            columns: list[Int64 | Classes] = [work.lane[rows] + 1, self.start_ns[part], self.duration_ns[part]]
            columns += [graph.name.codes[graph_rows], work.node_class[rows], graph.id[graph_rows]]
            columns += [first[:-1][part], first[1:][part]]
            for tid, start, duration, name, node_class, node, first_end, last_end in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                yield (
                    f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{_us(start)},"dur":{_us(duration)},'
                    f'"name":{names[name]},"cat":"{CATEGORIES[node_class]}","args":{{"id":{node}}}}}'
                )
                for number in range(first_end, last_end):
                    dependency = int(flow[number])
                    kind = int(work.kind[dependency])
                    reason = next((bit.label for bit in DependencyKind if kind & bit), "unknown")
                    yield (
                        f'{{{END_OF_FLOW if is_target[number] else START_OF_FLOW},"pid":{pid},"tid":{tid},'
                        f'"ts":{_us(start)},"name":"{reason}","cat":"dependency",'
                        f'"id":{dependency + pid * len(work.source)}}}'
                    )

    def _live_bytes(self, pid: int) -> Iterator[str]:
        """Yields counters of the host and each device: the live bytes at the start of each node that records them."""
        value = self.graph.integers("live_bytes")[self.graph_rows]
        device = self.graph.integers("device", HOST)[self.graph_rows]
        recorded = np.flatnonzero(value != ABSENT)
        recorded = recorded[np.argsort(self.start_ns[recorded], kind="stable")]
        for number, rows in rows_by_number(recorded, device).items():
            rows = rows[is_group_start(value[rows])]
            name = "live bytes of the host" if number == HOST else f"live bytes of device {number}"
            for start, bytes_ in zip(self.start_ns[rows].tolist(), value[rows].tolist(), strict=True):
                yield f'{{"ph":"C","pid":{pid},"ts":{_us(start)},"name":"{name}","args":{{"bytes":{bytes_}}}}}'


def _metadata(what: str, pid: int, tid: int, content: dict[str, str | int]) -> str:
    return orjson.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": content}).decode()


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"
