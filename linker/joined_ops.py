"""Joins the ops of both traces into one table, and finds which op called which from both together."""

import msgspec
import numpy as np

from ..schema.columns import (
    ABSENT,
    BytesColumn,
    Categorical,
    CommunicationRows,
    Int64,
    Nesting,
    OpRows,
    RowMap,
    rows_in_circles,
)
from ..schema.linked import Ops
from ..schema.traces import NO_TENSORS, plain_escapes
from .matching import Match
from .readers import HostTrace, RecordedOps

IN_CIRCLES = "ops whose parents go round in a circle, made outermost"
USER_SCOPE = 7
"""The record scope of annotations."""


def join_ops(host: HostTrace, device: RecordedOps, match: Match | None, nesting: Nesting) -> tuple[Ops, OpRows]:
    """Returns all ops, and for each op of the device trace its row among them.

    The host trace's nodes come first, in their order; those that only the device trace holds follow.
    """
    device_only = np.ones(len(device.start), np.bool_)
    if match is not None:
        device_only[match.device_row] = False
    added = int(device_only.sum())
    count = len(host) + added
    device_op = OpRows(np.full(len(device.start), -1, np.int64))
    device_op[device_only] = len(host) + np.arange(added)
    if match is not None:
        device_op[match.device_row] = match.host_row

    def of_timed_ops(column: Int64) -> Int64:
        full = np.full(count, ABSENT, np.int64)
        full[device_op] = column
        return full

    def concat(from_host: Int64, from_device: Int64) -> Int64:
        return np.concatenate((from_host, from_device[device_only]))

    ids = np.concatenate((host.id, int(host.id.max(initial=0)) + 1 + np.arange(added)))
    parent_id = np.concatenate((host.parent, np.full(added, -1)))
    enclosing = RowMap(device_op)[nesting.parent]
    is_nested = enclosing >= 0
    parent_id[device_op[is_nested]] = ids[enclosing[is_nested]]
    zero, unknown = np.zeros(len(device.start), np.int64), np.full(len(device.start), -1, np.int64)
    ops = Ops(
        id=ids,
        parent_id=parent_id,
        name=Categorical.joined((host.name, device.name.take(device_only))),
        thread=of_timed_ops(device.thread),
        start=of_timed_ops(device.start),
        end=of_timed_ops(nesting.end),
        exclusive=of_timed_ops(nesting.exclusive),
        recorded_by_host=np.arange(count) < len(host),
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
        communication_row=CommunicationRows(np.full(count, -1, np.int64)),
    )
    # only the device trace records sequence and forward thread of evaluate_function nodes
    seq_id, fw_tid = ops.seq_id[device_op], ops.fw_tid[device_op]
    ops.seq_id[device_op] = np.where(seq_id < 0, device.sequence, seq_id)
    ops.fw_tid[device_op] = np.where(fw_tid <= 0, device.forward_thread, fw_tid)
    return ops, device_op


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
