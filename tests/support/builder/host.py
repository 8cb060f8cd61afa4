"""Writes what a TraceBuilder played as a host trace: nodes in the order they end, no times, argument by argument."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from support.builder.layouts import COMMS_DTYPE, Layout, boxed
from support.builder.records import USER_SCOPE, Comms, Group, Op

if TYPE_CHECKING:
    from support.builder.timeline import TraceBuilder

ROOT = 1
FIRST_GROUP_NODE = 1_000_000


def host_trace(run: "TraceBuilder") -> dict[str, Any]:
    end_ms = max((op.end for op in run.ops), default=0) // 1_000_000
    return {
        "schema": run.layout.schema,
        "pid": run.pid,
        "time": "2026-01-01 12:00:00",
        "start_ts": 5000,
        "nodes": [*_nodes(run), *run.host_nodes],
        "finish_ts": 5000 + end_ms,
    }


def group_config(group: Group) -> dict[str, Any]:
    return {
        "pg_name": group.name,
        "pg_desc": group.description,
        "backend_config": "cuda:nccl",
        "ranks": list(group.ranks),
        "group_size": len(group.ranks),
        "group_count": 1,
    }


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
    text = json.dumps([group_config(group)])
    thread = run.threads[1].node
    return _node(run.layout, number, "## process_group:init ##", thread, rf_id=number, tid=1, inputs=[text])


def _op_node(run: "TraceBuilder", op: Op) -> dict[str, Any]:
    inputs = [*op.inputs, *_comms_inputs(run.layout, op.comms)] if op.comms else op.inputs
    node = _node(
        run.layout,
        op.id,
        op.name,
        _parent(run, op),
        rf_id=op.rf_id,
        fw_parent=op.fw_parent,
        seq_id=op.seq_id,
        scope=op.scope,
        tid=op.thread,
        fw_tid=op.fw_thread,
        op_schema=op.schema,
        inputs=inputs,
        outputs=op.outputs,
    )
    if op.comms and run.layout.comms_attributes:
        node["attrs"] += [_attribute(name, value) for name, value in _comms_attributes(run.layout, op.comms).items()]
    return node


def _parent(run: "TraceBuilder", op: Op) -> int:
    parent = op.parent
    while parent and parent.only == "device":
        parent = parent.parent
    return parent.id if parent else run.threads[op.thread].node


def _node(
    layout: Layout,
    number: int,
    name: str,
    parent: int,
    *,
    tid: int,
    rf_id: int = 0,
    fw_parent: int = 0,
    seq_id: int = -1,
    scope: int = USER_SCOPE,
    fw_tid: int = 0,
    op_schema: str = "",
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "rf_id": rf_id,
        "fw_parent": fw_parent,
        "seq_id": seq_id,
        "scope": scope,
        "tid": tid,
        "fw_tid": fw_tid,
        "op_schema": op_schema,
    }
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
        "collective_name": comms.name,
        "dtype": COMMS_DTYPE[comms.input.dtype] if comms.input else "Byte",
        "in_msg_nelems": comms.input.elements if comms.input else 0,
        "out_msg_nelems": comms.output.elements if comms.output else 0,
        "in_split_size": str(comms.in_split),
        "out_split_size": str(comms.out_split),
        "global_rank_start": min(comms.group.ranks),
    }
    if _stride(comms.group) > 0:
        attributes["global_rank_stride"] = _stride(comms.group)
    if name:
        attributes |= {"pg_name": name, "pg_desc": description}
    attributes["pg_size"] = len(comms.group.ranks) if name else 1
    return attributes | ({"is_asynchronized_op": "true"} if layout.async_flag else {})
