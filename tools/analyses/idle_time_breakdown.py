"""Why each stream was idle between two activities: the host was late, the kernel launch took time, or other reasons.

A gap is the time from the latest end of the earlier activities on a stream to the start of the next. It is *host wait*
if the launch call began after that end, else *kernel wait* if it is short, else *other*, with its cause if known.
"""

import numpy as np

from ...schema.columns import Bool, Int64, group_sums
from ...schema.linked import DeviceWaits, LinkedTrace, guessed, streams_of
from ...schema.traces import NEVER
from .rank import (
    Column,
    Options,
    RankTrace,
    Table,
    intervals_of,
    microseconds,
    per_rank,
    percentage,
    rank_column,
    sequence,
)
from .temporal_breakdown import NO_ACTIVITIES

CATEGORIES = ("host wait", "kernel wait", "other")
HOST_WAIT, KERNEL_WAIT, OTHER = range(3)
NO_CAUSE, HOST_SYNC = "", "host sync"


def _table(rank: RankTrace, options: Options) -> Table:
    activities, linked = rank.linked.activities, rank.linked
    streams = streams_of(activities)
    order = sequence(intervals_of(activities), streams.number)
    gap = activities.start[order.row] - order.busy_until
    idle = gap > 0
    row, lane, free_from, gap = order.row[idle], order.lane[idle], order.busy_until[idle], gap[idle]
    category = _category(linked, row, free_from, gap, round(1000 * options.kernel_wait_us))
    causes, cause = _causes(linked, row, free_from, category)
    keys = np.stack((lane, category, cause), axis=1)
    group, number = np.unique(keys, axis=0, return_inverse=True)
    number = number.reshape(-1)
    time, count = group_sums(number, gap, len(group)), group_sums(number, 1, len(group))
    whole = group_sums(lane, gap, len(streams.device))
    columns = [
        rank_column(rank.rank, len(group)),
        Column("device", "", streams.device[group[:, 0]]),
        Column("stream", "", streams.stream[group[:, 0]]),
        Column("category", "", [CATEGORIES[code] for code in group[:, 1].tolist()]),
        Column("cause", "", [causes[code] for code in group[:, 2].tolist()]),
        microseconds("idle", time),
        percentage("share", time, whole[group[:, 0]]),
        Column("gaps", "", count),
    ]
    return Table("idle_time_breakdown", "Idle time breakdown", columns, _note(linked, row))


def _note(linked: LinkedTrace, row: Int64) -> str:
    if not len(row):
        return "no stream stood still between two activities" if len(linked.activities) else NO_ACTIVITIES
    unknown = int((linked.activities.call_row[row] < 0).sum())
    return (
        f"{unknown} of {len(row)} gaps end with an activity without a launch call: whether the host was late is not "
        "known"
        if unknown
        else ""
    )


def _category(linked: LinkedTrace, row: Int64, free_from: Int64, gap: Int64, short: int) -> Int64:
    call = linked.activities.call_row[row]
    called = np.full(len(row), NEVER)
    called[call >= 0] = linked.calls.start[call[call >= 0]]
    return np.where(called > free_from, HOST_WAIT, np.where(gap < short, KERNEL_WAIT, OTHER))


def _causes(linked: LinkedTrace, row: Int64, free_from: Int64, category: Int64) -> tuple[list[str], Int64]:
    """Returns the names of causes, and the position of each gap's cause among them.

    Only *other* gaps have a cause. An event wait goes before a host sync.
    """
    causes = [NO_CAUSE, HOST_SYNC]
    cause = np.where((category == OTHER) & _behind_host_sync(linked, row, free_from), 1, 0)
    awaited = _awaited(linked, row, free_from)
    waiting = np.flatnonzero((category == OTHER) & (awaited >= 0))
    streams, number = np.unique(linked.activities.stream[awaited[waiting]], return_inverse=True)
    cause[waiting] = len(causes) + number
    return causes + [f"event wait on stream {stream}" for stream in streams.tolist()], cause


def _awaited(linked: LinkedTrace, row: Int64, free_from: Int64) -> Int64:
    """Returns the source of the longest stream wait of each `row` that ended after its stream was free, -1 for none."""
    waits, activities = linked.device_waits, linked.activities
    gap_of = np.full(len(activities), -1, np.int64)
    gap_of[row] = np.arange(len(row))
    is_known = _are_certain(waits) & (waits.source_row >= 0) & (gap_of[waits.target_row] >= 0)
    source, gap = waits.source_row[is_known], gap_of[waits.target_row[is_known]]
    late = activities.end[source] > free_from[gap]
    source, gap = source[late], gap[late]
    by_end = np.argsort(activities.end[source], kind="stable")
    awaited = np.full(len(row), -1, np.int64)
    awaited[gap[by_end]] = source[by_end]
    return awaited


def _are_certain(waits: DeviceWaits) -> Bool:
    """Returns which waits were recorded or follow from the order of calls, and were not inferred from times."""
    return ~guessed(waits.known_by)


def _behind_host_sync(linked: LinkedTrace, row: Int64, free_from: Int64) -> Bool:
    """Returns which gaps are due to a blocked host, which launched only after it returned from a wait.

    That is the launch call itself if it waits, as copies may; without a launch call it is any blocking call that
    returned within the gap.
    """
    calls, waits, activities = linked.calls, linked.host_waits, linked.activities
    start, call = activities.start[row], activities.call_row[row]
    waiting, source = waits.call_row[waits.source_row >= 0], waits.source_row[waits.source_row >= 0]
    is_other = activities.call_row[source] != waiting
    awaited = np.full(len(calls) + 1, NEVER)
    np.maximum.at(awaited, waiting[is_other], activities.end[source[is_other]])
    call_waits = (call >= 0) & (awaited[call] > free_from) & (awaited[call] <= start)
    returned = np.sort(calls.end[np.unique(waits.call_row)])
    within = np.searchsorted(returned, start, side="right") > np.searchsorted(returned, free_from, side="right")
    return call_waits | ((call < 0) & within)


idle_time_breakdown = per_rank("idle_time_breakdown", _table)
