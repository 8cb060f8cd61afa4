"""Joins a host and a device trace of one process into a linked trace, and reports what became of every row."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ..schema import columns, linked
from ..schema.arguments import InputFile, is_file, path_of, wrong_argument
from ..schema.columns import ABSENT, ActivityRows, CallRows, CommunicationRows, OpRows, RowMap, ThreadIntervals
from ..schema.errors import DataError, Remedy
from ..schema.linked import Activities, Calls, LinkedTrace, Ops
from ..schema.progress import OnProgress, unseen
from ..schema.reasons import AnyReason, Counts, Reason
from . import communication, contradictions, windows
from .details import with_details
from .joining import enclosing_ops, join_ops, launching_calls, launching_ops
from .lost_records import LostRecords, lost_records
from .machine import awaited_ends, machine_of, rounded
from .match import Match, are_ops, match_ops
from .modules import with_modules
from .odd_ops import odd_ops
from .overruns import overruns
from .readers import DeviceTrace, HostTrace, Role, one_rank, read_device_trace, read_host_trace
from .steps import UnevenSteps, uneven_steps
from .stream_order import too_early
from .threads import queue_waits, thread_handoffs
from .waits import Findings, FoundCalls, Process, synchronise
from .windows import EVERYTHING, TracePart, Window, cut, host_period, marked, of_both, period_of, trace_start, whole

CALL = "link(host, device)"
ONLY_RECORDED = ("process", "external_id")
"""The columns of calls and activities that only a device trace has."""
NO_PYTHON = "holds no calls of Python, so that no module is known; record with with_stack=True and with_modules=True"
NO_DETAIL = "has no detail trace beside it, so that no module is known; record it with capture(modules=True)"


def link(
    host: HostTrace | InputFile | None,
    device: DeviceTrace | InputFile | None = None,
    rank: int | None = None,
    allow_mismatch: bool = False,
    window: Window = EVERYTHING,
    *,
    strict: bool = False,
    modules: bool = False,
    detail: InputFile | None = None,
) -> LinkedTrace:
    """Links the traces of one process, or its device trace alone, for the time that both cover, and of that the
    `window`. Raises DataError if the two are not of one run or `rank` contradicts the recorded one, without
    `allow_mismatch`, or if nothing is in the window; TypeError if a trace is missing, of another kind, or in the
    other's place.
    """
    host, device = read_traces(host, device, strict=strict, modules=modules, detail=detail)
    device = one_rank(device, rank)
    if rank is not None and device.rank is not None and rank != device.rank and not allow_mismatch:
        raise DataError(
            f"{device.path}: is of rank {device.rank}, not {rank}; leave the rank out or pass that rank's file"
        )
    match = match_ops(host, device, allow_mismatch) if host is not None else None
    apart = contradictions.other_shapes(host, device, match) if host is not None and match is not None else []
    if apart and not allow_mismatch:
        raise DataError(f"{apart[0].sentence} (", Remedy.ALLOW_MISMATCH, " links these all the same)")
    device = communication.messages_in_flight(device)
    nesting = columns.nest(ThreadIntervals(device.ops.thread, device.ops.start, device.ops.end), device.ops.event_index)
    nodes = host if host is not None else HostTrace.without_nodes()
    trace, findings, contradicting, joined, lost = _link_all(nodes, device, match, nesting, rank)
    uneven = uneven_steps(device, bool(findings.oddities[Reason.ODD_OPS]))
    if not uneven.whole:
        trace.info.step_without_profiler_ns = -1
        findings.oddities[Reason.UNEVEN_STEPS].append(-1)
    part, notes = _part(trace, device, match, window, joined.transfers.asked_by, uneven)
    notes += contradictions.unnamed_kernels(device.path, joined.collectives)
    report = report_of(
        host, device, match, findings=findings, lost=lost, whole=trace, part=part, clipped=nesting.clipped
    )
    report.notes += [contradiction.sentence for contradiction in apart + contradicting] + notes
    report.notes += rounded(device)
    if host is None and len(ops := part.trace.ops):
        report.notes.append(
            f"no host trace: {int(ops.inputs.differ(linked.NO_TENSORS).sum())} of {len(ops)} ops have shapes and types; "
            "tensor ids were not recorded, so data dependencies cannot be derived"
        )
    if host is None and (devices := contradictions.unrecorded_devices(None, device)):
        listed = f"lists {', '.join(devices.values())}, but holds no activity of a device"
        report.notes.append(f"{device.path}: {listed}; if the job used one, {contradictions.RECORD_DEVICE}")
    if device.python is not None and not len(device.python.start) and device.detail is None:
        report.notes.append(f"{device.path}: {NO_DETAIL if device.window == 'device' else NO_PYTHON}")
    trace = replace(part.trace, report=report)
    details = linked_details(trace, host, device.detail)
    if details is not None and details.ops.module is not None:
        trace, known, of_all = with_details(trace, details)
        report.notes += [f"the detail trace has modules and functions of {known} of {of_all} ops"] * (known < of_all)
    return trace


def linked_details(trace: LinkedTrace, host: HostTrace | None, detail: DeviceTrace | None) -> LinkedTrace | None:
    """Returns the detail trace linked with the host trace; None without one, or for one of something else (noted)."""
    notes = trace.report.notes
    with noted(notes):
        if detail is None:
            return None
        if host is None:
            raise DataError(f"{detail.path}: is of the steps of the host trace, which is missing")
        details = link(host, detail, None if trace.info.rank < 0 else trace.info.rank)
        notes += [note for note in details.report.notes if detail.path in note and note not in notes]
        return details
    return None


@contextmanager
def noted(notes: list[str], strict: bool = False) -> Iterator[None]:
    """Notes that the detail trace of the block cannot be used, once, and goes on without it, unless it is `strict`."""
    try:
        yield
    except DataError as error:
        if strict:
            raise
        note = f"{error}; so its modules, functions and allocations are left out"
        notes += [note] * (note not in notes)


def read_traces(
    host: HostTrace | InputFile | None,
    device: DeviceTrace | InputFile | None,
    *,
    strict: bool = False,
    modules: bool = False,
    on_progress: OnProgress = unseen,
    detail: InputFile | None = None,
) -> tuple[HostTrace | None, DeviceTrace]:
    """Returns both traces, read where they are files; TypeError for one that is missing or in the other's place."""
    if isinstance(host, DeviceTrace) and isinstance(device, HostTrace):
        raise TypeError(f"{CALL} takes the host trace first, then the device trace; these two are swapped")
    if not (host is None or is_file(host) or isinstance(host, HostTrace)):
        raise wrong_argument(CALL, "a HostTrace, the path of a host trace, or None first", host)
    if device is None:
        raise TypeError(f"{CALL} lacks the device trace; without a host trace write link(None, device)")
    if not (is_file(device) or isinstance(device, DeviceTrace)):
        raise wrong_argument(CALL, "a DeviceTrace or the path of a device trace second", device)
    if host is not None and not isinstance(host, HostTrace):
        host = read_host_trace(host, strict=strict, on_progress=on_progress)
    if not isinstance(device, DeviceTrace):
        device = read_device_trace(
            device, strict=strict, arguments=host is None, on_progress=on_progress, modules=modules
        )
    if detail is not None and modules:
        with noted(device.notes, strict):
            device.detail = read_device_trace(detail, strict=strict, on_progress=on_progress, modules=True)
    return host, device


