"""Launches: the host's time for each call, the device's time for its work, the delay between them, and the sequences of
kernels that operators launch again and again.

Any runtime or driver call that owns activities is a launch. A graph is one launch with many activities; its device time
is that of their union. There is also a histogram of kernel durations, as short kernels are often not worth a launch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, CallRows, Categorical, Groups, Int64, Rows, group_sums, groupby, sequence
from .rank import NO_ACTIVITIES, USER_SCOPE, ActivityClass, AnalysisOptions, RankTrace, per_rank
from .table import Columns, Table, ints, pct, texts, us

FLAGS = ("short", "slow call", "long delay")
FLAG_TEXTS = [", ".join(flag for bit, flag in enumerate(FLAGS) if mask >> bit & 1) for mask in range(1 << len(FLAGS))]
NO_KERNELS = "no kernel ran"
BUCKETS = 1000 * np.concatenate(([0], 1 << np.arange(53)))
"""The shortest duration (ns) of each bucket: 0, then the powers of two from 1 µs on."""
ARROW = " → "


@dataclass(slots=True)
class Launches:
    """Launches in order of their calls; times are in ns. `first` is the earliest activity of each, `count` their
    number; `flags` has a column for each of FLAGS.
    """

    call: CallRows
    first: Rows
    count: Int64
    host: Int64
    device: Int64
    delay: Int64
    flags: list[Bool]


def launches_of(rank: RankTrace, options: AnalysisOptions) -> Launches:
    """Returns the launches of a rank."""
    activities, calls = rank.linked.activities, rank.linked.calls
    row = np.flatnonzero(activities.call_row >= 0)
    groups = groupby(activities.call_row[row])
    groups = groups.in_order(np.argsort(calls.start[activities.call_row[row[groups.first]]], kind="stable"))
    order = sequence(rank.intervals.take(row), groups.number)
    ran = row[order.row]
    fresh = activities.end[ran] - np.maximum(activities.start[ran], order.busy_until)
    device = group_sums(order.lane, np.maximum(fresh, 0), len(groups))
    first = ran[np.searchsorted(order.lane, np.arange(len(groups)))]
    call = CallRows(activities.call_row[first])
    host, delay = calls.end[call] - calls.start[call], np.maximum(activities.start[first] - calls.end[call], 0)
    flags = [
        device < host,
        host > round(1000 * options.slow_call_us),
        delay > round(1000 * options.long_delay_us),
    ]
    return Launches(call, first, groups.count(), host, device, delay, flags)


@per_rank
def launch_statistics(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns a row for each launch, their sums by API and delays by op, and a histogram of kernel durations."""
    activities, calls, launches = rank.linked.activities, rank.linked.calls, launches_of(rank, options)
    mask = sum((flag.astype(np.int64) << bit for bit, flag in enumerate(launches.flags)), np.zeros_like(launches.call))
    unlaunched = int((activities.call_row < 0).sum())
    note = f"{unlaunched} of {len(activities)} activities have no launch call and are not in it" if unlaunched else ""
    if not len(launches.call):
        note = "no activity has a launch call" if len(activities) else NO_ACTIVITIES
    columns: Columns = {
        "on_device": activities.device[launches.first],
        "stream": activities.stream[launches.first],
        "correlation": calls.correlation[launches.call],
        "api": calls.name.take(launches.call),
        "name": activities.name.take(launches.first),
        "activities": launches.count,
        "host": us(launches.host),
        "device": us(launches.device),
        "delay": us(launches.delay),
        "flags": texts(FLAG_TEXTS, mask),
    }
    details = (_by_api(rank, launches, note), _delay_by_op(rank, launches, note), _short_kernels(rank))
    return Table.from_columns("launch_statistics", "Launch statistics", columns, note=note, details=details)


def _by_api(rank: RankTrace, launches: Launches, note: str) -> Table:
    api = rank.linked.calls.name.take(launches.call)
    groups = groupby(api.codes)
    columns: Columns = {
        "api": api.take(groups.first),
        "launches": groups.count(),
        "host": us(groups.sum(launches.host)),
        "device": us(groups.sum(launches.device)),
        **{name.replace(" ", "_"): groups.sum(flag) for name, flag in zip(FLAGS, launches.flags, strict=True)},
        "delay_mean": us(groups.mean(launches.delay)),
        "delay_max": us(groups.largest(launches.delay)),
    }
    return Table.from_columns("launch_statistics_by_api", "Launches by API", columns, note=note)


def _delay_by_op(rank: RankTrace, launches: Launches, note: str) -> Table:
    """Returns the delays by the name of the op that made the call, "" for none; the largest total first."""
    names, row = rank.linked.ops.name, rank.linked.calls.op_row[launches.call]
    op = Categorical(np.append(names.codes, -1)[row].astype(np.int32), names.table)
    groups = groupby(op.codes)
    groups = groups.largest_first(groups.sum(launches.delay))
    columns: Columns = {
        "op": op.take(groups.first),
        "launches": groups.count(),
        "delay_mean": us(groups.mean(launches.delay)),
        "delay_median": us([np.median(launches.delay[rows]) for rows in groups.rows()]),
        "delay_max": us(groups.largest(launches.delay)),
        "long_delay": groups.sum(launches.flags[FLAGS.index("long delay")]),
    }
    return Table.from_columns("launch_statistics_delay_by_op", "Launch delay by op", columns, note=note)


