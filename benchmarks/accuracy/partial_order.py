"""Answers "did this have to come after that" for points on lanes.

A lane (a host thread, a device stream) is a chain, so all that a point follows is one position per lane: a vector
clock. Building takes O((points + edges) x lanes), a question O(1).
"""

import numpy as np
from execgraph.schema.columns import Bool, Int64, Keys, Ragged, asof_backward, asof_forward, topological_order


class PartialOrder:
    """n points; those of a lane follow each other in the order of their rows, which the edges have to say.

    `begin` and `end` are when a point lasted, in ns on any clock; they only serve to find points by time.
    """

    def __init__(self, lane: Int64, begin: Int64, end: Int64, source: Int64, target: Int64) -> None:
        self._lane, self._begin, self._end = lane, begin, end
        self._by_lane = by_lane = np.argsort(lane, kind="stable")
        self._rows = Ragged.grouped(lane[by_lane], by_lane, int(lane.max(initial=-1)) + 1)
        self._position = np.empty(len(lane), np.int64)
        self._position[by_lane] = np.arange(len(lane)) - self._rows.starts[lane[by_lane]]
        self._clock = self._clocks(source, target)

    def _clocks(self, source: Int64, target: Int64) -> Int64:
        by_target = np.argsort(target, kind="stable")
        before = Ragged.grouped(target[by_target], source[by_target], len(self._lane))
        clock = np.full((len(self._lane), len(self._rows)), -1, np.int64)
        for row in topological_order(source, target, len(self._lane)).tolist():
            followed = before[row]
            if len(followed):
                clock[followed].max(axis=0, out=clock[row])
            clock[row, self._lane[row]] = self._position[row]
        return clock

    def holds(self, before: Int64, after: Int64) -> Bool:
        """Returns whether each point of `after` has to come after its counterpart in `before`; False if one is -1."""
        is_before = self._clock[after, self._lane[before]] >= self._position[before]
        return np.asarray(is_before & (before >= 0) & (after >= 0))

    def last_ended(self, lane: Int64, time: Int64) -> Int64:
        """Returns for each lane and time the last point that had ended by then, -1 for none and for no lane (-1)."""
        return self._rows_at(asof_backward(self._keys(self._end), Keys(lane, time)))

    def first_ended(self, lane: Int64, time: Int64) -> Int64:
        """Returns for each lane and time the first point that ended then or later, -1 for none and for no lane (-1)."""
        return self._rows_at(asof_forward(self._keys(self._end), Keys(lane, time)))

    def first_begun(self, lane: Int64, time: Int64) -> Int64:
        """Returns for each lane and time the first point that began then or later, -1 for none."""
        return self._rows_at(asof_forward(self._keys(self._begin), Keys(lane, time)))

    def _keys(self, time: Int64) -> Keys:
        return Keys(self._lane[self._by_lane], time[self._by_lane])

    def _rows_at(self, position: Int64) -> Int64:
        return np.append(self._by_lane, -1)[position]
