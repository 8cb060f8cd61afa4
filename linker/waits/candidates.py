"""Finds candidates for what a wait is for, where the trace does not say: the event records before it, the likeliest
first by the order of calls.

A program waits for each event record once, on another stream than the one that it records on. What it recorded, or let
a stream wait for, right before the wait is the likeliest. Numbers of events rule some out: the driver numbers events in
the order in which they are made, and PyTorch makes an event when it first records it. So if event 7 was first recorded
by the third event record of a trace and event 9 by the fifth, event 8 was first recorded by the fourth, though no
record says so. A program that makes its events in advance does not keep this order, which shows, and then nothing
follows.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
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


class Candidate(NamedTuple):
    """The `back`-th last event record of a kind before a wait (kind -1: the wait call itself).

    The order of the calls makes it the likelier, the smaller its `basis`, and of the same basis its `position` among
    the event records, counted from the front or the back. `streams` are those that it may be on, the likeliest first.
    """

    kind: int
    back: int
    basis: OrderBasis = OrderBasis.NONE
    position: int = 0
    streams: tuple[int, ...] = ()


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
        first = {pair.event: pair for pair in reversed(pairs)}
        anchors = _longest_increasing(sorted(first.values()))
        is_in_order = len(anchors) >= LEAST_ANCHORS and 4 * len(anchors) >= 3 * len(first)
        self._anchors = anchors if is_in_order else []
        self._events = [anchor.event for anchor in self._anchors]
        self._event_of = {anchor.record: anchor.event for anchor in self._anchors}

    def is_possible(self, record: int, event: int, *, is_first_wait: bool) -> bool:
        """Returns whether an event record may be of an event, by the order of numbers alone."""
        # only the first wait for an event is for its first record; it may have been recorded again since
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
    """What the numbers of events say: which event records each wait may be for, and which streams wait for an event."""

    def __init__(self, process: Process, waits: Sequence[UnresolvedWait]) -> None:
        """`waits` are in the order of time."""
        named = [wait for wait in waits if wait.event >= 0]
        records = process.event_records
        # what a query is for was often recorded long before, by whoever gives back memory
        pairs = [Anchor(process.record_right_before[wait.call_row], wait.event) for wait in named if not wait.is_query]
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
            self._waiters[self._recording(wait.event, process.start[wait.call_row])].add(wait.waiting)
            self._first_wait.setdefault(wait.event, wait.call_row)

    def is_possible(self, record: int, wait: UnresolvedWait) -> bool:
        """Returns whether an event record may be the one that a wait is for, by the order of numbers alone."""
        is_first_wait = self._first_wait.get(wait.event) == wait.call_row
        return self._ids.is_possible(record, wait.event, is_first_wait=is_first_wait)

    def waiters(self, record: int, event: int) -> set[StreamKey | None]:
        """Returns the streams (None for the host) that wait for an event as of an event record, until the next one."""
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
        ends[length : length + 1], tails[length : length + 1] = [pair.event], [number]
    increasing, number = [], tails[-1] if tails else -1
    while number >= 0:
        increasing.append(pairs[number])
        number = before[number]
    return increasing[::-1]


UNRANKED = OrderBasis.NONE, 0


class _Context(NamedTuple):
    """What precedes a wait, by numbers of event records, -1 for none.

    `unused` are those that nothing waits for yet, `known_record` is one that another wait for the same event was for,
    and `right_before` the previous call for events. `data_streams` are the streams whose data is used after the wait.
    """

    unused: set[int]
    known_record: int
    right_before: int
    data_streams: list[StreamKey]


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
        self._event_of = np.where(is_awaited, -1, UNUSED_YET).data
        self._marked: set[tuple[int, int]] = set()
        """Streams and activities that an event record with a wait marks."""
        self._awaited: set[tuple[StreamKey | None, int]] = set()
        """Streams (None for the host) and activities that they wait for."""
        self._records_of_event: dict[int, list[int]] = defaultdict(list)
        self._records_of_call: dict[int, list[int]] = defaultdict(list)
        self._stream_of_record: dict[int, StreamKey] = {}
        self._numbers = EventNumbers(process, waits)
        self._wait_times: dict[StreamKey | None, list[int]] = defaultdict(list)
        for wait in waits:
            self._wait_times[wait.waiting].append(process.start[wait.call_row])
        self._positions: dict[StreamKey, list[int]] = {}
        """How many activities had been submitted to a stream at each of its waits."""

    def of_call_site(self, waits: list[UnresolvedWait]) -> list[Candidate]:
        """Returns the options of the first wait for which the order of the calls favours one, else of the first one."""
        of_first = self._options(waits[0])
        for options in chain([of_first], map(self._options, islice(waits, 1, None))):
            if any(option.basis < OrderBasis.NONE for option in options):
                return options
        return of_first

    def before(self, wait: UnresolvedWait) -> dict[int, Candidate]:
        """Returns the last event records before a wait by number, the last one first, as options without a rank."""
        kinds, kind_counts = self._records.kind, Counter[int]()
        until = bisect_left(self._records.time, self._process.start[wait.call_row])
        candidates = {}
        for row in reversed(range(max(0, until - TRIED), until)):
            kind_counts[kinds[row]] += 1
            candidates[row] = Candidate(kinds[row], kind_counts[kinds[row]])
        return candidates

    def event_records(self, options: Sequence[Candidate], waits: list[UnresolvedWait]) -> Int64:
        """Returns the event record that each option means for each wait, -1 for none, by option and wait."""
        starts = np.array([self._process.start[wait.call_row] for wait in waits], np.int64)
        rows = np.full((len(options), len(waits)), -1, np.int64)
        for number, option in enumerate(options):
            if option.basis.reason is Reason.RECORD_RIGHT_BEFORE:
                rows[number] = [self._process.record_right_before[wait.call_row] for wait in waits]
            elif option.kind >= 0:
                row, time = self._records.kinds[option.kind]
                position = time.searchsorted(starts) - option.back
                rows[number] = np.where(position >= 0, row[np.maximum(position, 0)], -1)
        return rows

    def possible_streams(self, waiting: StreamKey | None) -> Bool:
        """Returns which streams a wait may be for: all that calls launch to, but the waiting one only if alone."""
        possible = self._is_launched.copy()
        if waiting in self._number and not self._is_single_stream:
            possible[self._number[waiting]] = False
        return possible

    def add_resolved(
        self, wait: UnresolvedWait, record: int, stream: int, source: int, waiting: StreamKey | None
    ) -> None:
        """Adds that a wait blocks `waiting` until an event record on `stream`, which marks the activity `source`."""
        self._event_of[record] = wait.event
        self._marked.add((stream, source))
        self._awaited.add((waiting, source))
        self._records_of_event[wait.event].append(record)
        self._stream_of_record[record] = self._streams[stream]
        self._records_of_call[wait.call_row].append(record)

    def _options(self, wait: UnresolvedWait) -> list[Candidate]:
        """Returns the event records before a wait, ranked by the order of calls, and at last the wait call itself."""
        if wait.of_stream:
            return [self._wait_itself(wait)]
        before, waiting, options = self.before(wait), wait.waiting, []
        if before and min(before):
            self.cut_off.add(wait.call_row)
        # those made by collectives are left to waits of collectives, unless there are no others
        unused = {row for row in before if self._event_of[row] == UNUSED_YET}
        of_program = {row for row in unused if not self._records.in_collective[row]}
        context = _Context(
            of_program if of_program and self._process.collective[wait.call_row] < 0 else unused,
            self._known_record(wait),
            self._process.record_right_before[wait.call_row],
            [] if waiting is None or self._is_single_stream else self._data_streams(wait.call_row, waiting),
        )
        for row, candidate in before.items():
            recorded = self._event_of[row]
            is_of_another = recorded != wait.event and min(recorded, wait.event) >= 0
            if not is_of_another and self._numbers.is_possible(row, wait):
                streams = self._likely_streams(row, wait, context)
                basis, position = self._rank(row, wait, streams[0], context) if streams else UNRANKED
                options.append(candidate._replace(basis=basis, position=position, streams=streams))
        return [*options, self._wait_itself(wait)]

    def _rank(self, row: int, wait: UnresolvedWait, stream: int, context: _Context) -> tuple[OrderBasis, int]:
        """Returns the basis and position of an event record, which is probably on `stream`."""
        records, known_record, is_unused = self._records, context.known_record, self._event_of[row] == UNUSED_YET
        collective_of, waiting = self._process.collective, wait.waiting
        is_right_before = is_unused and row == context.right_before
        is_right_before = is_right_before and collective_of[records.rows[row]] == collective_of[wait.call_row]
        if is_right_before and records.in_collective[row]:
            # a collective records anew what its stream waits for, though its events have been awaited before
            return OrderBasis.RIGHT_BEFORE_IN_COLLECTIVE, 0
        if known_record >= 0 and row == known_record:
            return OrderBasis.SAME_EVENT, row
        if known_record >= 0 and row > known_record and is_unused and records.kind[row] == records.kind[known_record]:
            return OrderBasis.KIND_OF_SAME_EVENT, -1 if is_right_before else row
        if is_right_before:
            return OrderBasis.RIGHT_BEFORE, row
        is_waiting_stream = self._streams[stream] == waiting and not self._is_single_stream
        is_marked = (stream, int(self.tails[row, stream])) in self._marked
        if row not in context.unused or row <= known_record or is_waiting_stream or (is_marked and waiting):
            return UNRANKED
        # a program's waits are nested, so the last event record comes first; those for collectives come in order
        position = row if records.in_collective[row] else len(records.rows) - row
        return OrderBasis.UNUSED_AND_MARKED if is_marked else OrderBasis.UNUSED, position

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
        earlier = (row for row in rows if self._records.time[row] < time)
        return max((row for row in earlier if waiting is None or self._stream_of_record[row] != waiting), default=-1)

    def _likely_streams(self, row: int, wait: UnresolvedWait, context: _Context) -> tuple[int, ...]:
        """Returns the streams that an event record may be on, the likeliest first, those with data in use in front."""
        # no stream waits for itself, or twice for the same work, unless there is no other stream
        streams, waiting = self._records.streams[row], wait.waiting
        waiters = self._numbers.waiters(row, wait.event)
        if waiting is None:
            return self._stream_numbers(stream for stream in streams if stream not in waiters)
        if self._is_single_stream:
            return (self._number[waiting],)
        if row == context.right_before or wait.event >= 0:
            streams = [stream for stream in streams if stream != waiting and stream not in waiters]
        likeliest = [stream for stream in context.data_streams if stream in streams]
        numbers = self._stream_numbers(dict.fromkeys([*likeliest, *streams]))
        return tuple(number for number in numbers if (waiting, int(self.tails[row, number])) not in self._awaited)

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

    def _wait_itself(self, wait: UnresolvedWait) -> Candidate:
        """Returns the option that a wait is for all that a stream had been given when the wait was called."""
        # that is likely for synchronisations of a stream, and for a collective if nothing records events
        process, basis = self._process, OrderBasis.NONE
        streams = self._stream_numbers(process.streams_in_use(wait.call_row, wait.waiting))
        if streams and wait.of_stream:
            basis = OrderBasis.STREAM_IN_USE
        elif streams and not self._records.rows and process.collective[wait.call_row] >= 0:
            basis = OrderBasis.STREAM_IN_USE_OF_COLLECTIVE
        return Candidate(-1, 0, basis, streams=streams)
