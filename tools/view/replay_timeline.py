"""Writes a replay as a Chrome trace for Perfetto: each rank's measured run and replay as processes that start at 0."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import orjson

from ...schema.columns import Int64
from ...schema.graph import DependencyKind
from ...schema.io import open_output, write_items
from ..replay import Classes, NodeClass, Replay, Workload
from .drawing import lane_names

EVENTS_AT_ONCE = 10_000
CATEGORIES = [node_class.label for node_class in NodeClass]
START_OF_FLOW, END_OF_FLOW = '"ph":"s"', '"ph":"f","bp":"e"'


class _Process(NamedTuple):
    """A process of the trace: rows of a rank, and when each node of the job starts there and how long it lasts, ns."""

    work: Workload
    rank: int
    pid: int
    rows: Int64
    start_ns: Int64
    duration_ns: Int64


def write_timeline(replay: Replay, path: str) -> None:
    """Writes the complete trace or nothing, compressed if the name ends in .gz."""
    with open_output(path) as stream:
        stream.write(b'{"displayTimeUnit": "ns", "traceEvents": [')
        write_items(stream, _events(replay))
        stream.write(b"\n]}\n")


def _events(replay: Replay) -> Iterator[str]:
    """Yields the names of the processes and their tracks, their nodes and flows."""
    work, names = replay.work, lane_names(replay.work)
    # an activity is cut at the start of the next one on its stream, as viewers need events of a track to nest
    overlap = np.concatenate([graph.integers("overlap_ns", 0) for graph in work.graphs])
    measured = work.measured_start_ns, work.measured_end_ns - work.measured_start_ns - overlap
    replayed = replay.start_ns, replay.end_ns - replay.start_ns
    ranks = work.ranks_of(np.arange(len(work)))
    for rank, label in enumerate(work.rank_labels()):
        rows = np.flatnonzero((ranks == rank) & (work.node_class != NodeClass.METADATA))
        timed = rows[work.is_timed[rows]]
        for kind, shown, times in (("measured", timed, measured), ("replay", rows, replayed)):
            # process 0 would be the kernel's idle task to Perfetto
            pid = 2 * rank + 1 + (kind == "replay")
            yield _metadata("process_name", pid, 0, {"name": f"rank {label} {kind}"})
            yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
            for tid, (lane, name) in enumerate(zip(work.lanes, names, strict=True), start=1):
                if lane.rank == rank:
                    yield _metadata("thread_name", pid, tid, {"name": name})
                    yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
            process = _Process(work, rank, pid, shown, *times)
            yield from _nodes(process)


def _nodes(process: _Process) -> Iterator[str]:
    """Yields nodes, each before the ends of its flows, which Perfetto ties to the slice that began last on a track."""
    work, rank, pid, rows, start_ns, duration_ns = process
    graph = work.graphs[rank]
    names = [orjson.dumps(name).decode() for name in [*graph.name.table, ""]]
    event = np.full(len(work), -1)
    event[rows] = np.arange(len(rows))
    is_drawn = (event[work.source] >= 0) & (event[work.target] >= 0)
    flow = np.flatnonzero(is_drawn & (work.lane[work.source] != work.lane[work.target]))
    end = event[np.concatenate((work.target[flow], work.source[flow]))]
    order = np.argsort(end, kind="stable")
    # the ends at event i are those from first[i] up to first[i + 1]
    first = np.searchsorted(end[order], np.arange(len(rows) + 1))
    is_target, flow = order < len(flow), np.tile(flow, 2)[order]
    for begin in range(0, len(rows), EVENTS_AT_ONCE):
        part = rows[begin : begin + EVENTS_AT_ONCE]
        nodes, flows = part - work.first_row[rank], slice(begin, begin + len(part))
        columns: list[Int64 | Classes] = [work.lane[part] + 1, start_ns[part], duration_ns[part]]
        columns += [graph.name.codes[nodes], work.node_class[part], graph.id[nodes]]
        columns += [first[:-1][flows], first[1:][flows]]
        of_nodes = zip(*(column.tolist() for column in columns), strict=True)
        for tid, start, duration, name, node_class, node, first_end, last_end in of_nodes:
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


def _metadata(what: str, pid: int, tid: int, content: dict[str, str | int]) -> str:
    return orjson.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": content}).decode()


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"
