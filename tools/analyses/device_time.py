"""What each device spent the time on, why its streams were idle, what launches cost, and recurring series of kernels.

A gap is the time from the latest end of earlier activities on a stream to the start of the next. It is *host wait* if
the launch call began after that end, else *kernel wait* if it is short, else *other*. A graph is one launch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema import columns
from ...schema.columns import ABSENT, Bool, Categorical, Groups, Int64, RowMap, Rows, group_sums, groupby
from ...schema.linked import NEVER, USER_SCOPE, LinkedTrace, guessed, streams_of
from .rank import LABELS, NO_ACTIVITIES, ActivityClass, Analysis, AnalysisOptions, RankTrace, lost_work, per_rank
from .table import Columns, Table, ints, named, pct, statistics, tabulate, texts, us

NEARLY_ALL = 0.99
SHORTER_SPAN = "a device's span is from its first to its last activity, shorter than the run"
NO_COMMUNICATION = "no communication on the device was recorded"
NO_GAPS = "no stream stood still between two activities"
NO_LENGTH = "no recorded activity lasts"
NO_KERNELS = "no kernel ran"
OTHERS = "others"
DISTRIBUTION = "kernel_duration_distribution"
CATEGORIES = ("host wait", "kernel wait", "other")
HOST_WAIT, KERNEL_WAIT, OTHER = range(3)
HOST_SYNC = "host sync"
FLAGS = ("short", "slow call", "long delay")
FLAG_TEXTS = [", ".join(flag for bit, flag in enumerate(FLAGS) if mask >> bit & 1) for mask in range(1 << len(FLAGS))]
BUCKETS = 1000 * np.concatenate(([0], 1 << np.arange(53)))
"""The shortest duration (ns) of each bucket: 0, then the powers of two from 1 µs on."""
ARROW = " → "


class DeviceTimes(NamedTuple):
    """How long (ns) each set of classes ran at once on each device; a column's number has a bit for each class.

    Column 0 is the time between the first start and the last end in which nothing ran.
    """

    device: Int64
    activities: Int64
    by_set: Int64

    def of(self, *classes: ActivityClass) -> Int64:
        """Returns how long activities of all these classes ran at once."""
        bits = sum(1 << activity_class for activity_class in classes)
        return np.asarray(self.by_set[:, np.arange(self.by_set.shape[1]) & bits == bits].sum(axis=1))


def device_times(rank: RankTrace) -> DeviceTimes:
    """Returns the times of each device with activities."""
    rows_of = columns.rows_of_each(rank.linked.activities.device)
    spans = [(rank.intervals.take(rows), rank.classes[rows]) for rows in rows_of.values()]
    sets = [columns.time_by_set(*of_device, len(LABELS)) for of_device in spans]
    by_set = np.array(sets, np.int64).reshape(-1, 1 << len(LABELS))
    return DeviceTimes(ints(rows_of), ints(map(len, rows_of.values())), by_set)


@per_rank
def temporal_breakdown(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns how each device spent the time from its first to its last activity: computing, busy or idle."""
    times = device_times(rank)
    span, idle, compute = times.of(), times.by_set[:, 0], times.of(ActivityClass.COMPUTATION)
    parts = {"idle": idle, "compute": compute, "non_compute": span - idle - compute}
    cells: Columns = {
        "device": times.device, "span": us(span), "busy": us(span - idle),
        **{name: us(time) for name, time in parts.items()},
        **{f"{name}_pct": pct(time, span, of="span") for name, time in parts.items()}, "activities": times.activities,
    }  # fmt: skip
    # the note is the same for all ranks, to be said once
    is_shorter = span.min(initial=np.iinfo(np.int64).max) < NEARLY_ALL * (rank.end - rank.begin)
    note = lost_work(rank.linked).text or (SHORTER_SPAN if is_shorter else "")
    return tabulate("temporal_breakdown", "Temporal breakdown", cells, note, empty=NO_ACTIVITIES)


