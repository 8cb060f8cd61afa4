"""Writes what a TraceBuilder played as a device trace: every op, call, activity and wait as a row with its times.

Writes what a TraceBuilder played as a host trace: nodes in the order they end, no times, argument by argument.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from support.builder import records
from support.builder.records import COMMS_DTYPE, USER_SCOPE, Activity, Comms, Event, Group, Layout, Op, Sync, boxed

if TYPE_CHECKING:
    from support.builder.timeline import TraceBuilder


ROOT = 1
FIRST_GROUP_NODE = 1_000_000


def host_trace(run: "TraceBuilder") -> dict[str, Any]:
    end_ms = max((op.end for op in run.ops), default=0) // 1_000_000
    return {
        "schema": run.layout.schema, "pid": run.pid, "time": "2026-01-01 12:00:00", "start_ts": 5000,
        "nodes": [*_nodes(run)], "finish_ts": 5000 + end_ms,
    }  # fmt: skip


def group_config(group: Group) -> dict[str, Any]:
    return {
        "pg_name": group.name, "pg_desc": group.description, "backend_config": "cuda:nccl",
        "ranks": list(group.ranks), "group_size": len(group.ranks), "group_count": 1,
    }  # fmt: skip


def _nodes(run: "TraceBuilder") -> Iterator[dict[str, Any]]:
    """A thread before its first op, ops as they end, the root last."""
    begun: set[int] = set()
    if run.layout.comms_attributes:
        yield from (_group_node(run, number, group) for number, group in enumerate(run.groups, FIRST_GROUP_NODE))
    for op in run.ops:
        if op.thread not in begun:
            begun.add(op.thread)
            yield _synthetic_node(run, run.threads[op.thread].node, "thread", op.thread)
        if op.only != "device":
            yield _op_node(run, op)
    yield _synthetic_node(run, ROOT, "process", 0)


def _synthetic_node(run: "TraceBuilder", number: int, kind: str, thread: int) -> dict[str, Any]:
    return _node(run.layout, number, f"[pytorch|profiler|execution_trace|{kind}]", ROOT, tid=thread)


def _group_node(run: "TraceBuilder", number: int, group: Group) -> dict[str, Any]:
    inputs = [json.dumps([group_config(group)])]
    return _node(run.layout, number, "## process_group:init ##", run.threads[1].node, inputs, rf_id=number, tid=1)


def _op_node(run: "TraceBuilder", op: Op) -> dict[str, Any]:
    inputs = [*op.inputs, *_comms_inputs(run.layout, op.comms)] if op.comms else op.inputs
    names = {"tid": "thread", "fw_tid": "fw_thread", "op_schema": "schema"}
    attributes = {name: getattr(op, names.get(name, name)) for name in ATTRIBUTES}
    node = _node(run.layout, op.id, op.name, _parent(run, op), inputs, op.outputs, **attributes)
    if op.comms and run.layout.comms_attributes:
        node["attrs"] += [_attribute(name, value) for name, value in _comms_attributes(run.layout, op.comms).items()]
    return node


def _parent(run: "TraceBuilder", op: Op) -> int:
    parent = op.parent
    while parent and parent.only == "device":
        parent = parent.parent
    return parent.id if parent else run.threads[op.thread].node


ATTRIBUTES: dict[str, Any] = {
    "rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": USER_SCOPE, "tid": 0, "fw_tid": 0, "op_schema": "",
}  # fmt: skip


def _node(
    layout: Layout, number: int, name: str, parent: int, inputs: Sequence[Any] = (), outputs: Sequence[Any] = (),
    **attributes: Any,
) -> dict[str, Any]:  # fmt: skip
    attributes = ATTRIBUTES | attributes
    if layout.flat:
        arguments = _columns(inputs, ("inputs", "input_shapes", "input_types"))
        arguments |= _columns(outputs, ("outputs", "output_shapes", "output_types"))
        return {"name": name, "id": number, "parent": parent} | attributes | arguments
    if layout.comms_attributes:
        attributes |= {"kernel_backend": "", "kernel_file": ""}
    if layout.tensor_range:
        attributes["tensor_range"] = ""
    keys = ("values", "shapes", "types", "strides") if layout.strides else ("values", "shapes", "types")
    head = {"id": number, "name": name, "ctrl_deps": parent}
    arguments = {"inputs": _columns(inputs, keys), "outputs": _columns(outputs, keys)}
    return head | arguments | {"attrs": [_attribute(name, value) for name, value in attributes.items()]}


def _columns(arguments: Sequence[Any], keys: Sequence[str]) -> dict[str, Any]:
    boxes = [boxed(argument) for argument in arguments]
    return {key: [box[column] for box in boxes] for column, key in enumerate(keys)}


def _attribute(name: str, value: Any) -> dict[str, Any]:
    kind = "string" if isinstance(value, str) else "int64" if name == "seq_id" else "uint64"
    return {"name": name, "type": kind, "value": value}


def _comms_inputs(layout: Layout, comms: Comms) -> list[Any]:
    """The arguments of record_param_comms after its tensors."""
    called = [comms.rank, comms.name, comms.in_split, comms.out_split]
    if layout.group_address:
        group = 94_594_108_284_448
        return [comms.seq, group, *called, *([] if layout.flat else [len(comms.group.ranks)])]
    ranks = [min(comms.group.ranks), _stride(comms.group), len(comms.group.ranks)]
    if not layout.comms_attributes:
        return [comms.seq, int(comms.group.name), *called, *ranks]
    names = _group_names(layout, comms)
    if layout.sequence_tuple:
        return [(comms.seq, comms.p2p), names, *called, *ranks, *([True] if layout.async_flag else [])]
    return [comms.seq, names, *called, *ranks]


def _stride(group: Group) -> int:
    """The distance of the group's ranks, -1 where they have none in common."""
    distances = {second - first for first, second in pairwise(group.ranks)} or {1}
    return distances.pop() if len(distances) == 1 else -1


