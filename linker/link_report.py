"""Reports what became of every row of both traces: in the linked trace, or dropped and why."""

import numpy as np

from ..schema.columns import ABSENT
from ..schema.counts import Counts
from ..schema.linked import LinkedTrace, LinkReport
from ..schema.reasons import AnyReason, Reason
from .cut import TracePart
from .match import Match, are_ops
from .readers import DeviceTrace, HostTrace
from .waits import Findings, Synchronisation


def report_of(
    host: HostTrace | None,
    device: DeviceTrace,
    match: Match | None,
    *,
    sync: Synchronisation,
    whole: LinkedTrace,
    part: TracePart,
    clipped: int,
) -> LinkReport:
    """Returns the report of a part of a linked trace.

    Its rows and those counted as outside the linked part add up to all rows of both files. `clipped` counts ops that
    were cut to the end of the op around them.
    """
    linked, sizes, called = part.linked, _sizes(part.linked), part.linked.activities.call_row >= 0
    read = [trace for trace in (host, device) if trace is not None]
    # gloo does not record the group of a communication of the host
    several_groups = len({tuple(group.ranks) for group in linked.groups}) > 1
    on_host = int((linked.ops.communication_row >= 0).sum())
    oddities: dict[AnyReason, int] = {
        Reason.DEVICE_ONLY_OPS: sizes["device_ops"] - sizes["matched"],
        Reason.ACTIVITIES_WITHOUT_CALL: int((~called).sum()),
        Reason.ACTIVITIES_OUTSIDE_OPS: int((called & (linked.activities.op_row < 0)).sum()),
        Reason.CLIPPED_OPS: clipped,
        Reason.SHORTENED_OPS: part.shortened,
        Reason.MISNAMED_OPS: match.misnamed if match is not None else 0,
    }

    def inside(findings: Findings) -> dict[AnyReason, int]:
        # findings of no call (-1) count in every window
        is_inside = np.append(part.calls, True)
        return {reason: int(is_inside[rows].sum()) for reason, rows in findings.items()}

    return LinkReport(
        world_size=device.world_size or -1,
        matched_by=match.by if match is not None else "",
        agreement_pct=round(100 * match.agreement, 2) if match is not None else 0.0,
        **sizes,
        linked=int(called.sum()),
        dropped=Counts().add(*(trace.skipped for trace in read), _lost(device, whole, part), inside(sync.dropped)),
        guessed=Counts().add(inside(sync.guessed), {Reason.DEFAULT_GROUP: on_host * several_groups}),
        oddities=Counts().add(oddities, inside(sync.oddities), *(trace.oddities for trace in read)),
        waits=Counts().add(inside(sync.resolved)),
        notes=[note for trace in read for note in trace.notes],
    )


def _sizes(linked: LinkedTrace) -> dict[str, int]:
    """Returns the numbers of ops of the host trace, of the device trace and of both, and of calls and activities."""
    by_host, timed = linked.ops.recorded_by_host & are_ops(linked.ops.name), linked.ops.start != ABSENT
    return {
        "host_ops": int(by_host.sum()),
        "device_ops": int(timed.sum()),
        "matched": int((by_host & timed).sum()),
        "calls": len(linked.calls),
        "activities": len(linked.activities),
    }


def _lost(device: DeviceTrace, whole: LinkedTrace, part: TracePart) -> Counts:
    """Returns how many rows of each table are outside the part, without times, or lost at its borders."""
    all_rows, rows_of_part, recorded = _sizes(whole), _sizes(part.linked), device.syncs.correlation
    has_call, inside = (np.isin(recorded, linked.calls.correlation) for linked in (whole, part.linked))
    has_call &= recorded != 0
    counts: dict[AnyReason, int] = {Reason.HOST_OPS_WITHOUT_TIMES: rows_of_part["host_ops"] - rows_of_part["matched"]}
    for reason, table in (
        (Reason.HOST_OPS_OUTSIDE, "host_ops"),
        (Reason.OPS_OUTSIDE, "device_ops"),
        (Reason.CALLS_OUTSIDE, "calls"),
        (Reason.ACTIVITIES_OUTSIDE, "activities"),
    ):
        counts[reason] = all_rows[table] - rows_of_part[table]
    counts[Reason.SYNC_RECORDS_OUTSIDE] = int((has_call & ~inside).sum())
    counts[Reason.SYNC_RECORDS_WITHOUT_CALL] = int((~has_call).sum())
    return Counts(counts).add(part.lost)
