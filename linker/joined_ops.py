"""Joins the rows of both traces: ops become one table, in which each has the op that called it by both traces, and the
activities become those of the linked trace.
"""

from typing import NamedTuple

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
    rows_in_circles,
)
from ..schema.linked import NO_TENSORS, Activities, Ops, plain_escapes
from .match import Match
from .readers import DeviceTrace, HostTrace, RecordedOps

USER_SCOPE = 7
"""The record scope of annotations."""
AS_RECORDED = ["name", "category", "device", "stream", "start", "end", "correlation", "graph_node", "size", "bandwidth"]


class _JoinedRows(NamedTuple):
    """The `total` ops of both traces: how many were `added` to the host trace's nodes, the row of each op of the device
    trace, and which of these only that trace holds.
    """

    total: int
    added: int
    device_op: OpRows
    device_only: Bool

    def of_timed_ops(self, column: Int64) -> Int64:
        """Returns a column of the device trace for all ops, ABSENT for those that it lacks."""
        full = np.full(self.total, ABSENT, np.int64)
        full[self.device_op] = column
        return full

    def concat(self, from_host: Int64, from_device: Int64) -> Int64:
        return np.concatenate((from_host, from_device[self.device_only]))


def join_ops(host: HostTrace, device: RecordedOps, match: Match | None, nesting: Nesting) -> tuple[Ops, OpRows]:
    """Returns all ops, and for each op of the device trace its row among them.

    The host trace's nodes come first, in their order; those that only the device trace holds follow.
    """
    rows = _joined_rows(host, device, match)
    of_timed_ops, concat, device_only, added = rows.of_timed_ops, rows.concat, rows.device_only, rows.added
    ids = np.concatenate((host.id, int(host.id.max(initial=0)) + 1 + np.arange(added)))
    zero, unknown = np.zeros(len(device.start), np.int64), np.full(len(device.start), -1, np.int64)
    ops = Ops(
        id=ids,
        parent_id=_parent_ids(ids, host, rows.device_op, nesting),
        name=Categorical.joined((host.name, device.name.take(device_only))),
        thread=of_timed_ops(device.thread),
        start=of_timed_ops(device.start),
        end=of_timed_ops(nesting.end),
        exclusive=of_timed_ops(nesting.exclusive),
        recorded_by_host=np.arange(rows.total) < len(host),
        op_schema=Categorical.joined((host.schema_text, Categorical.of([""] * added))),
        rf_id=concat(host.rf_id, device.rf_id),
        fw_parent=concat(host.fw_parent, zero),
        seq_id=concat(host.seq_id, device.sequence),
        scope=concat(host.scope, np.where(device.annotation, USER_SCOPE, 0)),
        tid=concat(host.tid, unknown),
        fw_tid=concat(host.fw_tid, device.forward_thread),
        inputs=BytesColumn.joined([host.inputs, BytesColumn.of(_arguments(device.arguments.take(device_only)))]),
        outputs=BytesColumn.joined([host.outputs, BytesColumn.of([NO_TENSORS] * added)]),
        extra=host.extra,
        communication_row=CommunicationRows(np.full(rows.total, -1, np.int64)),
    )
    _add_forward_ops(ops, device, rows.device_op)
    return ops, rows.device_op


def _joined_rows(host: HostTrace, device: RecordedOps, match: Match | None) -> _JoinedRows:
    """Numbers the ops: the host trace's nodes, then those that only the device trace holds."""
    device_only = np.ones(len(device.start), np.bool_)
    device_op = OpRows(np.full(len(device.start), -1, np.int64))
    if match is not None:
        device_only[match.device_row] = False
        device_op[match.device_row] = match.host_row
    added = int(device_only.sum())
    device_op[device_only] = len(host) + np.arange(added)
    return _JoinedRows(len(host) + added, added, device_op, device_only)


def _parent_ids(ids: Int64, host: HostTrace, device_op: OpRows, nesting: Nesting) -> Int64:
    """Returns the id of each op's parent: the op that encloses it in the device trace, else the host trace's parent."""
    parent_id = np.concatenate((host.parent, np.full(len(ids) - len(host), -1)))
    enclosing = RowMap(device_op)[nesting.parent]
    is_nested = enclosing >= 0
    parent_id[device_op[is_nested]] = ids[enclosing[is_nested]]
    return parent_id


def _add_forward_ops(ops: Ops, device: RecordedOps, device_op: OpRows) -> None:
    """Adds, in place, sequence numbers and forward threads that only the device trace records (evaluate_function)."""
    seq_id, fw_tid = ops.seq_id[device_op], ops.fw_tid[device_op]
    ops.seq_id[device_op] = np.where(seq_id < 0, device.sequence, seq_id)
    ops.fw_tid[device_op] = np.where(fw_tid <= 0, device.forward_thread, fw_tid)


def _arguments(recorded: Categorical) -> list[bytes]:
    """Returns the arguments of ops of the device trace as the host trace writes them."""
    arguments = [
        msgspec.json.format(plain_escapes(text.encode()), indent=-1) if text else NO_TENSORS for text in recorded.table
    ]
    return [arguments[code] for code in recorded.codes.tolist()]


def cut_circles(ops: Ops, nested_in: OpRows) -> int:
    """Makes ops outermost whose parents, by both traces, go round in a circle. Returns how many.

    Only ops that the device trace nests in none (`nested_in` is -1) are changed: its nesting is measured and never goes
    round.
    """
    rows = rows_in_circles(ops.id, ops.parent_id)
    rows = rows[nested_in[rows] < 0]
    ops.parent_id[rows] = -1
    return len(rows)


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
