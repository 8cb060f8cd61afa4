"""Vector clocks over streams: which activities of other streams are known to have ended before an activity starts."""

from bisect import bisect_right

import numpy as np

from ...schema.columns import ActivityRows, Int64
from ...schema.linked import streams_of
from ..context import ConversionContext


class StreamClocks:
    """For each stream, a clock (last ended position on every stream) from each activity that joined
    another stream on.
    """

    def __init__(self, context: ConversionContext) -> None:
        activities, order = context.linked.activities, context.stream_sorted
        self._stream = streams_of(activities).number
        self._position = np.empty(len(order), np.int64)
        counts = np.bincount(self._stream)
        firsts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        self._position[order] = np.arange(len(order)) - firsts[self._stream[order]]
        self._start = activities.start
        self._at: list[list[int]] = [[] for _ in counts]
        self._clocks: list[list[Int64]] = [[] for _ in counts]

    def not_implied(
        self, candidates: list[tuple[int, int]], known_edges: list[tuple[int, int]]
    ) -> tuple[ActivityRows, ActivityRows]:
        """Returns the sources and targets of the candidates that neither stream order, known edges nor earlier
        candidates imply.

        Takes one pass in the order in which targets started; O(edges × streams).
        """
        edges = [(s, t, True) for s, t in known_edges] + [(s, t, False) for s, t in candidates]
        # the latest writer first: it often implies the earlier ones
        edges.sort(key=lambda e: (self._start[e[1]], self._position[e[1]], not e[2], -self._start[e[0]]))
        needed_edges = [(s, t) for s, t, is_known in edges if self._join(s, t) and not is_known]
        sources, targets = np.array(needed_edges, np.int64).reshape(-1, 2).T
        return ActivityRows(sources), ActivityRows(targets)

    def _clock(self, activity: int) -> Int64:
        stream = self._stream[activity]
        index = bisect_right(self._at[stream], int(self._position[activity])) - 1
        return self._clocks[stream][index] if index >= 0 else np.full(len(self._at), -1, np.int64)

    def _join(self, source: int, target: int) -> bool:
        """Records that target follows source; returns False if that was known."""
        stream, position = int(self._stream[source]), int(self._position[source])
        if stream == self._stream[target]:
            return bool(position >= self._position[target])
        clock = self._clock(target)
        if clock[stream] >= position:
            return False
        joined = np.maximum(clock, self._clock(source))
        joined[stream] = max(int(joined[stream]), position)
        self._at[self._stream[target]].append(int(self._position[target]))
        self._clocks[self._stream[target]].append(joined)
        return True
