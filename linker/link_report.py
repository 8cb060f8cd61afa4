"""Reports what became of every row of both traces: in the linked trace, or dropped and why."""

from typing import NamedTuple

import numpy as np

from ..schema.columns import ABSENT
from ..schema.counts import Counts
from ..schema.linked import LinkedTrace, LinkReport
from ..schema.reasons import AnyReason, Reason
from .cut import TracePart
from .match import Match, are_ops
from .readers import DeviceTrace, HostTrace
from .waits import Findings, Synchronisation


class _Sizes(NamedTuple):
    """The number of ops of the host trace, of the device trace and of both, and of calls and activities."""

    host_ops: int
    device_ops: int
    matched: int
    calls: int
    activities: int


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
    activities, sizes = part.linked.activities, _sizes(part.linked)
    read: list[HostTrace | DeviceTrace] = [device] if host is None else [host, device]
    called = activities.call_row >= 0
    oddities: dict[AnyReason, int] = {
        Reason.DEVICE_ONLY_OPS: sizes.device_ops - sizes.matched,
        Reason.ACTIVITIES_WITHOUT_CALL: int((~called).sum()),
        Reason.ACTIVITIES_OUTSIDE_OPS: int((called & (activities.op_row < 0)).sum()),
        Reason.CLIPPED_OPS: clipped,
        Reason.SHORTENED_OPS: part.shortened,
        Reason.MISNAMED_OPS: match.misnamed if match is not None else 0,
    }
    without_times: dict[AnyReason, int] = {Reason.HOST_OPS_WITHOUT_TIMES: sizes.host_ops - sizes.matched}
    dropped = Counts(without_times | _outside(device, whole, part)).add(part.lost)

    def inside(findings: Findings) -> dict[AnyReason, int]:
        # findings of no call (-1) count in every window
        is_inside = np.append(part.calls, True)
        return {reason: int(is_inside[rows].sum()) for reason, rows in findings.items()}

    return LinkReport(
        world_size=device.world_size or -1,
        matched_by=match.by if match is not None else "",
        agreement_pct=round(100 * match.agreement, 2) if match is not None else 0.0,
        **sizes._asdict(),
        linked=int(called.sum()),
        dropped=Counts().add(*(trace.skipped for trace in read), dropped, inside(sync.dropped)),
        guessed=Counts().add(inside(sync.guessed), _in_first_group(part.linked)),
        oddities=Counts().add(oddities, inside(sync.oddities), *(trace.oddities for trace in read)),
        waits=Counts().add(inside(sync.resolved)),
        notes=[note for trace in read for note in trace.notes],
    )


def _in_first_group(linked: LinkedTrace) -> dict[AnyReason, int]:
    """Counts the communications of the host, whose group is a guess where there are several: gloo does
    not record it.
    """
    several = len({tuple(group.ranks) for group in linked.groups}) > 1
    on_host = int((linked.ops.communication_row >= 0).sum())
    return {Reason.DEFAULT_GROUP: on_host} if several else {}


def _sizes(linked: LinkedTrace) -> _Sizes:
    by_host, timed = linked.ops.recorded_by_host & are_ops(linked.ops.name), linked.ops.start != ABSENT
    return _Sizes(
        host_ops=int(by_host.sum()),
        device_ops=int(timed.sum()),
        matched=int((by_host & timed).sum()),
        calls=len(linked.calls),
        activities=len(linked.activities),
    )


def _outside(device: DeviceTrace, whole: LinkedTrace, part: TracePart) -> dict[AnyReason, int]:
    """Returns how many rows of each table are outside the part."""
    all_rows, rows_of_part, recorded = _sizes(whole), _sizes(part.linked), device.syncs.correlation
    has_call, inside = (np.isin(recorded, linked.calls.correlation) for linked in (whole, part.linked))
    has_call &= recorded != 0
    return {
        Reason.HOST_OPS_OUTSIDE: all_rows.host_ops - rows_of_part.host_ops,
        Reason.OPS_OUTSIDE: all_rows.device_ops - rows_of_part.device_ops,
        Reason.CALLS_OUTSIDE: all_rows.calls - rows_of_part.calls,
        Reason.ACTIVITIES_OUTSIDE: all_rows.activities - rows_of_part.activities,
        Reason.SYNC_RECORDS_OUTSIDE: int((has_call & ~inside).sum()),
        Reason.SYNC_RECORDS_WITHOUT_CALL: int((~has_call).sum()),
    }
