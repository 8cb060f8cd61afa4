"""The calls that record events: when, in which place of the program, and which streams their thread had been working
on.

Which stream a call recorded on the trace seldom tells; a program mostly records on the one that it is using.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Interner, Lookup
from ...schema.linked import Activities, Calls
from ..communication import CollectiveOps
from ..readers import SyncCall
from .call_sites import CallSites
from .streams import StreamKey, ThreadLaunches

AT_ONCE = 1 << 10


class RecordGroup(NamedTuple):
    """Recordings alike, in the order of time: of one thread, from the same ops, after it had launched the same."""

    row: Int64
    time: Int64


class EventRecords:
    """All recordings in the order of time; numbers of recordings are positions in `rows`, which holds their calls.

    `kind` is the position in `kinds`, `streams` what may be recorded on, likeliest first.
    """

    def __init__(
        self,
        calls: Calls,
        kinds: Int64,
        activities: Activities,
        collectives: CollectiveOps,
        launches: ThreadLaunches,
        places: CallSites,
        known: dict[int, StreamKey],
    ) -> None:
        """`known` are the streams that the trace tells, by call."""
        self._calls, self._collectives, self._launches, self._activities = calls, collectives, launches, activities
        self._kinds = kinds
        events = np.flatnonzero(np.isin(kinds, (SyncCall.EVENT_RECORD, SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC)))
        recording = events[kinds[events] == SyncCall.EVENT_RECORD]
        rows = recording[np.argsort(calls.start[recording], kind="stable")]
        self.rows, self.time = rows.data, calls.start[rows].data
        self._number = Lookup(rows, np.arange(len(rows)))
        queries = np.flatnonzero(kinds == SyncCall.EVENT_QUERY)
        self._previous = _previous_on_thread(calls, events, queries)
        self.in_collective: list[bool] = []
        self.streams: list[list[StreamKey]] = []
        self.kind: list[int] = []
        alike: dict[tuple[StreamKey, ...], list[StreamKey]] = {}
        numbers = Interner[tuple[int, ...]]()
        for row in rows.tolist():
            self.in_collective.append(self.is_in_collective(row))
            streams = [known[row]] if row in known else self._likely_streams(row)
            self.streams.append(alike.setdefault(tuple(streams), streams))
            of_kind = (int(calls.thread[row]), places.path(row), self._launched_before(row, places))
            self.kind.append(numbers[of_kind])
        kind = np.array(self.kind, np.int64)
        time = np.asarray(self.time)
        by_kind = np.argsort(kind, kind="stable")
        parts = np.split(by_kind, np.searchsorted(kind[by_kind], np.arange(1, len(numbers))))
        self.kinds = [RecordGroup(part, time[part]) for part in parts]

    def _likely_streams(self, call: int) -> list[StreamKey]:
        """Returns the streams that a call may have recorded on. One right after another recording, with no launch
        between, marks another stream.
        """
        streams, before = self.streams_at(call, None), self.previous(call)
        if before < 0 or self._kinds[before] != SyncCall.EVENT_RECORD or self.is_in_collective(call):
            return streams
        thread = int(self._calls.thread[call])
        last, earlier = (self._launches.last_launch(thread, int(self._calls.start[row])) for row in (call, before))
        return [*streams[1:], *streams[:1]] if last == earlier else streams

    def _launched_before(self, call: int, places: CallSites) -> int:
        """Returns the name of what the thread launched last in this step, as a number, -1 for nothing."""
        last = self._launches.last_launch(int(self._calls.thread[call]), int(self._calls.start[call]))
        if last < 0 or places.step[int(self._activities.call_row[last])] != places.step[call]:
            return -1
        return int(self._activities.name.codes[last])

    def previous(self, call: int) -> int:
        """Returns the call before on its thread that recorded an event or waited for one, -1 for none."""
        return self._previous.get(call)

    def holds_host(self, call: int) -> bool:
        """Returns whether a call makes the host wait for an event."""
        return call >= 0 and bool(self._kinds[call] == SyncCall.EVENT_SYNC)

    def right_before(self, call: int) -> int:
        """Returns the recording that comes right before a wait among the calls for events of its thread, -1 for none."""
        return self._number.get(self.previous(call))

    def around(self, number: int) -> int:
        """Returns the collective around a recording, -1 for none."""
        return self.around_call(self.rows[number])

    def around_call(self, call: int) -> int:
        """Returns the collective in whose op a call was made, -1 for none."""
        return self._collectives.around(int(self._calls.op_row[call]))

    def is_in_collective(self, call: int) -> bool:
        """Returns whether a call was made by a collective's op."""
        return self.around_call(call) >= 0

    def streams_at(self, call: int, other_than: StreamKey | None) -> list[StreamKey]:
        """Returns the streams that the thread had been using at a call: its own in a collective that has launched, else
        those that computed.
        """
        time, thread = int(self._calls.start[call]), int(self._calls.thread[call])
        around, last = self.around_call(call), self._launches.last_launch(thread, time)
        if around >= 0 and last >= 0 and self._collectives.around(int(self._activities.op_row[last])) == around:
            return [self._launches.stream_of(last)]
        return [stream for stream in self._launches.streams_before(thread, time) if stream != other_than]


def _previous_on_thread(calls: Calls, rows: Int64, others: Int64) -> Lookup:
    """Returns for each of these and other calls the one of `rows` before it on its thread."""
    order = np.concatenate((rows, others))
    order = order[np.lexsort((calls.start[order], calls.thread[order]))]
    place = np.where(np.isin(order, rows), np.arange(len(order)), -1)
    before = np.maximum.accumulate(np.append(-1, place))[: len(order)]
    known = np.flatnonzero(before >= 0)
    known = known[calls.thread[order[known]] == calls.thread[order[before[known]]]]
    return Lookup(order[known], order[before[known]])