def _group_names(layout: Layout, comms: Comms) -> tuple[str, str]:
    """Name and description of the group; for long a wait did not say for which group it waits."""
    unknown = comms.name == "wait" and not layout.sequence_tuple
    return ("", "") if unknown else (comms.group.name, comms.group.description)


def _comms_attributes(layout: Layout, comms: Comms) -> dict[str, Any]:
    name, description = _group_names(layout, comms)
    attributes = {
        "collective_name": comms.name, "dtype": COMMS_DTYPE[comms.input.dtype] if comms.input else "Byte",
        "in_msg_nelems": comms.input.elements if comms.input else 0,
        "out_msg_nelems": comms.output.elements if comms.output else 0, "in_split_size": str(comms.in_split),
        "out_split_size": str(comms.out_split), "global_rank_start": min(comms.group.ranks),
    }  # fmt: skip
    if _stride(comms.group) > 0:
        attributes["global_rank_stride"] = _stride(comms.group)
    if name:
        attributes |= {"pg_name": name, "pg_desc": description}
    attributes["pg_size"] = len(comms.group.ranks) if name else 1
    return attributes | ({"is_asynchronized_op": "true"} if layout.async_flag else {})


Row = dict[str, Any]
BASE_NS = 1_790_857_026_000_000_000


def device_trace(run: "TraceBuilder") -> dict[str, Any]:
    head: Row = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": run.device, "name": "NVIDIA H200"}] * bool(run.activities),
    }
    if run.rank is not None:
        head["distributedInfo"] = {"backend": "nccl", "rank": run.rank, "world_size": run.world_size}
        if run.groups and run.layout.comms_attributes:
            config = [group_config(group) | {"pg_size": len(group.ranks)} for group in run.groups]
            head["distributedInfo"] |= {"pg_count": len(run.groups), "pg_config": config}
    if not run.layout.integer_us:
        head |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_NS}
    return head | {"record_shapes": 1, "traceEvents": list(_rows(run)), "traceName": "device.json"}


