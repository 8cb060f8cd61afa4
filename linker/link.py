"""Joins a host and a device trace of one process into a linked trace: matching, nesting, launches, communication,
order.
"""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from ..schema.columns import (
    Int64,
    Nesting,
    RowMap,
    nest,
)
from ..schema.errors import DataError
from ..schema.linked import Calls, Communications, LinkedTrace, Ops, TraceInfo, on_host_clock
from ..schema.traces import NO_TENSORS, are_step_marks
from .activity_rows import activities_of
from .communication import (
    MANY_MEMBERS,
    UNREADABLE_GROUPS,
    awaited_collectives,
    collective_ops,
    groups_of_host,
    link_communications,
    process_groups,
    with_members,
)
from .contradictions import contradictions
from .host_communication import host_communications, host_transfers, messages_in_flight, transfer_waits
from .joined_ops import IN_CIRCLES, cut_circles, ops_of_both
from .link_report import report_of
from .machine import machine_of
from .matching import Match, enclosing_ops, external_ids_name_ops, launching_calls, launching_ops, match_ops
from .modules import places_of
from .readers import DeviceTrace, HostTrace, one_rank
from .submissions import process_of
from .threads import thread_handoffs
from .waits import Synchronisation, synchronise
from .windows import EVERYTHING, TracePart, Window, cut, host_period, of_both, period_of, trace_start, whole

ENDED_BEFORE = "activities that ended before their launch call began, taken to have none"
NO_PYTHON = "holds no calls of Python, so that no module is known; record with with_stack=True and with_modules=True"


def link(
    host: HostTrace | None,
    device: DeviceTrace,
    rank: int | None = None,
    allow_mismatch: bool = False,
    window: Window = EVERYTHING,
) -> LinkedTrace:
    """Links the host trace and the device trace of one process.

    The linked trace covers the time that both files cover, and of that the `window`.

    >>> from execgraph import read_device_trace, read_host_trace
    >>> folder = "tests/data/training"
    >>> host = read_host_trace(f"{folder}/host_rank0.json.gz")
    >>> len(link(host, read_device_trace(f"{folder}/device_rank0.json.gz")).activities) > 0
    True

    Args:
        host: The host trace; None to build from the device trace alone.
        device: The device trace.
        rank: The rank of traces that record none; of a device trace that was merged from several ranks, the one to
            link.
        allow_mismatch: Whether to link traces that seem to be of different runs or ranks.
        window: The part of the traces to link.

    Raises:
        DataError: The two are not of one run or `rank` contradicts the recorded one, without `allow_mismatch`; or the
            window is not in the trace, or nothing was recorded in it.
    """
    device = one_rank(device, rank)
    if rank is not None and device.rank is not None and rank != device.rank and not allow_mismatch:
        raise DataError(
            f"{device.path}: is of rank {device.rank}, not {rank}; leave --rank out or pass that rank's file"
        )
    match = match_ops(host, device, allow_mismatch) if host is not None else None
    device = messages_in_flight(device)
    nesting = nest(device.ops.thread, device.ops.start, device.ops.end, device.ops.event_index)
    linked, sync, contradicting = _linked(
        host if host is not None else HostTrace.without_nodes(), device, match, nesting, rank
    )
    linked = linked
    part, remarks = _part(linked, device, match, window)
    report = report_of(host, device, match, sync, linked, part, nesting.clipped)
    report.remarks += contradicting
    report.remarks += remarks if host is not None else [*remarks, _without_host(part.linked.ops)]
    if device.python is not None and not len(device.python.start):
        report.remarks.append(f"{device.path}: {NO_PYTHON}")
    return replace(part.linked, report=report)


def _without_host(ops: Ops) -> str:
    """Returns what is not known without a host trace."""
    known = f"{int(ops.inputs.differ(NO_TENSORS).sum())} of {len(ops)} ops have shapes and types"
    return f"no host trace: {known}, none the identity of its tensors, so nothing follows from data"


def _part(linked: LinkedTrace, device: DeviceTrace, match: Match | None, window: Window) -> tuple[TracePart, list[str]]:
    """Returns what of the whole belongs to the window, and sentences about where it lies."""
    remarks, zero = [], trace_start(device)
    held = of_both(linked)
    covered = host_period(device, match) if match is not None else None
    if match is not None and match.places > 1:
        shorter, longer = ("device", "host") if match.host_is_longer else ("host", "device")
        remarks.append(f"the {shorter} trace fits in {match.places} places of the {longer} trace; linked to the first")
    if covered is not None:
        remarks.append(
            f"the host trace covers {covered.in_words(zero)} of the device trace; the rest is outside the window"
        )
    period = period_of(device, window, covered or whole(device)) if window != EVERYTHING else covered
    if period is None:
        return held, remarks
    if window != EVERYTHING:
        remarks.append(f"the window is from {period.in_words(zero)} of the trace")
    part = cut(held.linked, period)
    if part.is_empty:
        raise DataError(f"{device.path}: nothing was recorded in the window, {period.in_words(zero)} of the trace")
    return part, remarks


