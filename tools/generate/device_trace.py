"""Writes the device trace of a simulated rank, the Chrome JSON that Kineto would have written.

Times are the machine's: those of activities on the clock of the device, all in its resolution. Rows stand as Kineto
orders them: ops by thread, calls with their activities, annotations on streams, names of processes and threads.
"""

import json
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from ...schema.io import open_output
from .kineto_rows import Rows, collective_args, external_ids, op_rows, python_rows, track_fields
from .machine import Clock, Machine
from .record import (
    BASE_NS,
    EVENT_SYNC,
    NONE,
    STREAM_SYNC,
    STREAM_WAIT,
    SYNC_KINDS,
    Identity,
    RankRun,
    correlation,
    is_recorded,
)

CONTEXT = 1
WAIT_LANE, STREAM_SYNC_LANE = 1, 1_000_000
"""The thread on which Kineto shows waits that belong to no stream, and by how much it moves stream synchronisations."""
CBIDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaGraphLaunch": 311,
    "cudaEventRecord": 135,
    "cudaEventQuery": 138,
    "cudaEventSynchronize": 137,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaStreamIsCapturing": 317,
}
FLOW_STARTS = {"cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaDeviceSynchronize"}
"""Calls besides launches from which an ac2g flow starts; it ends at all others."""
DEVICE = {
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 85_899_345_920,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "warpSize": 32,
    "numSms": 108,
}
KERNEL_SHAPE = (
    '"registers per thread": 32, "shared memory": 16384, "blocks per SM": 2.370370, "warps per SM": 18.962963, '
    '"grid": [256, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 29'
)


class SyncRecords(NamedTuple):
    """Whether CUPTI records synchronisation (`on`), and where events were recorded (`resolved`)."""

    on: bool = True
    resolved: bool = True


class _ProfiledRun(NamedTuple):
    """A rank's run as its profiler sees it: the machine's resolution, the device's clock, the activities shown."""

    run: RankRun
    who: Identity
    rows: Rows
    clock: Clock
    is_recorded: list[bool]
    external: "array[int]"

    def device_span(self, activity: int) -> tuple[int, int]:
        """Returns when it ran, by the device's clock."""
        activities = self.run.activities
        return self.clock.read(activities.start[activity]), self.clock.read(activities.end[activity])


def write_device_trace(
    run: RankRun, who: Identity, machine: Machine, path: str, *, sync: SyncRecords, stacks: int
) -> None:
    """Writes the trace in pieces, in time linear in the events, with `stacks` calls of Python per called op.

    Raises DataError when the file cannot be written.
    """
    rows, external = Rows(machine.whole_us), external_ids(run, len(who.tids))
    profiled = _ProfiledRun(run, who, rows, machine.clock(run.rank), is_recorded(run, machine).tolist(), external)
    rows_of_trace = chain(
        op_rows(run, who, rows, external),
        python_rows(run, who, rows, stacks) if stacks else (),
        _calls_and_activities(profiled, sync),
        _stream_annotations(profiled),
        _names(run, who, rows),
        _window(run, rows),
    )
    with open_output(path) as file:
        file.write(_head(who, machine, path, stacks).encode())
        for piece in _pieces(rows_of_trace):
            file.write(piece)
        file.write(b"\n  ]\n}\n")


def _pieces(rows: Iterable[str]) -> Iterator[bytes]:
    piece: list[str] = []
    separator = "\n"
    for row in rows:
        piece.append(row)
        if len(piece) == 4096:
            yield (separator + ",\n".join(piece)).encode()
            piece, separator = [], ",\n"
    if piece:
        yield (separator + ",\n".join(piece)).encode()


