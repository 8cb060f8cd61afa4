"""Joins the rows of both traces: ops become one table, in which each has the op that called it by both traces, and the
activities become those of the linked trace.
"""

import msgspec
import numpy as np

from ..schema.columns import (
    ABSENT,
    Bool,
    BytesColumn,
    CallRows,
    Categorical,
    CommunicationRows,
    Int64,
    Nesting,
    OpRows,
    RowMap,
)
from ..schema.linked import NO_TENSORS, Activities, Ops, plain_escapes
from .match import Match
from .readers import DeviceTrace, HostTrace, RecordedOps

USER_SCOPE = 7
"""The record scope of annotations."""
AS_RECORDED = ["name", "category", "device", "stream", "start", "end", "correlation", "graph_node", "size", "bandwidth"]


def join_ops(host: HostTrace, device: RecordedOps, match: Match | None, nesting: Nesting) -> tuple[Ops, OpRows]:
    """Returns all ops, and for each op of the device trace its row among them.

    The host trace's nodes come first, in their order; those that only the device trace holds follow. The parent of an
    op is the op that encloses it in the device trace, else the host trace's parent.
    """
    device_op, device_only, added = _joined_rows(len(host), len(device.start), match)
    ids = np.concatenate((host.id, int(host.id.max(initial=0)) + 1 + np.arange(added)))
    parent_id, enclosing = np.concatenate((host.parent, np.full(added, -1))), RowMap(device_op)[nesting.parent]
    parent_id[device_op[enclosing >= 0]] = ids[enclosing[enclosing >= 0]]

    def timed(column: Int64) -> Int64:
        full = np.full(len(ids), ABSENT, np.int64)
        full[device_op] = column
        return full

    def joined(from_host: Int64, from_device: Int64 | int) -> Int64:
        return np.concatenate((from_host, np.broadcast_to(from_device, device.start.shape)[device_only]))

    ops = Ops(
        id=ids,
        parent_id=parent_id,
        name=Categorical.joined((host.name, device.name.take(device_only))),
        thread=timed(device.thread),
        start=timed(device.start),
        end=timed(nesting.end),
        exclusive=timed(nesting.exclusive),
        recorded_by_host=np.arange(len(ids)) < len(host),
        op_schema=Categorical.joined((host.schema_text, Categorical.of([""] * added))),
        rf_id=joined(host.rf_id, device.rf_id),
        fw_parent=joined(host.fw_parent, 0),
        seq_id=joined(host.seq_id, device.sequence),
        scope=joined(host.scope, np.where(device.annotation, USER_SCOPE, 0)),
        tid=joined(host.tid, -1),
        fw_tid=joined(host.fw_tid, device.forward_thread),
        inputs=BytesColumn.joined([host.inputs, _arguments(device.arguments.take(device_only))]),
        outputs=BytesColumn.joined([host.outputs, BytesColumn.of([NO_TENSORS] * added)]),
        extra=host.extra,
        communication_row=CommunicationRows(np.full(len(ids), -1, np.int64)),
    )
    # only the device trace records sequence numbers and forward threads of some ops (evaluate_function)
    seq_id, fw_tid = ops.seq_id[device_op], ops.fw_tid[device_op]
    ops.seq_id[device_op] = np.where(seq_id < 0, device.sequence, seq_id)
    ops.fw_tid[device_op] = np.where(fw_tid <= 0, device.forward_thread, fw_tid)
    return ops, device_op


def _joined_rows(host_count: int, device_count: int, match: Match | None) -> tuple[OpRows, Bool, int]:
    """Returns the row of each op of the device trace, and which of these and how many only that trace holds."""
    device_only, device_op = np.ones(device_count, np.bool_), OpRows(np.full(device_count, -1, np.int64))
    if match is not None:
        device_only[match.device_row] = False
        device_op[match.device_row] = match.host_row
    added = int(device_only.sum())
    device_op[device_only] = host_count + np.arange(added)
    return device_op, device_only, added


def _arguments(recorded: Categorical) -> BytesColumn:
    """Returns the arguments of ops of the device trace as the host trace writes them."""
    arguments = [
        msgspec.json.format(plain_escapes(text.encode()), indent=-1) if text else NO_TENSORS for text in recorded.table
    ]
    return BytesColumn.of([arguments[code] for code in recorded.codes.tolist()])


def activities_of(device: DeviceTrace, call_row: CallRows, op_row: OpRows, largest_id: int = 0) -> Activities:
    """Returns the activities with their launch calls and ops, yet without communications.

    Their ids follow `largest_id`, the largest one of an op.
    """
    rows = device.activities
    return Activities(
        id=largest_id + 1 + np.arange(len(rows.start)),
        **{name: getattr(rows, name) for name in AS_RECORDED},
        call_row=call_row,
        op_row=op_row,
        communication_row=CommunicationRows(np.full(len(rows.start), -1, np.int64)),
    )
