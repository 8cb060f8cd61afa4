"""What calls submitted: device streams as queues, which streams each thread launched to, and the sites of the calls.
Calls are of one site if they have the same thread, name, path of op names and occurrence within their step.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ...schema import columns
from ...schema.columns import ABSENT, Int64, Keys, RowMap, groupby, is_group_start, rows_by_number
from ...schema.linked import NEVER, Activities, Calls, Ops, are_step_marks, stream_sorted

NOTHING = np.empty(0, np.int64).data
MOST_STREAMS = 32
"""Streams that are tried for a wait whose stream the trace does not name. Programs use a few."""
LATEST_CHANGES = 256
"""Changes of stream that are looked at per thread, where a thread uses very many streams."""


class StreamKey(NamedTuple):
    """A stream of a device within one process."""

    device: int
    stream: int

    @classmethod
    def of(cls, activities: Activities, row: int) -> "StreamKey":
        """Returns the stream of an activity."""
        return cls(int(activities.device[row]), int(activities.stream[row]))


def submitted_streams(activities: Activities, call_time: Int64) -> Iterator[tuple[StreamKey, Int64, Int64]]:
    """Yields each stream, its activities in their order, and when each and all before it had been submitted (ns)."""
    submitted = np.append(call_time, NEVER)[activities.call_row]
    for rows in columns.split_groups(stream_sorted(activities), activities.device, activities.stream):
        yield StreamKey.of(activities, rows[0]), rows, np.maximum.accumulate(submitted[rows])


class StreamQueues:
    """The streams of one process. A position counts the activities of a stream. A wait is, for each awaited stream, its
    position, the last activity that waits from there are for, and for how many streams they are.
    """

    def __init__(self, activities: Activities, calls: Calls) -> None:
        self.rows: dict[StreamKey, memoryview[int]] = {}
        self.submitted: dict[StreamKey, memoryview[int]] = {}
        self.submitted_until = np.full(len(activities), NEVER, np.int64)
        self._waits: dict[StreamKey, array[int]] = defaultdict(lambda: array("q"))
        self._wait_times: dict[StreamKey, array[int]] = defaultdict(lambda: array("q"))
        self._pending_now: dict[StreamKey, tuple[int, dict[StreamKey, int]]] = {}
        """The position of each stream's last wait, and what all waits from there on are for."""
        position, number = np.zeros((2, len(activities)), np.int64)
        self._position, self._number = position.data, number.data
        self._unlisted: dict[StreamKey, int] = {}
        """How many entries each stream has since one listed all of its pending waits."""
        self._by_number: dict[int, StreamKey] = {}
        for key, rows, submitted in submitted_streams(activities, calls.start):
            self.rows[key], self.submitted[key] = rows.data, submitted.data
            self.submitted_until[rows] = submitted
            position[rows], number[rows] = np.arange(len(rows)), len(self.rows) - 1
            self._by_number.setdefault(key.stream, key)
        self._keys = [*self.rows]
        self._branch_tails = _branch_tails(activities)
        self._call_row = activities.call_row.data

    def of(self, row: int) -> StreamKey:
        """Returns the stream of an activity."""
        return self._keys[self._number[row]]

    def position(self, key: StreamKey, time: int) -> int:
        """Returns how many activities had been submitted to the stream before `time`."""
        return bisect_left(self.submitted[key], time)

    def sources(self, key: StreamKey, time: int) -> tuple[int, ...]:
        """Returns the last activity of each stream that a submission at `time` follows: its own and awaited ones."""
        self.find(*key)
        position, waits, sources = self.position(key, time), self._waits[key], dict[StreamKey, int]()
        count = bisect_left(self._wait_times[key], time)
        for number in range(count - 1, -1, -1):
            # the last wait counts the streams of all: earlier ones count fewer
            if waits[3 * number] < position or len(sources) == waits[3 * count - 1]:
                break
            source = waits[3 * number + 1]
            sources.setdefault(self.of(source), source)
        if position:
            last = self.rows[key][position - 1]
            for row in self._branch_tails.get(self._call_row[last], (last,)):
                self._keep_last(sources, row)
        return tuple(sorted(sources.values()))

    def _keep_last(self, sources: dict[StreamKey, int], row: int) -> int:
        """Keeps the later of an activity and the one that `sources` has for its stream, and returns it."""
        stream = self.of(row)
        other = sources.get(stream, row)
        sources[stream] = row if self._position[row] >= self._position[other] else other
        return sources[stream]

    def add_wait(self, key: StreamKey, time: int, sources: tuple[int, ...]) -> int:
        """Submits a wait, in the order of time, and returns the activity that it blocks, -1 if none followed."""
        self.find(*key)
        position = self.position(key, time)
        of_position, pending = self._pending_now.get(key, (-1, {}))
        if of_position != position:
            # what was submitted since the last wait has honoured all before
            self._pending_now[key] = position, (pending := {})
        listed = [(self._keep_last(pending, source), len(pending)) for source in sources]
        # all pending ones are listed again from time to time: else an early wait is looked for among all later ones
        self._unlisted[key] = self._unlisted.get(key, 0) + len(sources)
        if self._unlisted[key] > len(pending):
            self._unlisted[key] = 0
            listed += [(last, len(pending)) for last in pending.values()]
        waits, wait_times = self._waits[key], self._wait_times[key]
        for last, count in listed:
            wait_times.append(time)
            waits.extend((position, last, count))
        return self.rows[key][position] if position < len(self.rows[key]) else -1

    def next(self, key: StreamKey, time: int) -> int:
        """Returns the first activity submitted to the stream from `time` on, -1 for none."""
        position = self.position(key, time)
        return self.rows[key][position] if position < len(self.rows[key]) else -1

    def busiest(self) -> list[StreamKey]:
        """Returns all streams, or the MOST_STREAMS with most activities, in the order of `rows`."""
        busiest = {*sorted(self.rows, key=lambda key: -len(self.rows[key]))[:MOST_STREAMS]}
        return [key for key in self.rows if key in busiest]

    def find(self, device: int, stream: int) -> StreamKey | None:
        """Returns the stream of that number, on the named device if there is one, with a queue; None for -1."""
        key = StreamKey(device, stream)
        if key in self.rows:
            return key
        if stream < 0:
            return None
        key = self._by_number.setdefault(stream, key)
        self.rows.setdefault(key, NOTHING)
        self.submitted.setdefault(key, NOTHING)
        return key


