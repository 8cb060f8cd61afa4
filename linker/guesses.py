"""What waits are for that the trace does not tell: the calls that wait in, for each a stream and up to when its work is awaited, out.

The same call in the same place of every step waits for the same. What was recorded there is told by what the calls held up started,
or returned, right after; else by the order of the calls. What ended after they went on in any step is out of the question.
"""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, Int64
from ..schema.linked import Activities, Calls, Found
from ..schema.machine import usual
from .data_origins import DataOrigins
from .events import Findings, Recording
from .evidence import NEVER, Evidence
from .places import Places
from .recordings import Recordings
from .streams import StreamKey, StreamQueues

CANDIDATES = 64
"""Recordings tried per wait, so that the search stays constant."""
LEAST = 1 << 40
"""The rank of what nothing but its times speaks for."""
FAR = 1 << 62


class Held(NamedTuple):
    """What a wait may hold up: the next activity of a stream; the host where `stream` is None."""

    stream: StreamKey | None
    target: int


class Unnamed(NamedTuple):
    """A wait of which the trace does not say what for. `held` is what it may hold up, the likeliest first.

    The host waits from `since` on, and goes on within `reach`. A call that just asks (`asks`) and goes on says nothing by its time; one
    `of_stream` waits for all that a stream was given so far.
    """

    call_row: int
    event: int
    held: tuple[Held, ...]
    since: int
    reach: int
    asks: bool = False
    of_stream: bool = False


class Guess(NamedTuple):
    """What a wait is for, and which stream it holds up."""

    recording: Recording
    stream: StreamKey | None


class _Answer(NamedTuple):
    """What fits the waits of a place best; the less the first three are the better.

    It contradicts `wrong` of them and explains `unspoken` less than none; `rank` is by the order of calls. `option` on `stream` holds
    `held` up, and `fits` these waits.
    """

    wrong: int
    unspoken: int
    rank: int
    option: int
    stream: int
    fits: Bool
    held: Held


class _Option(NamedTuple):
    """The `back`-th last recording of a kind before a wait (kind -1: the wait call itself).

    The lower its `rank` the likelier it is by the order of the calls, and on one of `streams`, the likeliest first.
    """

    kind: int
    back: int
    rank: int
    streams: tuple[int, ...]
    how: str


RIGHT_BEFORE = "event waits resolved to the recording right before"
UNUSED = "event waits resolved to an unused recording"
KNOWN = "waits for an event that another wait had found"
IN_USE = "waits before a collective resolved to the stream in use"
STREAM = "synchronisations resolved to the stream in use"
BY_TIME = "waits resolved to the work whose end they met"


@dataclass(slots=True)
class _Times:
    """Of each wait of a place: when what it holds up was free to go on otherwise, was due, and went on."""

    freed: Int64
    due: Int64
    until: Int64


