"""Candidates for what a wait is for, where the trace does not say: the recordings before it, the likeliest first by the
order of calls.

A program waits for each recording once, on another stream than the one that it records on; what it waits for right
after it recorded, or had others wait for, is the likeliest.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.traces import NEVER
from ..submissions import Process, StreamKey, StreamTails
from .unresolved_waits import UnresolvedWait

TRIED = 64
"""Recordings tried per wait, so that the search stays constant."""
UNUSED_YET = -2
"""In place of the event, -1 for unknown, of a recording that nothing is known to wait for."""

RIGHT_BEFORE = "event waits resolved to the recording right before"
UNUSED = "event waits resolved to an unused recording"
KNOWN = "waits for an event that another wait had found"
IN_USE = "waits before a collective resolved to the stream in use"
STREAM = "synchronisations resolved to the stream in use"
BY_TIME = "waits resolved to the work whose end they met"


class OrderBasis(IntEnum):
    """What in the order of the calls makes a candidate likely, the best reason first."""

    KIND_OF_KNOWN = 0
    KNOWN = 1
    RIGHT_BEFORE = 2
    UNUSED = 3
    UNUSED_AND_MARKED = 4
    STREAM_IN_USE = 5
    NONE = 6


class OrderRank(NamedTuple):
    """How likely the order of the calls makes a candidate: the smaller, the likelier.

    Candidates with the same basis compare by `turn`, a position among the event records.
    """

    basis: OrderBasis
    turn: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the order of the calls says anything; else only times can tell."""
        return self.basis is not OrderBasis.NONE


UNRANKED = OrderRank(OrderBasis.NONE)


class Option(NamedTuple):
    """The `back`-th last event record of a kind before a wait (kind -1: the wait call itself).

    `rank` says how likely it is by the order of the calls, `streams` which streams it may be on, the likeliest first,
    and `how` by what.
    """

    kind: int
    back: int
    rank: OrderRank
    streams: tuple[int, ...]
    how: str


class _Before(NamedTuple):
    """What there is before a wait: unused recordings, the one known of its event and the one right before it (-1 for
    none), and the streams whose data is used after the wait.
    """

    free: set[int]
    known: int
    right_before: int
    origins: list[StreamKey]


