"""What passes between the release of an activity and its start: a usual part, and a delay with its cause and node. An
activity usually starts a launch latency after its launch, or a gap after the activities that it follows: the later one
released it. A device was full if late activities started just as others ended, more often than by chance.
"""

from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from ...schema import columns
from ...schema.columns import ABSENT, ActivityRows, Bool, Categorical, Int64, Intervals, NodeNumbers, Ns, OpRows, RowMap
from ...schema.graph import Delay, DependencyKind
from ...schema.linked import NEVER, took_over
from ...schema.machine import BY_CHANCE, CROWDED, LAUNCHES, LONGEST, LatencyColumns, of_each
from ..edges import Edges
from .context import ConversionContext
from .timeline import names_of

UNRECORDED = "unrecorded host"
DELAY_NAMES = {
    Delay.LOST_RECORDS: "delay: lost records", Delay.CONTENTION: "delay: contention",
    Delay.START_OF_RECORDING: "carry-in", Delay.UNEXPLAINED: "delay: unexplained",
}  # fmt: skip
LOWEST = -(1 << 62)
"""Recorded thread numbers below this one, which are absurd, are ignored."""


@dataclass(slots=True, repr=False)
class StartTiming(columns.SummaryRepr):
    """By activity, in ns: launch latency, gap after predecessors, and delay beyond these after a node (-1 for none),
    which is the launch where `by_launch` is set.
    """

    latency: Int64
    gap: Int64
    delay: Int64
    after: NodeNumbers
    by_launch: Bool


def release(context: ConversionContext, edges: Edges) -> tuple[Ns, Ns]:
    """Returns when each activity's launch had ended, and the last of its predecessors on the device (NEVER: none)."""
    first, count = context.activities_from, len(context.linked.activities)
    to_activity = (edges.target >= first) & (edges.target < context.unrecorded_from)
    by_launch = (edges.kind & int(DependencyKind.LAUNCH)) != 0
    launched, ready = ends = np.full((2, count), NEVER, np.int64)
    for ended, chosen in zip(ends, (to_activity & by_launch, to_activity & ~by_launch), strict=True):
        np.maximum.at(ended, edges.target[chosen] - first, context.end[edges.source[chosen]])
    if context.backlog_until is not None:
        ready = np.maximum(ready, np.where(context.backlog_until >= 0, context.backlog_until, NEVER))
    return launched, ready


def start_timing(context: ConversionContext, edges: Edges, waited_for_slot: Bool | None = None) -> StartTiming:
    """Splits the time of every activity since its release; those that `waited_for_slot` on a full device are late."""
    start, first = context.linked.activities.start, context.activities_from
    if waited_for_slot is None:
        waited_for_slot = np.zeros(len(start), np.bool_)
    launched, ready = release(context, edges)
    latency, gap = _typical_latencies(context, launched, ready, waited_for_slot)
    # when the launch, and the predecessors on the device, had ended, how long before the start (0 where there are
    # none), and how long that usually takes
    launch = np.stack((launched, np.maximum(start - launched, 0), *latency))
    chain = np.stack((ready, np.where(ready > NEVER, np.maximum(start - ready, 0), 0), *gap))
    by_launch = launched + latency.median >= ready + gap.median
    ended, elapsed, median, upper = np.where(by_launch, launch, chain)
    is_late = (elapsed > upper) | waited_for_slot
    delay = np.where(is_late, np.maximum(elapsed - median, 0), 0)
    # those that wait for a slot of a full device start in the order in which they became ready
    on_full_device = columns.isin(context.linked.activities.device, context.linked.activities.device[waited_for_slot])
    not_ready = np.zeros(len(start), np.int64)
    for rows in columns.rows_by_number(np.flatnonzero(on_full_device), context.linked.activities.device).values():
        rows = rows[np.argsort(start[rows], kind="stable")]
        ready_ns = start[rows] - np.where(waited_for_slot[rows], delay[rows], 0)
        not_ready[rows] = np.maximum.accumulate(ready_ns) - ready_ns
    delay -= np.where(not_ready <= upper - median, not_ready, 0)
    expected = elapsed - delay
    # the node whose end released each activity
    into = edges.where((edges.target >= first) & (edges.target < context.unrecorded_from))
    row, is_launch = into.target - first, (into.kind & int(DependencyKind.LAUNCH)) != 0
    last = (is_launch == by_launch[row]) & (context.end[into.source] == ended[row])
    after = np.full(len(start), -1, np.int64)
    after[row[last]] = into.source[last]
    return StartTiming(
        latency=np.where(by_launch, expected, np.minimum(latency.median, launch[1])),
        gap=np.where(by_launch, np.minimum(gap.median, chain[1]), expected),
        delay=delay, after=NodeNumbers(after), by_launch=by_launch,
    )  # fmt: skip


