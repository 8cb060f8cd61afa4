"""Scores by times what the waits of one call site are for: which ends are too late, and how many waits each end
explains.

Blocked work goes on right after the end of what it waited for. What ended later was not awaited.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.linked import FOREVER, NEVER, Activities, Calls
from ...schema.machine import latency_stats
from .streams import StreamTails
from .timing_model import TimingModel
from .unresolved_waits import BlockedWork, UnresolvedWait


class Times(NamedTuple):
    """Of the blocked work of each wait: from when on it was ready but for the wait (`ready_ns`), when it was expected
    to start then (`expected_start_ns`), and when it started (`resumed_ns`).
    """

    ready_ns: Int64
    expected_start_ns: Int64
    resumed_ns: Int64


class TimingScorer:
    """Compares ends with the times at which blocked work went on.

    `max_reaction_ns` is how long after an end on another stream a stream usually goes on at most.
    """

    def __init__(
        self,
        activities: Activities,
        calls: Calls,
        timing: TimingModel,
        tails: StreamTails,
        waits: Sequence[UnresolvedWait],
    ) -> None:
        self._start, self._end, self._calls = activities.start, np.append(activities.end, NEVER), calls
        self._timing = timing
        self.max_reaction_ns = max(timing.max_gap_ns, self._max_late_reaction(tails, waits))

    def _max_late_reaction(self, tails: StreamTails, waits: Sequence[UnresolvedWait]) -> int:
        """Returns how long after the last end on other streams late work usually starts at most, ns."""
        blocked = [
            (wait.call_row, tails.number.get(wait.blocked[0].stream, -1), wait.blocked[0].target) for wait in waits
        ]
        expected = self._timing.expected_start_ns
        late = [row for row in blocked if row[2] >= 0 and self._start[row[2]] > expected[row[2]]]
        call, stream, target = np.array(late, np.int64).reshape(-1, 3).T
        ends = self._end[tails.before(self._calls.start[call].tolist())]
        ends[np.arange(len(call)), stream] = NEVER
        start = self._start[target]
        ends[ends > start[:, None]] = NEVER
        latest = ends.max(axis=1, initial=NEVER)
        explains = latest > np.asarray(self._timing.ready_ns)[target]
        return latency_stats(start[explains] - latest[explains]).upper

    def ends(self, tails: Int64) -> Int64:
        """Returns the ends of activities, NEVER for -1."""
        return self._end[tails]

    def score(self, waits: list[UnresolvedWait], ends: Int64, blocked: BlockedWork) -> tuple[Bool, Int64]:
        """Returns which ends are too late, and how many waits each option and stream explains.

        `ends` and the first result are by option, wait and stream, the second by option and stream. It is 0 where fewer
        than half of the late waits are explained.
        """
        times, on_host = self._times(waits, blocked), blocked.stream is None
        quantum = self._timing.timestamp_quantum_ns
        reaction, lead = np.array(
            [
                (wait.max_reaction_ns + wait.clock_error_ns, wait.max_lead_ns)
                if on_host
                else (self.max_reaction_ns + quantum, quantum)
                for wait in waits
            ]
        ).T
        late = times.resumed_ns > times.expected_start_ns
        latest = times.resumed_ns + lead
        too_late: Bool = ends > latest[None, :, None]
        explains = late[None, :, None] & ~too_late & (ends > times.ready_ns[None, :, None])
        explains &= ends >= (times.resumed_ns - reaction)[None, :, None]
        explained_count = np.asarray(explains.sum(axis=1), np.int64)
        explained_count[2 * explained_count < int(late.sum())] = 0
        return too_late, explained_count

    def _times(self, waits: list[UnresolvedWait], blocked: BlockedWork) -> Times:
        rows, timing = [], self._timing
        for wait in waits:
            target = wait.target(blocked)
            if blocked.stream is None:
                expected = NEVER if wait.is_query else wait.since + wait.max_reaction_ns
                rows.append((NEVER, expected, int(self._calls.end[wait.call_row])))
            elif target >= 0:
                rows.append((timing.ready_ns[target], timing.expected_start_ns[target], int(self._start[target])))
            else:
                rows.append((NEVER, FOREVER, FOREVER))
        return Times(*np.array(rows, np.int64).T)

    def add_dependency(self, activity: int, source: int) -> None:
        """Adds that an activity follows another one."""
        self._timing.add_dependency(activity, int(self._end[source]), self.max_reaction_ns)