@per_rank
def communication_computation_overlap(rank: RankTrace, _: AnalysisOptions) -> Table:
    """Returns how much of each device's communication was hidden behind computation, and how much was exposed."""
    times = device_times(rank)
    devices = np.unique(rank.linked.activities.device[rank.classes == ActivityClass.COMMUNICATION])
    row = np.searchsorted(times.device, devices)
    whole = times.of(ActivityClass.COMMUNICATION)[row]
    hidden = times.of(ActivityClass.COMMUNICATION, ActivityClass.COMPUTATION)[row]
    cells: Columns = {
        "device": devices, "communication": us(whole), "overlap": us(hidden),
        "exposed_communication": us(whole - hidden), "overlap_pct": pct(hidden, whole),
    }  # fmt: skip
    title = "Communication/computation overlap"
    return tabulate("communication_computation_overlap", title, cells, empty=NO_COMMUNICATION)


@per_rank
def kernel_breakdown(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns the time of classes of activities and of their overlaps, and the kernels of each class by time."""
    times = device_times(rank)
    row, classes_at_once = np.nonzero(times.by_set * (np.arange(times.by_set.shape[1]) > 0))
    # of each set of classes that ran at once, a bit for each
    sets = range(1 << len(LABELS))
    names = [" + ".join(label for bit, label in enumerate(LABELS) if bits >> bit & 1) for bits in sets]
    time = times.by_set[row, classes_at_once]
    cells: Columns = {
        "device": times.device[row], "class": texts(names, classes_at_once), "time": us(time),
        "pct": pct(time, (times.of() - times.by_set[:, 0])[row]),
    }  # fmt: skip
    empty = NO_LENGTH if len(rank.classes) else NO_ACTIVITIES
    return tabulate("kernel_breakdown", "Kernel breakdown", cells, "", _kernels(rank, options.top), empty=empty)


def _kernels(rank: RankTrace, top: int) -> Table:
    """Returns per class the `top` names by total time, and one row of statistics for all other names."""
    names, durations = rank.linked.activities.name, rank.durations
    kernels = groupby(rank.classes, names.codes)
    activity_class = rank.classes[kernels.first]
    # by class, the longest first: names have places in their class, and place `top` is for all others
    order = np.lexsort((-kernels.sum(durations), activity_class))
    place = np.empty(len(order), np.int64)
    place[order] = np.minimum(columns.cumcount(activity_class[order].astype(np.int64)), top)
    groups = groupby(rank.classes, place[kernels.number])
    of_class = np.bincount(rank.classes, durations, len(LABELS))[rank.classes[groups.first]]
    name = np.where(place[kernels.number[groups.first]] < top, names.codes[groups.first], len(names.table))
    of_names = statistics(groups, durations)
    count, total_time = of_names.pop("count"), of_names.pop("sum")
    cells: Columns = {
        "class": texts(LABELS, rank.classes[groups.first]), "name": texts([*names.table, OTHERS], name),
        "sum": total_time, "pct": pct(groups.sum(durations), of_class), **of_names, "count": count,
    }  # fmt: skip
    return tabulate("kernel_breakdown_kernels", "Kernels by class", cells, empty=NO_ACTIVITIES)


def _distribution(parts: Sequence[tuple[int, Categorical, columns.Int32, Int64]], options: AnalysisOptions) -> Table:
    """Returns the durations of each kernel name and class, of all ranks and of each, the longest in total first."""
    ranks, names_of, classes_of, durations_of = zip(*parts, strict=True)
    names, classes, duration = Categorical.joined(names_of), np.concatenate(classes_of), np.concatenate(durations_of)
    rank = np.repeat(ints(ranks), [len(durations) for durations in durations_of])

    def of(keys: dict[str, Int64], name: str, title: str, *details: Table) -> Table:
        groups = groupby(names.codes, classes, *keys.values())
        groups = groups.largest_first(groups.sum(duration))
        cells: Columns = {
            **{key: values[groups.first] for key, values in keys.items()}, "name": names.take(groups.first),
            "class": texts(LABELS, classes[groups.first]), **statistics(groups, duration, options.quantiles),
        }  # fmt: skip
        return tabulate(name, title, cells, "", *details, empty=NO_ACTIVITIES)

    title = "Kernel duration distribution"
    return of({}, DISTRIBUTION, title, of({"rank": rank}, f"{DISTRIBUTION}_by_rank", f"{title} by rank"))


kernel_duration_distribution = Analysis(
    DISTRIBUTION, lambda rank, _: (rank.rank, rank.linked.activities.name, rank.classes, rank.durations), _distribution
)


@per_rank
def idle_time_breakdown(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns why each stream was idle; only *other* gaps have a cause, and an event wait goes before a host sync."""
    linked, activities, lost = rank.linked, rank.linked.activities, lost_work(rank.linked).text
    streams = streams_of(activities)
    order = columns.sequence(rank.intervals, streams.number)
    # of each gap the activity that ends it, its stream, from when on that was free, and how long
    is_gap = (activities.start[order.row] > order.busy_until) & (not lost)
    row, lane, free_from = (column[is_gap] for column in order)
    duration, call = activities.start[row] - free_from, activities.call_row[row]
    called = np.where(call >= 0, RowMap(linked.calls.start)[call], NEVER)
    is_short = duration < round(1000 * options.kernel_wait_us)
    category = np.where(called > free_from, HOST_WAIT, np.where(is_short, KERNEL_WAIT, OTHER))
    cause = np.where((category == OTHER) & _behind_host_sync(linked, row, free_from), 1, 0)
    source = _awaited_activities(linked, row, free_from)
    waiting = np.flatnonzero((category == OTHER) & (source >= 0))
    awaited, number = np.unique(activities.stream[source[waiting]], return_inverse=True)
    cause[waiting] = 2 + number
    causes = ["", HOST_SYNC, *(f"event wait on stream {stream}" for stream in awaited.tolist())]
    groups = groupby(lane, category, cause)
    stream, time = lane[groups.first], groups.sum(duration)
    cells: Columns = {
        "device": streams.device[stream], "stream": streams.stream[stream],
        "category": texts(CATEGORIES, category[groups.first]), "cause": texts(causes, cause[groups.first]),
        "idle": us(time), "share": pct(time, group_sums(lane, duration, len(streams.stream))[stream], of="idle"),
        "gaps": groups.count(),
    }  # fmt: skip
    ends = f"{(call < 0).sum()} of {len(call)} gaps end with an activity without a launch call"
    note = f"{ends}: whether the host was late is not known" if (call < 0).any() else ""
    empty = lost or (NO_GAPS if len(activities) else NO_ACTIVITIES)
    return tabulate("idle_time_breakdown", "Idle time breakdown", cells, note, empty=empty)


def _awaited_activities(linked: LinkedTrace, row: Rows, free_from: Int64) -> Rows:
    """Returns the source of the longest stream wait of each gap that ended after the stream was free, -1 for none.

    Only waits count that were recorded or follow from the order of calls, not those inferred from times.
    """
    waits, activities = linked.device_waits, linked.activities
    gap_of = np.full(len(activities), -1, np.int64)
    gap_of[row] = np.arange(len(row))
    is_known = ~guessed(waits.known_by) & (waits.source_row >= 0) & (gap_of[waits.target_row] >= 0)
    source, gap = waits.source_row[is_known], gap_of[waits.target_row[is_known]]
    late = activities.end[source] > free_from[gap]
    source, gap = source[late], gap[late]
    by_end = np.argsort(activities.end[source], kind="stable")
    longest = np.full(len(row), -1, np.int64)
    longest[gap[by_end]] = source[by_end]
    return longest


def _behind_host_sync(linked: LinkedTrace, row: Rows, free_from: Int64) -> Bool:
    """Returns which gaps are due to a host that launched only after it returned from a wait.

    That is the launch call itself if it waits, as copies may; without one, any blocking call that returned in the gap.
    """
    calls, waits, activities = linked.calls, linked.host_waits, linked.activities
    start, call = activities.start[row], activities.call_row[row]
    waiting, source = waits.call_row[waits.source_row >= 0], waits.source_row[waits.source_row >= 0]
    is_other = activities.call_row[source] != waiting
    last_end = np.full(len(calls) + 1, NEVER)
    np.maximum.at(last_end, waiting[is_other], activities.end[source[is_other]])
    call_waits = (call >= 0) & (last_end[call] > free_from) & (last_end[call] <= start)
    returned = np.sort(calls.end[np.unique(waits.call_row)])
    returned_by_start = np.searchsorted(returned, start, side="right")
    has_return = returned_by_start > np.searchsorted(returned, free_from, side="right")
    return call_waits | ((call < 0) & has_return)


@per_rank
def launch_statistics(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns a row for each launch, their sums by API and delays by op, and a histogram of kernel durations."""
    activities, calls, ops = rank.linked.activities, rank.linked.calls, rank.linked.ops
    row = np.flatnonzero(activities.call_row >= 0)
    groups = groupby(activities.call_row[row])
    groups = groups.in_order(np.argsort(calls.start[activities.call_row[row[groups.first]]], kind="stable"))
    order = columns.sequence(rank.intervals.take(row), groups.number)
    ran = row[order.row]
    fresh = activities.end[ran] - np.maximum(activities.start[ran], order.busy_until)
    device = group_sums(order.lane, np.maximum(fresh, 0), len(groups))
    first = ran[np.searchsorted(order.lane, np.arange(len(groups)))]
    call = activities.call_row[first]
    host, delay = calls.end[call] - calls.start[call], np.maximum(activities.start[first] - calls.end[call], 0)
    slow, long = round(1000 * options.slow_call_us), round(1000 * options.long_delay_us)
    flags = np.stack((device < host, host > slow, delay > long)).astype(np.int64)
    note = ""
    if len(row) < len(activities):
        note = f"{len(activities) - len(row)} of {len(activities)} activities have no launch call and are not in it"
    if not len(call):
        note = "no activity has a launch call" if len(activities) else NO_ACTIVITIES
    cells: Columns = {
        "on_device": activities.device[first], "stream": activities.stream[first],
        "correlation": calls.correlation[call], "api": calls.name.take(call), "name": activities.name.take(first),
        "activities": groups.count(), "host": us(host), "device": us(device), "delay": us(delay),
        "flags": texts(FLAG_TEXTS, flags.T @ (1 << np.arange(len(FLAGS)))),
    }  # fmt: skip
    by_api = _by_api(calls.name.take(call), host, device, delay, flags, note)
    by_op = _delay_by_op(named(ops.name, calls.op_row[call]), delay, flags[-1], note)
    return tabulate("launch_statistics", "Launch statistics", cells, note, by_api, by_op, _short_kernels(rank))


def _by_api(api: Categorical, host: Int64, device: Int64, delay: Int64, flags: Int64, note: str) -> Table:
    groups = groupby(api.codes)
    cells: Columns = {
        "api": api.take(groups.first), "launches": groups.count(), "host": us(groups.sum(host)),
        "device": us(groups.sum(device)),
        **{name.replace(" ", "_"): groups.sum(flag) for name, flag in zip(FLAGS, flags, strict=True)},
        "delay_mean": us(groups.mean(delay)), "delay_max": us(groups.largest(delay)),
    }  # fmt: skip
    return tabulate("launch_statistics_by_api", "Launches by API", cells, note)


def _delay_by_op(op: Categorical, delay: Int64, is_long: Int64, note: str) -> Table:
    """Returns the delays by the name of the op that made the call, "" for none; the largest total first."""
    groups = groupby(op.codes)
    groups = groups.largest_first(groups.sum(delay))
    cells: Columns = {
        "op": op.take(groups.first), "launches": groups.count(), "delay_mean": us(groups.mean(delay)),
        "delay_median": us([np.median(delay[rows]) for rows in groups.rows()]), "delay_max": us(groups.largest(delay)),
        "long_delay": groups.sum(is_long),
    }  # fmt: skip
    return tabulate("launch_statistics_delay_by_op", "Launch delay by op", cells, note)


def _short_kernels(rank: RankTrace) -> Table:
    """Returns a histogram of kernel durations: buckets from one power of two µs to the next, up to the longest."""
    duration = rank.durations[rank.classes != ActivityClass.MEMORY]
    bucket = np.searchsorted(BUCKETS, duration, side="right") - 1
    count = np.bincount(bucket).astype(np.int64)
    time = group_sums(bucket, duration, len(count))
    cells: Columns = {
        "from": us(BUCKETS[: len(count)]), "to": us(BUCKETS[1 : len(count) + 1]), "kernels": count,
        "kernels_pct": pct(count, count.sum()), "time": us(time), "time_pct": pct(time, time.sum()),
    }  # fmt: skip
    return tabulate("launch_statistics_short_kernels", "Kernels by duration", cells, empty=NO_KERNELS)


class Patterns(NamedTuple):
    """Operators and the kernels that each launched, and groups of those of one name with the same sequence of kernels.

    `kernels` are the codes of names, `longer` counts the operators of more than `longest_pattern` kernels, left out.
    """

    op_row: Rows
    longer: int
    groups: Groups
    kernels: list[tuple[int, ...]]
    device_time: Int64


def patterns_of(rank: RankTrace, options: AnalysisOptions) -> Patterns:
    """Returns what each op whose name contains `options.operator` launched with its subtree.

    Annotations do not count as operators, nor do ops within an op of the same name, as dispatched again.
    """
    tree, ops, activities = rank.tree, rank.linked.ops, rank.linked.activities
    # in the order of launch calls, or of ops where the call is unknown
    row = np.flatnonzero(activities.op_row >= 0)
    call = activities.call_row[row]
    issued = np.where(call >= 0, RowMap(rank.linked.calls.start)[call], ops.start[activities.op_row[row]])
    in_order = row[np.lexsort((activities.start[row], issued))]
    number = tree.first[activities.op_row[in_order]]
    by_op = np.argsort(number, kind="stable")
    begin, end = (np.searchsorted(number[by_op], bound) for bound in (tree.first, tree.last))
    count = end - begin
    is_operator = ops.name.where(lambda name: options.operator in name) & tree.is_outermost(ops.name.codes)
    is_operator &= (ops.scope != USER_SCOPE) & (ops.start != ABSENT) & (count > 0)
    op_row = np.flatnonzero(is_operator & (count <= options.longest_pattern))
    first = np.concatenate(([0], np.cumsum(count[op_row])))
    operator = np.repeat(np.arange(len(op_row)), count[op_row])
    position = by_op[begin[op_row][operator] + np.arange(len(operator)) - first[operator]]
    activity = in_order[position[np.lexsort((position, operator))]]
    # operators of the same name with the same sequence of kernels are one pattern
    codes = activities.name.codes[activity].astype(np.int32)
    text, bounds, pairs = codes.tobytes(), (codes.itemsize * first).tolist(), dict[tuple[int, bytes], int]()
    spans = zip(ops.name.codes[op_row].tolist(), bounds[:-1], bounds[1:], strict=True)
    pattern = ints(pairs.setdefault((name, text[begin:end]), len(pairs)) for name, begin, end in spans)
    kernels = [tuple(np.frombuffer(sequence_, np.int32).tolist()) for _, sequence_ in pairs]
    groups = Groups(pattern, np.unique(pattern, return_index=True)[1])
    device_time = group_sums(pattern[operator], rank.durations[activity], len(groups))
    longer = int((is_operator & (count > options.longest_pattern)).sum())
    return Patterns(op_row, longer, groups, kernels, device_time)


@per_rank
def frequent_kernel_patterns(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns the recurring sequences of kernels that operators launch, the most frequent first."""
    ops, patterns, names = rank.linked.ops, patterns_of(rank, options), rank.linked.activities.name.table
    groups, count = patterns.groups, patterns.groups.count()
    order = np.lexsort((-patterns.device_time, -count))
    kernels = [patterns.kernels[pattern] for pattern in order.tolist()]
    cells: Columns = {
        "operator": ops.name.take(patterns.op_row[groups.first[order]]),
        "pattern": [ARROW.join(names[code] for code in codes) for codes in kernels], "length": ints(map(len, kernels)),
        "count": count[order], "device_time": us(patterns.device_time[order]),
        "host_time": us(groups.sum((ops.end - ops.start)[patterns.op_row])[order]),
    }  # fmt: skip
    note = f"{patterns.longer} operators that launched more than {options.longest_pattern} activities are not in it"
    if not patterns.longer:
        of_name = f" with {options.operator!r} in its name" if options.operator else ""
        note = "" if len(order) else f"no operator{of_name} launched an activity"
    return tabulate("frequent_kernel_patterns", "Frequent kernel patterns", cells, note)
