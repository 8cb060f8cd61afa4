"""The ops of both traces as one table, and which op called which by what the two say together."""

import msgspec
import numpy as np

from ..schema.columns import (
    ABSENT,
    BytesColumn,
    Categorical,
    Int64,
    Nesting,
    RowMap,
    rows_in_circles,
)
from ..schema.linked import Ops
from ..schema.traces import NO_TENSORS, plain_escapes
from .matching import Match
from .readers import HostTrace, RecordedOps

IN_CIRCLES = "ops whose parents go round in a circle, made outermost"


def ops_of_both(host: HostTrace, device: RecordedOps, match: Match | None, nesting: Nesting) -> tuple[Ops, Int64]:
    """Returns all ops: the host trace's nodes in their order, then those that only the device trace holds. And the row
    of each device op.
    """
    nodes = len(host)
    alone = np.ones(len(device.start), np.bool_)
    if match is not None:
        alone[match.device_row] = False
    device_op = np.full(len(device.start), -1, np.int64)
    device_op[alone] = nodes + np.arange(int(alone.sum()))
    if match is not None:
        device_op[match.device_row] = match.host_row
    count = nodes + int(alone.sum())
    largest = int(host.id.max(initial=0))

    def timed(column: Int64) -> Int64:
        full = np.full(count, ABSENT, np.int64)
        full[device_op] = column
        return full

    def joined(from_host: Int64, from_device: Int64) -> Int64:
        return np.concatenate((from_host, from_device[alone]))

    ids = np.concatenate((host.id, largest + 1 + np.arange(int(alone.sum()))))
    parent_id, outer = np.concatenate((host.parent, np.full(int(alone.sum()), -1))), RowMap(device_op)[nesting.parent]
    inside = outer >= 0
    parent_id[device_op[inside]] = ids[outer[inside]]
    blank, unknown = np.full(len(device.start), 0, np.int64), np.full(len(device.start), -1, np.int64)
    names = Categorical.joined((host.name, device.name.take(alone)))
    missing = [NO_TENSORS] * int(alone.sum())
    recorded = [
        msgspec.json.format(plain_escapes(text.encode()), indent=-1) if text else NO_TENSORS
        for text in device.arguments.table
    ]
    arguments = [recorded[code] for code in device.arguments.codes[alone].tolist()]
    ops = Ops(
        id=ids,
        parent_id=parent_id,
        name=names,
        thread=timed(device.thread),
        start=timed(device.start),
        end=timed(nesting.end),
        exclusive=timed(nesting.exclusive),
        recorded_by_host=np.arange(count) < nodes,
        op_schema=Categorical.joined((host.schema_text, Categorical.of("" for _ in missing))),
        rf_id=joined(host.rf_id, device.rf_id),
        fw_parent=joined(host.fw_parent, blank),
        seq_id=joined(host.seq_id, device.sequence),
        scope=joined(host.scope, np.where(device.annotation, 7, 0)),
        tid=joined(host.tid, unknown),
        fw_tid=joined(host.fw_tid, device.forward_thread),
        inputs=BytesColumn.joined([host.inputs, BytesColumn.of(arguments)]),
        outputs=BytesColumn.joined([host.outputs, BytesColumn.of(missing)]),
        extra=host.extra,
        communication_row=np.full(count, -1, np.int64),
    )
    # only the device trace tells sequence and forward thread of evaluate_function nodes
    seq_id, fw_tid = ops.seq_id[device_op], ops.fw_tid[device_op]
    ops.seq_id[device_op] = np.where(seq_id < 0, device.sequence, seq_id)
    ops.fw_tid[device_op] = np.where(fw_tid <= 0, device.forward_thread, fw_tid)
    return ops, device_op


def cut_circles(ops: Ops, nested_in: Int64) -> int:
    """Makes ops outermost whose parents by both traces go round, and says how many.

    These are ops that the device trace nests in none (`nested_in` is -1): its own nesting, which is measured, never
    goes round.
    """
    rows = rows_in_circles(ops.id, ops.parent_id)
    rows = rows[nested_in[rows] < 0]
    ops.parent_id[rows] = -1
    return len(rows)
