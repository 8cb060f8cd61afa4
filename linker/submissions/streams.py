"""Device streams as queues: what had been submitted to each at a time, and which waits the next submission has to
honour.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import (
    Bool,
    Int64,
    is_group_start,
    previous_in_group,
    rows_by_number,
    split_groups,
)
from ...schema.linked import Activities, Calls, stream_sorted
from ...schema.traces import NEVER

NOTHING = np.empty(0, np.int64).data
MOST_STREAMS = 32
"""Streams among which a wait's are looked for where nothing tells them: each wait tries them all. Programs have a few.
"""


LATEST_CHANGES = 256
"""Changes to another stream that are looked at of a thread that uses very many."""


class StreamKey(NamedTuple):
    """A stream of a device within one process."""

    device: int
    stream: int


class StreamQueues:
    """The streams of one process. Positions count a stream's activities in the order they ran in, that of their
    submission.

    `submitted_until` tells of each activity when it and all before it on its stream had been submitted. A wait is kept
    once for each activity that it is for: its position, its time, the last activity of that one's stream that a wait
    from this position is for, and for how many streams' activities there are such waits.
    """

    def __init__(self, activities: Activities, calls: Calls) -> None:
        submitted = np.full(len(activities), NEVER, np.int64)
        called = activities.call_row >= 0
        submitted[called] = calls.start[activities.call_row[called]]
        self.rows: dict[StreamKey, memoryview[int]] = {}
        self.submitted: dict[StreamKey, memoryview[int]] = {}
        self._waits: dict[StreamKey, array[int]] = {}
        self._pending_now: dict[StreamKey, tuple[int, dict[StreamKey, int]]] = {}
        """The position of each stream's last wait, and what all waits from there on are for."""
        self._device, self._stream = activities.device, activities.stream
        self._turn = np.zeros(len(activities), np.int64)
        in_turn = stream_sorted(activities)
        self._turn[in_turn] = np.arange(len(in_turn))
        for rows in split_groups(in_turn, activities.device, activities.stream):
            key = StreamKey(int(activities.device[rows[0]]), int(activities.stream[rows[0]]))
            self.rows[key] = rows.data
            self.submitted[key] = np.maximum.accumulate(submitted[rows]).data
            self._waits[key] = array("q")
        self._by_number: dict[int, StreamKey] = {}
        for key in self.rows:
            self._by_number.setdefault(key.stream, key)
        self._branch_tails = _branch_tails(activities)
        self._call_row = activities.call_row
        self.submitted_until = np.full(len(activities), NEVER, np.int64)
        for key in self.rows:
            self.submitted_until[np.asarray(self.rows[key])] = np.asarray(self.submitted[key])

    def position(self, key: StreamKey, time: int) -> int:
        """Returns how many activities had been submitted to the stream before `time`."""
        return bisect_left(self.submitted[key], time)

    def sources(self, key: StreamKey, time: int) -> tuple[int, ...]:
        """Returns the activities that whatever is submitted at `time` comes after: the stream's last one and those of
        its pending waits.

        Of several on one stream the last one, as the others come before it.
        """
        position = self.position(key, time)
        found = self._pending(key, position, time)
        last = self.rows[key][position - 1] if position else -1
        for row in self._branch_tails.get(int(self._call_row[last]), (last,)) if position else ():
            self._keep_last(found, row)
        return tuple(sorted(found.values()))

    def _pending(self, key: StreamKey, position: int, time: int) -> dict[StreamKey, int]:
        """Returns the activities that the waits from this position and before `time` are for, by their streams."""
        waits, found = self._waits[key], dict[StreamKey, int]()
        for number in range(bisect_left(range(len(waits) // 4), time, key=lambda at: waits[4 * at + 1]) - 1, -1, -1):
            before, _, source, streams = waits[4 * number : 4 * number + 4]
            if before < position:
                break
            found.setdefault(self._stream_of(source), source)
            if len(found) == streams:
                break
        return found

    def _keep_last(self, found: dict[StreamKey, int], row: int) -> int:
        """Puts the activity in its stream's place unless a later one is there. Returns what is there then."""
        stream = self._stream_of(row)
        found[stream] = max(row, found.get(stream, row), key=self._turn.__getitem__)
        return found[stream]

    def _stream_of(self, row: int) -> StreamKey:
        return StreamKey(int(self._device[row]), int(self._stream[row]))

    def add_wait(self, key: StreamKey, time: int, sources: tuple[int, ...]) -> int:
        """Submits a wait; the row of the activity that it holds back, -1 if none followed. Waits are added in the order
        of time.
        """
        position = self.position(key, time)
        of_position, pending = self._pending_now.get(key, (-1, {}))
        if of_position != position:
            # what was submitted since the last wait has honoured all before
            self._pending_now[key] = position, (pending := {})
        for source in sources:
            last = self._keep_last(pending, source)
            self._waits[key].extend((position, time, last, len(pending)))
        return self.next(key, time)

    def next(self, key: StreamKey, time: int) -> int:
        """Returns the first activity submitted to the stream from `time` on, -1 for none."""
        position = self.position(key, time)
        return self.rows[key][position] if position < len(self.rows[key]) else -1

    def busiest(self) -> list[StreamKey]:
        """Returns all streams, or of very many those with most activities, in the order of `rows`."""
        kept = {*sorted(self.rows, key=lambda key: -len(self.rows[key]))[:MOST_STREAMS]}
        return [key for key in self.rows if key in kept]

    def on_device(self, device: int) -> list[StreamKey]:
        """Returns the streams of a device, of all devices for -1."""
        return [key for key in self.rows if device in (-1, key.device)]

    def find(self, device: int, stream: int) -> StreamKey | None:
        """Returns the stream by number, on another device of the process where the named one has no such stream; None
        for no number.
        """
        if StreamKey(device, stream) in self.rows:
            return StreamKey(device, stream)
        if stream < 0:
            return None
        known = self._by_number.get(stream)
        return known if known is not None else self._without_work(StreamKey(device, stream))

    def _without_work(self, key: StreamKey) -> StreamKey:
        """Returns a stream that nothing ran on: it has no activities, but hands on the waits that were submitted to it."""
        self.rows[key], self.submitted[key], self._waits[key] = NOTHING, NOTHING, array("q")
        self._by_number[key.stream] = key
        return key


def _first_of_call(activities: Activities) -> Bool:
    """Returns whether an activity is the first of its launch call, or has none; only a graph has others, which may be
    on streams of its own.
    """
    order = np.lexsort((activities.start, activities.call_row))
    call = activities.call_row[order]
    first = np.empty(len(order), np.bool_)
    first[order] = (call < 0) | is_group_start(call)
    return first


def _branch_tails(activities: Activities) -> dict[int, tuple[int, ...]]:
    """Returns for each call that launched to several streams (a graph) the last activity on each: the graph ends when
    all have.
    """
    order = np.lexsort((activities.start, activities.stream, activities.device, activities.call_row))
    order = order[activities.call_row[order] >= 0]
    keys = (activities.call_row[order], activities.device[order], activities.stream[order])
    is_tail = np.append(is_group_start(*keys)[1:], True)[: len(order)]
    tails, call = order[is_tail], keys[0][is_tail]
    several = np.isin(call, call[1:][call[1:] == call[:-1]])
    found: dict[int, list[int]] = {}
    for row, tail in zip(call[several].tolist(), tails[several].tolist(), strict=True):
        found.setdefault(row, []).append(tail)
    return {row: tuple(rows) for row, rows in found.items()}


class StreamTails:
    """The last activities of the busiest streams, which it numbers."""

    def __init__(self, queues: StreamQueues) -> None:
        self._queues = queues
        self.streams = queues.busiest()
        self.leaves_out = len(self.streams) < len(queues.rows)
        self.number: dict[StreamKey | None, int] = {key: number for number, key in enumerate(self.streams)}

    def before(self, times: Sequence[int]) -> Int64:
        """Returns for each time the last activity submitted to each stream before, -1 for none; a row a time, a column
        a stream.
        """
        tails = np.full((len(times), len(self.streams)), -1, np.int64)
        for number, key in enumerate(self.streams):
            rows = np.append(-1, self._queues.rows[key])
            tails[:, number] = rows[np.searchsorted(self._queues.submitted[key], times)]
        return tails


def calls_before(calls: Calls) -> Int64:
    """Returns the call before each one on its thread, -1 for none."""
    return previous_in_group(np.lexsort((calls.start, calls.thread)), calls.thread)


class _Changes(NamedTuple):
    """When launches went over to another stream, and to which, in the order of time; for each stream the positions of
    the changes to it.
    """

    times: list[int]
    streams: list[StreamKey]
    to: dict[StreamKey, list[int]]

    def last_used(self, time: int) -> list[StreamKey]:
        """Returns the streams in use before `time`, the last used one first."""
        until = bisect_left(self.times, time)
        if len(self.to) > MOST_STREAMS:
            latest = self.streams[max(0, until - LATEST_CHANGES) : until]
            return [*dict.fromkeys(reversed(latest))]
        before = ((bisect_left(places, until), places, stream) for stream, places in self.to.items())
        used = [(places[count - 1], stream) for count, places, stream in before if count]
        return [stream for _, stream in sorted(used, reverse=True)]


class ThreadLaunches:
    """Which streams each host thread launched to, and when."""

    def __init__(self, activities: Activities, calls: Calls) -> None:
        rows = np.flatnonzero(activities.call_row >= 0)
        call = activities.call_row[rows]
        thread, time = calls.thread[call], calls.start[call]
        order = np.lexsort((activities.start[rows], time, thread))
        self._times: dict[int, memoryview[int]] = {}
        self._rows: dict[int, memoryview[int]] = {}
        self._changes: dict[int, _Changes] = {}
        self._device, self._stream = activities.device, activities.stream
        self._communicates = activities.communication_row >= 0
        self._is_first = _first_of_call(activities)
        for number, mine in rows_by_number(order, thread).items():
            self._times[number] = time[mine].data
            self._rows[number] = rows[mine].data
            self._changes[number] = self._changes_of(rows[mine], time[mine])
        by_time = np.argsort(time, kind="stable")
        self._all_changes = self._changes_of(rows[by_time], time[by_time])

    def stream_of(self, row: int) -> StreamKey:
        """Returns the stream of an activity."""
        return StreamKey(int(self._device[row]), int(self._stream[row]))

    def streams(self) -> set[StreamKey]:
        """Returns all that calls launched to. A graph's other streams are its own: no program can name them."""
        return {self.stream_of(row) for row in np.flatnonzero(self._is_first).tolist()}

    def next_launch(self, thread: int, time: int) -> int:
        """Returns the row of the first activity that the thread launched after `time`, -1 for none."""
        place = bisect_left(self._times.get(thread, NOTHING), time)
        return self._rows[thread][place] if place < len(self._times.get(thread, NOTHING)) else -1

    def last_launch(self, thread: int, time: int) -> int:
        """Returns the row of the last activity that the thread launched before `time`, -1 for none."""
        place = bisect_left(self._times.get(thread, NOTHING), time) - 1
        return self._rows[thread][place] if place >= 0 else -1

    def _changes_of(self, rows: Int64, time: Int64) -> _Changes:
        """Returns the changes to another stream with what was no communication, of launches in the order of time."""
        own = self._is_first[rows] & ~self._communicates[rows]
        rows, time = rows[own], time[own]
        fresh = is_group_start(self._stream[rows], self._device[rows])
        streams = [*map(self.stream_of, rows[fresh].tolist())]
        to: dict[StreamKey, list[int]] = {}
        for number, stream in enumerate(streams):
            to.setdefault(stream, []).append(number)
        return _Changes(time[fresh].tolist(), streams, to)

    def streams_before(self, thread: int, time: int) -> list[StreamKey]:
        """Returns the streams of launches before `time` that were no communication: the thread's own, the last used one
        first, then others'.
        """
        own = self._changes[thread].last_used(time) if thread in self._changes else []
        return list(dict.fromkeys([*own, *self._all_changes.last_used(time)]))[:MOST_STREAMS]