def _rows(run: "TraceBuilder") -> Iterator[Row]:
    """The ops of each host thread as they start, then calls, activities, waits and what was added by hand."""
    recorded = sorted((op for op in run.ops if op.only != "host"), key=lambda op: (op.thread, op.start, op.rf_id))
    ops = {op: _op_row(run, op, index) for index, op in enumerate(recorded)}
    yield from ops.values()
    yield from _forward_flows(ops)
    launched = {activity.correlation for activity in run.activities}
    for call in run.calls:
        yield (row := _call_row(run, call))
        yield _flow(row, "ac2g", call.correlation, leaves=call.correlation in launched)
    for activity in run.activities:
        yield (row := _activity_row(run, activity))
        yield _flow(row, "ac2g", activity.correlation, leaves=False)
    yield from (_sync_row(run, sync) for sync in run.syncs)
    if run.event_rows:
        yield from (_event_row(run, record) for record in run.event_records)
    for number, called in enumerate(run.python_calls):
        place, args = _host_place(run, called.thread), {"Python id": number, "Python parent id": None}
        yield _row(run, "python_function", called.name, place, called.start, called.end, args)
    yield from run.device_events


def _row(run: "TraceBuilder", category: str, name: str, place: tuple[int, int], start: int, end: int, args: Row) -> Row:
    """A complete event at `place`, which is (pid, tid)."""
    first, last = _microseconds(run.layout, start), _microseconds(run.layout, end)
    row = {"ph": "X", "cat": category, "name": name, "pid": place[0], "tid": place[1]}
    return row | {"ts": first, "dur": round(last - first, 3), "args": args}


