"""Reads a linked file: nodes become columns, ids become rows."""

from functools import partial
from typing import Any

import numpy as np

from ..columns import ABSENT, CallRows, CommunicationRows, OpRows, rows_in_circles, rows_of
from ..errors import DataError, Remedy, Spelled
from ..io import open_input
from ..json_stream import ArrayReader, decode
from ..progress import OnProgress, unseen
from . import tables as linked_tables
from .check import contradiction
from .layout import INTEGER_ATTRIBUTES, ExactFile, ExactNode, LinkedFile, Node
from .linked_trace import Activities, LinkedTrace, LinkReport, Ops, TraceInfo
from .nodes import LinkedNodes, NodeTable
from .older import has_older_names

ACTIVITY_COLUMNS = ("id", "stream", "start", "end", "correlation", "graph_node", "size", "bandwidth")


def read_linked(path: str, on_progress: OnProgress = unseen) -> LinkedTrace:
    """Reads a linked trace, ours or chakra_trace_link's. Raises DataError when the file is none.

    `on_progress` is called with the number of bytes read.
    """
    nodes = LinkedNodes()
    with open_input(path, protected=True) as stream:
        reader: ArrayReader[Node] = ArrayReader(stream, path, "nodes", Node, on_progress)
        for text, piece in reader:
            nodes.add(piece, partial(decode, text, list[ExactNode], path))
    if has_older_names(reader.document):
        raise DataError(f"{path}: was written by an older execgraph: link the traces again")
    top = decode(reader.document, LinkedFile, path)
    if bytes(top.events):
        how = Spelled(f"trace-link HOST.json {path} -o LINKED.json", f'execgraph.link("HOST.json", "{path}")')
        raise DataError(f"{path}: a device trace; link it with its host trace first: ", how)
    nodes.add(top.nodes, lambda: decode(reader.document, ExactFile, path).nodes)
    if not nodes.timed and not (top.calls and top.calls.name):
        kind = "a host trace that was never linked" if len(nodes) else "holds no nodes"
        raise DataError(f"{path}: {kind}; make a linked trace with ", Remedy.LINK, " first")
    try:
        linked = _linked(path, top, nodes)
    except (KeyError, IndexError) as error:
        raise DataError(f"{path}: inconsistent linked trace: {error} is referred to but not there") from error
    if wrong := contradiction(linked):
        raise DataError(f"{path}: inconsistent linked trace: {wrong}; link the traces again")
    return linked


def _linked(path: str, top: LinkedFile, nodes: LinkedNodes) -> LinkedTrace:
    ops = _ops(nodes)
    in_circles = rows_in_circles(ops.id, ops.parent_id)
    ops.parent_id[in_circles] = -1
    op_row = OpRows(rows_of(ops.id, nodes.activities.column("parent_id")))
    ours = top.calls is not None
    activities = _activities(nodes.activities, op_row, assumed=not ours)
    activities.module, activities.python_function = nodes.python_columns(nodes.activities)
    report = top.link_report or LinkReport(host_ops=len(ops), activities=len(activities), linked=len(activities))
    if not ours:
        report.notes.append(
            "no calls in the linked trace: activities are launched at their op's end or their start, the earlier one"
        )
    if nodes.unusable:
        report.notes.append(f"{nodes.unusable} inputs or outputs of ops are no lists and left out")
    if len(in_circles):
        report.notes.append(f"parents that go round in a circle: {len(in_circles)} ops became outermost")
    return LinkedTrace(
        info=top.trace or TraceInfo(schema=top.schema, pid=top.pid if top.pid is not None else -1, source_host=path),
        ops=ops,
        calls=linked_tables.assumed_calls(activities, ops)
        if top.calls is None
        else linked_tables.calls(top.calls, ops.id),
        activities=activities,
        device_waits=linked_tables.device_waits(top.device_waits, nodes.waits, activities.id),
        host_waits=linked_tables.host_waits(top.host_waits, activities.id),
        handoffs=linked_tables.thread_handoffs(top.handoffs),
        communications=top.communications,
        groups=top.groups,
        report=report,
    )


def _ops(nodes: LinkedNodes) -> Ops:
    table = nodes.ops
    thread, (module, function) = table.column("thread"), nodes.python_columns(table)
    return Ops(
        name=table.categorical("name"),
        thread=np.where(thread == ABSENT, table.column("tid"), thread),
        recorded_by_host=np.array(nodes.recorded_by_host, np.bool_),
        op_schema=table.categorical("op_schema"),
        inputs=nodes.inputs.column(),
        outputs=nodes.outputs.column(),
        extra=nodes.extra.column(),
        communication_row=CommunicationRows(table.column("communication")),
        **{name: table.column(name) for name in ("id", "parent_id", "start", "end", "exclusive")},
        **{attribute.name: table.column(attribute.name) for attribute in INTEGER_ATTRIBUTES},
        module=module,
        python_function=function,
    )


def _activities(table: NodeTable, op_row: OpRows, assumed: bool) -> Activities:
    device, call = table.column("device"), table.column("call")
    if assumed:
        device, call = np.maximum(device, 0), np.where(op_row >= 0, np.arange(table.count), -1)
    columns: dict[str, Any] = {name: table.column(name) for name in ACTIVITY_COLUMNS}
    return Activities(
        name=table.categorical("name"),
        category=table.categorical("category"),
        device=device,
        **columns,
        call_row=CallRows(call),
        op_row=op_row,
        communication_row=CommunicationRows(table.column("communication")),
    )