def _part(
    trace: LinkedTrace, device: DeviceTrace, match: Match | None, window: Window, asked_by: columns.Lookup,
    uneven: UnevenSteps,
) -> tuple[TracePart, list[str]]:  # fmt: skip
    """Returns the part of the whole trace that is in the window, and sentences about where it lies."""
    notes, zero = list[str](), trace_start(device)
    shared = of_both(trace)
    covered, steps = host_period(device, match) if match is not None else None, marked(device)
    if match is not None and match.alignment_count > 1:
        shorter, longer = ("device", "host") if match.host_is_longer else ("host", "device")
        notes.append(
            f"the {shorter} trace fits the {longer} trace at {match.alignment_count} positions; linked to the first"
        )
    if steps is not None:
        covered = steps
    elif covered is not None:
        notes.append(f"the host trace covers {covered.in_words(zero)} of the device trace; the rest is not linked")
    elif window == EVERYTHING:
        covered = uneven.period
    if uneven.said and (uneven.period is None or covered == uneven.period):
        notes.append(uneven.said)
    period = period_of(device, window, covered or whole(device)) if window != EVERYTHING else covered
    if period is None:
        return shared, notes
    if window != EVERYTHING:
        notes.append(f"the window is from {period.in_words(zero)} of the trace")
    part = cut(shared.trace, period, asked_by)
    if not window.is_of_steps or windows.ends_within_step(device, period):
        part.trace.info.step_without_profiler_ns = -1
    if part.is_empty:
        raise DataError(f"{device.path}: nothing was recorded in the window, {period.in_words(zero)} of the trace")
    return part, notes


