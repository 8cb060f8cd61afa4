"""Nodes that stand for no host op and no activity of the run: work carried in from before recording, and process-group metadata."""

from dataclasses import dataclass

import numpy as np

from ..schema.columns import Int64, Strings
from ..schema.graph import DependencyKind
from .run import Edges, Run
from .timeline import names_of

CARRY_IN = "carry-in"
UNRECORDED = "unrecorded host"
LOWEST = -(1 << 62)
"""Of absurd thread numbers none is below this one."""


@dataclass(slots=True)
class Annex:
    """`carried` are activity rows that work from before the trace held back, `groups` op rows with metadata.

    Their nodes are numbered from `first` on. A carry-in lasts from the trace's start to its activity's.
    """

    carried: Int64
    groups: Int64
    first: int

    @property
    def node_count(self) -> int:
        return self.first + len(self.carried) + len(self.groups)

    def edges(self, run: Run) -> Edges:
        """Each carry-in before its activity; the metadata one after the other, so that they form a thread."""
        carry = self.first + np.arange(len(self.carried), dtype=np.int64)
        group = self.first + len(self.carried) + np.arange(len(self.groups), dtype=np.int64)
        return Edges.joined(
            [
                Edges.of(carry, run.activity_node(self.carried), DependencyKind.STREAM_ORDER),
                Edges.of(group[:-1], group[1:], DependencyKind.PROGRAM_ORDER),
            ]
        )

    def start(self, run: Run) -> Int64:
        """Measured start of every node, the annex included."""
        return np.concatenate((run.start, np.full(self.node_count - self.first, run.start_of_trace)))

    def end(self, run: Run) -> Int64:
        """Measured end of every node, the annex included."""
        metadata = np.full(len(self.groups), run.start_of_trace)
        return np.concatenate((run.end, run.linked.activities.start[self.carried], metadata))

    def names(self, run: Run) -> Strings:
        """Names of all nodes, the annex included."""
        host, device, ops = names_of(run.linked, run.timeline), run.linked.activities.name, run.linked.ops.name
        place = {name: code for code, name in enumerate(host.table)}
        recode = np.array([place.setdefault(name, len(place)) for name in device.table] or [0], np.int32)
        own = [UNRECORDED] * len(run.unrecorded) + [CARRY_IN] * len(self.carried)
        own += [ops[row] for row in self.groups.tolist()]
        extra = np.array([place.setdefault(name, len(place)) for name in own], np.int32)
        return Strings(np.concatenate((host.codes, recode[device.codes], extra)), list(place))

    def threads(self, run: Run) -> Int64:
        """Thread numbers of the `unrecorded host` nodes, carry-ins and metadata, below all recorded ones."""
        lowest = max(min(0, int(run.timeline.thread.min(initial=0))), LOWEST)
        carry = lowest - 2 - np.arange(len(self.carried), dtype=np.int64)
        unrecorded = np.full(len(run.unrecorded), lowest - 1)
        return np.concatenate((unrecorded, carry, np.full(len(self.groups), lowest - 2 - len(self.carried))))
