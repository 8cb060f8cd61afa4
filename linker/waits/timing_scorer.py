"""Judges by times what the waits of one place are for: which ends came too late, and how many waits each end explains.

What is held up goes on right after the end of what it waited for; what ended later was not waited for.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.linked import Activities, Calls
from ...schema.machine import latency_stats
from ...schema.traces import FOREVER, NEVER
from ..submissions import StreamTails, TimingModel
from .unresolved_waits import BlockedWork, UnresolvedWait


class Times(NamedTuple):
    """Of each wait of a place: when what it holds up was free to go on otherwise, was due, and went on."""

    ready_ns: Int64
    expected_start_ns: Int64
    until: Int64


class TimingScorer:
    """Judges ends by when what a wait holds up went on. `max_reaction_ns` is how long after an end a stream usually
    does.
    """

    def __init__(
        self,
        activities: Activities,
        calls: Calls,
        evidence: TimingModel,
        tails: StreamTails,
        waits: Sequence[UnresolvedWait],
    ) -> None:
        self._start, self._end, self._calls = activities.start, np.append(activities.end, NEVER), calls
        self._evidence = evidence
        self.max_reaction_ns = max(evidence.gap, self._usual_reach(tails, waits))

    def _usual_reach(self, tails: StreamTails, waits: Sequence[UnresolvedWait]) -> int:
        """Returns how long after the end of another stream's work those start that nothing else held up."""
        held = [(wait.call_row, tails.number.get(wait.blocked[0].stream, -1), wait.blocked[0].target) for wait in waits]
        late = [row for row in held if row[2] >= 0 and self._start[row[2]] > self._evidence.expected_start_ns[row[2]]]
        call, stream, target = np.array(late, np.int64).reshape(-1, 3).T
        ends = self._end[tails.before(self._calls.start[call].tolist())]
        ends[np.arange(len(call)), stream] = NEVER
        start = self._start[target]
        ends[ends > start[:, None]] = NEVER
        latest = ends.max(axis=1, initial=NEVER)
        known = latest > np.asarray(self._evidence.ready_ns)[target]
        return latency_stats(start[known] - latest[known]).upper

    def of(self, tails: Int64) -> Int64:
        """Returns the ends of activities, NEVER for -1."""
        return self._end[tails]

    def score(self, waits: list[UnresolvedWait], ends: Int64, held: BlockedWork) -> tuple[Bool, Int64]:
        """Returns which ends are too late for each wait; how many waits each option and stream explains, 0 if fewer
        than half of those held up.

        `ends` are by option, wait and stream, and so is the first; the second is by option and stream.
        """
        times, on_host = self._times(waits, held), held.stream is None
        slack = self._evidence.clock_uncertainty_ns if on_host else self._evidence.timestamp_quantum_ns
        reach = np.array([wait.max_reaction_ns if on_host else self.max_reaction_ns for wait in waits]) + slack
        late = times.until > times.expected_start_ns
        latest = times.until + (self._evidence.max_clock_lead_ns if on_host else slack)
        too_late: Bool = ends > latest[None, :, None]
        explains = late[None, :, None] & ~too_late & (ends > times.ready_ns[None, :, None])
        explains &= ends >= (times.until - reach)[None, :, None]
        explained = np.asarray(explains.sum(axis=1), np.int64)
        explained[2 * explained < int(late.sum())] = 0
        return too_late, explained

    def _times(self, waits: list[UnresolvedWait], held: BlockedWork) -> Times:
        rows = []
        for wait in waits:
            target = wait.target(held)
            if held.stream is None:
                due = NEVER if wait.is_query else wait.since + wait.max_reaction_ns
                rows.append((NEVER, due, int(self._calls.end[wait.call_row])))
            elif target >= 0:
                rows.append(
                    (
                        self._evidence.ready_ns[target],
                        self._evidence.expected_start_ns[target],
                        int(self._start[target]),
                    )
                )
            else:
                rows.append((NEVER, FOREVER, FOREVER))
        freed, due, until = np.array(rows, np.int64).T
        return Times(freed, due, until)

    def explained(self, activity: int, source: int) -> None:
        """The activity is known to follow another one."""
        self._evidence.explained(activity, int(self._end[source]), self.max_reaction_ns)
