"""Joins the matched ops of both traces to one table, and finds the launch calls and ops of activities. Where the traces
are of other steps, times, nesting, sequence and step numbers are the device trace's.
"""

from dataclasses import replace

import msgspec
import numpy as np

from ..schema import columns
from ..schema.columns import Bool, CallRows, Categorical, DeviceOpRows, Int64, Lookup, OpRows, RowMap, ThreadIntervals
from ..schema.linked import NO_TENSORS, USER_SCOPE, Activities, Calls, Ops, are_step_marks
from .match import Match
from .readers import HostTrace, RecordedOps


def launching_calls(activities: Activities, calls: Calls) -> CallRows:
    """Returns for each activity the earliest call, whatever its name, with its correlation, -1 for none."""
    latest_first = np.argsort(calls.start, kind="stable")[::-1]
    latest_first = latest_first[calls.correlation[latest_first] != 0]
    return CallRows(Lookup(calls.correlation[latest_first], latest_first).of(activities.correlation))


def launching_ops(activities: Activities, call_row: CallRows, call_op: DeviceOpRows, ops: RecordedOps) -> DeviceOpRows:
    """Returns for each activity the row of the op around its launch call, else of the op with its external id, -1 for
    none. In traces until early 2024 that id repeats the correlation, and names other ops by chance.
    """
    row = RowMap(call_op)[call_row]
    recorded = (activities.external_id != 0) & (activities.correlation != 0)
    are_ids_of_ops = (activities.external_id[recorded] != activities.correlation[recorded]).any()
    orphans = np.flatnonzero((row < 0) & (activities.external_id != 0))
    if are_ids_of_ops and len(orphans):
        first_op = Lookup(ops.external_id[::-1], np.arange(len(ops.start))[::-1])
        row[orphans] = first_op.of(activities.external_id[orphans])
    return row


def enclosing_ops(calls: Calls, ops: RecordedOps, nesting: columns.Nesting, is_step: Bool) -> DeviceOpRows:
    """Returns for each call the innermost op around it on its thread, -1 for none; step marks launch nothing."""
    real = np.flatnonzero(~is_step)
    intervals = ThreadIntervals(ops.thread[real], ops.start[real], nesting.end[real])
    nested = columns.NestedIntervals(intervals, columns.within(real, nesting.parent))
    spans = ThreadIntervals(calls.thread, calls.start, calls.end)
    row = nested.innermost(spans, rounding=columns.ROUNDING, tolerance=columns.TOLERANCE)
    return DeviceOpRows(RowMap(real)[row])


def join_ops(host: HostTrace, device: RecordedOps, match: Match | None, nesting: columns.Nesting) -> tuple[Ops, OpRows]:
    """Returns the ops of the host trace, then those of the device trace alone, and each device op's row among them."""
    if match is not None and match.of_other_steps:
        host, device = _without_ids_of_steps(host, device, match)
    device_only, device_op = np.ones(len(device.start), np.bool_), OpRows(np.full(len(device.start), -1, np.int64))
    if match is not None:
        device_only[match.device_row] = False
        device_op[match.device_row] = match.host_row
    added = int(device_only.sum())
    device_op[device_only] = len(host) + np.arange(added)
    ids = np.concatenate((host.id, int(host.id.max(initial=0)) + 1 + np.arange(added)))
    parent_id, enclosing = np.concatenate((host.parent, np.full(added, -1))), RowMap(device_op)[nesting.parent]
    parent_id[device_op[enclosing >= 0]] = ids[enclosing[enclosing >= 0]]

    def timed(column: Int64) -> Int64:
        full = np.full(len(ids), columns.ABSENT, np.int64)
        full[device_op] = column
        return full

    def joined(from_host: Int64, from_device: Int64 | int) -> Int64:
        return np.concatenate((from_host, np.broadcast_to(from_device, device.start.shape)[device_only]))

    ops = Ops(
        id=ids, parent_id=parent_id, name=Categorical.joined((host.name, device.name.take(device_only))),
        thread=timed(device.thread), start=timed(device.start), end=timed(nesting.end),
        exclusive=timed(nesting.exclusive), recorded_by_host=np.arange(len(ids)) < len(host),
        op_schema=Categorical.joined((host.schema_text, Categorical.of([""] * added))),
        rf_id=joined(host.rf_id, device.rf_id), fw_parent=joined(host.fw_parent, 0),
        seq_id=joined(host.seq_id, device.sequence),
        scope=joined(host.scope, np.where(device.annotation, USER_SCOPE, 0)), tid=joined(host.tid, -1),
        fw_tid=joined(host.fw_tid, device.forward_thread),
        inputs=columns.BytesColumn.joined([host.inputs, _arguments(device.arguments.take(device_only))]),
        outputs=columns.BytesColumn.joined([host.outputs, columns.BytesColumn.of([NO_TENSORS] * added)]),
        extra=host.extra, communication_row=columns.CommunicationRows(np.full(len(ids), -1, np.int64)),
    )  # fmt: skip
    # only the device trace records sequence numbers and forward threads of some ops (evaluate_function)
    seq_id, fw_tid = ops.seq_id[device_op], ops.fw_tid[device_op]
    ops.seq_id[device_op] = np.where(seq_id < 0, device.sequence, seq_id)
    ops.fw_tid[device_op] = np.where(fw_tid <= 0, device.forward_thread, fw_tid)
    return ops, device_op


def _without_ids_of_steps(host: HostTrace, device: RecordedOps, match: Match) -> tuple[HostTrace, RecordedOps]:
    """Returns both without the ids, numbers and nesting that mean something else in the other's steps."""
    is_mark, row = are_step_marks(host.name)[match.host_row], np.arange(len(host))
    row[match.host_row[is_mark]] = len(host) + match.device_row[is_mark]
    name = Categorical.joined((host.name, device.name)).take(row)
    thread = np.full(len(host) + 1, columns.ABSENT)
    thread[match.host_row] = device.thread[match.device_row]
    parent = OpRows(Lookup(host.id, np.arange(len(host))).of(host.parent))
    timed = thread[:-1] != columns.ABSENT
    above = np.append(host.id, -1)[columns.nearest(~timed, parent)]
    parent_id = np.where(timed & (thread[parent] == thread[:-1]), above, host.parent)
    host = replace(host, name=name, parent=parent_id, seq_id=np.full(len(host), -1))
    return host, replace(device, rf_id=np.zeros_like(device.rf_id))


def _arguments(recorded: Categorical) -> columns.BytesColumn:
    """Returns the arguments of ops of the device trace as the host trace writes them."""
    arguments = [msgspec.json.format(text.encode(), indent=-1) if text else NO_TENSORS for text in recorded.table]
    return columns.BytesColumn.of([arguments[code] for code in recorded.codes.tolist()])
