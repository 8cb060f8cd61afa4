"""Judges by times what the waits of one place are for: which ends came too late, and how many waits each end explains.

What is held up goes on right after the end of what it waited for; what ended later was not waited for.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.linked import Activities, Calls
from ...schema.machine import usual
from ...schema.traces import FOREVER, NEVER
from ..submissions import Evidence, Tails
from .unnamed_waits import Held, Unnamed


class Times(NamedTuple):
    """Of each wait of a place: when what it holds up was free to go on otherwise, was due, and went on."""

    freed: Int64
    due: Int64
    until: Int64


class MetEnds:
    """Judges ends by when what a wait holds up went on. `reach` is how long after an end a stream usually does."""

    def __init__(
        self, activities: Activities, calls: Calls, evidence: Evidence, tails: Tails, waits: Sequence[Unnamed]
    ) -> None:
        self._start, self._end, self._calls = activities.start, np.append(activities.end, NEVER), calls
        self._evidence = evidence
        self.reach = max(evidence.gap, self._usual_reach(tails, waits))

    def _usual_reach(self, tails: Tails, waits: Sequence[Unnamed]) -> int:
        """How long after the end of another stream's work those start that nothing else held up."""
        held = [(wait.call_row, tails.number.get(wait.held[0].stream, -1), wait.held[0].target) for wait in waits]
        late = [row for row in held if row[2] >= 0 and self._start[row[2]] > self._evidence.due[row[2]]]
        call, stream, target = np.array(late, np.int64).reshape(-1, 3).T
        ends = self._end[tails.before(self._calls.start[call].tolist())]
        ends[np.arange(len(call)), stream] = NEVER
        start = self._start[target]
        ends[ends > start[:, None]] = NEVER
        latest = ends.max(axis=1, initial=NEVER)
        known = latest > np.asarray(self._evidence.freed)[target]
        return usual(start[known] - latest[known]).most

    def of(self, tails: Int64) -> Int64:
        """The ends of activities, NEVER for -1."""
        return self._end[tails]

    def judged(self, waits: list[Unnamed], ends: Int64, held: Held) -> tuple[Bool, Int64]:
        """Which ends are too late for each wait; how many waits each option and stream explains, 0 if fewer than half of those held up.

        `ends` are by option, wait and stream, and so is the first; the second is by option and stream.
        """
        times, on_host = self._times(waits, held), held.stream is None
        slack = self._evidence.doubt if on_host else self._evidence.rounding
        reach = np.array([wait.reach if on_host else self.reach for wait in waits]) + slack
        late = times.until > times.due
        latest = times.until + (self._evidence.ahead if on_host else slack)
        over: Bool = ends > latest[None, :, None]
        explains = late[None, :, None] & ~over & (ends > times.freed[None, :, None])
        explains &= ends >= (times.until - reach)[None, :, None]
        spoken = np.asarray(explains.sum(axis=1), np.int64)
        spoken[2 * spoken < int(late.sum())] = 0
        return over, spoken

    def _times(self, waits: list[Unnamed], held: Held) -> Times:
        rows = []
        for wait in waits:
            target = wait.target(held)
            if held.stream is None:
                due = NEVER if wait.asks else wait.since + wait.reach
                rows.append((NEVER, due, int(self._calls.end[wait.call_row])))
            elif target >= 0:
                rows.append((self._evidence.freed[target], self._evidence.due[target], int(self._start[target])))
            else:
                rows.append((NEVER, FOREVER, FOREVER))
        freed, due, until = np.array(rows, np.int64).T
        return Times(freed, due, until)

    def explained(self, activity: int, source: int) -> None:
        """The activity is known to follow another one."""
        self._evidence.explained(activity, int(self._end[source]), self.reach)