def _typical_latencies(
    context: ConversionContext, launched: Ns, ready: Ns, waited_for_slot: Bool
) -> tuple[LatencyColumns, LatencyColumns]:
    """Returns by activity the usual launch latency of its API and gap of its category, or those of the machine."""
    activities, calls, machine = context.linked.activities, context.linked.calls, context.linked.info.machine
    start, call = activities.start, activities.call_row
    api = Categorical(np.append(calls.name.codes, np.int32(-1))[call], calls.name.table)
    has_slot = (call >= 0) & ~waited_for_slot & ~took_over(activities, context.slack)
    on_free_stream = has_slot & (start >= RowMap(calls.end)[call]) & (ready <= launched)
    queued = has_slot & (start - launched > of_each(machine.launch, api).upper) & (ready > NEVER)
    latencies = machine.by_name(start - launched, api, on_free_stream) or machine.launch
    gaps = machine.by_name(start - ready, activities.category, queued) or machine.gap
    return of_each(latencies, api), of_each(gaps, activities.category)


def concurrency_limit(context: ConversionContext, timing: StartTiming) -> tuple[dict[int, int], Bool]:
    """Returns how many activities each full device runs at once, and which waited for a slot of it. O(n log n)."""
    activities, slack = context.linked.activities, context.slack
    slot_counts, waited_for_slot = dict[int, int](), np.zeros(len(activities), np.bool_)
    computing = np.isin(activities.device, activities.device[timing.delay > 0]) & (activities.communication_row < 0)
    for device, rows in columns.rows_by_number(np.flatnonzero(computing), activities.device).items():
        start, delay = activities.start[rows], timing.delay[rows]
        end = np.maximum(context.activity_end[rows] - slack, start)
        starts, ends = np.sort(start), np.sort(end)
        slot_count = int(_running(starts, ends, start).max(initial=0))
        if slot_count >= len(np.unique(activities.stream[rows])):
            continue
        last = np.searchsorted(ends, start + slack, side="right") - 1
        after_an_end = (last >= 0) & (start - ends[last] <= 2 * slack)
        device_was_full = (delay > 0) & (_running(starts, ends, start - delay + slack) >= slot_count)
        full_count, waited_count = int(device_was_full.sum()), int((device_was_full & after_an_end).sum())
        # the share of the device's time just after an end is the probability that one starts there by chance
        by_chance = min(3 * slack * len(ends) / max(int(ends[-1] - starts[0]), 1), 1.0)
        if waited_count > 1 and waited_count >= CROWDED * full_count and by_chance**waited_count <= BY_CHANCE:
            slot_counts[device] = slot_count
            waited_for_slot[rows[after_an_end]] = True
    return slot_counts, waited_for_slot


def _running(starts: Int64, ends: Int64, time: Int64) -> Int64:
    return np.searchsorted(starts, time, side="right") - np.searchsorted(ends, time, side="right")


@dataclass(slots=True)
class Delays:
    """A row for each delay: from `start` for `length` ns after the node `after`, -1 for after the trace's start."""

    activity: ActivityRows
    after: NodeNumbers
    start: Int64
    length: Int64
    by_launch: Bool
    cause: Int64

    def __len__(self) -> int:
        return len(self.activity)

    def none(self) -> "Delays":
        """Returns a table without rows."""
        return Delays(*(getattr(self, column)[:0] for column in Delays.__slots__))