def _branch_tails(activities: Activities) -> dict[int, tuple[int, ...]]:
    """Returns, for each call that launched to several streams, the last activity on each of them."""
    # such a call launches a graph, which has ended when all its branches have
    order = np.lexsort((activities.start, activities.stream, activities.device, activities.call_row))
    order = order[activities.call_row[order] >= 0]
    keys = (activities.call_row[order], activities.device[order], activities.stream[order])
    is_tail = np.append(is_group_start(*keys)[1:], True)[: len(order)]
    tails, call = order[is_tail], keys[0][is_tail]
    tails = tails[columns.isin(call, call[1:][call[1:] == call[:-1]])]
    return {number: tuple(rows.tolist()) for number, rows in rows_by_number(tails, activities.call_row).items()}


class StreamTails:
    """The last activities of the busiest streams. `number` is the position of a stream in `streams`."""

    def __init__(self, queues: StreamQueues) -> None:
        self.streams = queues.busiest()
        self._rows = [np.concatenate(([-1], queues.rows[key], [-1])) for key in self.streams]
        self._submitted = [np.asarray(queues.submitted[key]) for key in self.streams]
        self.is_partial = len(self.streams) < len(queues.rows)
        self.number: dict[StreamKey | None, int] = {key: number for number, key in enumerate(self.streams)}

    def before(self, times: Sequence[int] | Int64, following: int = 0) -> Int64:
        """Returns the last activity submitted to each stream before each time, or so many after it, -1 for none."""
        tails = np.empty((len(times), len(self.streams)), np.int64)
        for number, (rows, submitted) in enumerate(zip(self._rows, self._submitted, strict=True)):
            tails[:, number] = rows[submitted.searchsorted(times) + following]
        return tails


class _StreamChanges(NamedTuple):
    """The changes to another stream among launches: when, to which one, and their positions by that."""

    times: Sequence[int] = ()
    streams: Sequence[StreamKey] = ()
    changes_to: Mapping[StreamKey, list[int]] = MappingProxyType({})

    def last_used(self, time: int) -> list[StreamKey]:
        """Returns the streams in use before `time`, the last used one first."""
        until = bisect_left(self.times, time)
        if len(self.changes_to) > MOST_STREAMS:
            return [*dict.fromkeys(reversed(self.streams[max(0, until - LATEST_CHANGES) : until]))]
        counts = ((bisect_left(changes, until), changes, stream) for stream, changes in self.changes_to.items())
        used = [(changes[count - 1], stream) for count, changes, stream in counts if count]
        return [stream for _, stream in sorted(used, reverse=True)]