def _linked(
    host: HostTrace, device: DeviceTrace, match: Match | None, nesting: Nesting, rank: int | None
) -> tuple[LinkedTrace, Synchronisation, list[str]]:
    """Returns the whole of both traces, and what they contradict each other in."""
    is_step = are_step_marks(device.ops.name)
    call_op = enclosing_ops(device.calls, device.ops, nesting.end, nesting.parent, is_step)
    call_row = launching_calls(device.activities, device.calls)
    activity_op = launching_ops(
        device.activities, call_row, call_op, device.ops, external_ids_name_ops(device.activities)
    )
    ops, device_op = ops_of_both(host, device.ops, match, nesting)
    op_parent, outer = np.full(len(ops), -1, np.int64), RowMap(device_op)[nesting.parent]
    op_parent[device_op] = outer
    uncalled = cut_circles(ops, op_parent)
    calls = Calls(
        device.calls.name, device.calls.thread, device.calls.start, device.calls.end, device.calls.correlation,
        RowMap(device_op)[call_op],
    )  # fmt: skip
    collectives = collective_ops(ops, op_parent, device.communication, device_op)
    activity_op = RowMap(device_op)[activity_op]
    communications, communication_row = link_communications(
        collectives, device.activities, ops, calls, call_row, activity_op
    )
    activities = activities_of(device, call_row, activity_op, communication_row, int(ops.id.max(initial=0)))
    awaited = awaited_collectives(collectives, ops, activities, communications)
    info = _info(host, device, rank)
    info.machine = machine_of(activities, calls, device.syncs)
    contradicting = [one.sentence for one in contradictions(host, device, call_row, info.machine)]
    shifted = on_host_clock(activities, info.machine)
    sync = synchronise(process_of(device, calls, shifted, collectives, awaited, info.machine), device, info.machine)
    impossible = (call_row >= 0) & (RowMap(calls.start)[call_row] > shifted.end)
    sync.noted[ENDED_BEFORE].extend(call_row[impossible].tolist())
    activities = replace(activities, call_row=np.where(impossible, -1, call_row))
    sync.noted[IN_CIRCLES].extend([-1] * uncalled)
    unresolved = [*sync.guessed.values(), sync.dropped["stream waits whose event was not found"]]
    info.unresolved_waits = sum(map(len, unresolved))
    unlisted = sync.noted[MANY_MEMBERS]
    described = groups_of_host(host.name, host.inputs, sync.noted[UNREADABLE_GROUPS])
    groups = process_groups([*described, *device.groups], unlisted)
    transfers = host_transfers(ops, device, device_op)
    on_host, host_row = host_communications(transfers, groups)
    around = transfer_waits(transfers, calls)
    sync.noted.update(around.noted)
    ops.communication_row = np.where(host_row >= 0, host_row + len(communications), -1)
    together = Communications.of(chain(communications, on_host))
    linked = LinkedTrace(
        info=info,
        ops=ops,
        calls=calls,
        activities=activities,
        device_waits=sync.device_waits,
        host_waits=sync.host_waits,
        handoffs=thread_handoffs(ops, op_parent, calls, around.handoffs, transfers.threads),
        communications=with_members(together, groups, device.world_size or -1, unlisted),
        groups=groups,
    )
    return _with_modules(linked, device, op_parent), sync, contradicting


def _with_modules(linked: LinkedTrace, device: DeviceTrace, op_parent: Int64) -> LinkedTrace:
    """With the modules and functions that Python called, if its calls were read and there are any."""
    if device.python is None or not len(device.python.start):
        return linked
    ops, calls, activities = linked.ops, linked.calls, linked.activities
    places = places_of(device.python, ops, op_parent, calls)
    module, function = places.of_activities(activities.call_row, activities.op_row)
    return replace(
        linked,
        ops=replace(ops, module=places.op_module, python_function=places.op_function),
        calls=replace(calls, module=places.call_module, python_function=places.call_function),
        activities=replace(activities, module=module, python_function=function),
    )


def _info(host: HostTrace, device: DeviceTrace, rank: int | None) -> TraceInfo:
    pid = host.pid if host.pid is not None else next(iter(device.processes), -1)
    recorded = device.rank if device.rank is not None else rank
    return TraceInfo(
        schema=host.schema,
        pid=pid,
        rank=-1 if recorded is None else recorded,
        world_size=device.world_size or -1,
        base_time_ns=device.base_time_ns,
        sync_records=len(device.syncs.start),
        source_host=Path(host.path).name,
        source_device=Path(device.path).name,
        time=host.time,
        start_ts=host.start_ts,
        finish_ts=host.finish_ts,
        devices={one: name for one, name in device.device_names.items() if one in device.activities.device},
    )