def _microseconds(layout: Layout, time: int) -> float:
    return layout.origin_us + (time // 1000 if layout.integer_us else time / 1000)


def _host_place(run: "TraceBuilder", thread: int) -> tuple[int, int]:
    return run.pid, run.pid + thread - 1


def _flow(row: Row, category: str, number: int, *, leaves: bool) -> Row:
    """The arrow that leaves or reaches a row."""
    end = {"ph": "s"} if leaves else {"ph": "f", "bp": "e"}
    return end | {"id": number, "cat": category, "name": category} | {key: row[key] for key in ("pid", "tid", "ts")}


def _op_row(run: "TraceBuilder", op: Op, index: int) -> Row:
    args: Row = {"External id": op.external_id}
    if run.layout.record_function_id:
        args["Record function id"] = op.rf_id
    if op.inputs:
        boxes = [boxed(argument) for argument in op.inputs]
        args["Input Dims"] = [box.shape for box in boxes]
        args["Input type"] = [box.type.removeprefix("Tensor(").removesuffix(")") for box in boxes]
    if op.seq_id >= 0:
        args |= {"Sequence number": op.seq_id, "Fwd thread id": op.fw_thread}
    if op.comms:
        args |= _comms_args(run, op.comms)
    category = "user_annotation" if op.scope == USER_SCOPE else "cpu_op"
    args |= {"Ev Idx": index} | op.args
    return _row(run, category, op.name, _host_place(run, op.thread), op.start, op.end, args)


def _forward_flows(rows: dict[Op, Row]) -> Iterator[Row]:
    """From the last forward op of a (thread, sequence number) to the first backward op with it."""
    in_order = sorted((op for op in rows if op.seq_id >= 0), key=lambda op: op.start)
    forward = {(op.thread, op.seq_id): op for op in in_order if not op.fw_thread}
    backward = {(op.fw_thread, op.seq_id): op for op in reversed(in_order) if op.fw_thread}
    for number, key in enumerate(sorted(forward.keys() & backward.keys()), 1):
        yield _flow(rows[forward[key]], "fwdbwd", number, leaves=True)
        yield _flow(rows[backward[key]], "fwdbwd", number, leaves=False)


def _external_id(layout: Layout, op: Op | None, correlation: int) -> dict[str, int]:
    """The link that runtime and device rows carry: once the correlation, then the op's External id."""
    if layout.integer_us or (op is None and layout.unlinked_external_id):
        return {"External id": correlation}
    return {"External id": op.external_id} if op else {}


def _call_row(run: "TraceBuilder", call: records.Call) -> Row:
    category = "cuda_driver" if call.name.startswith("cu") and not call.name.startswith("cuda") else "cuda_runtime"
    args = _external_id(run.layout, call.op, call.correlation) | {"cbid": 211, "correlation": call.correlation}
    return _row(run, category, call.name, _host_place(run, call.thread), call.start, call.end, args)


def _activity_row(run: "TraceBuilder", activity: Activity) -> Row:
    args: Row = _external_id(run.layout, activity.op, activity.correlation)
    args |= {"device": activity.device, "context": 1, "stream": activity.stream, "correlation": activity.correlation}
    if activity.op and activity.op.comms:
        args |= _comms_args(run, activity.op.comms)
    place, (start, end) = (activity.device, activity.stream), _on_device_clock(run, activity)
    return _row(run, activity.category, activity.name, place, start, end, args | activity.args)


def _on_device_clock(run: "TraceBuilder", activity: Activity) -> tuple[int, int]:
    """Start and end. In whole µs start and length are cut off each for itself."""
    ahead = round(1000 * run.clock_offset)
    start, end = (time + ahead + round(time * run.clock_drift / 1000) for time in (activity.start, activity.end))
    return (start, start // 1000 * 1000 + (end - start) // 1000 * 1000) if run.layout.integer_us else (start, end)


def _sync_row(run: "TraceBuilder", sync: Sync) -> Row:
    args: Row = _external_id(run.layout, sync.op, sync.correlation) | {"cuda_sync_kind": sync.kind}
    if sync.event:
        args |= {
            "wait_on_stream": -1 if run.event_rows else sync.event.stream,
            "wait_on_cuda_event_record_corr_id": sync.event.correlation
            if run.event_correlations and not run.event_rows
            else -1,
            "wait_on_cuda_event_id": sync.event.id,
        }
    args |= {"stream": sync.stream, "correlation": sync.correlation, "device": run.device, "context": 1}
    place = run.device, run.layout.sync_tid if sync.stream < 0 else sync.stream
    return _row(run, "cuda_sync", sync.kind, place, sync.start, sync.end, args)


def _event_row(run: "TraceBuilder", record: Event) -> Row:
    args = {"event_id": record.id, "stream": record.stream, "correlation": record.correlation}
    place = run.device, record.stream
    args |= {"device": run.device, "context": 1}
    return _row(run, "cuda_event", "cudaEvent", place, record.time, record.time + 1, args)


def _comms_args(run: "TraceBuilder", comms: Comms) -> Row:
    """What the device trace says about a collective, on its record_param_comms row and on its kernel."""
    if run.layout.flat or not (comms.input and comms.output):
        return {}
    args = {
        "Collective name": comms.name, "In msg nelems": comms.input.elements, "Out msg nelems": comms.output.elements,
        "Group size": len(comms.group.ranks), "dtype": COMMS_DTYPE[comms.input.dtype],
        "In split size": str(comms.in_split), "Out split size": str(comms.out_split),
    }  # fmt: skip
    if not run.layout.comms_attributes:
        return args | {"Process Group ID": int(comms.group.name)}
    args |= {
        "Process Group Name": comms.group.name,
        "Process Group Description": comms.group.description,
        "Process Group Ranks": str(list(comms.group.ranks)),
    }
    if comms.p2p:
        args |= {"Rank": comms.rank, "Dst Rank" if comms.name == "send" else "Src Rank": comms.group.ranks[comms.rank]}
    return args | ({"Seq": comms.seq} if run.layout.sequence_tuple else {})
