"""Which part of each host thread belongs to a period of time: the borders lie where no call is cut.

Of a period from 100 to 200 µs, a thread with a call from 190 to 215 has the part up to 215, one without a call at the
border up to 200.
"""

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64
from ...schema.linked import Calls
from .windows import Period


class ThreadParts:
    """Each thread's part of a period, from `first` up to but without `last`; what is asked is asked for columns of
    threads and times.
    """

    def __init__(self, calls: Calls, period: Period) -> None:
        self._threads = np.unique(calls.thread)
        self._period = period
        self._first = _borders(calls, self._threads, period.start)
        self._last = _borders(calls, self._threads, period.end)

    def first(self, thread: Int64) -> Int64:
        """Returns from when on each thread is in the part, ns."""
        return self._border(thread, self._first, self._period.start)

    def last(self, thread: Int64) -> Int64:
        """Returns up to when each thread is in the part, ns."""
        return self._border(thread, self._last, self._period.end)

    def starts(self, thread: Int64, time: Int64) -> Bool:
        """Returns what begins in the part."""
        return (time >= self.first(thread)) & (time < self.last(thread))

    def ends(self, thread: Int64, time: Int64) -> Bool:
        """Returns what ends in the part."""
        return (time > self.first(thread)) & (time <= self.last(thread))

    def since(self, thread: Int64, time: Int64) -> Int64:
        """Beginnings of what lasts into the part, ABSENT kept."""
        return np.where(time == ABSENT, ABSENT, np.maximum(time, self.first(thread)))

    def _border(self, thread: Int64, borders: Int64, otherwise: int) -> Int64:
        """Returns the threads' borders; `otherwise` for threads without calls."""
        place = np.searchsorted(self._threads, thread)
        threads = np.append(self._threads, ABSENT)
        return np.where(threads[place] == thread, np.append(borders, otherwise)[place], otherwise)


def _borders(calls: Calls, threads: Int64, time: int) -> Int64:
    """Returns where each thread's border at `time` lies: on threads that are in a call then, when that call returns."""
    borders = np.full(len(threads), time, np.int64)
    running = np.flatnonzero((calls.start < time) & (calls.end > time))
    np.maximum.at(borders, np.searchsorted(threads, calls.thread[running]), calls.end[running])
    return borders
