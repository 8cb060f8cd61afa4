"""Finds candidates for what a wait is for, where the trace does not say: the event records before it. A program waits
for each once, on another stream, mostly right after it. Events are numbered in the order in which they are first
recorded, unless a program makes them in advance: known numbers then rule others out.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, Lookup, cumcount, isin
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


IN_COLLECTIVE, OF_KIND, SAME, BEFORE, UNUSED, MARKED, IN_USE, IN_USE_OF_COLLECTIVE, NONE = range(9)
"""What in the order of the calls makes a candidate likely, the best first: an event record right before the wait in its
collective, one of the kind of the event's last one, or that itself, one right before, one that no wait is for, the same
though its work is awaited, the stream in use, or that of a collective.
"""
RIGHT_BEFORE = IN_COLLECTIVE, BEFORE
REASONS = (
    *(Reason.RECORD_RIGHT_BEFORE, Reason.RESOLVED_EVENT, Reason.RESOLVED_EVENT, Reason.RECORD_RIGHT_BEFORE),
    *(Reason.UNUSED_RECORD, Reason.UNUSED_RECORD, Reason.STREAM_IN_USE, Reason.STREAM_BEFORE_COLLECTIVE),
    Reason.END_OF_WORK,
)
"""As what a wait counts then."""


class Rank(NamedTuple):
    """How likely the order of the calls makes a candidate, the smaller the `basis`, then the `position`, the likelier,
    and the streams that it may be on, the likeliest first.
    """

    basis: int
    position: int
    streams: list[int]


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
        self._time, self._ids = records.time, EventIds(pairs)
        self._recorded_at: dict[int, list[int]] = defaultdict(list)
        for record, event in pairs:
            self._recorded_at[event].append(self._time[record])
        self._waits: dict[int, list[set[int]]] = {}
        """The streams that wait for an event, by how often it is known to have been recorded before."""
        self._first_wait = {wait.event: wait.call_row for wait in reversed(named)}
        for wait in named:
            recorded_at, number = self._recorded_at[wait.event], tails.number.get(wait.waiting, -1)
            waits_for = self._waits.setdefault(wait.event, [set() for _ in range(len(recorded_at) + 1)])
            waits_for[bisect_right(recorded_at, process.start[wait.call_row])].add(number)

    def are_possible(self, records: Int64, wait: UnresolvedWait) -> Bool:
        """Returns which event records may be the one that a wait is for, by the order of numbers alone."""
        is_first_wait = self._first_wait.get(wait.event) == wait.call_row
        return self._ids.are_possible(records, wait.event, is_first_wait=is_first_wait)

    def waits_for(self, event: int, record: int) -> set[int]:
        """Returns the streams that wait for the event as of an event record."""
        return self._waits[event][bisect_right(self._recorded_at[event], self._time[record])]


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
        self.process, self.records, self.streams = process, process.event_records, tails.streams
        self.number, self.is_single_stream = tails.number, len(tails.streams) == 1
        launched = process.launches.streams()
        self.is_launched = [stream in launched for stream in tails.streams]
        self.cut_off: set[int] = set()
        """Waits with more event records before than were tried."""
        others = {key: -1 if self.is_single_stream else own for key, own in (self.number | {None: -1}).items()}
        self.possible_streams = {
            key: [is_launched and number != own for number, is_launched in enumerate(self.is_launched)]
            for key, own in others.items()
        }
        """Which streams each may wait for: all that calls launch to, but itself only if alone."""
        self.no_record = len(self.records.rows)
        """The row of no event record in `tails`."""
        starts = [process.start[wait.call_row] for wait in waits]
        no_tails = np.full((1, len(tails.streams)), -1, np.int64)
        self.tails = np.concatenate((tails.before(self.records.time), no_tails, tails.before(starts)))
        """The last activity on each stream at each event record, for none, and at each wait call."""
        self.itself = {wait.call_row: self.no_record + 1 + number for number, wait in enumerate(waits)}
        """The row of each wait call in `tails`."""
        self.tails_at = self.tails.data
        until = np.searchsorted(self.records.time, starts)
        before = (range(last - 1, max(0, last - TRIED) - 1, -1) for last in until.tolist())
        self.before = dict(zip(self.itself, before, strict=True))
        """The last event records before each wait call, the last one first."""
        is_awaited = isin(np.asarray(self.records.rows), process.sync_records.awaited)
        self.event_of = np.where(is_awaited, -1, UNUSED_YET).data
        self.rank_in_kind = cumcount(np.asarray(self.records.kind))
        numbers = {id(streams): self.stream_numbers(streams) for streams in self.records.streams}
        self.likely_streams = [numbers[id(streams)] for streams in self.records.streams]
        self.has_collectives = any(self.records.in_collective)
        self.marked: set[int] = set()
        """The activities that an event record with a wait marks."""
        self.awaited: dict[StreamKey | None, set[int]] = defaultdict(set)
        """The activities that each stream (None for the host) waits for."""
        self.records_of_event: dict[int, list[int]] = defaultdict(list)
        self.records_of_call: dict[int, list[int]] = defaultdict(list)
        self.stream_of_record: dict[int, StreamKey] = {}
        self.numbers = EventNumbers(process, tails, waits)
        self._wait_times: dict[StreamKey | None, list[int]] = defaultdict(list)
        for wait in waits:
            self._wait_times[wait.waiting].append(process.start[wait.call_row])
        self._positions: dict[StreamKey, list[int]] = {}
        """How many activities had been submitted to a stream at each of its waits."""

    def of_call_site(self, waits: list[UnresolvedWait]) -> "Options":
        """Returns the options of the first wait for which the order of the calls favours one, else of the first one."""
        of_first = Options(self, waits[0])
        every = chain([of_first], (Options(self, wait) for wait in waits[1:]))
        is_favoured = (each for each in every if next(each.likeliest(), None) is not None)
        return of_first if len(waits) == 1 else next(is_favoured, of_first)

    def add_resolved(
        self, wait: UnresolvedWait, record: int, stream: int, source: int, waiting: StreamKey | None
    ) -> None:
        """Adds that a wait blocks `waiting` until an event record on `stream`, which marks the activity `source`."""
        self.event_of[record] = wait.event
        self.marked.add(source)
        self.awaited[waiting].add(source)
        self.stream_of_record[record] = self.streams[stream]
        if wait.event >= 0:
            insort(self.records_of_event[wait.event], record)
        insort(self.records_of_call[wait.call_row], record)

    def data_streams(self, call: int, waiting: StreamKey) -> list[int]:
        """Returns the streams whose data the waiting one uses between this wait and its next one."""
        # only data that was touched since the stream's previous wait counts
        queues, time, wait_times = self.process.queues, self.process.start[call], self._wait_times[waiting]
        if waiting not in self._positions:
            self._positions[waiting] = [queues.position(waiting, wait_time) for wait_time in wait_times]
        positions, position = self._positions[waiting], queues.position(waiting, time)
        # several waits with no launch between them block the same work
        before, after = bisect_left(positions, position) - 1, bisect_right(positions, position)
        until = positions[after] if after < len(positions) else len(queues.rows[waiting])
        rows = queues.rows[waiting][position : min(until, position + TRIED)]
        since = wait_times[before] if before >= 0 else NEVER
        return self.stream_numbers(self.process.origins.streams(rows, since, time))

    def stream_numbers(self, streams: Iterable[StreamKey]) -> list[int]:
        """Returns the numbers of the streams that are among the busiest."""
        return [self.number[stream] for stream in streams if stream in self.number]


class Options:
    """What a wait may be for, as rows of tails: event records, the last one first, then the wait call itself."""

    def __init__(self, candidates: Candidates, wait: UnresolvedWait, records: Sequence[int] | None = None) -> None:
        """`records` are given where the order of the calls tells nothing of them."""
        process, call = candidates.process, wait.call_row
        self.tails, self._waiting = candidates.tails_at, wait.waiting
        self.wait, self._candidates, self._is_ranked = wait, candidates, records is None
        self.right_before, self._known = process.record_right_before[call], -1
        of_call = () if wait.of_stream else candidates.before[call]
        self.records: Sequence[int] = of_call if records is None else records
        self._data: list[int] = []
        self._own = candidates.number.get(self._waiting, -1)
        if self._is_ranked and self.records:
            if candidates.before[call].stop >= 0:
                candidates.cut_off.add(call)
            if wait.event >= 0:
                rows, event_of = np.array(self.records), np.asarray(candidates.event_of)
                possible = candidates.numbers.are_possible(rows, wait)
                possible &= (event_of[rows] == wait.event) | (event_of[rows] < 0)
                self.records = rows[possible].tolist()
            if wait.event >= 0 or wait.is_query:
                self._known = self._known_record()
            if self._waiting is not None and process.origins.of_activity:
                self._data = candidates.data_streams(call, self._waiting)
        before, collective = self.right_before, process.collective
        self._is_near = before < 0 or collective[candidates.records.rows[before]] == collective[call]
        self.itself, self._basis_of_call = candidates.itself[call] if self._is_ranked else -1, NONE
        # a wait call is likely itself for synchronisations of a stream, and for a collective if nothing records events
        if wait.of_stream:
            self._basis_of_call = IN_USE
        elif not candidates.no_record and collective[call] >= 0:
            self._basis_of_call = IN_USE_OF_COLLECTIVE

    @cached_property
    def rows(self) -> list[int]:
        """All of them, as rows of tails."""
        return [*self.records, *([self.itself] if self._is_ranked else [])]

    def __contains__(self, row: int) -> bool:
        """Returns whether a row of tails is one of them."""
        return row in self.records or row == self.itself

    def of_waits(self, waits: list[UnresolvedWait]) -> Int64:
        """Returns the rows of tails that each option means for each wait, by option and wait."""
        candidates, process, before = self._candidates, self._candidates.process, self.right_before
        starts, record = process.calls.start[[wait.call_row for wait in waits]], np.array(self.records, np.int64)
        rows = np.full((len(self.rows), len(waits)), candidates.no_record)
        kind = np.asarray(candidates.records.kind)[record]
        for number in np.unique(kind).tolist():
            row, time = candidates.records.kinds[number]
            alike = np.flatnonzero(kind == number)
            back = time.searchsorted(process.start[self.wait.call_row]) - candidates.rank_in_kind[record[alike]]
            position = time.searchsorted(starts) - back[:, None]
            rows[alike] = np.where(position >= 0, row[np.maximum(position, 0)], candidates.no_record)
        if before in self.records and self.rank(before).basis in RIGHT_BEFORE:
            of_waits = np.array([process.record_right_before[wait.call_row] for wait in waits])
            rows[self.records.index(before)] = np.where(of_waits >= 0, of_waits, candidates.no_record)
        rows[len(record) :] = [candidates.itself[wait.call_row] for wait in waits]
        return rows

    def likeliest(self) -> Iterator[tuple[int, Rank]]:
        """Yields what the order of the calls favours, the likeliest first."""
        if not self._is_ranked:
            return
        before, later, rows = self.right_before, list[tuple[int, Rank]](), [*self.records]
        if not rows and self._basis_of_call < NONE:
            rows = self.rows
        if self._known < 0 and self.records:
            # ranks are found as far as they are asked for
            if before in self.records and (rank := self.rank(before)).basis < UNUSED:
                yield before, rank
            else:
                before = -1
            event_of = self._candidates.event_of
            rows = [row for row in rows if event_of[row] == UNUSED_YET and row != before]
            if self._candidates.has_collectives:
                rows.sort(key=self._position)
        for row in rows:
            rank = self.rank(row)
            if rank.basis == UNUSED and self._known < 0:
                yield row, rank
            elif rank.basis < NONE:
                later.append((row, rank))
        yield from sorted(later, key=lambda each: each[1][:2])

    def rank(self, row: int) -> Rank:
        """Returns how likely one is."""
        candidates = self._candidates
        if not self._is_ranked:
            return Rank(NONE, 0, [])
        if row > candidates.no_record:
            # it is for all that a stream had been given when the wait was called
            in_use = candidates.process.streams_in_use(self.wait.call_row, self._waiting)
            streams = candidates.stream_numbers(in_use)
            return Rank(self._basis_of_call if streams else NONE, 0, streams)
        streams, known, kind = self._streams(row), self._known, candidates.records.kind
        if not streams:
            return Rank(NONE, 0, streams)
        is_unused, in_collective = candidates.event_of[row] == UNUSED_YET, candidates.records.in_collective[row]
        is_right_before = row == self.right_before and is_unused and self._is_near
        # a collective records anew what its stream waits for, though its events have been awaited before
        if is_right_before and in_collective:
            return Rank(IN_COLLECTIVE, 0, streams)
        if row == known:
            return Rank(SAME, row, streams)
        if 0 <= known < row and is_unused and kind[row] == kind[known]:
            return Rank(OF_KIND, -1 if is_right_before else row, streams)
        if is_right_before:
            return Rank(BEFORE, row, streams)
        is_marked = candidates.tails_at[row, streams[0]] in candidates.marked
        is_own = streams[0] == self._own and not candidates.is_single_stream
        if not is_unused or row < known or (in_collective and self._only_program):
            return Rank(NONE, 0, streams)
        if self._waiting is not None and (is_marked or is_own):
            return Rank(NONE, 0, streams)
        return Rank(MARKED if is_marked else UNUSED, self._position(row), streams)

    def _position(self, row: int) -> int:
        # a program's waits are nested, so the last event record comes first; those for collectives come in order
        return row if self._candidates.records.in_collective[row] else self._candidates.no_record - row

    @cached_property
    def _only_program(self) -> bool:
        """Whether event records made by collectives are left to waits of collectives, as there are others."""
        candidates, call = self._candidates, self.wait.call_row
        return candidates.process.collective[call] < 0 and any(
            not candidates.records.in_collective[row] and candidates.event_of[row] == UNUSED_YET
            for row in candidates.before[call]
        )

    def _known_record(self) -> int:
        """Returns the latest event record before a wait that another wait for its event was for, -1 for none."""
        # a query right after a wait of the host is for the event of that wait. An event record on the stream that waits
        # is not the one: the event has been recorded anew
        wait, candidates = self.wait, self._candidates
        process, call = candidates.process, wait.call_row
        rows = candidates.records_of_event[wait.event]
        if wait.event < 0:
            previous = process.previous_event_call[call]
            is_sync = previous >= 0 and process.kinds[previous] == SyncCall.EVENT_SYNC
            rows = candidates.records_of_call[previous] if is_sync else []
        waiting = None if candidates.is_single_stream else self._waiting
        until = bisect_left(rows, candidates.before[call].start + 1)
        earlier = map(rows.__getitem__, range(until - 1, -1, -1))
        return next((row for row in earlier if waiting is None or candidates.stream_of_record[row] != waiting), -1)

    def _streams(self, row: int) -> list[int]:
        """Returns the streams that an event record may be on, the likeliest first."""
        # no stream waits for itself, or twice for the same work, unless there is no other stream
        wait, candidates, data = self.wait, self._candidates, self._data
        if self._waiting is not None and candidates.is_single_stream:
            return [0]
        streams, tails = candidates.likely_streams[row], candidates.tails_at
        if data:
            streams = [*filter(streams.__contains__, data), *(stream for stream in streams if stream not in data)]
        own = self._own if wait.event >= 0 or row == self.right_before else -1
        waits_for = candidates.numbers.waits_for(wait.event, row) if wait.event >= 0 else ()
        awaited = candidates.awaited.get(self._waiting, ()) if self._waiting is not None else ()
        return [
            stream
            for stream in streams
            if stream != own and stream not in waits_for and tails[row, stream] not in awaited
        ]