class _Joined(NamedTuple):
    """A linked trace that lacks its waits yet, and what they are found by; `counts` is what was odd so far."""

    trace: LinkedTrace
    op_parent: OpRows
    collectives: communication.CollectiveOps
    transfers: communication.Transfers
    counts: dict[AnyReason, int]


def link_communication(
    host: HostTrace | None, device: DeviceTrace, match: Match | None, rank: int | None, uneven: UnevenSteps
) -> tuple[LinkedTrace, communication.CollectiveOps, int]:
    """Links two traces without waits, for what communicates in the part that both cover.

    Returns that, its records, and of how many groups and communications the members are too many to be listed.
    """
    device = communication.messages_in_flight(device)
    nesting = columns.nest(ThreadIntervals(device.ops.thread, device.ops.start, device.ops.end), device.ops.event_index)
    joined = _join(host if host is not None else HostTrace.without_nodes(), device, match, nesting, rank)
    part, _ = _part(joined.trace, device, match, EVERYTHING, joined.transfers.asked_by, uneven)
    return part.trace, joined.collectives, joined.counts[Reason.MANY_MEMBERS]


def _join(
    host: HostTrace, device: DeviceTrace, match: Match | None, nesting: columns.Nesting, rank: int | None
) -> _Joined:
    """Links all that both traces hold, but for waits."""
    ops, device_op = join_ops(host, device.ops, match, nesting)
    op_parent, circles = _op_parents(ops, device_op, nesting)
    calls, activities = _calls_and_activities(device, nesting, device_op, int(ops.id.max(initial=0)))
    other_steps = match is not None and match.of_other_steps
    collectives = communication.collective_ops(ops, op_parent, device.communication, device_op, other_steps)
    on_device, activities.communication_row = communication.link_communications(collectives, activities, calls)
    recorded = device.rank if device.rank is not None else rank
    info = linked.TraceInfo(
        schema=host.schema, pid=host.pid if host.pid is not None else next(iter(device.processes), -1),
        rank=-1 if recorded is None else recorded, world_size=device.world_size or -1,
        base_time_ns=device.base_time_ns, sync_records=len(device.syncs.start), source_host=Path(host.path).name,
        source_device=Path(device.path).name, time=host.time, start_ts=host.start_ts, finish_ts=host.finish_ts,
        devices=contradictions.unrecorded_devices(host if len(host) else None, device)
        or {number: name for number, name in device.device_names.items() if number in device.activities.device},
        step_without_profiler_ns=device.step_without_profiler_ns,
        data_wait_without_profiler_ns=device.data_wait_without_profiler_ns, measured=device.measured or msgspec.UNSET,
    )  # fmt: skip
    described, unreadable = communication.groups_of_host(host.name, host.arguments)
    groups = communication.ProcessGroups.of([*described, *device.groups], info.world_size)
    transfers = communication.host_transfers(ops, device, device_op)
    on_host, row = communication.host_communications(transfers, groups.groups)
    ops.communication_row = CommunicationRows(np.where(row >= 0, row + len(on_device), -1))
    communications = groups.with_members([*on_device, *on_host])
    counts: dict[AnyReason, int] = {
        Reason.OPS_IN_CIRCLES: circles,
        Reason.MANY_MEMBERS: groups.unlisted,
        Reason.UNREADABLE_GROUPS: unreadable,
    }
    none, texts = np.empty(0, np.int64), columns.Categorical.of([])
    device_waits = linked.DeviceWaits(ActivityRows(none), ActivityRows(none), texts)
    trace = LinkedTrace(
        info=info, ops=ops, calls=calls, activities=activities, device_waits=device_waits,
        host_waits=linked.HostWaits(CallRows(none), ActivityRows(none), none, texts),
        handoffs=linked.ThreadHandoffs(none, none, none, none, none, texts),
        communications=communications, groups=groups.groups,
    )  # fmt: skip
    return _Joined(trace, op_parent, collectives, transfers, counts)


