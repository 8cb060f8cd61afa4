"""Says which event records an event may have been recorded by, from the numbers that the driver gave events.

The driver numbers events in the order in which they are made, and PyTorch makes an event when it first records it. So
if event 7 was first recorded by the third event record of a trace and event 9 by the fifth, event 8 was first recorded
by the fourth, though no record says so. A program that makes its events in advance does not keep this order, which
shows, and then nothing follows.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from .process import Process
from .streams import StreamKey
from .unresolved_waits import UnresolvedWait

LEAST_ANCHORS = 3


class Anchor(NamedTuple):
    """The number of an event record, and the event that it recorded for the first time."""

    record: int
    event: int


class EventIds:
    """The events that waits name right after somebody recorded them, as `anchors` for the others.

    >>> ids = EventIds([Anchor(0, 5), Anchor(2, 7), Anchor(4, 9), Anchor(3, 1)])
    >>> [record for record in range(6) if ids.is_possible(record, 8, is_first_wait=True)]
    [3]
    >>> [record for record in range(6) if ids.is_possible(record, 8, is_first_wait=False)]
    [3, 5]
    """

    def __init__(self, pairs: Sequence[Anchor]) -> None:
        """`pairs` are in the order of their records. Those of events made long before are among them."""
        first: dict[int, Anchor] = {}
        for pair in pairs:
            first.setdefault(pair.event, pair)
        anchors = _longest_increasing(sorted(first.values()))
        is_in_order = len(anchors) >= LEAST_ANCHORS and 4 * len(anchors) >= 3 * len(first)
        self._anchors = anchors if is_in_order else []
        self._events = [anchor.event for anchor in self._anchors]
        self._event_of = {anchor.record: anchor.event for anchor in self._anchors}

    def is_possible(self, record: int, event: int, *, is_first_wait: bool) -> bool:
        """Returns whether an event record may be of an event, by the order of numbers alone.

        Only the first wait for an event is for its first record; it may have been recorded again since.
        """
        if not self._anchors or event < 0:
            return True
        if self._event_of.get(record, event) != event:
            return False
        position = bisect_left(self._events, event)
        if position < len(self._events) and self._events[position] == event:
            return record >= self._anchors[position].record
        if position:
            before = self._anchors[position - 1]
            if record < before.record + event - before.event:
                return False
        if position == len(self._events) or not is_first_wait:
            return True
        after = self._anchors[position]
        latest = after.record - (after.event - event)
        return record <= latest or (not position and latest < 0)


class EventNumbers:
    """What the numbers of events say about the waits of a process: which event records each may be for, and which
    streams wait for each event.
    """

    def __init__(self, process: Process, waits: Sequence[UnresolvedWait]) -> None:
        """`waits` are in the order of time."""
        named = [wait for wait in waits if wait.event >= 0]
        records = process.event_record_calls
        # what a query is for was often recorded long before, by whoever gives back memory
        pairs = [Anchor(records.right_before(wait.call_row), wait.event) for wait in named if not wait.is_query]
        pairs = sorted(pair for pair in pairs if pair.record >= 0)
        self._time, self._ids = records.time, EventIds(pairs)
        self._recorded_at: dict[int, list[int]] = defaultdict(list)
        """When each event is known to have been recorded."""
        for pair in pairs:
            self._recorded_at[pair.event].append(self._time[pair.record])
        self._waiters: dict[tuple[int, int], set[StreamKey | None]] = defaultdict(set)
        """The streams that wait for each event, by how often it is known to have been recorded before."""
        self._first_wait: dict[int, int] = {}
        """The first call that waits for each event."""
        for wait in named:
            self._waiters[self._recording(wait.event, process.start(wait.call_row))].add(wait.blocked[0].stream)
            self._first_wait.setdefault(wait.event, wait.call_row)

    def is_possible(self, record: int, wait: UnresolvedWait) -> bool:
        """Returns whether an event record may be the one that a wait is for, by the order of numbers alone."""
        is_first_wait = self._first_wait.get(wait.event) == wait.call_row
        return self._ids.is_possible(record, wait.event, is_first_wait=is_first_wait)

    def waiters(self, record: int, event: int) -> set[StreamKey | None]:
        """Returns the streams that wait for an event as of an event record, until it is recorded anew; None for the
        host.
        """
        return self._waiters.get(self._recording(event, self._time[record]), set())

    def _recording(self, event: int, time: int) -> tuple[int, int]:
        """Returns an event and how often it is known to have been recorded until a time (ns)."""
        return event, bisect_right(self._recorded_at.get(event, ()), time)


def _longest_increasing(pairs: Sequence[Anchor]) -> list[Anchor]:
    """Returns the most pairs, whose records increase, that also have increasing events. O(n log n)."""
    ends: list[int] = []
    tails: list[int] = []
    before: list[int] = []
    for number, pair in enumerate(pairs):
        length = bisect_left(ends, pair.event)
        before.append(tails[length - 1] if length else -1)
        ends[length : length + 1] = [pair.event]
        tails[length : length + 1] = [number]
    chain, number = [], tails[-1] if tails else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]
