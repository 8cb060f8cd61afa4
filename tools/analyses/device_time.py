"""What each device spent the time on: busy or idle, by class and kernel, its communication exposed or hidden, and why
its streams were idle.

A gap is the time from the latest end of the earlier activities on a stream to the start of the next. It is *host wait*
if the launch call began after that end, else *kernel wait* if it is short, else *other*, with its cause if known.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import (
    Bool,
    Categorical,
    Int32,
    Int64,
    Rows,
    cumcount,
    group_sums,
    groupby,
    intersection,
    rows_by_number,
    rows_of_each,
    sequence,
    time_by_set,
    union,
)
from ...schema.linked import NEVER, LinkedTrace, guessed, streams_of
from .rank import LABELS, NO_ACTIVITIES, ActivityClass, Analysis, AnalysisOptions, RankTrace, per_rank
from .table import Columns, Table, ints, pct, statistics, texts, us

NEARLY_ALL = 0.99
SHORTER_SPAN = "a device's span is from its first to its last activity, shorter than the run"
NO_COMMUNICATION = "no communication on the device was recorded"
NO_GAPS = "no stream stood still between two activities"
NO_LENGTH = "no recorded activity lasts"
OTHERS = "others"
DISTRIBUTION = "kernel_duration_distribution"
CATEGORIES = ("host wait", "kernel wait", "other")
HOST_WAIT, KERNEL_WAIT, OTHER = range(3)
NO_CAUSE, HOST_SYNC = "", "host sync"


class DeviceUsage(NamedTuple):
    """Times (ns) of one device: `busy` is the union of its activities, `compute` that of its computation."""

    device: int
    activities: int
    span: int
    busy: int
    compute: int


def device_times(rank: RankTrace) -> list[DeviceUsage]:
    """Returns the times of each device with activities."""
    computes, times = rank.classes == ActivityClass.COMPUTATION, []
    for device, rows in rows_of_each(rank.linked.activities.device).items():
        ran = rank.intervals.take(rows)
        busy, compute = union(ran).length(), union(ran.take(computes[rows])).length()
        times.append(DeviceUsage(device, len(rows), int(ran.end.max() - ran.start.min()), busy, compute))
    return times


@per_rank
def temporal_breakdown(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns how each device spent the time from its first to its last activity: computing, busy otherwise, or
    idle.
    """
    rows = np.array(device_times(rank), np.int64).reshape(-1, len(DeviceUsage._fields)).T
    device, activities, span, busy, compute = rows
    parts = {"idle": span - busy, "compute": compute, "non_compute": busy - compute}
    # the note is the same for all ranks, to be said once
    is_shorter = span.min(initial=np.iinfo(np.int64).max) < NEARLY_ALL * (rank.end - rank.begin)
    return Table.from_columns(
        "temporal_breakdown",
        "Temporal breakdown",
        {
            "device": device,
            "span": us(span),
            "busy": us(busy),
            **{name: us(time) for name, time in parts.items()},
            **{f"{name}_pct": pct(time, span) for name, time in parts.items()},
            "activities": activities,
        },
        note=SHORTER_SPAN if is_shorter else "",
        empty=NO_ACTIVITIES,
    )