def _link_all(
    host: HostTrace, device: DeviceTrace, match: Match | None, nesting: columns.Nesting, rank: int | None
) -> tuple[LinkedTrace, Findings, list[contradictions.Contradiction], _Joined, LostRecords]:
    """Links all that both traces hold. Returns it, its waits, contradictions, what was joined, and what was lost."""
    joined = _join(host, device, match, nesting, rank)
    trace, op_parent, collectives, transfers, counts = joined
    info, ops, calls, activities = trace.info, trace.ops, trace.calls, trace.activities
    awaited = awaited_ends(activities, calls, device.syncs)
    lost = lost_records(device, activities.call_row, host, match, nesting)
    info.machine, too_long = machine_of(activities, calls, awaited), [*overruns(device, activities.call_row, awaited)]
    early = too_early(device, activities.call_row)
    contradicting = contradictions.contradictions(
        host, device, activities.call_row, info.machine, awaited, too_long, early
    )
    odd_count, odd = odd_ops(host, device, match)
    without_length = contradictions.without_length(activities, info.machine)
    counted = bool(too_long or len(without_length) or len(early.row) or contradictions.zero_length_calls(calls))
    if odd_count:
        info.step_without_profiler_ns = -1  # steps, or their lengths, are not those of the run
    device_waits, host_waits, findings = _synchronised(
        device, calls, activities, collectives, trace.communications, info
    )
    waits = communication.transfer_waits(transfers, op_parent, calls)
    counts |= {
        Reason.UNKNOWN_REQUEST: waits.without_request, Reason.TRANSFER_WITHOUT_WAIT: waits.without_wait,
        Reason.ODD_OPS: odd_count, Reason.OUT_OF_TURN: len(early.row),
        Reason.CALLS_OF_ZERO_LENGTH: contradictions.zero_length_calls(calls),
        Reason.ACTIVITIES_OF_ZERO_LENGTH: len(without_length),
        Reason.CONTRADICTIONS: max(len(contradicting) - counted, 0),
    } | {Reason.TOO_LONG.of(kind): many for kind, many, _ in too_long}  # fmt: skip
    for reason, count in counts.items():
        findings.oddities[reason].extend([-1] * count)
    contradicting += lost.contradictions(device) + odd + contradictions.other_bytes(device.path, collectives)
    for reason, rows in lost.by_reason.items():
        findings.oddities[reason].extend(rows.tolist())
    handed_over = [*waits.handoffs, *queue_waits(device.handed_over, calls)]
    handoffs = thread_handoffs(ops, op_parent, calls, handed_over, transfers.threads)
    trace = replace(trace, device_waits=device_waits, host_waits=host_waits, handoffs=handoffs)
    if device.python is not None and len(device.python.start):
        trace = with_modules(trace, device.python, op_parent)
    return trace, findings, contradicting, joined, lost


