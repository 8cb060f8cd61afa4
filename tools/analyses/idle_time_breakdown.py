"""Why each stream was idle between two activities: the host was late, the kernel launch took time, or other reasons.

A gap is the time from the latest end of the earlier activities on a stream to the start of the next. It is *host wait*
if the launch call began after that end, else *kernel wait* if it is short, else *other*, with its cause if known.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, group_sums, sequence
from ...schema.linked import NEVER, Activities, DeviceWaits, LinkedTrace, guessed, streams_of
from .classes import intervals_of
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Table, microseconds, percentage, rank_column
from .temporal_breakdown import NO_ACTIVITIES

CATEGORIES = ("host wait", "kernel wait", "other")
HOST_WAIT, KERNEL_WAIT, OTHER = range(3)
NO_CAUSE, HOST_SYNC = "", "host sync"


class _Gaps(NamedTuple):
    """Idle times of streams (ns): the activity that ends each, its stream, from when on it was free, and how long."""

    row: Int64
    stream: Int64
    free_from: Int64
    duration: Int64


def _table(rank: RankTrace, options: AnalysisOptions) -> Table:
    activities, linked = rank.linked.activities, rank.linked
    streams = streams_of(activities)
    gaps = _gaps(activities, streams.number)
    category = _categories(linked, gaps, round(1000 * options.kernel_wait_us))
    causes, cause = _causes(linked, gaps, category)
    keys = np.stack((gaps.stream, category, cause), axis=1)
    group, number = np.unique(keys, axis=0, return_inverse=True)
    number = number.reshape(-1)
    time, count = group_sums(number, gaps.duration, len(group)), group_sums(number, 1, len(group))
    idle_time = group_sums(gaps.stream, gaps.duration, len(streams.device))
    columns = [
        rank_column(rank.rank, len(group)),
        Column("device", "", streams.device[group[:, 0]]),
        Column("stream", "", streams.stream[group[:, 0]]),
        Column("category", "", [CATEGORIES[code] for code in group[:, 1].tolist()]),
        Column("cause", "", [causes[code] for code in group[:, 2].tolist()]),
        microseconds("idle", time),
        percentage("share", time, idle_time[group[:, 0]]),
        Column("gaps", "", count),
    ]
    return Table("idle_time_breakdown", "Idle time breakdown", columns, _note(linked, gaps.row))


def _gaps(activities: Activities, stream: Int64) -> _Gaps:
    order = sequence(intervals_of(activities), stream)
    duration = activities.start[order.row] - order.busy_until
    is_idle = duration > 0
    return _Gaps(order.row[is_idle], order.lane[is_idle], order.busy_until[is_idle], duration[is_idle])


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


def _categories(linked: LinkedTrace, gaps: _Gaps, max_kernel_wait: int) -> Int64:
    call = linked.activities.call_row[gaps.row]
    called = np.full(len(call), NEVER)
    called[call >= 0] = linked.calls.start[call[call >= 0]]
    return np.where(called > gaps.free_from, HOST_WAIT, np.where(gaps.duration < max_kernel_wait, KERNEL_WAIT, OTHER))


def _causes(linked: LinkedTrace, gaps: _Gaps, category: Int64) -> tuple[list[str], Int64]:
    """Returns the names of causes, and the position of each gap's cause among them.

    Only *other* gaps have a cause. An event wait goes before a host sync.
    """
    causes = [NO_CAUSE, HOST_SYNC]
    cause = np.where((category == OTHER) & _behind_host_sync(linked, gaps), 1, 0)
    source = _awaited_activities(linked, gaps)
    waiting = np.flatnonzero((category == OTHER) & (source >= 0))
    streams, number = np.unique(linked.activities.stream[source[waiting]], return_inverse=True)
    cause[waiting] = len(causes) + number
    return causes + [f"event wait on stream {stream}" for stream in streams.tolist()], cause


def _awaited_activities(linked: LinkedTrace, gaps: _Gaps) -> Int64:
    """Returns the source of the longest stream wait of each gap that ended after the stream was free, -1 for none."""
    waits, activities = linked.device_waits, linked.activities
    gap_of = np.full(len(activities), -1, np.int64)
    gap_of[gaps.row] = np.arange(len(gaps.row))
    is_known = _are_certain(waits) & (waits.source_row >= 0) & (gap_of[waits.target_row] >= 0)
    source, gap = waits.source_row[is_known], gap_of[waits.target_row[is_known]]
    late = activities.end[source] > gaps.free_from[gap]
    source, gap = source[late], gap[late]
    by_end = np.argsort(activities.end[source], kind="stable")
    longest = np.full(len(gaps.row), -1, np.int64)
    longest[gap[by_end]] = source[by_end]
    return longest


def _are_certain(waits: DeviceWaits) -> Bool:
    """Returns which waits were recorded or follow from the order of calls, and were not inferred from times."""
    return ~guessed(waits.known_by)


def _behind_host_sync(linked: LinkedTrace, gaps: _Gaps) -> Bool:
    """Returns which gaps are due to a blocked host, which launched only after it returned from a wait.

    That is the launch call itself if it waits, as copies may; without a launch call it is any blocking call that
    returned within the gap.
    """
    calls, waits, activities = linked.calls, linked.host_waits, linked.activities
    start, call = activities.start[gaps.row], activities.call_row[gaps.row]
    waiting, source = waits.call_row[waits.source_row >= 0], waits.source_row[waits.source_row >= 0]
    is_other = activities.call_row[source] != waiting
    last_end = np.full(len(calls) + 1, NEVER)
    np.maximum.at(last_end, waiting[is_other], activities.end[source[is_other]])
    call_waits = (call >= 0) & (last_end[call] > gaps.free_from) & (last_end[call] <= start)
    returned = np.sort(calls.end[np.unique(waits.call_row)])
    returned_by_start = np.searchsorted(returned, start, side="right")
    has_return = returned_by_start > np.searchsorted(returned, gaps.free_from, side="right")
    return call_waits | ((call < 0) & has_return)


idle_time_breakdown = per_rank("idle_time_breakdown", _table)