class Candidates:
    """The recordings that some waits may be for. What each wait is found to be for is noted, and tells of the others."""

    def __init__(self, process: Process, tails: StreamTails, waits: Sequence[UnresolvedWait]) -> None:
        self._process, self._recordings, self._queues = process, process.recordings, process.queues
        self._stream, self._number = tails.streams, tails.number
        self._is_alone = len(tails.streams) == 1
        launched = process.launches.streams()
        self._is_launched: Bool = np.array([stream in launched for stream in tails.streams], np.bool_)
        nothing = np.full((1, len(tails.streams)), -1, np.int64)
        self.tails = np.append(tails.before(self._recordings.time), nothing, axis=0)
        """For each recording the last activity on each stream then; the row -1 is that of no recording."""
        self.cut_off: set[int] = set()
        """Waits with more recordings before than were tried."""
        named = np.isin(np.asarray(self._recordings.rows), process.events.awaited)
        self._event_of = np.where(named, -1, UNUSED_YET).data
        self._marks: set[tuple[int, int]] = set()
        self._told: set[tuple[StreamKey | None, int]] = set()
        self._of_event: dict[int, list[int]] = defaultdict(list)
        self._of_call: dict[int, list[int]] = defaultdict(list)
        self._waiting: dict[int, set[StreamKey | None]] = defaultdict(set)
        self._waits_of: dict[StreamKey | None, list[int]] = defaultdict(list)
        self._positions: dict[StreamKey, list[int]] = {}
        for wait in waits:
            self._waits_of[wait.blocked[0].stream].append(process.start(wait.call_row))
            if wait.event >= 0:
                self._waiting[wait.event].add(wait.blocked[0].stream)

    def of_place(self, waits: list[UnresolvedWait]) -> list[Option]:
        """Returns the candidates of the first wait of a place for which the order of the calls speaks for one of them."""
        of_first = self._of(waits[0])
        for options in chain([of_first], map(self._of, islice(waits, 1, None))):
            if any(option.rank.is_known for option in options):
                return options
        return of_first

    def recordings(self, options: list[Option], waits: list[UnresolvedWait]) -> Int64:
        """Returns the recording that each option is for each wait, -1 for none; a row for each option."""
        starts = np.array([self._process.start(wait.call_row) for wait in waits], np.int64)
        right_before = np.array([self._recordings.right_before(wait.call_row) for wait in waits], np.int64)
        return np.stack([self._recording(option, starts, right_before) for option in options])

    def _recording(self, option: Option, starts: Int64, right_before: Int64) -> Int64:
        if option.kind < 0:
            return np.full(len(starts), -1, np.int64)
        if option.how == RIGHT_BEFORE:
            return right_before
        kind = self._recordings.kinds[option.kind]
        place = kind.time.searchsorted(starts) - option.back
        return np.where(place >= 0, kind.row[np.maximum(place, 0)], -1)

    def streams_for(self, waiting: StreamKey | None) -> Bool:
        """Returns which streams a wait may be for: those that calls launch to, the waiting one only where it is the
        only one.
        """
        possible = self._is_launched.copy()
        if waiting in self._number and not self._is_alone:
            possible[self._number[waiting]] = False
        return possible

    def note(self, wait: UnresolvedWait, recording: int, stream: int, source: int, waiting: StreamKey | None) -> None:
        """A wait was found to be for a recording on `stream`, which marks the activity `source`, and to hold `waiting`
        up.
        """
        self._event_of[recording] = wait.event
        self._marks.add((stream, source))
        self._told.add((waiting, source))
        self._of_event[wait.event].append(recording)
        self._of_call[wait.call_row].append(recording)

    def _of(self, wait: UnresolvedWait) -> list[Option]:
        """Returns the recordings before a wait, ranked by what the order of the calls says, and at last the wait call
        itself.
        """
        recordings = self._recordings
        if wait.of_stream:
            return [self._itself(wait)]
        until = bisect_left(recordings.time, self._process.start(wait.call_row))
        before = range(max(0, until - TRIED), until)
        if before.start:
            self.cut_off.add(wait.call_row)
        waiting = wait.blocked[0].stream
        there = _Before(
            self._free(wait, before),
            self._known(wait),
            recordings.right_before(wait.call_row),
            [] if waiting is None or self._is_alone else self._whose_data(wait.call_row, waiting),
        )
        seen: dict[int, int] = defaultdict(int)
        options = []
        for row in reversed(before):
            kind = recordings.kind[row]
            seen[kind] += 1
            if not self._is_of_other(row, wait.event):
                streams = self._in_use(row, wait, there)
                rank, how = self._rank(row, wait, streams, there) if streams else (UNRANKED, BY_TIME)
                options.append(Option(kind, seen[kind], rank, streams, how))
        return [*options, self._itself(wait)]

    def _free(self, wait: UnresolvedWait, rows: range) -> set[int]:
        """Recordings that nothing waited for yet; those of a collective are for waits of collectives, if there are
        others.
        """
        unused = [row for row in rows if self._event_of[row] == UNUSED_YET]
        programs = [row for row in unused if not self._recordings.in_collective[row]]
        return set(programs if programs and not self._recordings.is_in_collective(wait.call_row) else unused)

    def _is_of_other(self, row: int, event: int) -> bool:
        """Returns whether a recording was found to be of another event than this one."""
        owner = self._event_of[row]
        return owner != event and min(owner, event) >= 0

    def _rank(self, row: int, wait: UnresolvedWait, streams: tuple[int, ...], there: _Before) -> tuple[OrderRank, str]:
        """Returns ranks an event record by the order of the calls, and says by what."""
        records, known, is_free = self._recordings, there.known, self._event_of[row] == UNUSED_YET
        if known >= 0 and row == known:
            return OrderRank(OrderBasis.KNOWN, row), KNOWN
        if known >= 0 and row > known and is_free and records.kind[row] == records.kind[known]:
            return OrderRank(OrderBasis.KIND_OF_KNOWN, row), KNOWN
        is_right_before = is_free and row == there.right_before
        if is_right_before and records.around(row) == records.around_call(wait.call_row):
            return OrderRank(OrderBasis.RIGHT_BEFORE, row), RIGHT_BEFORE
        if row not in there.free or row <= known:
            return UNRANKED, BY_TIME
        return self._rank_of_unused(row, wait.blocked[0].stream, streams[0])

    def _rank_of_unused(self, row: int, waiting: StreamKey | None, stream: int) -> tuple[OrderRank, str]:
        """Returns ranks an event record that nothing waited for yet, which was probably made on `stream`."""
        is_own_stream = self._stream[stream] == waiting and not self._is_alone
        is_marked = (stream, int(self.tails[row, stream])) in self._marks
        if is_own_stream or (is_marked and waiting):
            return UNRANKED, BY_TIME
        basis = OrderBasis.UNUSED_AND_MARKED if is_marked else OrderBasis.UNUSED
        # a program's waits are nested, those for collectives in their order
        turn = row if self._recordings.in_collective[row] else len(self._recordings.rows) - row
        return OrderRank(basis, turn), UNUSED

    def _known(self, wait: UnresolvedWait) -> int:
        """Returns the latest recording before a wait that another wait for the event was found to be for, -1 for none.

        A query right after a wait of the host asks about the event that was waited for.
        """
        rows = self._of_event[wait.event] if wait.event >= 0 else []
        if wait.is_query and wait.event < 0:
            previous = self._recordings.previous(wait.call_row)
            rows = self._of_call[previous] if self._recordings.holds_host(previous) else []
        time = self._process.start(wait.call_row)
        return max((row for row in rows if self._recordings.time[row] < time), default=-1)

    def _in_use(self, row: int, wait: UnresolvedWait, there: _Before) -> tuple[int, ...]:
        """Returns the streams that a recording may be on, the likeliest first, those whose data is used before others.

        No stream waits for itself, nor is it told twice to wait for the same work, unless there is no other.
        """
        streams, waiting = self._recordings.streams[row], wait.blocked[0].stream
        if waiting is None:
            return self._numbers(stream for stream in streams if stream not in self._waiting[wait.event])
        if self._is_alone:
            return (self._number[waiting],)
        if row == there.right_before or wait.event >= 0:
            streams = [stream for stream in streams if stream != waiting and stream not in self._waiting[wait.event]]
        likely = [stream for stream in there.origins if stream in streams]
        numbers = self._numbers(dict.fromkeys([*likely, *streams]))
        return tuple(one for one in numbers if (waiting, int(self.tails[row, one])) not in self._told)

    def _whose_data(self, call: int, waiting: StreamKey) -> list[StreamKey]:
        """Returns the streams whose data the waiting one uses between this wait and its next one, and had not been told
        to wait for before.
        """
        time, waits = self._process.start(call), self._waits_of[waiting]
        positions = self._positions_of(waiting)
        position = self._queues.position(waiting, time)
        # several waits with nothing in between hold the same work up
        before, after = bisect_left(positions, position) - 1, bisect_right(positions, position)
        until = positions[after] if after < len(positions) else len(self._queues.rows[waiting])
        rows = self._queues.rows[waiting][position : min(until, position + TRIED)]
        return self._process.origins.streams(rows, waits[before] if before >= 0 else NEVER, time)

    def _positions_of(self, waiting: StreamKey) -> list[int]:
        """Returns how much had been submitted to a stream at each of its waits."""
        if waiting not in self._positions:
            waits = self._waits_of[waiting]
            self._positions[waiting] = [self._queues.position(waiting, time) for time in waits]
        return self._positions[waiting]

    def _numbers(self, streams: Iterable[StreamKey]) -> tuple[int, ...]:
        """Returns the numbers of those streams among which waits are looked for."""
        return tuple(self._number[stream] for stream in streams if stream in self._number)

    def _itself(self, wait: UnresolvedWait) -> Option:
        """Returns what the streams had been given when the wait was called; right for a stream that is given a
        collective.
        """
        recordings = self._recordings
        streams = self._numbers(recordings.streams_at(wait.call_row, wait.blocked[0].stream))
        ranked = wait.of_stream or (not recordings.rows and recordings.is_in_collective(wait.call_row))
        rank = OrderRank(OrderBasis.STREAM_IN_USE) if ranked and streams else UNRANKED
        how = STREAM if wait.of_stream else IN_USE
        return Option(-1, 0, rank, streams, how)