def _synchronised(
    device: DeviceTrace,
    calls: Calls,
    activities: Activities,
    collectives: communication.CollectiveOps,
    communications: Sequence[linked.Communication],
    info: linked.TraceInfo,
) -> tuple[linked.DeviceWaits, linked.HostWaits, Findings]:
    """Returns all waits, and takes the calls that began only after an activity had ended from it, in place."""
    on_clock, call_row = linked.on_host_clock(activities, info.machine), activities.call_row
    awaited = communication.awaited_collectives(collectives, activities, communications)
    device_waits, host_waits, findings = synchronise(
        Process(device, calls, on_clock, collectives=collectives, awaited=awaited, calibration=info.machine)
    )
    unresolved = [*findings.guessed.values(), findings.dropped[Reason.STREAM_WAIT_WITHOUT_EVENT]]
    info.unresolved_waits = sum(map(len, unresolved))
    began_after_end = (call_row >= 0) & (RowMap(calls.start)[call_row] > on_clock.end)
    activities.call_row = CallRows(np.where(began_after_end, -1, call_row))
    findings.oddities[Reason.ENDED_BEFORE_LAUNCH].extend(call_row[began_after_end].tolist())
    return device_waits, host_waits, findings


def _op_parents(ops: Ops, device_op: OpRows, nesting: columns.Nesting) -> tuple[OpRows, int]:
    """Returns the op that encloses each op on its thread, -1 for none, and how many, in circles, became outermost."""
    op_parent = OpRows(np.full(len(ops), -1, np.int64))
    op_parent[device_op] = RowMap(device_op)[nesting.parent]
    # ops that the device trace nests in none: its nesting is measured and never goes round
    circles = columns.rows_in_circles(ops.id, ops.parent_id)
    circles = circles[op_parent[circles] < 0]
    ops.parent_id[circles] = -1
    return op_parent, len(circles)


def _calls_and_activities(
    device: DeviceTrace, nesting: columns.Nesting, device_op: OpRows, largest_id: int
) -> tuple[Calls, Activities]:
    """Returns the calls, with the ops around them, and the activities, yet without communications."""
    calls, activities, op_row = device.calls, device.activities, RowMap(device_op)
    call_op = enclosing_ops(calls, device.ops, nesting, linked.are_step_marks(device.ops.name))
    call_row = launching_calls(activities, calls)
    launching_op = launching_ops(activities, call_row, call_op, device.ops)
    ids, dropped = largest_id + 1 + np.arange(len(activities)), dict.fromkeys(ONLY_RECORDED, linked.NOT_THERE)
    activities = replace(activities, id=ids, call_row=call_row, op_row=op_row[launching_op], **dropped)
    return replace(calls, op_row=op_row[call_op], **dropped), activities


def read_linked(path: InputFile, on_progress: OnProgress = unseen) -> LinkedTrace:
    """Reads a linked trace by any linker, and adds communications that another one leaves out, or raises DataError."""
    with path_of(path) as path:
        trace = linked.read_linked(path, on_progress)
    if trace.communications:
        return trace
    ops, no_device_ops = trace.ops, OpRows(np.empty(0, np.int64))
    collectives = communication.collective_ops(ops, linked.op_parents(ops), {role: {} for role in Role}, no_device_ops)
    recorded, row = communication.link_communications(collectives, trace.activities, trace.calls)
    described, unreadable = communication.groups_of_host(ops.name, ops.arguments)
    groups = communication.ProcessGroups.of(described, -1)
    communications = groups.with_members(recorded)
    found = {Reason.MANY_MEMBERS: groups.unlisted, Reason.UNREADABLE_GROUPS: unreadable}
    # a file says the same of itself when it is read again
    trace.report.oddities.update({reason: count for reason, count in found.items() if count})
    activities = replace(trace.activities, communication_row=row)
    return replace(trace, communications=communications, groups=groups.groups, activities=activities)


