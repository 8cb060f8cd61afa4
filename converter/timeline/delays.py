"""Delays of activities: device time beyond the usual that no dependency explains, its likely cause, and nodes for it.

A trace shows three causes: launch calls whose activities the profiler lost, a device that was busy throughout, and a
stream that still had a backlog when recording began.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ...schema.columns import (
    ABSENT,
    ActivityRows,
    Bool,
    Categorical,
    Int64,
    Intervals,
    NodeNumbers,
    OpRows,
    covered_within,
    rows_of_each,
)
from ...schema.graph import Delay, DependencyKind
from ...schema.machine import LAUNCHES, LONGEST
from ..edges import Edges
from .context import ConversionContext
from .start_timing import ConcurrencyLimit, StartTiming
from .timeline import names_of

UNRECORDED = "unrecorded host"
DELAY_NAMES = {
    Delay.LOST_RECORDS: "delay: lost records",
    Delay.CONTENTION: "delay: contention",
    Delay.START_OF_RECORDING: "carry-in",
    Delay.UNEXPLAINED: "delay: unexplained",
}
LOWEST = -(1 << 62)
"""Recorded thread numbers below this one, which are absurd, are ignored."""


@dataclass(slots=True)
class Delays:
    """A row for each delay: `activity` is delayed from `start` for `length` ns after the node `after`, -1 for after the
    trace's start.

    `by_launch` is whether a launch, not the device, released the activity; `cause` is a Delay.
    """

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


def find_delays(context: ConversionContext, timing: StartTiming, limit: ConcurrencyLimit) -> Delays:
    """Returns the delays of a run, in the order in which their activities began.

    A delay by the start of recording lasts from the trace's start on. O(n log n).
    """
    late = _in_time(context, timing.delay > 0)
    cause = _causes(context, timing, limit, late)
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


def _causes(context: ConversionContext, timing: StartTiming, limit: ConcurrencyLimit, late: ActivityRows) -> Int64:
    """Returns the cause of each delay as far as the trace shows one, apart from the start of recording."""
    activities, delay = context.linked.activities, timing.delay[late]
    expected_ns = np.where(timing.by_launch, timing.latency, timing.gap)[late]
    ready, lost = _ready(context, timing)[late], _lost_launches(context)
    busy = _busy(context, Intervals(ready, ready + delay), activities.device[late])
    cause = np.full(len(late), int(Delay.UNEXPLAINED), np.int64)
    cause[(busy >= delay - expected_ns) | limit.waited_for_slot[late]] = Delay.CONTENTION
    cause[_launched_between(context, late, lost)] = Delay.LOST_RECORDS
    if len(lost) or (activities.call_row < 0).any():
        # in a trace that lacks records, nothing recorded ran while this was ready
        cause[(busy <= expected_ns) & (delay > LONGEST)] = Delay.LOST_RECORDS
    return cause


def _backlog_until(context: ConversionContext, timing: StartTiming, late: ActivityRows, cause: Int64) -> Int64:
    """Returns until when work from before the trace delayed each activity, -1 for not at all.

    A part of a trace knows its backlog. In a whole trace a stream is taken to have had one if its first activity was
    launched early and started late, though no recorded work was in its way.
    """
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
    ran, ran_on = Intervals(activities.start, activities.end), rows_of_each(activities.device)
    for number, rows in rows_of_each(device).items():
        busy[rows] = covered_within(spans.take(rows), ran.take(ran_on[number]))
    return busy


def _lost_launches(context: ConversionContext) -> Int64:
    """Returns the sorted start times of launch calls whose activities are not recorded."""
    activities, calls = context.linked.activities, context.linked.calls
    launched = np.zeros(len(calls), np.bool_)
    launched[activities.call_row[activities.call_row >= 0]] = True
    count = np.bincount(calls.name.codes, minlength=len(calls.name.table))
    share = np.bincount(calls.name.codes, launched, len(calls.name.table)) / np.maximum(count, 1)
    return np.sort(calls.start[(share >= LAUNCHES)[calls.name.codes] & ~launched])


def _launched_between(context: ConversionContext, rows: ActivityRows, lost: Int64) -> Bool:
    """Returns the activities for which a `lost` launch lies between their launch and that of the previous activity of
    their stream.
    """
    before, launched = context.stream_previous[rows], context.launched
    since = np.where(before >= 0, launched[np.maximum(before, 0)], context.start_of_trace)
    return np.searchsorted(lost, launched[rows]) > np.searchsorted(lost, since)


def by_cause(all_delays: Delays) -> tuple[dict[str, int], dict[str, float]]:
    """Returns the number of delays of each cause, and their time in µs."""
    count, time = Counter[str](), Counter[str]()
    for cause in np.unique(all_delays.cause).tolist():
        chosen = all_delays.cause == cause
        count[Delay(cause).label], time[Delay(cause).label] = int(chosen.sum()), int(all_delays.length[chosen].sum())
    return dict(count), {cause: ns / 1000 for cause, ns in time.items()}


@dataclass(slots=True)
class GraphNodes:
    """The nodes of a graph by number: those of the context, then `delays`, then the rows of ops with metadata
    (`groups`).
    """

    context: ConversionContext
    delays: Delays
    groups: OpRows

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
        return np.concatenate([np.broadcast_to(missing if part is None else part, count) for part, count in parts])

    @property
    def start(self) -> Int64:
        """The measured start of every node."""
        metadata = np.full(len(self.groups), self.context.start_of_trace)
        return np.concatenate((self.context.start, self.delays.start, metadata))

    @property
    def end(self) -> Int64:
        """The measured end of every node."""
        metadata = np.full(len(self.groups), self.context.start_of_trace)
        return np.concatenate((self.context.end, self.delays.start + self.delays.length, metadata))

    def edges(self) -> Edges:
        """Returns edges that put each delay between the node that released its activity and the activity, and edges
        that chain the metadata into a thread.
        """
        context, delays = self.context, self.delays
        delay, group = (
            np.arange(first, end)
            for first, end in ((context.node_count, self.first_group), (self.first_group, len(self)))
        )
        kind = np.where(delays.by_launch, int(DependencyKind.LAUNCH), int(DependencyKind.STREAM_ORDER))
        return Edges.joined(
            [
                Edges.of(delays.after, NodeNumbers(delay), kind),
                Edges.of(NodeNumbers(delay), context.activity_node(delays.activity), kind),
                Edges.of(NodeNumbers(group[:-1]), NodeNumbers(group[1:]), DependencyKind.PROGRAM_ORDER),
            ]
        )

    @property
    def names(self) -> Categorical:
        """The names of all nodes."""
        linked = self.context.linked
        names = [UNRECORDED] * len(self.context.unrecorded)
        names += [DELAY_NAMES[Delay(cause)] for cause in self.delays.cause.tolist()]
        names += linked.ops.name[self.groups]
        return Categorical.joined(
            (names_of(linked, self.context.timeline), linked.activities.name, Categorical.of(names))
        )

    @property
    def threads(self) -> Int64:
        """The thread of every host node: those of `unrecorded host` nodes and of metadata are below all recorded ones;
        ABSENT for other nodes.
        """
        thread = self.context.timeline.thread
        lowest = max(min(0, int(thread.min(initial=0))), LOWEST)
        return self.column(thread, unrecorded=lowest - 1, groups=lowest - 2)
