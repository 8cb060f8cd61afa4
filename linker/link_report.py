"""Reports what became of every row of both traces: in the linked trace, or dropped and why."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..schema.columns import ABSENT
from ..schema.linked import LinkedTrace, LinkReport
from .cut import TracePart
from .match import Match, are_ops
from .readers import DeviceTrace, HostTrace
from .waits import Findings, Synchronisation

KEPT_WITHOUT_TIMES = "host ops that the device trace does not hold, so they have no times"


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
    oddities = {
        "ops that only the device trace holds": sizes.device_ops - sizes.matched,
        "activities without a launch call": int((~called).sum()),
        "activities launched outside any op": int((called & (activities.op_row < 0)).sum()),
        "ops cut to the end of the op around them": clipped,
        "ops cut at the borders of the window": part.shortened,
        "ops of the same record function id with another name": match.misnamed if match is not None else 0,
    }
    dropped = {KEPT_WITHOUT_TIMES: sizes.host_ops - sizes.matched} | _outside(device, whole, part) | part.lost

    def inside(findings: Findings) -> dict[str, int]:
        # findings of no call (-1) count in every window
        is_inside = np.append(part.calls, True)
        return {what: int(is_inside[rows].sum()) for what, rows in findings.items()}

    return LinkReport(
        world_size=device.world_size or -1,
        matched_by=match.by if match is not None else "",
        agreement_pct=round(100 * match.agreement, 2) if match is not None else 0.0,
        **sizes._asdict(),
        linked=int(called.sum()),
        dropped=_sums(*(trace.skipped for trace in read), dropped, inside(sync.dropped)),
        guessed=_sums(inside(sync.guessed), _in_first_group(part.linked)),
        oddities=_sums(oddities, inside(sync.oddities), *(trace.oddities for trace in read)),
        waits=_sums(inside(sync.resolved)),
        notes=[note for trace in read for note in trace.notes],
    )


def _in_first_group(linked: LinkedTrace) -> dict[str, int]:
    """Counts the communications of the host, whose group is a guess where there are several: gloo does
    not record it.
    """
    several = len({tuple(group.ranks) for group in linked.groups}) > 1
    on_host = int((linked.ops.communication_row >= 0).sum())
    return {"communications of the host taken as of the default group": on_host} if several else {}


def _sizes(linked: LinkedTrace) -> _Sizes:
    by_host, timed = linked.ops.recorded_by_host & are_ops(linked.ops.name), linked.ops.start != ABSENT
    return _Sizes(
        host_ops=int(by_host.sum()),
        device_ops=int(timed.sum()),
        matched=int((by_host & timed).sum()),
        calls=len(linked.calls),
        activities=len(linked.activities),
    )


def _outside(device: DeviceTrace, whole: LinkedTrace, part: TracePart) -> dict[str, int]:
    """Returns how many rows of each table are outside the part."""
    all_rows, rows_of_part, recorded = _sizes(whole), _sizes(part.linked), device.syncs.correlation
    has_call, inside = (np.isin(recorded, linked.calls.correlation) for linked in (whole, part.linked))
    has_call &= recorded != 0
    return {
        "host ops outside the linked part": all_rows.host_ops - rows_of_part.host_ops,
        "ops outside the linked part": all_rows.device_ops - rows_of_part.device_ops,
        "calls outside the linked part": all_rows.calls - rows_of_part.calls,
        "activities outside the linked part": all_rows.activities - rows_of_part.activities,
        "synchronisation records outside the linked part": int((has_call & ~inside).sum()),
        "synchronisation records without a call": int((~has_call).sum()),
    }


def _sums(*tables: Mapping[str, int]) -> dict[str, int]:
    """Returns the sums of several tables of counts, without zeros."""
    total = Counter[str]()
    for table in tables:
        total.update(table)
    return {what: count for what, count in total.items() if count}