def _short_kernels(rank: RankTrace) -> Table:
    """Returns a histogram of kernel durations: buckets from one power of two µs to the next, up to the longest."""
    duration = rank.durations[rank.classes != ActivityClass.MEMORY]
    bucket = np.searchsorted(BUCKETS, duration, side="right") - 1
    count = np.bincount(bucket).astype(np.int64)
    time = group_sums(bucket, duration, len(count))
    columns: Columns = {
        "from": us(BUCKETS[: len(count)]),
        "to": us(BUCKETS[1 : len(count) + 1]),
        "kernels": count,
        "kernels_pct": pct(count, count.sum()),
        "time": us(time),
        "time_pct": pct(time, time.sum()),
    }
    return Table.from_columns("launch_statistics_short_kernels", "Kernels by duration", columns, empty=NO_KERNELS)


class Patterns(NamedTuple):
    """Operators and the kernels that each launched, and groups of those with the same sequence of kernels.

    Operator i, `op_row[i]`, launched the activities from `first[i]` up to `first[i + 1]` - 1, in launch order. `groups`
    are its distinct pairs of name and kernels, as they come; `kernels` are the codes of each one's names. `longer` is
    the number of operators with more activities than the limit.
    """

    op_row: Rows
    activity: Rows
    first: Int64
    longer: int
    groups: Groups
    kernels: list[tuple[int, ...]]

    def device_times(self, rank: RankTrace) -> Int64:
        """Returns the device time (ns) of each pattern, summed over its operators."""
        pattern = np.repeat(self.groups.number, np.diff(self.first))
        return group_sums(pattern, rank.durations[self.activity], len(self.groups))


def patterns_of(rank: RankTrace, options: AnalysisOptions) -> Patterns:
    """Returns what each op whose name contains `options.operator` launched with its subtree.

    Annotations do not count as operators, nor do ops within an op of the same name, as dispatched again. Besides
    sorting, linear in the activities times the number of operators that enclose each.
    """
    linked, tree, ops = rank.linked, rank.tree, rank.linked.ops
    in_order = _launched_by_ops(rank)
    number = tree.first[linked.activities.op_row[in_order]]
    by_op = np.argsort(number, kind="stable")
    begin, end = (np.searchsorted(number[by_op], bound) for bound in (tree.first, tree.last))
    count = end - begin
    is_operator = ops.name.where(lambda name: options.operator in name) & tree.is_outermost(ops.name.codes)
    is_operator &= (ops.scope != USER_SCOPE) & (ops.start != ABSENT) & (count > 0)
    row = np.flatnonzero(is_operator & (count <= options.longest_pattern))
    first = np.concatenate(([0], np.cumsum(count[row])))
    operator = np.repeat(np.arange(len(row)), count[row])
    position = by_op[begin[row][operator] + np.arange(len(operator)) - first[operator]]
    activity = in_order[position[np.lexsort((position, operator))]]
    longer = int((is_operator & (count > options.longest_pattern)).sum())
    return Patterns(row, activity, first, longer, *_distinct(rank, row, activity, first))


def _launched_by_ops(rank: RankTrace) -> Rows:
    """Returns the activities with an op, by the start of the launch call, or of the op if the call is unknown."""
    ops, activities, calls = rank.linked.ops, rank.linked.activities, rank.linked.calls
    row = np.flatnonzero(activities.op_row >= 0)
    call, issued = activities.call_row[row], ops.start[activities.op_row[row]]
    issued[call >= 0] = calls.start[call[call >= 0]]
    return row[np.lexsort((activities.start[row], issued))]


def _distinct(rank: RankTrace, op_row: Rows, activity: Rows, first: Int64) -> tuple[Groups, list[tuple[int, ...]]]:
    """Groups the operators of the same name with the same sequence of kernels."""
    kernel = rank.linked.activities.name.codes[activity].astype(np.int32)
    text, bounds = kernel.tobytes(), (kernel.itemsize * first).tolist()
    names = rank.linked.ops.name.codes[op_row].tolist()
    pairs: dict[tuple[int, bytes], int] = {}
    spans = zip(names, bounds[:-1], bounds[1:], strict=True)
    number = ints(pairs.setdefault((name, text[begin:end]), len(pairs)) for name, begin, end in spans)
    kernels = [tuple(np.frombuffer(codes, np.int32).tolist()) for _, codes in pairs]
    return Groups(number, np.unique(number, return_index=True)[1]), kernels


@per_rank
def frequent_kernel_patterns(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns the recurring sequences of kernels that operators launch, the most frequent first."""
    ops, patterns = rank.linked.ops, patterns_of(rank, options)
    groups, device, count = patterns.groups, patterns.device_times(rank), patterns.groups.count()
    order = np.lexsort((-device, -count))
    kernels, names = [patterns.kernels[pattern] for pattern in order.tolist()], rank.linked.activities.name.table
    columns: Columns = {
        "operator": ops.name.take(patterns.op_row[groups.first[order]]),
        "pattern": [ARROW.join(names[code] for code in codes) for codes in kernels],
        "length": ints(map(len, kernels)),
        "count": count[order],
        "device_time": us(device[order]),
        "host_time": us(groups.sum((ops.end - ops.start)[patterns.op_row])[order]),
    }
    note = f"{patterns.longer} operators that launched more than {options.longest_pattern} activities are not in it"
    if not patterns.longer:
        named = f" with {options.operator!r} in its name" if options.operator else ""
        note = "" if len(order) else f"no operator{named} launched an activity"
    return Table.from_columns("frequent_kernel_patterns", "Frequent kernel patterns", columns, note=note)
