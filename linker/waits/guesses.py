"""Guesses what waits are for where the trace does not say: which stream is awaited, and up to when its work.

The same call in the same place of every step waits for the same. What was recorded there is told by what the calls held up started,
or returned, right after; else by the order of the calls. What ended after they went on in any step is out of the question.
"""

from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.linked import Found
from ...schema.traces import NEVER
from ..submissions import Process, Recording, StreamKey, Tails
from .candidates import BY_TIME, LEAST, Candidates, Option
from .found_waits import findings
from .met_ends import MetEnds
from .unnamed_waits import Held, Unnamed


class Guess(NamedTuple):
    """What a wait is for, and which stream it holds up, None for the host."""

    recording: Recording
    stream: StreamKey | None


class _Answer(NamedTuple):
    """How well an option fits the waits of a place: the smaller the first three fields, the better.

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


class Guesses:
    """Guesses are made place by place, in the order in which the places are first come to, and counted in `counted`."""

    def __init__(self, process: Process, waits: list[Unnamed]) -> None:
        """`waits` are in the order of time."""
        self._process, self._waits = process, waits
        self._tails = Tails(process.queues)
        self._candidates = Candidates(process, self._tails, waits)
        self._ends = MetEnds(process.activities, process.calls, process.evidence, self._tails, waits)
        self.counted = findings()
        self._found: dict[int, Guess] = {}

    def by_call(self) -> dict[int, Guess]:
        """The guess for each waiting call for which one could be made."""
        waits = self._waits
        stream = [self._tails.number.get(wait.held[0].stream, -1) for wait in waits]
        same = self._process.places.of([wait.call_row for wait in waits], stream, [int(wait.asks) for wait in waits])
        # what times speak for comes first: it takes recordings from what only the order of calls speaks for
        for by_order in (False, True):
            same = [place for place in same if not self._solve([waits[number] for number in place], by_order)]
        return self._found

    def among_busiest(self) -> list[int]:
        """The waits that were looked for on some of the streams alone, as there are very many."""
        return [wait.call_row for wait in self._waits] if self._tails.leaves_out else []

    def cut_off(self) -> list[int]:
        """The waits for which nothing was found among the recordings tried, but others lie further back."""
        return sorted(self._candidates.cut_off - set(self._found))

    def _solve(self, waits: list[Unnamed], by_order: bool) -> bool:
        """Finds what all waits of a place are for, unless only their order would tell; what this contradicts is looked at by itself."""
        options = self._candidates.of_place(waits)
        recordings = self._candidates.recordings(options, waits)
        at_calls = self._tails.before([self._process.start(wait.call_row) for wait in waits])
        is_call = np.array([option.kind < 0 for option in options])
        tails = np.where(is_call[:, None, None], at_calls, self._candidates.tails[recordings])
        ends = self._ends.of(tails)
        by_turn = self._ranks(options, len(waits[0].held))
        answers = [self._best(waits, rank, ends, held) for rank, held in zip(by_turn, waits[0].held, strict=True)]
        found = [answer for answer in answers if answer is not None]
        best = min(found, key=itemgetter(slice(3)), default=None)
        if best is None or not (by_order or best.unspoken):
            return False
        contradicted = []
        for number, wait in enumerate(waits):
            source = int(tails[best.option, number, best.stream])
            if source >= 0 and best.fits[number]:
                self._take(wait, options[best.option], int(recordings[best.option, number]), source, best)
            elif source >= 0:
                contradicted.append(wait)
        for wait in contradicted if len(waits) > 1 else []:
            self._solve([wait], by_order=True)
        return True

    def _best(self, waits: list[Unnamed], rank: Int64, ends: Int64, held: Held) -> _Answer | None:
        """The best option and stream for one of the streams that may be held up."""
        (over, spoken), asks = self._ends.judged(waits, ends, held), waits[0].asks
        allowed = (ends > NEVER).any(axis=1) & ((rank < LEAST) | ((spoken > 0) & (not asks)))
        allowed[:, ~self._candidates.streams_for(held.stream)] = False
        if not allowed.any():
            return None
        wrong = np.asarray(over.sum(axis=1), np.int64)
        keys = (rank,) if asks else (rank, -spoken, wrong)
        place = np.argwhere(allowed)[np.lexsort([key[allowed] for key in keys])[0]]
        option, stream = int(place[0]), int(place[1])
        contradicted, unspoken, order = (int(column[option, stream]) for column in (wrong, -spoken, rank))
        return _Answer(contradicted, unspoken, order, option, stream, ~over[option, :, stream], held)

    def _ranks(self, options: list[Option], turns: int) -> Int64:
        """How far each option on each stream is from the likeliest by the order of calls, for each of the streams that may be held up.

        From LEAST on only times speak for it.
        """
        count = len(self._tails.streams)
        rank = np.full((len(options), count), LEAST, np.int64)
        for number, option in enumerate(options):
            rank[number] += option.rank * count
            for place, stream in enumerate(option.streams):
                rank[number, stream] -= count - place
        by_turn: Int64 = rank + LEAST * np.arange(turns)[:, None, None]
        for number, option in enumerate(options):
            if option.rank < LEAST:
                by_turn[0, number, option.streams[0]] = option.rank
        return by_turn

    def _take(self, wait: Unnamed, option: Option, recorded: int, source: int, answer: _Answer) -> None:
        """Notes what a wait was found to be for."""
        stream, held = answer.stream, answer.held
        target, call = wait.target(held), wait.call_row
        if target >= 0:
            self._ends.explained(target, source)
        if option.kind >= 0:
            call = self._process.recordings.rows[recorded]
            self._candidates.note(wait, recorded, stream, source, held.stream)
        by_order = answer.rank < LEAST
        found = Found.CALL_ORDER if by_order else Found.TIMING
        recording = Recording(call, self._process.start(call), self._tails.streams[stream], found)
        self._found[wait.call_row] = Guess(recording, held.stream)
        self.counted[option.how if by_order else BY_TIME].append(wait.call_row)