@per_rank
def communication_computation_overlap(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns how much of each device's communication was hidden behind computation, and how much was exposed."""
    communicating, computing = (
        rows_by_number(np.flatnonzero(rank.classes == activity_class), rank.linked.activities.device)
        for activity_class in (ActivityClass.COMMUNICATION, ActivityClass.COMPUTATION)
    )
    whole, hidden = np.zeros((2, len(communicating)), np.int64)
    for position, (device, rows) in enumerate(communicating.items()):
        communication = union(rank.intervals.take(rows))
        computation = union(rank.intervals.take(computing.get(device, rows[:0])))
        whole[position], hidden[position] = communication.length(), intersection(communication, computation)
    columns: Columns = {
        "device": ints(communicating),
        "communication": us(whole),
        "overlap": us(hidden),
        "exposed_communication": us(whole - hidden),
        "overlap_pct": pct(hidden, whole),
    }
    title = "Communication/computation overlap"
    return Table.from_columns("communication_computation_overlap", title, columns, empty=NO_COMMUNICATION)


@per_rank
def kernel_breakdown(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns the time of classes of activities and of their overlaps, and the kernels of each class by time."""
    table_rows: list[tuple[int, int, int, int]] = []
    for device, rows in rows_of_each(rank.linked.activities.device).items():
        times = time_by_set(rank.intervals.take(rows), rank.classes[rows], len(LABELS))[1:].tolist()
        table_rows += [(device, classes, time, sum(times)) for classes, time in enumerate(times, 1) if time]
    devices, classes_at_once, time, busy = np.array(table_rows, np.int64).reshape(-1, 4).T
    columns: Columns = {
        "device": devices,
        "class": [_labels_of_set(classes) for classes in classes_at_once.tolist()],
        "time": us(time),
        "pct": pct(time, busy),
    }
    empty = NO_LENGTH if len(rank.classes) else NO_ACTIVITIES
    details = (_kernels(rank, options.top),)
    return Table.from_columns("kernel_breakdown", "Kernel breakdown", columns, empty=empty, details=details)


def _labels_of_set(classes: int) -> str:
    """Returns the labels of the classes whose bits are set, which ran at once."""
    return " + ".join(label for bit, label in enumerate(LABELS) if classes >> bit & 1)


def _kernels(rank: RankTrace, top: int) -> Table:
    """Returns per class the `top` names by total time, and one row of statistics for all other names."""
    names, durations = rank.linked.activities.name, rank.durations
    kernels = groupby(rank.classes, names.codes)
    activity_class, total = rank.classes[kernels.first], kernels.sum(durations)
    # by class, the longest first: names have places in their class, and place `top` is for all others
    order = np.lexsort((-total, activity_class))
    place = np.empty(len(order), np.int64)
    place[order] = np.minimum(cumcount(activity_class[order].astype(np.int64)), top)
    groups = groupby(rank.classes, place[kernels.number])
    of_class = np.bincount(rank.classes, durations, len(LABELS))[rank.classes[groups.first]]
    name = np.where(place[kernels.number[groups.first]] < top, names.codes[groups.first], len(names.table))
    of_names = statistics(groups, durations)
    count, total_time = of_names.pop("count"), of_names.pop("sum")
    columns: Columns = {
        "class": texts(LABELS, rank.classes[groups.first]),
        "name": texts([*names.table, OTHERS], name),
        "sum": total_time,
        "pct": pct(groups.sum(durations), of_class),
        **of_names,
        "count": count,
    }
    return Table.from_columns("kernel_breakdown_kernels", "Kernels by class", columns, empty=NO_ACTIVITIES)


def _named_durations(rank: RankTrace, _: AnalysisOptions) -> tuple[int, Categorical, Int32, Int64]:
    return rank.rank, rank.linked.activities.name, rank.classes, rank.durations


def _distribution(parts: Sequence[tuple[int, Categorical, Int32, Int64]], options: AnalysisOptions) -> Table:
    """Returns the durations of each kernel name and class, of all ranks and of each, the longest in total first."""
    ranks, names_of, classes_of, durations_of = zip(*parts, strict=True)
    names, classes, duration = Categorical.joined(names_of), np.concatenate(classes_of), np.concatenate(durations_of)
    rank = np.repeat(ints(ranks), [len(durations) for durations in durations_of])

    def table(name: str, title: str, details: tuple[Table, ...] = (), *, by_rank: bool) -> Table:
        groups = groupby(names.codes, classes, *([rank] if by_rank else []))
        groups = groups.largest_first(groups.sum(duration))
        columns: Columns = {
            **({"rank": rank[groups.first]} if by_rank else {}),
            "name": names.take(groups.first),
            "class": texts(LABELS, classes[groups.first]),
            **statistics(groups, duration, options.quantiles),
        }
        return Table.from_columns(name, title, columns, empty=NO_ACTIVITIES, details=details)

    title = "Kernel duration distribution"
    detail = table(f"{DISTRIBUTION}_by_rank", f"{title} by rank", by_rank=True)
    return table(DISTRIBUTION, title, (detail,), by_rank=False)


kernel_duration_distribution = Analysis(DISTRIBUTION, _named_durations, _distribution)


class _Gaps(NamedTuple):
    """Idle times of streams (ns): the activity that ends each, its stream, from when on it was free, and how long."""

    row: Rows
    stream: Int64
    free_from: Int64
    duration: Int64


@per_rank
def idle_time_breakdown(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns why each stream was idle: the host was late, the kernel launch took time, or other reasons."""
    linked, activities = rank.linked, rank.linked.activities
    streams = streams_of(activities)
    order = sequence(rank.intervals, streams.number)
    duration = activities.start[order.row] - order.busy_until
    gaps = _Gaps(*(column[duration > 0] for column in (*order, duration)))
    category = _categories(linked, gaps, round(1000 * options.kernel_wait_us))
    causes, cause = _causes(linked, gaps, category)
    groups = groupby(gaps.stream, category, cause)
    stream, time = gaps.stream[groups.first], groups.sum(gaps.duration)
    columns: Columns = {
        "device": streams.device[stream],
        "stream": streams.stream[stream],
        "category": texts(CATEGORIES, category[groups.first]),
        "cause": texts(causes, cause[groups.first]),
        "idle": us(time),
        "share": pct(time, group_sums(gaps.stream, gaps.duration, len(streams.stream))[stream]),
        "gaps": groups.count(),
    }
    unknown = int((activities.call_row[gaps.row] < 0).sum())
    note = f"{unknown} of {len(gaps.row)} gaps end with an activity without a launch call: whether the host was late is not known"
    empty = NO_GAPS if len(activities) else NO_ACTIVITIES
    return Table.from_columns(
        "idle_time_breakdown", "Idle time breakdown", columns, note=note if unknown else "", empty=empty
    )


def _categories(linked: LinkedTrace, gaps: _Gaps, max_kernel_wait: int) -> Int64:
    call = linked.activities.call_row[gaps.row]
    called = np.where(call >= 0, np.append(linked.calls.start, NEVER)[call], NEVER)
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


def _awaited_activities(linked: LinkedTrace, gaps: _Gaps) -> Rows:
    """Returns the source of the longest stream wait of each gap that ended after the stream was free, -1 for none.

    Only waits count that were recorded or follow from the order of calls, not those inferred from times.
    """
    waits, activities = linked.device_waits, linked.activities
    gap_of = np.full(len(activities), -1, np.int64)
    gap_of[gaps.row] = np.arange(len(gaps.row))
    is_known = ~guessed(waits.known_by) & (waits.source_row >= 0) & (gap_of[waits.target_row] >= 0)
    source, gap = waits.source_row[is_known], gap_of[waits.target_row[is_known]]
    late = activities.end[source] > gaps.free_from[gap]
    source, gap = source[late], gap[late]
    by_end = np.argsort(activities.end[source], kind="stable")
    longest = np.full(len(gaps.row), -1, np.int64)
    longest[gap[by_end]] = source[by_end]
    return longest


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