def find_delays(context: ConversionContext, timing: StartTiming, waited_for_slot: Bool) -> Delays:
    """Returns the delays of a run, in the order in which their activities began."""
    late = _in_time(context, timing.delay > 0)
    cause = _causes(context, timing, waited_for_slot, late)
    backlog_until = _backlog_until(context, timing, late, cause)
    # in a part of a trace an activity may have waited for a backlog, and after its launch for something else as well
    separate = (backlog_until[late] < 0) | (timing.by_launch[late] & (context.backlog_until is not None))
    row, cause = late[separate], cause[separate]
    behind = _in_time(context, backlog_until >= 0)
    none = np.full(len(behind), -1, np.int64)
    start_of_recording = np.full(len(behind), int(Delay.START_OF_RECORDING), np.int64)
    from_start = np.full(len(behind), context.start_of_trace, np.int64)
    return Delays(
        activity=ActivityRows(np.concatenate((row, behind))),
        after=NodeNumbers(np.concatenate((timing.after[row], none))),
        start=np.concatenate((_ready(context, timing)[row], from_start)),
        length=np.concatenate((timing.delay[row], backlog_until[behind] - from_start)),
        by_launch=np.concatenate((timing.by_launch[row], np.zeros(len(behind), np.bool_))),
        cause=np.concatenate((cause, start_of_recording)),
    )


def _in_time(context: ConversionContext, chosen: Bool) -> ActivityRows:
    """Sorts the chosen activities by their start, so that the order of the file does not number delays."""
    rows = np.flatnonzero(chosen)
    return ActivityRows(rows[np.argsort(context.linked.activities.start[rows], kind="stable")].astype(np.int64))


def _ready(context: ConversionContext, timing: StartTiming) -> Int64:
    """Returns when each activity was released."""
    return context.linked.activities.start - np.where(timing.by_launch, timing.latency, timing.gap) - timing.delay


def _causes(context: ConversionContext, timing: StartTiming, waited_for_slot: Bool, late: ActivityRows) -> Int64:
    """Returns the cause of each delay as far as the trace shows one, apart from the start of recording."""
    activities, calls, delay = context.linked.activities, context.linked.calls, timing.delay[late]
    expected_ns, ready = np.where(timing.by_launch, timing.latency, timing.gap)[late], _ready(context, timing)[late]
    busy = _busy(context, Intervals(ready, ready + delay), activities.device[late])
    cause = np.full(len(late), int(Delay.UNEXPLAINED), np.int64)
    cause[(busy >= delay - expected_ns) | waited_for_slot[late]] = Delay.CONTENTION
    # launch calls whose activities are not recorded
    has_activity = np.zeros(len(calls), np.bool_)
    has_activity[activities.call_row[activities.call_row >= 0]] = True
    count = np.bincount(calls.name.codes, minlength=len(calls.name.table))
    share = np.bincount(calls.name.codes, has_activity, len(calls.name.table)) / np.maximum(count, 1)
    lost = np.sort(calls.start[(share >= LAUNCHES)[calls.name.codes] & ~has_activity])
    # one of them lies between the launch of an activity and that of the previous activity of its stream
    before, launched = context.stream_previous[late], context.launched
    since = np.where(before >= 0, launched[np.maximum(before, 0)], context.start_of_trace)
    cause[np.searchsorted(lost, launched[late]) > np.searchsorted(lost, since)] = Delay.LOST_RECORDS
    if len(lost) or (activities.call_row < 0).any():
        # in a trace that lacks records, nothing recorded ran while this was ready
        cause[(busy <= expected_ns) & (delay > LONGEST)] = Delay.LOST_RECORDS
    return cause


def _backlog_until(context: ConversionContext, timing: StartTiming, late: ActivityRows, cause: Int64) -> Int64:
    """Returns until when work from before the trace delayed each activity, -1 for not at all."""
    activities = context.linked.activities
    if context.backlog_until is not None:
        extra = np.where(~timing.by_launch, timing.delay, 0)
        return np.where(context.backlog_until >= 0, context.backlog_until + extra, -1)
    first = late[(context.stream_previous[late] < 0) & (cause != Delay.CONTENTION)]
    first = first[_ready(context, timing)[first] - context.start_of_trace <= timing.delay[first]]
    until = np.full(len(activities), -1, np.int64)
    until[first] = activities.start[first]
    return until