class ThreadLaunches:
    """Which streams each host thread launched to, and when."""

    def __init__(self, activities: Activities, calls: Calls) -> None:
        self._activities = activities
        # only graph launches have more activities than the first, which may run on streams of the graph
        in_call = np.lexsort((activities.start, activities.call_row))
        self._is_first = (activities.call_row < 0) | (columns.previous_in_group(in_call, activities.call_row) < 0)
        rows = np.flatnonzero(activities.call_row >= 0)
        call = activities.call_row[rows]
        thread, time = calls.thread[call], calls.start[call]
        order = np.lexsort((activities.start[rows], time, thread))
        self._rows, self._launched = RowMap(rows[order]), Keys(thread[order], time[order])
        of_thread = rows_by_number(order, thread).items()
        self._of_thread = {number: self._changes(rows[of], time[of]) for number, of in of_thread}
        by_time = np.argsort(time, kind="stable")
        self._of_all = self._changes(rows[by_time], time[by_time])

    def _changes(self, rows: Int64, time: Int64) -> _StreamChanges:
        """Returns the changes among launches sorted by time. Launches of communication change no stream."""
        activities = self._activities
        computes = self._is_first[rows] & (activities.communication_row[rows] < 0)
        rows, time = rows[computes], time[computes]
        is_change = is_group_start(activities.stream[rows], activities.device[rows])
        rows, time = rows[is_change], time[is_change]
        streams = [*map(StreamKey, activities.device[rows].tolist(), activities.stream[rows].tolist())]
        changes_to = defaultdict[StreamKey, list[int]](list)
        for number, stream in enumerate(streams):
            changes_to[stream].append(number)
        return _StreamChanges(time.tolist(), streams, changes_to)

    def streams(self) -> set[StreamKey]:
        """Returns all streams that calls launched to, without inner streams of graphs, which no program can name."""
        rows = np.flatnonzero(self._is_first)
        of_each = groupby(self._activities.device[rows], self._activities.stream[rows]).first
        return {StreamKey.of(self._activities, row) for row in rows[of_each].tolist()}

    def next(self, thread: Int64, time: Int64) -> Int64:
        """Returns the first activity that each thread launched at a time (ns) or later, -1 for none."""
        return self._rows[columns.asof_forward(self._launched, Keys(thread, time))]

    def last(self, thread: Int64, time: Int64) -> Int64:
        """Returns the last activity that each thread launched before a time (ns), -1 for none."""
        return self._rows[columns.asof_backward(self._launched, Keys(thread, time - 1))]

    def streams_before(self, thread: int, time: int) -> list[StreamKey]:
        """Returns streams launched to before `time`, not to communicate: the thread's, last first, then others'."""
        used = self._of_thread.get(thread, _StreamChanges()).last_used(time)
        others = self._of_all.last_used(time) if len(used) < len(self._of_all.changes_to) else []
        return list(dict.fromkeys(used + others))[:MOST_STREAMS]


class CallSites:
    """The call sites of one process, by call: its step, and a number for the names of ops around it, -1 for none."""

    def __init__(self, calls: Calls, ops: Ops, parent: Int64) -> None:
        self._calls, is_mark = calls, are_step_marks(ops.name) & (ops.start != ABSENT)
        self.step = np.searchsorted(np.unique(ops.start[is_mark]), calls.start, side="right")
        unmarked = RowMap(columns.nearest(~is_mark, parent))
        above, path, count = unmarked[parent], np.full(len(ops) + 1, -1, np.int64), 0
        for rows in columns.Tree.of(above, ops.start).levels:
            path[rows] = count + groupby(path[above[rows]], ops.name.codes[rows]).number
            count = int(path.max()) + 1
        self.path = path[unmarked[calls.op_row]]

    def groups(self, calls: Sequence[int], *further: Sequence[int]) -> list[list[int]]:
        """Returns the positions in `calls` (by time) of each call site, whose calls also agree in `further` columns."""
        rows, alike = np.array(calls, np.int64), [np.array(column, np.int64) for column in further]
        of_call = self._calls.thread[rows], self._calls.name.codes[rows], self.path[rows]
        site = groupby(*of_call, *alike).number
        return sorted(group.tolist() for group in groupby(site, columns.cumcount(site, self.step[rows])).rows())