def report_of(
    host: HostTrace | None,
    device: DeviceTrace,
    match: Match | None,
    *,
    findings: Findings,
    lost: LostRecords,
    whole: LinkedTrace,
    part: TracePart,
    clipped: int,
) -> linked.LinkReport:
    """Returns the report of a part of a linked trace; all rows of both files are in it or counted as outside."""
    trace, sizes, called = part.trace, _sizes(part.trace), part.trace.activities.call_row >= 0
    read = [file for file in (host, device) if file is not None]
    # gloo does not record the group of a communication of the host
    several_groups = len({tuple(group.ranks) for group in trace.groups}) > 1
    on_host = int((trace.ops.communication_row >= 0).sum())
    oddities: dict[AnyReason, int] = {
        Reason.DEVICE_ONLY_OPS: sizes["device_ops"] - sizes["matched"],
        Reason.ACTIVITIES_WITHOUT_CALL: int((~called).sum()),
        Reason.LAUNCHES_NOT_RECORDED: int(columns.isin(whole.activities.id[lost.uncalled], trace.activities.id).sum()),
        Reason.ACTIVITIES_OUTSIDE_OPS: int((called & (trace.activities.op_row < 0)).sum()),
        Reason.CLIPPED_OPS: clipped,
        Reason.SHORTENED_OPS: part.shortened,
    }
    if match is not None:
        oddities |= {Reason.MISNAMED_OPS: match.misnamed, Reason.STEPS_APART: match.steps_apart}

    is_unused = not sizes["matched"] and bool(_sizes(whole)["host_ops"]) and bool(sizes["device_ops"])
    unused = ["no op of the host trace is in the part that is linked, so that tensors are missing"] * is_unused

    def inside(found: FoundCalls) -> dict[AnyReason, int]:
        # findings of no call (-1) count in every window
        is_inside = np.append(part.calls, True)
        return {reason: int(is_inside[rows].sum()) for reason, rows in found.items()}

    return linked.LinkReport(
        world_size=device.world_size or -1, matched_by=match.by if match is not None else "",
        agreement_pct=round(100 * match.agreement, 2) if match is not None else 0.0, **sizes, linked=int(called.sum()),
        dropped=Counts().add(*(file.skipped for file in read), _lost(device, whole, part), inside(findings.dropped)),
        guessed=Counts().add(inside(findings.guessed), {Reason.DEFAULT_GROUP: on_host * several_groups}),
        oddities=Counts().add(oddities, inside(findings.oddities), *(file.oddities for file in read)),
        waits=Counts().add(inside(findings.resolved)), notes=unused + [note for file in read for note in file.notes],
    )  # fmt: skip


def _sizes(trace: LinkedTrace) -> dict[str, int]:
    """Returns the numbers of ops of the host trace, of the device trace and of both, and of calls and activities."""
    by_host, timed = trace.ops.recorded_by_host & are_ops(trace.ops.name), trace.ops.start != ABSENT
    return {
        "host_ops": int(by_host.sum()), "device_ops": int(timed.sum()), "matched": int((by_host & timed).sum()),
        "calls": len(trace.calls), "activities": len(trace.activities),
    }  # fmt: skip


def _lost(device: DeviceTrace, whole: LinkedTrace, part: TracePart) -> Counts:
    """Returns how many rows of each table are outside the part, without times, or lost at its borders."""
    all_rows, rows_of_part, recorded = _sizes(whole), _sizes(part.trace), device.syncs.correlation
    has_call, inside = (columns.isin(recorded, trace.calls.correlation) for trace in (whole, part.trace))
    has_call &= recorded != 0
    counts: dict[AnyReason, int] = {Reason.HOST_OPS_WITHOUT_TIMES: rows_of_part["host_ops"] - rows_of_part["matched"]}
    for reason, table in (
        (Reason.HOST_OPS_OUTSIDE, "host_ops"), (Reason.OPS_OUTSIDE, "device_ops"), (Reason.CALLS_OUTSIDE, "calls"),
        (Reason.ACTIVITIES_OUTSIDE, "activities"),
    ):  # fmt: skip
        counts[reason] = all_rows[table] - rows_of_part[table]
    counts[Reason.SYNC_RECORDS_OUTSIDE] = int((has_call & ~inside).sum())
    counts[Reason.SYNC_RECORDS_WITHOUT_CALL] = int((~has_call).sum())
    return Counts(counts).add(part.lost)
