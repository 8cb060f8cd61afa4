"""The calls that record events: when, where in the program, and which streams their thread had been using.

The trace seldom says on which stream a call recorded an event; a program mostly records on the stream that it is using.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, Interner, Lookup
from ...schema.linked import Activities, Calls, SyncCall
from ..communication import CollectiveOps
from .call_sites import CallSites
from .streams import StreamKey, ThreadLaunches


class RecordGroup(NamedTuple):
    """Event records of one thread that were made from the same ops after the same launch, in the order of time.

    `row` are their numbers, `time` their times in ns.
    """

    row: Int64
    time: Int64


class EventRecordCalls:
    """All event records in the order of time. The number of an event record is its position in `rows`, the calls.

    `kind` is the position of each one's group in `kinds`, `streams` are those that it may be on, the likeliest first.
    """

    def __init__(
        self,
        calls: Calls,
        kinds: Int64,
        activities: Activities,
        *,
        collectives: CollectiveOps,
        launches: ThreadLaunches,
        call_sites: CallSites,
        known_streams: dict[int, StreamKey],
    ) -> None:
        """`kinds` is what each call does, `known_streams` are the streams that the trace records, by call."""
        self._calls, self._collectives, self._launches, self._activities = calls, collectives, launches, activities
        self._kinds, self._call_sites = kinds, call_sites
        event_calls = np.flatnonzero(np.isin(kinds, (SyncCall.EVENT_RECORD, SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC)))
        rows = event_calls[kinds[event_calls] == SyncCall.EVENT_RECORD]
        rows = rows[np.argsort(calls.start[rows], kind="stable")]
        self.rows, self.time = rows.data, calls.start[rows].data
        self._number = Lookup(rows, np.arange(len(rows)))
        queries = np.flatnonzero(kinds == SyncCall.EVENT_QUERY)
        self._previous = _previous_on_thread(calls, event_calls, queries)
        self.in_collective: list[bool] = []
        self.streams: list[list[StreamKey]] = []
        self.kind: list[int] = []
        shared: dict[tuple[StreamKey, ...], list[StreamKey]] = {}
        kind_numbers = Interner[tuple[int, ...]]()
        for row in rows.tolist():
            self.in_collective.append(self.is_in_collective(row))
            streams = [known_streams[row]] if row in known_streams else self._likely_streams(row)
            self.streams.append(shared.setdefault(tuple(streams), streams))
            self.kind.append(kind_numbers[int(calls.thread[row]), call_sites.path(row), self._launched_before(row)])
        kind, time = np.array(self.kind, np.int64), np.asarray(self.time)
        by_kind = np.argsort(kind, kind="stable")
        parts = np.split(by_kind, np.searchsorted(kind[by_kind], np.arange(1, len(kind_numbers))))
        self.kinds = [RecordGroup(part, time[part]) for part in parts]

    def _likely_streams(self, call: int) -> list[StreamKey]:
        """Returns the streams that a call may have recorded on, the likeliest first.

        A call right after another event record, with no launch between them, probably records on another stream.
        """
        streams, before = self.streams_in_use(call, None), self.previous_event_call(call)
        if before < 0 or self._kinds[before] != SyncCall.EVENT_RECORD or self.is_in_collective(call):
            return streams
        return [*streams[1:], *streams[:1]] if self._last_launch(call) == self._last_launch(before) else streams

    def _last_launch(self, call: int) -> int:
        """Returns the last activity that the thread of a call had launched before it, -1 for none."""
        return self._launches.last_launch(int(self._calls.thread[call]), int(self._calls.start[call]))

    def _launched_before(self, call: int) -> int:
        """Returns the name code of the activity that the thread launched last in this step, -1 for none."""
        last, step = self._last_launch(call), self._call_sites.step
        if last < 0 or step[int(self._activities.call_row[last])] != step[call]:
            return -1
        return int(self._activities.name.codes[last])

    def previous_event_call(self, call: int) -> int:
        """Returns the previous call on the thread that recorded an event or waited for one, -1 for none."""
        return self._previous.get(call)

    def is_event_sync(self, call: int) -> bool:
        """Returns whether a call makes the host wait for an event."""
        return call >= 0 and bool(self._kinds[call] == SyncCall.EVENT_SYNC)

    def right_before(self, call: int) -> int:
        """Returns the event record that is the previous call for events on the thread of a wait, -1 for none."""
        return self._number.get(self.previous_event_call(call))

    def enclosing_collective(self, call: int) -> int:
        """Returns the collective in whose op a call was made, -1 for none."""
        return self._collectives.enclosing_record(int(self._calls.op_row[call]))

    def is_in_collective(self, call: int) -> bool:
        """Returns whether a call was made by a collective's op."""
        return self.enclosing_collective(call) >= 0

    def streams_in_use(self, call: int, other_than: StreamKey | None) -> list[StreamKey]:
        """Returns the streams that the thread had been using at a call, the last used one first.

        In a collective that has launched this is the stream of that launch, elsewhere those that compute.
        """
        collective, last = self.enclosing_collective(call), self._last_launch(call)
        if (
            collective >= 0
            and last >= 0
            and self._collectives.enclosing_record(int(self._activities.op_row[last])) == collective
        ):
            return [self._launches.stream_of(last)]
        time, thread = int(self._calls.start[call]), int(self._calls.thread[call])
        return [stream for stream in self._launches.streams_before(thread, time) if stream != other_than]


def _previous_on_thread(calls: Calls, rows: Int64, queries: Int64) -> Lookup:
    """Returns, for each of `rows` and `queries`, the one of `rows` before it on its thread."""
    order = np.concatenate((rows, queries))
    order = order[np.lexsort((calls.start[order], calls.thread[order]))]
    position = np.where(np.isin(order, rows), np.arange(len(order)), -1)
    before = np.maximum.accumulate(np.append(-1, position))[: len(order)]
    follows = np.flatnonzero(before >= 0)
    follows = follows[calls.thread[order[follows]] == calls.thread[order[before[follows]]]]
    return Lookup(order[follows], order[before[follows]])