def _head(who: Identity, machine: Machine, path: str, stacks: int) -> str:
    head: dict[str, object] = {"schemaVersion": 1, "deviceProperties": [{"id": who.device, **DEVICE}]}
    if who.ranks > 1:
        groups = [
            {
                "pg_name": group.name,
                "pg_desc": group.description,
                "backend_config": "cuda:nccl",
                "pg_size": len(group.ranks),
                "ranks": group.ranks,
            }
            for group in who.groups
        ]
        who_else = {"rank": who.rank, "world_size": who.ranks, "pg_count": len(groups), "pg_config": groups}
        head["distributedInfo"] = {"backend": "nccl", **who_else, "nccl_version": "2.27.5"}
    head |= {"with_stack": 1} if stacks else {}
    head |= {"record_shapes": 1, "displayTimeUnit": "ms"}
    if not machine.whole_us:
        head["baseTimeNanoseconds"] = BASE_NS
    head["traceName"] = path.rpartition("/")[2]
    return json.dumps(head)[:-1] + ', "traceEvents": ['


# calls, activities and synchronisation records


def _calls_and_activities(profiled: _ProfiledRun, sync: SyncRecords) -> Iterator[str]:
    run, who, rows = profiled.run, profiled.who, profiled.rows
    calls, activities = run.calls, run.activities
    linked = _linked_ops(run)
    syncs = {call: row for row, call in enumerate(run.syncs.call)} if sync.on else {}
    used = set(activities.stream)
    activity = 0
    for row in range(len(calls)):
        op = linked[calls.op[row]] if calls.op[row] != NONE else NONE
        link = f'"External id": {profiled.external[op]}, ' if op != NONE else ""
        first = activity
        while activity < len(activities) and activities.call[activity] == row:
            if profiled.is_recorded[activity]:
                yield from _activity(profiled, activity, link)
            activity += 1
        if row in syncs and (run.syncs.kind[syncs[row]] != STREAM_WAIT or run.syncs.stream[syncs[row]] in used):
            yield from _sync_record(profiled, syncs[row], link, sync.resolved)
        name, at = run.call_names[calls.name[row]], track_fields(who.pid, who.tids[calls.thread[row]])
        args = f'{link}"cbid": {CBIDS[name]}, "correlation": {correlation(row)}'
        yield rows.complete("cuda_runtime", name, at, calls.start[row], calls.end[row], args=args)
        yield rows.flow("ac2g", activity > first or name in FLOW_STARTS, correlation(row), at, calls.start[row])


def _linked_ops(run: RankRun) -> "array[int]":
    """Returns for each op the innermost enclosing one (or itself) that is no annotation, for links of device rows."""
    linked = array("q", bytes(8 * len(run.ops)))
    for row, parent in enumerate(run.ops.parent):
        if not run.op_table[run.ops.op[row]].annotation:
            linked[row] = row
        else:
            linked[row] = linked[parent] if parent != NONE else NONE
    return linked


def _activity(profiled: _ProfiledRun, row: int, link: str) -> Iterator[str]:
    run, device, activities = profiled.run, profiled.who.device, profiled.run.activities
    activity = run.activity_table[activities.activity[row]]
    start, end = profiled.device_span(row)
    args = (
        f'{link}"device": {device}, "context": {CONTEXT}, "stream": {activities.stream[row]}, '
        f'"correlation": {correlation(activities.call[row])}, '
    )
    if activities.node[row]:
        args += f'"graph id": 1, "graph node id": {activities.node[row]}, '
    if activity.category == "kernel":
        args += f'"queued": 0, {KERNEL_SHAPE}'
    else:
        args += f'"bytes": {activity.bytes}, "memory bandwidth (GB/s)": {activity.bytes / max(1, end - start)}'
    if activity.collective:
        args += ", " + collective_args(activity.collective, activities.comm_sequence[row]).removesuffix(", ")
    at = track_fields(device, activities.stream[row])
    yield profiled.rows.complete(activity.category, activity.name, at, start, end, args=args)
    yield profiled.rows.flow("ac2g", False, correlation(activities.call[row]), at, start)


