"""The context of a conversion, from which the dependency rules read: linked trace, host timeline, node numbers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...schema.columns import ABSENT, ActivityRows, Int64, NodeNumbers, Ns, Tree, previous_in_group
from ...schema.linked import LinkedTrace, op_parents, previous_on_stream, stream_sorted
from ...schema.machine import of_name
from .timeline import Timeline


@dataclass
class ConversionContext:
    """A linked trace on the host's clock, its timeline, and the numbers of their nodes, host nodes first."""

    linked: LinkedTrace
    timeline: Timeline
    clock_shift: Ns
    """What was added to the recorded times of each activity."""

    @property
    def activities_from(self) -> int:
        """The number of the first activity's node."""
        return len(self.timeline)

    @property
    def unrecorded_from(self) -> int:
        """The number of the first `unrecorded host` node."""
        return len(self.timeline) + len(self.linked.activities)

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return self.unrecorded_from + len(self.unrecorded)

    def activity_node(self, rows: Int64) -> NodeNumbers:
        """Returns node numbers of activity rows, -1 kept."""
        return NodeNumbers(np.where(rows >= 0, rows + self.activities_from, -1))

    @cached_property
    def unrecorded_node(self) -> NodeNumbers:
        """The numbers of the `unrecorded host` nodes."""
        return NodeNumbers(self.unrecorded_from + np.arange(len(self.unrecorded), dtype=np.int64))

    @cached_property
    def unrecorded(self) -> ActivityRows:
        """The rows of activities without a launch call, in the order in which they were released."""
        rows = np.flatnonzero(self.linked.activities.call_row < 0)
        return ActivityRows(rows[np.lexsort((self.linked.activities.start[rows], self.released[rows]))])

    @cached_property
    def released(self) -> Ns:
        """When activities without a call were submitted at the latest: at their start, or with the one just before."""
        activities, order = self.linked.activities, self.stream_sorted
        previous = self.stream_previous[order]
        gap = of_name(self.linked.info.machine.gap, "").upper
        right_after = (previous >= 0) & (activities.start[order] - activities.end[previous] <= gap)
        first = ~right_after | (activities.call_row[order] >= 0)
        released = np.empty(len(order), np.int64)
        released[order] = activities.start[order][np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))]
        return released

    @property
    def slack(self) -> int:
        """ns by which two equal device times may differ as recorded: both start and length are truncated or rounded."""
        return max(2 * self.linked.info.machine.resolution_ns, 2)

    @cached_property
    def backlog_until(self) -> Ns | None:
        """When work from before a part of a trace ended on each activity's stream, -1 for none; None for the whole."""
        activities, info = self.linked.activities, self.linked.info
        if info.backlog_until is None:
            return None
        ends = np.array([info.backlog_until.get(number, -1) for number in activities.id.tolist()], np.int64)
        ends += info.machine.clock_shift(ends)
        # a backlog that had ended when the part began delayed nothing
        return np.where(ends > self.start_of_trace, ends, -1)

    @cached_property
    def launched(self) -> Ns:
        """When the launch call of each activity began; the activity's own start where the call was not recorded."""
        activities, calls = self.linked.activities, self.linked.calls
        has_call = activities.call_row >= 0
        time = activities.start.copy()
        time[has_call] = calls.start[activities.call_row[has_call]]
        return time

    @cached_property
    def stream_sorted(self) -> ActivityRows:
        """Activity rows by device, stream and start."""
        return ActivityRows(stream_sorted(self.linked.activities))

    @cached_property
    def stream_next(self) -> ActivityRows:
        """For each activity the next one on its stream, -1 for the last."""
        activities = self.linked.activities
        return ActivityRows(previous_in_group(self.stream_sorted[::-1], activities.device, activities.stream))

    @cached_property
    def stream_previous(self) -> ActivityRows:
        """For each activity the one before it on its stream, -1 for the first."""
        return ActivityRows(previous_on_stream(self.linked.activities))

    @cached_property
    def activity_end(self) -> Ns:
        """Ends of activities, cut at the start of the next one on the stream where the two overlap."""
        activities, following = self.linked.activities, self.stream_next
        return np.where(following >= 0, np.minimum(activities.end, activities.start[following]), activities.end)

    @cached_property
    def start_of_trace(self) -> int:
        """When the first host op, call or activity started."""
        first = [column.min() for column in (self.timeline.start, self.linked.activities.start) if len(column)]
        return int(min(first)) if first else 0

    @cached_property
    def start(self) -> Ns:
        """Measured start of every node."""
        released = self.released[self.unrecorded]
        before = np.concatenate(([self.start_of_trace], released[:-1]))[: len(released)]
        return np.concatenate((self.timeline.start, self.linked.activities.start, before))

    @cached_property
    def end(self) -> Ns:
        """Measured end of every node."""
        return np.concatenate((self.timeline.end, self.activity_end, self.released[self.unrecorded]))

    @cached_property
    def op_tree(self) -> Tree:
        """The ops by the ones that called them; who called those without a time is not known."""
        ops, parent = self.linked.ops, op_parents(self.linked.ops)
        return Tree.of(np.where(ops.start[parent] == ABSENT, -1, parent), ops.start)