def _busy(context: ConversionContext, spans: Intervals, device: Int64) -> Int64:
    """Returns for how many ns of each span anything ran on its device."""
    activities, busy = context.linked.activities, np.zeros(len(device), np.int64)
    ran, ran_on = Intervals(activities.start, activities.end), columns.rows_of_each(activities.device)
    for number, rows in columns.rows_of_each(device).items():
        busy[rows] = columns.covered_within(spans.take(rows), ran.take(ran_on[number]))
    return busy


def by_cause(all_delays: Delays) -> tuple[dict[str, int], dict[str, float]]:
    """Returns the number of delays of each cause, and their time in µs."""
    counts, times_us = dict[str, int](), dict[str, float]()
    for cause, rows in columns.rows_of_each(all_delays.cause).items():
        counts[Delay(cause).label], times_us[Delay(cause).label] = len(rows), int(all_delays.length[rows].sum()) / 1000
    return counts, times_us


@dataclass(slots=True)
class GraphNodes:
    """The nodes of a graph by number: the context's, `delays`, and rows of ops with metadata, in an `order`."""

    context: ConversionContext
    delays: Delays
    groups: OpRows
    order: NodeNumbers | EllipsisType = ...

    def __len__(self) -> int:
        return self.first_group + len(self.groups)

    @property
    def first_group(self) -> int:
        """The number of the first node with metadata."""
        return self.context.node_count + len(self.delays)

    def column(
        self,
        host: Int64 | None = None,
        activities: Int64 | None = None,
        unrecorded: int | None = None,
        delays: Int64 | None = None,
        groups: Int64 | int | None = None,
        *,
        missing: int = ABSENT,
    ) -> Int64:
        """Returns a value for each node from those of every kind of node, `missing` where these have none."""
        context = self.context
        counts = len(context.timeline), len(context.linked.activities), len(context.unrecorded), len(self.delays)
        parts = zip((host, activities, unrecorded, delays, groups), (*counts, len(self.groups)), strict=True)
        values = [np.full(count, missing if part is None else part) for part, count in parts]
        return np.concatenate(values)[self.order]

    @property
    def start(self) -> Int64:
        """The measured start of every node."""
        return self._times(self.context.start, self.delays.start)

    @property
    def end(self) -> Int64:
        """The measured end of every node."""
        return self._times(self.context.end, self.delays.start + self.delays.length)

    def _times(self, recorded: Int64, delays: Int64) -> Int64:
        metadata = np.full(len(self.groups), self.context.start_of_trace)
        return np.concatenate((recorded, delays, metadata))[self.order]

    def edges(self) -> Edges:
        """Returns edges from what released a delayed activity to the delay to it, and a chain of the metadata."""
        context, delays = self.context, self.delays
        delay, group = np.split(np.arange(context.node_count, len(self)), [len(delays)])
        kind = np.where(delays.by_launch, int(DependencyKind.LAUNCH), int(DependencyKind.STREAM_ORDER))
        edges = [Edges.of(delays.after, delay, kind), Edges.of(delay, context.activity_node(delays.activity), kind)]
        return Edges.joined([*edges, Edges.of(group[:-1], group[1:], DependencyKind.PROGRAM_ORDER)])

    @property
    def names(self) -> Categorical:
        """The names of all nodes."""
        linked = self.context.linked
        names = [UNRECORDED] * len(self.context.unrecorded)
        names += [DELAY_NAMES[Delay(cause)] for cause in self.delays.cause.tolist()]
        names += linked.ops.name[self.groups]
        host = names_of(linked, self.context.timeline)
        joined = Categorical.joined((host, linked.activities.name, Categorical.of(names)))
        return Categorical(joined.codes[self.order], joined.table)

    @property
    def threads(self) -> Int64:
        """The thread of host nodes, those of `unrecorded host` and metadata below all recorded ones; else ABSENT."""
        thread = self.context.timeline.thread
        lowest = max(min(0, int(thread.min(initial=0))), LOWEST)
        return self.column(thread, unrecorded=lowest - 1, groups=lowest - 2)