def _sync_record(profiled: _ProfiledRun, row: int, link: str, resolved: bool) -> Iterator[str]:
    """CUPTI's record of a call that waits; it lies within the call and is timed on the host."""
    syncs, calls, device = profiled.run.syncs, profiled.run.calls, profiled.who.device
    call, kind, stream = syncs.call[row], syncs.kind[row], syncs.stream[row]
    margin = min(600, (calls.end[call] - calls.start[call]) // 4)
    lane = stream + STREAM_SYNC_LANE if kind == STREAM_SYNC else stream if kind == STREAM_WAIT else WAIT_LANE
    args = f'{link}"cuda_sync_kind": "{SYNC_KINDS[kind]}", '
    if kind in (EVENT_SYNC, STREAM_WAIT):
        is_known = resolved and syncs.recorded_by[row] != NONE
        args += (
            f'"wait_on_stream": {syncs.recorded_on[row] if is_known else -1}, '
            f'"wait_on_cuda_event_record_corr_id": {correlation(syncs.recorded_by[row]) if is_known else -1}, '
            f'"wait_on_cuda_event_id": {syncs.event[row]}, '
        )
    args += f'"stream": {stream}, "correlation": {correlation(call)}, "device": {device}, "context": {CONTEXT}'
    at = track_fields(device, lane)
    yield profiled.rows.complete(
        "cuda_sync", SYNC_KINDS[kind], at, calls.start[call] + margin, calls.end[call] - margin, args=args
    )
    yield profiled.rows.flow("ac2g", False, correlation(call), at, calls.start[call] + margin)


# annotations on streams, names, window


def _stream_annotations(profiled: _ProfiledRun) -> Iterator[str]:
    """Yields for each annotation that is the innermost one around launches a row on each of their streams."""
    run = profiled.run
    annotation_of = array("q", bytes(8 * len(run.ops)))
    for row, parent in enumerate(run.ops.parent):
        annotation = run.op_table[run.ops.op[row]].annotation
        annotation_of[row] = row if annotation else annotation_of[parent] if parent != NONE else NONE
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    activities = run.activities
    for row, call in enumerate(activities.call):
        op = run.calls.op[call]
        if op != NONE and annotation_of[op] != NONE and profiled.is_recorded[row]:
            key, (start, end) = (annotation_of[op], activities.stream[row]), profiled.device_span(row)
            first, last = spans.get(key, (start, end))
            spans[key] = min(start, first), max(end, last)
    for (op, stream), (start, end) in spans.items():
        name, args = run.op_table[run.ops.op[op]].name, f'"External id": {profiled.external[op]}'
        yield profiled.rows.complete(
            "gpu_user_annotation", name, track_fields(profiled.who.device, stream), start - 1, end, args=args
        )


def _names(run: RankRun, who: Identity, rows: Rows) -> Iterator[str]:
    for process, labels, order in (
        (who.pid, "CPU", who.pid),
        (who.device, f"GPU {who.device}", 16_777_216 + who.device),
    ):
        yield rows.label("process_name", process, 0, "name", "python")
        yield rows.label("process_labels", process, 0, "labels", labels)
        yield rows.label("process_sort_index", process, 0, "sort_index", order)
    for stream in sorted(set(run.activities.stream)):
        yield rows.label("thread_name", who.device, stream, "name", f"stream {stream} ")
        yield rows.label("thread_sort_index", who.device, stream, "sort_index", stream)
    for tid in who.tids:
        yield rows.label("thread_name", who.pid, tid, "name", f"thread {tid} (python)")
        yield rows.label("thread_sort_index", who.pid, tid, "sort_index", tid)


def _window(run: RankRun, rows: Rows) -> Iterator[str]:
    end = run.period().end
    yield rows.complete(
        "Trace", "PyTorch Profiler (0)", track_fields("Spans", "PyTorch Profiler"), 0, end, args='"Op count": 0'
    )
    for name, at, ns in (
        ("Iteration Start: PyTorch Profiler", track_fields("Traces", "Trace PyTorch Profiler"), 0),
        ("Record Window End", track_fields("", ""), end),
    ):
        yield f'{{"ph": "i", "s": "g", "name": "{name}", {at}, "ts": {rows.at(ns)}}}'
