"""Finds the part of each host thread that belongs to a period of time. Its borders never cut a call.

Example: in a period from 100 to 200 µs, a thread with a call from 190 to 215 has the part up to 215, and a thread
without a call at the border the part up to 200.
"""

import numpy as np

from ..schema.columns import ABSENT, Bool, Int64
from ..schema.linked import Calls
from .windows import Period


class ThreadParts:
    """Each thread's part of a period, from `first` up to but without `last`, for columns of threads and times (ns)."""

    def __init__(self, calls: Calls, period: Period) -> None:
        self._threads = np.unique(calls.thread)
        self._period = period
        self._first = _borders(calls, self._threads, period.start)
        self._last = _borders(calls, self._threads, period.end)

    def first(self, thread: Int64) -> Int64:
        """Returns the start of each thread's part, ns."""
        return self._border(thread, self._first, self._period.start)

    def last(self, thread: Int64) -> Int64:
        """Returns the end of each thread's part, ns."""
        return self._border(thread, self._last, self._period.end)

    def starts(self, thread: Int64, time: Int64) -> Bool:
        """Returns which times are in the part, as starts are: its start is in it, its end is not."""
        return (time >= self.first(thread)) & (time < self.last(thread))

    def ends(self, thread: Int64, time: Int64) -> Bool:
        """Returns which times are in the part, as ends are: its end is in it, its start is not."""
        return (time > self.first(thread)) & (time <= self.last(thread))

    def since(self, thread: Int64, time: Int64) -> Int64:
        """Returns the times, those before the part moved to its start; ABSENT stays."""
        return np.where(time == ABSENT, ABSENT, np.maximum(time, self.first(thread)))

    def _border(self, thread: Int64, borders: Int64, otherwise: int) -> Int64:
        """Returns the border of each thread, `otherwise` for threads without calls."""
        number = np.searchsorted(self._threads, thread)
        threads = np.append(self._threads, ABSENT)
        return np.where(threads[number] == thread, np.append(borders, otherwise)[number], otherwise)


def _borders(calls: Calls, threads: Int64, time: int) -> Int64:
    """Returns each thread's border at `time`: the return of the call that runs then, `time` where none does."""
    borders = np.full(len(threads), time, np.int64)
    running = np.flatnonzero((calls.start < time) & (calls.end > time))
    np.maximum.at(borders, np.searchsorted(threads, calls.thread[running]), calls.end[running])
    return borders
