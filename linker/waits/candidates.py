"""Finds candidates for what a wait is for, where the trace does not say: the event records before it. A program waits
for each once, on another stream, mostly right after it. Events are numbered in the order in which they are first
recorded, unless a program makes them in advance: known numbers then rule others out.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, Lookup, cumcount, rows_of_each
from ...schema.linked import NEVER, SyncCall
from ...schema.reasons import Reason
from .process import Process
from .submissions import StreamKey, StreamTails
from .unresolved_waits import UnresolvedWait

TRIED = 64
"""Event records tried per wait, so that the search takes constant time."""
UNUSED_YET = -2
"""Stands for the event of an event record that nothing is known to wait for; -1 is an unknown event."""
LEAST_ANCHORS = 3
MANY = 1 << 20
"""More than there are streams."""


class OrderBasis(IntEnum):
    """What in the order of the calls makes a candidate likely, the best first, and as what a wait counts then."""

    reason: Reason
    RIGHT_BEFORE_IN_COLLECTIVE = 0, Reason.RECORD_RIGHT_BEFORE
    KIND_OF_SAME_EVENT = 1, Reason.RESOLVED_EVENT
    SAME_EVENT = 2, Reason.RESOLVED_EVENT
    RIGHT_BEFORE = 3, Reason.RECORD_RIGHT_BEFORE
    UNUSED = 4, Reason.UNUSED_RECORD
    UNUSED_AND_MARKED = 5, Reason.UNUSED_RECORD
    STREAM_IN_USE = 6, Reason.STREAM_IN_USE
    STREAM_IN_USE_OF_COLLECTIVE = 7, Reason.STREAM_BEFORE_COLLECTIVE
    NONE = 8, Reason.END_OF_WORK

    def __new__(cls, rank: int, reason: Reason) -> "OrderBasis":
        """Makes the number that the basis is compared by."""
        basis = int.__new__(cls, rank)
        basis._value_, basis.reason = rank, reason
        return basis


RIGHT_BEFORE = [basis for basis in OrderBasis if basis.reason is Reason.RECORD_RIGHT_BEFORE]
IN_COLLECTIVE, OF_KIND, SAME, BEFORE, UNUSED, MARKED, *_, NONE = map(int, OrderBasis)


class Options(NamedTuple):
    """The last event records before a wait, the last one first, and at the end the wait call itself (-1), as columns.
    The smaller the `basis`, then the `position`, from the front or the back, the likelier. `time` is when the wait
    began (ns).
    """

    record: Int64
    basis: Int64
    position: Int64
    stream_position: Int64
    time: int

    def part(self, one: slice) -> "Options":
        """Returns some of them."""
        return Options(self.record[one], self.basis[one], self.position[one], self.stream_position[one], self.time)

    @property
    def has_favourite(self) -> bool:
        """Whether the order of the calls favours any."""
        return bool((self.basis < NONE).any())


class Anchor(NamedTuple):
    """The number of an event record, and the event that it recorded for the first time."""

    record: int
    event: int


class EventIds:
    """The events that waits name right after somebody recorded them, as `anchors` for the others.

    >>> ids = EventIds([Anchor(0, 5), Anchor(2, 7), Anchor(4, 9), Anchor(3, 1)])
    >>> np.flatnonzero(ids.are_possible(np.arange(6), 8, is_first_wait=True)).tolist()
    [3]
    >>> np.flatnonzero(ids.are_possible(np.arange(6), 8, is_first_wait=False)).tolist()
    [3, 5]
    """

    def __init__(self, pairs: Sequence[Anchor]) -> None:
        """`pairs` are in the order of their records. Those of events made long before are among them."""
        first = {pair.event: pair for pair in reversed(pairs)}
        anchors = _longest_increasing(sorted(first.values()))
        is_in_order = len(anchors) >= LEAST_ANCHORS and 4 * len(anchors) >= 3 * len(first)
        self._anchors = anchors if is_in_order else []
        self._events = [anchor.event for anchor in self._anchors]
        self._event_of = Lookup(*np.array(self._anchors, np.int64).reshape(-1, 2).T)

    def are_possible(self, records: Int64, event: int, *, is_first_wait: bool) -> Bool:
        """Returns which event records may be of an event, by the order of numbers alone."""
        # only the first wait for an event is for its first record; it may have been recorded again since
        if not self._anchors or event < 0:
            return np.ones(len(records), np.bool_)
        position, recorded = bisect_left(self._events, event), self._event_of.of(records)
        possible: Bool = (recorded < 0) | (recorded == event)
        if position < len(self._events) and self._events[position] == event:
            return possible & (records >= self._anchors[position].record)
        if position:
            before = self._anchors[position - 1]
            possible &= records >= before.record + event - before.event
        if position < len(self._events) and is_first_wait:
            after = self._anchors[position]
            latest = after.record - (after.event - event)
            possible &= (records <= latest) | (not position and latest < 0)
        return possible


class EventNumbers:
    """What the numbers of events say: which event records each wait may be for, and which streams wait for an event."""

    def __init__(self, process: Process, tails: StreamTails, waits: Sequence[UnresolvedWait]) -> None:
        """`waits` are in the order of time."""
        named = [wait for wait in waits if wait.event >= 0]
        records = process.event_records
        # what a query is for was often recorded long before, by whoever gives back memory
        pairs = [Anchor(process.record_right_before[wait.call_row], wait.event) for wait in named if not wait.is_query]
        pairs = sorted(pair for pair in pairs if pair.record >= 0)
        self._time, self._ids = np.asarray(records.time), EventIds(pairs)
        record, event_of = np.array(pairs, np.int64).reshape(-1, 2).T
        self._recorded_at = {event: self._time[record[rows]] for event, rows in rows_of_each(event_of).items()}
        self._waits: dict[int, Bool] = {}
        """Whether each stream waits for an event, by how often it is known to have been recorded before."""
        self._first_wait: dict[int, int] = {}
        for wait in named:
            counts = len(self._recorded_at.get(wait.event, ())) + 1
            waits_for = self._waits.setdefault(wait.event, np.zeros((counts, len(tails.streams)), np.bool_))
            if (number := tails.number.get(wait.waiting, -1)) >= 0:
                waits_for[self._recordings(wait.event, process.start[wait.call_row]), number] = True
            self._first_wait.setdefault(wait.event, wait.call_row)

    def are_possible(self, records: Int64, wait: UnresolvedWait) -> Bool:
        """Returns which event records may be the one that a wait is for, by the order of numbers alone."""
        is_first_wait = self._first_wait.get(wait.event) == wait.call_row
        return self._ids.are_possible(records, wait.event, is_first_wait=is_first_wait)

    def waits_for(self, event: int, records: Int64) -> Bool:
        """Returns which streams wait for the event as of each event record, by event record and stream."""
        return self._waits[event][self._recordings(event, self._time[records])]

    def _recordings(self, event: int, time: Int64 | int) -> Int64:
        """Returns how often an event is known to have been recorded until each time (ns)."""
        return np.searchsorted(self._recorded_at.get(event, ()), time, side="right")


def _longest_increasing(pairs: Sequence[Anchor]) -> list[Anchor]:
    """Returns the most pairs, whose records increase, that also have increasing events. O(n log n)."""
    ends: list[int] = []
    tails: list[int] = []
    before: list[int] = []
    for number, pair in enumerate(pairs):
        length = bisect_left(ends, pair.event)
        before.append(tails[length - 1] if length else -1)
        ends[length : length + 1], tails[length : length + 1] = [pair.event], [number]
    increasing, number = [], tails[-1] if tails else -1
    while number >= 0:
        increasing.append(pairs[number])
        number = before[number]
    return increasing[::-1]


class Candidates:
    """The event records that some waits may be for. Each wait that is resolved narrows the candidates of the others."""

    def __init__(self, process: Process, tails: StreamTails, waits: Sequence[UnresolvedWait]) -> None:
        self._process, self._records, self._queues = process, process.event_records, process.queues
        self._streams, self._number = tails.streams, tails.number
        self._is_single_stream = len(tails.streams) == 1
        launched = process.launches.streams()
        self._is_launched: Bool = np.array([stream in launched for stream in tails.streams], np.bool_)
        no_tails = np.full((1, len(tails.streams)), -1, np.int64)
        self.tails = np.append(tails.before(self._records.time), no_tails, axis=0)
        """The last activity on each stream at each event record; the last row is for no event record (-1)."""
        self.cut_off: set[int] = set()
        """Waits with more event records before than were tried."""
        is_awaited = np.isin(np.asarray(self._records.rows), process.sync_records.awaited)
        self._event_of = np.where(is_awaited, -1, UNUSED_YET)
        self._in_collective: Bool = np.array(self._records.in_collective, np.bool_)
        self._kind, self._rank_in_kind = np.asarray(self._records.kind), cumcount(np.asarray(self._records.kind))
        lists = {id(streams): streams for streams in self._records.streams}
        self._orders = np.full((len(lists) + 1, len(tails.streams)), MANY)
        """The position of each stream in each list of likely streams."""
        for order, streams in zip(self._orders, lists.values(), strict=False):
            numbers = self._stream_numbers(streams)
            order[[*numbers]] = np.arange(len(numbers))
        number_of = {key: number for number, key in enumerate(lists)}
        self._list_of = np.array([number_of[id(streams)] for streams in self._records.streams], np.int64)
        activities = len(process.activities) + 1
        self._marked = np.zeros(activities, np.bool_)
        """Which activities an event record with a wait marks."""
        self._awaited: dict[StreamKey | None, Bool] = defaultdict(lambda: np.zeros(activities, np.bool_))
        """Which activities each stream (None for the host) waits for."""
        self._records_of_event: dict[int, list[int]] = defaultdict(list)
        self._records_of_call: dict[int, list[int]] = defaultdict(list)
        self._stream_of_record: dict[int, StreamKey] = {}
        self._numbers = EventNumbers(process, tails, waits)
        self._wait_times: dict[StreamKey | None, list[int]] = defaultdict(list)
        for wait in waits:
            self._wait_times[wait.waiting].append(process.start[wait.call_row])
        self._positions: dict[StreamKey, list[int]] = {}
        """How many activities had been submitted to a stream at each of its waits."""

    def of_call_site(self, waits: list[UnresolvedWait]) -> Options:
        """Returns the options of the first wait for which the order of the calls favours one, else of the first one."""
        of_first = self._options(waits[0])
        every = chain([of_first], map(self._options, waits[1:]))
        return of_first if len(waits) == 1 else next((each for each in every if each.has_favourite), of_first)

    def before(self, wait: UnresolvedWait) -> Options:
        """Returns the last event records before a wait, as options without a rank."""
        rows, time = self._records_before(wait.call_row), self._process.start[wait.call_row]
        unlikely = np.full((len(rows), len(self._streams)), len(self._streams))
        return Options(rows, np.full(len(rows), NONE), np.zeros(len(rows), np.int64), unlikely, time)

    def _records_before(self, call: int) -> Int64:
        """Returns the last event records before a call, the last one first."""
        until = bisect_left(self._records.time, self._process.start[call])
        return np.arange(until - 1, max(0, until - TRIED) - 1, -1)

    def event_records(self, options: Options, waits: list[UnresolvedWait]) -> Int64:
        """Returns the event record that each option means for each wait, -1 for none, by option and wait."""
        starts = np.array([self._process.start[wait.call_row] for wait in waits], np.int64)
        if len(waits) == 1 and starts[0] == options.time:
            return options.record[:, None]
        rows = np.full((len(options.record), len(waits)), -1, np.int64)
        kind = np.append(self._kind, -1)[options.record]
        for number in np.unique(kind[kind >= 0]).tolist():
            row, time = self._records.kinds[number]
            alike = np.flatnonzero(kind == number)
            back = time.searchsorted(options.time) - self._rank_in_kind[options.record[alike]]
            position = time.searchsorted(starts) - back[:, None]
            rows[alike] = np.where(position >= 0, row[np.maximum(position, 0)], -1)
        is_right_before = np.isin(options.basis, RIGHT_BEFORE)
        rows[is_right_before] = [self._process.record_right_before[wait.call_row] for wait in waits]
        return rows

    def possible_streams(self, waiting: StreamKey | None) -> Bool:
        """Returns which streams a wait may be for: all that calls launch to, but the waiting one only if alone."""
        is_other = np.arange(len(self._streams)) != self._number.get(waiting, -1)
        return np.asarray(self._is_launched & (is_other | self._is_single_stream))

    def add_resolved(
        self, wait: UnresolvedWait, record: int, stream: int, source: int, waiting: StreamKey | None
    ) -> None:
        """Adds that a wait blocks `waiting` until an event record on `stream`, which marks the activity `source`."""
        self._event_of[record] = wait.event
        self._marked[source] = self._awaited[waiting][source] = True
        insort(self._records_of_event[wait.event], record)
        self._stream_of_record[record] = self._streams[stream]
        insort(self._records_of_call[wait.call_row], record)

    def _options(self, wait: UnresolvedWait) -> Options:
        """Returns the event records before a wait, ranked by the order of calls, and at last the wait call itself."""
        rows, call = self._records_before(wait.call_row), wait.call_row
        if wait.of_stream or not len(rows):
            return self._wait_itself(wait)
        if rows[-1]:
            self.cut_off.add(call)
        # those made by collectives are left to waits of collectives, unless there are no others
        of_program = (self._event_of[rows] == UNUSED_YET) & ~self._in_collective[rows]
        only_program = self._process.collective[call] < 0 and bool(of_program.any())
        if wait.event >= 0:
            event = self._event_of[rows]
            rows = rows[((event == wait.event) | (event < 0)) & self._numbers.are_possible(rows, wait)]
        likely = self._likely_streams(rows, wait)
        basis, position = self._rank(rows, wait, likely, only_program)
        # counted from the likeliest one on, so that options without a rank are comparable
        order = np.where(likely < MANY, likely.argsort(axis=1, kind="stable").argsort(axis=1), likely.shape[1])
        itself = self._wait_itself(wait)
        columns = zip((rows, basis, position, order), itself[:4], strict=True)
        return Options._make([*map(np.concatenate, columns), itself.time])

    def _rank(self, rows: Int64, wait: UnresolvedWait, likely: Int64, only_program: bool) -> tuple[Int64, Int64]:
        """Returns the basis and position of event records, of those that `only_program` made if that holds."""
        known, right_before = self._known_record(wait), self._process.record_right_before[wait.call_row]
        collective_of, calls = self._process.collective, self._records.rows
        in_collective, is_unused = self._in_collective[rows], self._event_of[rows] == UNUSED_YET
        basis, position = np.full((2, len(rows)), UNUSED)
        # a program's waits are nested, so the last event record comes first; those for collectives come in order
        position = np.where(in_collective, rows, len(calls) - rows)
        stream = likely.argmin(axis=1) if likely.shape[1] else np.zeros(len(rows), np.int64)
        has_stream = likely.min(axis=1, initial=MANY) < MANY
        is_marked = has_stream & self._marked[self.tails[rows, stream] if likely.shape[1] else rows * 0]
        basis[is_marked] = MARKED
        is_unranked = ~is_unused | (rows <= known) | (in_collective & only_program)
        if wait.waiting is not None:
            is_own = stream == self._number.get(wait.waiting, -1)
            is_unranked |= is_marked | (is_own & (not self._is_single_stream))
        in_same = right_before < 0 or collective_of[calls[right_before]] == collective_of[wait.call_row]
        is_right_before = is_unused & (rows == right_before) & in_same
        is_of_kind = (known >= 0) & (rows > known) & is_unused & (self._kind[rows] == self._kind[known])
        none = np.zeros_like(rows)
        for is_so, of_basis, at in (
            (is_unranked, NONE, none),
            (is_right_before, BEFORE, rows),
            (is_of_kind, OF_KIND, np.where(is_right_before, -1, rows)),
            ((rows == known) & (known >= 0), SAME, rows),
            # a collective records anew what its stream waits for, though its events have been awaited before
            (is_right_before & in_collective, IN_COLLECTIVE, none),
            (~has_stream, NONE, none),
        ):
            basis[is_so], position[is_so] = of_basis, at[is_so]
        return basis, position

    def _known_record(self, wait: UnresolvedWait) -> int:
        """Returns the latest event record before a wait that another wait for its event was for, -1 for none."""
        # a query right after a wait of the host is for the event of that wait. An event record on the stream that waits
        # is not the one: the event has been recorded anew
        rows = self._records_of_event[wait.event] if wait.event >= 0 else []
        if wait.is_query and wait.event < 0:
            previous = self._process.previous_event_call[wait.call_row]
            is_sync = previous >= 0 and self._process.kinds[previous] == SyncCall.EVENT_SYNC
            rows = self._records_of_call[previous] if is_sync else []
        time, waiting = self._process.start[wait.call_row], None if self._is_single_stream else wait.waiting
        until = bisect_left(rows, time, key=self._records.time.__getitem__)
        earlier = map(rows.__getitem__, range(until - 1, -1, -1))
        return next((row for row in earlier if waiting is None or self._stream_of_record[row] != waiting), -1)

    def _likely_streams(self, rows: Int64, wait: UnresolvedWait) -> Int64:
        """Returns the positions of the streams that event records may be on, those in use in front, MANY for others."""
        # no stream waits for itself, or twice for the same work, unless there is no other stream
        likely, waiting, call = self._orders[self._list_of[rows]], wait.waiting, wait.call_row
        if waiting is not None and self._is_single_stream:
            likely[:] = 0
            return likely
        if wait.event >= 0:
            likely[self._numbers.waits_for(wait.event, rows)] = MANY
        if waiting is None:
            return likely
        if (own := self._number.get(waiting, -1)) >= 0:
            likely[(wait.event >= 0) | (rows == self._process.record_right_before[call]), own] = MANY
        for number, stream in enumerate(self._stream_numbers(self._data_streams(call, waiting))):
            column = likely[:, stream]
            column[column < MANY] = number - MANY
        if waiting in self._awaited:
            likely[self._awaited[waiting][self.tails[rows]]] = MANY
        return likely

    def _data_streams(self, call: int, waiting: StreamKey) -> list[StreamKey]:
        """Returns the streams whose data the waiting one uses between this wait and its next one."""
        # only data that was touched since the stream's previous wait counts
        time, wait_times = self._process.start[call], self._wait_times[waiting]
        if waiting not in self._positions:
            self._positions[waiting] = [self._queues.position(waiting, wait_time) for wait_time in wait_times]
        positions, position = self._positions[waiting], self._queues.position(waiting, time)
        # several waits with no launch between them block the same work
        before, after = bisect_left(positions, position) - 1, bisect_right(positions, position)
        until = positions[after] if after < len(positions) else len(self._queues.rows[waiting])
        rows = self._queues.rows[waiting][position : min(until, position + TRIED)]
        return self._process.origins.streams(rows, wait_times[before] if before >= 0 else NEVER, time)

    def _stream_numbers(self, streams: Iterable[StreamKey]) -> tuple[int, ...]:
        """Returns the numbers of the streams that are among the busiest."""
        return tuple(self._number[stream] for stream in streams if stream in self._number)

    def _wait_itself(self, wait: UnresolvedWait) -> Options:
        """Returns the option that a wait is for all that a stream had been given when the wait was called."""
        # that is likely for synchronisations of a stream, and for a collective if nothing records events
        process, basis = self._process, OrderBasis.NONE
        streams = self._stream_numbers(process.streams_in_use(wait.call_row, wait.waiting))
        if streams and wait.of_stream:
            basis = OrderBasis.STREAM_IN_USE
        elif streams and not self._records.rows and process.collective[wait.call_row] >= 0:
            basis = OrderBasis.STREAM_IN_USE_OF_COLLECTIVE
        order = np.full((1, len(self._streams)), len(self._streams))
        order[0, [*streams]] = range(len(streams))
        return Options(np.array([-1]), np.array([int(basis)]), np.array([0]), order, process.start[wait.call_row])
