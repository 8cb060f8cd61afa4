"""Synthetic nodes, which are neither host work nor activities of the run: delays and process-group metadata."""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, Categorical, Int64, NodeNumbers, OpRows
from ...schema.graph import Delay, DependencyKind
from ..context import ConversionContext, Edges
from ..timeline import names_of
from .delays import Delays

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
class SyntheticNodes:
    """Delays, and the rows of ops with metadata (`groups`). Their nodes are numbered from `first` on, delays first."""

    delays: Delays
    groups: OpRows
    first: int

    @property
    def node_count(self) -> int:
        """How many nodes there are, synthetic ones included."""
        return self.first + len(self.delays) + len(self.groups)

    def edges(self, context: ConversionContext) -> Edges:
        """Returns edges that put each delay between the node that released its activity and the activity, and edges
        that chain the metadata into a thread.
        """
        first_group = self.first + len(self.delays)
        delay = NodeNumbers(np.arange(self.first, first_group, dtype=np.int64))
        group = np.arange(first_group, self.node_count, dtype=np.int64)
        kind = np.where(self.delays.by_launch, int(DependencyKind.LAUNCH), int(DependencyKind.STREAM_ORDER))
        return Edges.joined(
            [
                Edges.of(self.delays.after, delay, kind),
                Edges.of(delay, context.activity_node(self.delays.activity), kind),
                Edges.of(NodeNumbers(group[:-1]), NodeNumbers(group[1:]), DependencyKind.PROGRAM_ORDER),
            ]
        )

    def start(self, context: ConversionContext) -> Int64:
        """Returns the measured start of every node, synthetic ones included."""
        metadata = np.full(len(self.groups), context.start_of_trace)
        return np.concatenate((context.start, self.delays.start, metadata))

    def end(self, context: ConversionContext) -> Int64:
        """Returns the measured end of every node, synthetic ones included."""
        metadata = np.full(len(self.groups), context.start_of_trace)
        return np.concatenate((context.end, self.delays.start + self.delays.length, metadata))

    def names(self, context: ConversionContext) -> Categorical:
        """Returns the names of all nodes, synthetic ones included."""
        names = [UNRECORDED] * len(context.unrecorded)
        names += [DELAY_NAMES[Delay(cause)] for cause in self.delays.cause.tolist()]
        names += [context.linked.ops.name[row] for row in self.groups.tolist()]
        return Categorical.joined(
            (names_of(context.linked, context.timeline), context.linked.activities.name, Categorical.of(names))
        )

    def threads(self, context: ConversionContext) -> Int64:
        """Returns the thread numbers of the `unrecorded host` nodes, of delays (ABSENT) and of metadata; they are below
        all recorded ones.
        """
        lowest = max(min(0, int(context.timeline.thread.min(initial=0))), LOWEST)
        unrecorded = np.full(len(context.unrecorded), lowest - 1)
        none = np.full(len(self.delays), ABSENT, np.int64)
        return np.concatenate((unrecorded, none, np.full(len(self.groups), lowest - 2)))