class Guesses:
    """Guesses are made place by place, in the order in which the places are first come to, and counted in `counted`."""

    def __init__(
        self,
        calls: Calls,
        activities: Activities,
        queues: StreamQueues,
        recordings: Recordings,
        evidence: Evidence,
        origins: DataOrigins,
        awaited: list[int],
        named: set[StreamKey],
    ) -> None:
        """`awaited` are calls whose recordings are known to be awaited, `named` the streams that a program can record on."""
        self._origins = origins
        self._waits_of: dict[StreamKey | None, list[int]] = defaultdict(list)
        self._calls, self._activities, self._queues = calls, activities, queues
        self._recordings, self._evidence = recordings, evidence
        self._streams = list(queues.rows)
        self._is_alone = len(self._streams) == 1
        self._named: Bool = np.array([key in named for key in self._streams], np.bool_)
        self._number: dict[StreamKey | None, int] = {key: number for number, key in enumerate(self._streams)}
        self._tails = self._tails_at([calls.start[row] for row in recordings.rows])
        self._end = np.append(activities.end, NEVER)
        taken = set(awaited)
        self._used = {number: -1 for number, row in enumerate(recordings.rows) if row in taken}
        self._marks: set[tuple[int, int]] = set()
        self._told: set[tuple[StreamKey | None, int]] = set()
        self._waiting: dict[int, set[StreamKey | None]] = defaultdict(set)
        self._of_event: dict[int, list[int]] = defaultdict(list)
        self._of_call: dict[int, list[int]] = defaultdict(list)
        self._reach = evidence.gap
        self.counted: Findings = defaultdict(list)
        self._found: dict[int, Guess] = {}

    def of(self, waits: list[Unnamed], places: Places) -> dict[int, Guess]:
        """The guesses by call; `waits` are in the order of time."""
        self._reach = max(self._reach, self._usual_reach(waits))
        for wait in waits:
            self._waiting[wait.event].add(wait.held[0].stream)
            self._waits_of[wait.held[0].stream].append(int(self._calls.start[wait.call_row]))
        self._waiting[-1] = set()
        stream = [self._number.get(wait.held[0].stream, -1) for wait in waits]
        same = places.of([wait.call_row for wait in waits], stream, [int(wait.asks) for wait in waits])
        # what times speak for comes first: it takes recordings from what only the order of calls speaks for
        for by_order in (False, True):
            same = [place for place in same if not self._solve([waits[number] for number in place], by_order)]
        return self._found

    def _tails_at(self, times: list[int]) -> Int64:
        """For each time the last activity submitted to each stream before, -1 for none."""
        tails = np.full((len(times), len(self._streams)), -1, np.int64)
        for number, key in enumerate(self._streams):
            rows = np.array([-1, *self._queues.rows[key]], np.int64)
            tails[:, number] = rows[np.searchsorted(self._queues.submitted[key], times)]
        return tails

    def _usual_reach(self, waits: list[Unnamed]) -> int:
        """How long after the end of another stream's work those start that nothing else held up."""
        late = [
            (wait.call_row, held.target, self._number[held.stream])
            for wait in waits
            for held in wait.held[:1]
            if held.stream is not None
            and held.target >= 0
            and self._start(held.target) > self._evidence.due[held.target]
        ]
        if not late:
            return 0
        call, target, stream = np.array(late, np.int64).T
        ends = self._end[self._tails_at(self._calls.start[call].tolist())]
        ends[np.arange(len(call)), stream] = NEVER
        start = self._activities.start[target]
        ends[ends > start[:, None]] = NEVER
        latest = ends.max(axis=1, initial=NEVER)
        freed = np.array(self._evidence.freed, np.int64)[target]
        known = latest > freed
        return usual(start[known] - latest[known]).most if known.any() else 0

    def _start(self, activity: int) -> int:
        return int(self._activities.start[activity])

    # one place

    def _solve(self, waits: list[Unnamed], by_order: bool) -> bool:
        """Finds what all waits of a place are for, unless only their order would tell; what this contradicts is looked at by itself."""
        options = self._options(waits)
        rows = np.stack([self._rows(option, waits) for option in options])
        known = np.append(self._tails, np.full((1, len(self._streams)), -1, np.int64), axis=0)
        at_calls = self._tails_at([int(self._calls.start[wait.call_row]) for wait in waits])
        tails = np.where(np.array([option.kind < 0 for option in options])[:, None, None], at_calls, known[rows])
        held = waits[0].held
        answers = [self._best(waits, options, self._end[tails], one, turn) for turn, one in enumerate(held)]
        found = [answer for answer in answers if answer is not None]
        best = min(found, key=itemgetter(slice(3)), default=None)
        if best is None or not (by_order or best.unspoken):
            return False
        contradicted = []
        for number, wait in enumerate(waits):
            source = int(tails[best.option, number, best.stream])
            if source >= 0 and best.fits[number]:
                self._take(wait, options[best.option], int(rows[best.option, number]), source, best)
            elif source >= 0:
                contradicted.append(wait)
        for wait in contradicted if len(waits) > 1 else []:
            self._solve([wait], by_order=True)
        return True

    def _best(self, waits: list[Unnamed], options: list[_Option], ends: Int64, held: Held, turn: int) -> _Answer | None:
        """The best option and stream for one of the streams that may be held up."""
        over, spoken = self._judged(waits, ends, held)
        rank = self._ranks(options, turn)
        allowed = (ends > NEVER).any(axis=1) & ((rank < LEAST) | ((spoken > 0) & (not waits[0].asks)))
        allowed[:, ~self._named] = False
        if held.stream in self._number and not self._is_alone:
            allowed[:, self._number[held.stream]] = False
        if not allowed.any():
            return None
        wrong = np.asarray(over.sum(axis=1), np.int64)
        keys = (rank,) if waits[0].asks else (rank, -spoken, wrong)
        place = np.argwhere(allowed)[np.lexsort([key[allowed] for key in keys])[0]]
        option, stream = int(place[0]), int(place[1])
        contradicted, unspoken, order = (int(column[option, stream]) for column in (wrong, -spoken, rank))
        return _Answer(contradicted, unspoken, order, option, stream, ~over[option, :, stream], held)

    def _judged(self, waits: list[Unnamed], ends: Int64, held: Held) -> tuple[Bool, Int64]:
        """Which ends are too late for each wait; how many waits each option and stream explains, 0 if fewer than half of those held up."""
        times, on_host = self._times(waits, held), held.stream is None
        slack = self._evidence.doubt if on_host else self._evidence.rounding
        reach = np.array([wait.reach if on_host else self._reach for wait in waits]) + slack
        late = times.until > times.due
        latest = times.until + (self._evidence.ahead if on_host else slack)
        over: Bool = ends > latest[None, :, None]
        explains = late[None, :, None] & ~over & (ends > (times.freed - slack * on_host)[None, :, None])
        explains &= ends >= (times.until - reach)[None, :, None]
        spoken = np.asarray(explains.sum(axis=1), np.int64)
        spoken[2 * spoken < int(late.sum())] = 0
        return over, spoken

    def _ranks(self, options: list[_Option], turn: int) -> Int64:
        """How far each option on each stream is from the likeliest by the order of calls; from LEAST on only times speak for it."""
        rank = np.full((len(options), len(self._streams)), LEAST * (1 + turn), np.int64)
        for number, option in enumerate(options):
            rank[number] += option.rank * len(self._streams)
            for place, stream in enumerate(option.streams):
                rank[number, stream] -= len(self._streams) - place
            if option.rank < LEAST and not turn:
                rank[number, option.streams[0]] = option.rank
        return rank

    def _times(self, waits: list[Unnamed], held: Held) -> _Times:
        rows = []
        for wait in waits:
            target = self._target(wait, held)
            if held.stream is None:
                due = NEVER if wait.asks else wait.since + wait.reach
                rows.append((wait.since, due, int(self._calls.end[wait.call_row])))
            elif target >= 0:
                rows.append((self._evidence.freed[target], self._evidence.due[target], self._start(target)))
            else:
                rows.append((NEVER, FAR, FAR))
        freed, due, until = np.array(rows, np.int64).T
        return _Times(freed, due, until)

    @staticmethod
    def _target(wait: Unnamed, held: Held) -> int:
        """The activity that a wait of the place holds up on that stream, -1 for none."""
        return next((one.target for one in wait.held if one.stream == held.stream), -1)

    def _take(self, wait: Unnamed, option: _Option, row: int, source: int, answer: _Answer) -> None:
        """Notes what a wait was found to be for."""
        stream, held = answer.stream, answer.held
        target = self._target(wait, held)
        if target >= 0:
            self._evidence.explained(target, int(self._end[source]), self._reach)
        call = self._recordings.rows[row] if option.kind >= 0 else wait.call_row
        if option.kind >= 0:
            self._used[row] = wait.event
            self._marks.add((stream, source))
            self._told.add((held.stream, source))
            self._of_event[wait.event].append(row)
            self._of_call[wait.call_row].append(row)
        by_order = answer.rank < LEAST
        found = Found.CALL_ORDER if by_order else Found.TIMING
        recording = Recording(call, int(self._calls.start[call]), self._streams[stream], found)
        self._found[wait.call_row] = Guess(recording, held.stream)
        self.counted[option.how if by_order else BY_TIME].append(wait.call_row)

    # the candidates of a wait

    def _rows(self, option: _Option, waits: list[Unnamed]) -> Int64:
        """The recording that an option is for each wait, -1 for none."""
        if option.kind < 0:
            return np.full(len(waits), -1, np.int64)
        if option.how == RIGHT_BEFORE:
            return np.array([self._recordings.right_before(wait.call_row) for wait in waits], np.int64)
        kind = self._recordings.kinds[option.kind]
        place = np.searchsorted(kind.time, [self._calls.start[wait.call_row] for wait in waits]) - option.back
        return np.where(place >= 0, kind.row[np.maximum(place, 0)], -1)

    def _options(self, waits: list[Unnamed]) -> list[_Option]:
        """Those of the first wait of a place of which the order of the calls speaks for one."""
        for wait in waits:
            options = self._options_of(wait)
            if any(option.rank < LEAST for option in options):
                return options
        return self._options_of(waits[0])

    def _options_of(self, wait: Unnamed) -> list[_Option]:
        """The recordings before a wait, ranked by what the order of the calls says, and at last the wait call itself."""
        recordings, time = self._recordings, int(self._calls.start[wait.call_row])
        if wait.of_stream:
            return [self._itself(wait)]
        until = bisect_left(recordings.time, time)
        first = max(0, until - CANDIDATES)
        free = self._free(wait, range(first, until))
        known, before = self._known(wait, time), recordings.right_before(wait.call_row)
        seen: dict[int, int] = {}
        options = []
        for row in reversed(range(first, until)):
            kind = recordings.kind[row]
            seen[kind] = seen.get(kind, 0) + 1
            if not self._is_of_other(row, wait.event):
                streams = self._in_use(row, wait)
                rank, how = self._rank(row, wait, streams, free, known, before)
                options.append(_Option(kind, seen[kind], rank, streams, how))
        return [*options, self._itself(wait)]

    def _free(self, wait: Unnamed, rows: range) -> set[int]:
        """Recordings that nothing waited for yet; those of a collective are for waits of collectives, if there are others."""
        unused = [row for row in rows if row not in self._used]
        programs = [row for row in unused if not self._recordings.in_collective[row]]
        return set(programs if programs and not self._recordings.is_in_collective(wait.call_row) else unused)

    def _is_of_other(self, row: int, event: int) -> bool:
        """Whether a recording was found to be of another event than this one."""
        owner = self._used.get(row, event)
        return owner != event and min(owner, event) >= 0

    def _rank(
        self, row: int, wait: Unnamed, streams: tuple[int, ...], free: set[int], known: int, before: int
    ) -> tuple[int, str]:
        """How far a recording is from the likeliest one by the order of the calls, LEAST for one that it does not speak for."""
        recordings = self._recordings
        if not streams:
            return LEAST, BY_TIME
        is_free, count = row not in self._used, len(recordings.rows)
        if (
            known >= 0
            and recordings.kind[row] == recordings.kind[known]
            and (row == known or (row > known and is_free))
        ):
            return count + row if row == known else row, KNOWN
        if row == before and is_free and recordings.around(row) == recordings.around_call(wait.call_row):
            return 2 * count + row, RIGHT_BEFORE
        later = known < 0 or row > known
        own = wait.held[0].stream == self._streams[streams[0]] and not self._is_alone
        is_marked = (streams[0], int(self._tails[row, streams[0]])) in self._marks
        if row in free and later and not own and not (is_marked and wait.held[0].stream):
            # a program's waits are nested, those for collectives in their order
            turn = row if recordings.in_collective[row] else count - row
            return (5 if is_marked else 3) * count + turn, UNUSED
        return LEAST, BY_TIME

    def _known(self, wait: Unnamed, time: int) -> int:
        """The latest recording before `time` that another wait for the event was found to be for, -1 for none.

        A query right after a wait of the host asks about the event that was waited for.
        """
        rows = self._of_event[wait.event] if wait.event >= 0 else []
        if wait.asks and wait.event < 0:
            previous = self._recordings.previous(wait.call_row)
            rows = self._of_call[previous] if self._recordings.holds_host(previous) else []
        return max((row for row in rows if self._recordings.time[row] < time), default=-1)

    def _in_use(self, row: int, wait: Unnamed) -> tuple[int, ...]:
        """The streams that a recording may be on, the likeliest first.

        No stream waits for itself, nor is it told twice to wait for the same work, unless there is no other.
        """
        streams, waiting = self._recordings.streams[row], wait.held[0].stream
        if waiting is None:
            return tuple(self._number[stream] for stream in streams if stream not in self._waiting[wait.event])
        if self._is_alone:
            return (self._number[waiting],)
        if row == self._recordings.right_before(wait.call_row) or wait.event >= 0:
            streams = [stream for stream in streams if stream != waiting and stream not in self._waiting[wait.event]]
        likely = [stream for stream in self._whose_data(wait.call_row, waiting) if stream in streams]
        numbers = [self._number[stream] for stream in dict.fromkeys([*likely, *streams])]
        return tuple(one for one in numbers if (waiting, int(self._tails[row, one])) not in self._told)

    def _whose_data(self, call: int, waiting: StreamKey) -> list[StreamKey]:
        """The streams whose data the waiting one uses between this wait and its next one, and had not been told to wait for before."""
        time, waits = int(self._calls.start[call]), self._waits_of[waiting]
        position = self._queues.position(waiting, time)
        place = bisect_left(waits, time)
        # several waits with nothing in between hold the same work up
        before = (at for at in reversed(waits[:place]) if self._queues.position(waiting, at) < position)
        after = (at for at in waits[place:] if self._queues.position(waiting, at) > position)
        until = self._queues.position(waiting, next(after, FAR))
        rows = self._queues.rows[waiting][position : min(until, position + CANDIDATES)]
        return self._origins.streams(rows, next(before, NEVER), time)

    def _itself(self, wait: Unnamed) -> _Option:
        """What the streams had been given when the wait was called; right for a stream that is given a collective."""
        recordings = self._recordings
        streams = recordings.streams_at(wait.call_row, wait.held[0].stream)
        ranked = wait.of_stream or (not recordings.rows and recordings.is_in_collective(wait.call_row))
        how = STREAM if wait.of_stream else IN_USE
        return _Option(
            -1, 0, LEAST - 1 if ranked and streams else LEAST, tuple(self._number[one] for one in streams), how
        )
