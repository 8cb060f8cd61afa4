"""Infers what waits are for where the trace does not say: which stream is awaited, and up to when its work.

The same call at the same call site of every step waits for the same. What the blocked work started, or returned, right
after tells which event record that was; else the order of the calls does. What ended after the blocked work went on in
any step is out of the question.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.linked import Provenance
from ...schema.traces import NEVER
from ..submissions import EventRecord, Process, StreamKey, StreamTails
from .candidates import BY_TIME, Candidates, Option
from .resolved_waits import findings
from .timing_scorer import TimingScorer
from .unresolved_waits import BlockedWork, UnresolvedWait


class InferredSource(NamedTuple):
    """What a wait is for, and which stream it holds up, None for the host."""

    recording: EventRecord
    stream: StreamKey | None


class _Ends(NamedTuple):
    """What each candidate means for the waits of a call site, by option, wait and stream.

    `recordings` is the event record that an option is for each wait, `tails` the last activity submitted before it,
    `ends` its end. `ranks` are the fields of `_RankOnStream` by option and stream, for the likeliest blocked work and
    for any other.
    """

    options: Sequence[Option]
    ranks: tuple[Int64, Int64]
    recordings: Int64
    tails: Int64
    ends: Int64


class _RankOnStream(NamedTuple):
    """The rank by the order of the calls of an option on a stream; smaller is likelier.

    That order speaks for the likeliest stream of the option, if that holds up the likeliest blocked work (`blocked`); all
    other streams (`is_other`) come behind.
    """

    is_other: int
    is_unranked: int
    blocked: int
    basis: int
    turn: int
    place: int


class _ScoredCandidate(NamedTuple):
    """How well an option on a stream fits the waits of a call site.

    It contradicts the times of `wrong_count` waits and explains those of `explained_count`; `fits` are the waits that
    it does not contradict.
    """

    wrong_count: int
    explained_count: int
    rank: _RankOnStream
    option: int
    stream: int
    fits: Bool
    blocked: BlockedWork

    def badness(self) -> tuple[int, int, _RankOnStream]:
        """Sorts candidates, the best first."""
        return self.wrong_count, -self.explained_count, self.rank


class InferredSources:
    """Guesses are made place by place, in the order in which the places are first come to, and counted in `counted`."""

    def __init__(self, process: Process, waits: list[UnresolvedWait]) -> None:
        """`waits` are in the order of time."""
        self._process, self._waits = process, waits
        self._tails = StreamTails(process.queues)
        self._candidates = Candidates(process, self._tails, waits)
        self._ends = TimingScorer(process.activities, process.calls, process.evidence, self._tails, waits)
        self.counted = findings()
        self._found: dict[int, InferredSource] = {}

    def by_call(self) -> dict[int, InferredSource]:
        """Returns the guess for each waiting call for which one could be made."""
        waits = self._waits
        stream = [self._tails.number.get(wait.blocked[0].stream, -1) for wait in waits]
        same = self._process.places.of(
            [wait.call_row for wait in waits], stream, [int(wait.is_query) for wait in waits]
        )
        # what times speak for comes first: it takes recordings from what only the order of calls speaks for
        for by_order in (False, True):
            same = [place for place in same if not self._solve([waits[number] for number in place], by_order)]
        return self._found

    def among_busiest(self) -> list[int]:
        """Returns the waits that were looked for on some of the streams alone, as there are very many."""
        return [wait.call_row for wait in self._waits] if self._tails.leaves_out else []

    def cut_off(self) -> list[int]:
        """Returns the waits for which nothing was found among the recordings tried, but others lie further back."""
        return sorted(self._candidates.cut_off - set(self._found))

    def _solve(self, waits: list[UnresolvedWait], by_order: bool) -> bool:
        """Finds what all waits of a call site are for, and says whether it did.

        Without `by_order` only a candidate that times speak for is taken. Waits that the best candidate contradicts are
        solved one by one.
        """
        candidates = self._ends_of(waits)
        scored = (self._best(waits, candidates, turn) for turn in range(len(waits[0].blocked)))
        best = min((one for one in scored if one is not None), key=_ScoredCandidate.badness, default=None)
        if best is None or not (by_order or best.explained_count):
            return False
        sources = candidates.tails[best.option, :, best.stream]
        for number in np.flatnonzero((sources >= 0) & best.fits).tolist():
            recorded = int(candidates.recordings[best.option, number])
            self._take(waits[number], candidates.options[best.option], recorded, int(sources[number]), best)
        if len(waits) > 1:
            for number in np.flatnonzero((sources >= 0) & ~best.fits).tolist():
                self._solve([waits[number]], by_order=True)
        return True

    def _ends_of(self, waits: list[UnresolvedWait]) -> _Ends:
        """Returns the candidates for the waits of a call site, and by when the work that each stands for had ended."""
        options = self._candidates.of_place(waits)
        recordings = self._candidates.recordings(options, waits)
        at_calls = self._tails.before([self._process.start(wait.call_row) for wait in waits])
        is_call = np.array([option.kind < 0 for option in options])
        tails = np.where(is_call[:, None, None], at_calls, self._candidates.tails[recordings])
        return _Ends(options, self._ranks(options), recordings, tails, self._ends.of(tails))

    def _best(self, waits: list[UnresolvedWait], candidates: _Ends, turn: int) -> _ScoredCandidate | None:
        """Returns the best option and stream if the waits hold up the `turn`-th of what they may hold up, None where
        none is possible.
        """
        held, is_query = waits[0].blocked[turn], waits[0].is_query
        too_late, explained = self._ends.score(waits, candidates.ends, held)
        ranks = candidates.ranks[turn > 0]
        possible = (candidates.ends > NEVER).any(axis=1)
        possible &= (ranks[0] == 0) | ((explained > 0) & (not is_query))
        possible[:, ~self._candidates.streams_for(held.stream)] = False
        if not possible.any():
            return None
        wrong = np.asarray(too_late.sum(axis=1), np.int64)
        keys = [*ranks] if is_query else [wrong, -explained, *ranks]
        first = np.lexsort([key[possible] for key in reversed(keys)])[0]
        option, stream = np.argwhere(possible)[first].tolist()
        return _ScoredCandidate(
            int(wrong[option, stream]),
            int(explained[option, stream]),
            _RankOnStream(*ranks[:, option, stream].tolist())._replace(blocked=turn),
            option,
            stream,
            ~too_late[option, :, stream],
            held,
        )

    def _ranks(self, options: Sequence[Option]) -> tuple[Int64, Int64]:
        count = len(self._tails.streams)
        ranks = np.zeros((len(_RankOnStream._fields), len(options), count), np.int64)
        for number, option in enumerate(options):
            ranks[:, number] = np.array(_RankOnStream(1, not option.rank.is_known, 0, *option.rank, count))[:, None]
            for place, stream in enumerate(option.streams):
                ranks[-1, number, stream] = place
        of_likeliest = ranks.copy()
        for number, option in enumerate(options):
            if option.rank.is_known:
                of_likeliest[:, number, option.streams[0]] = _RankOnStream(0, 0, 0, *option.rank, 0)
        return of_likeliest, ranks

    def _take(self, wait: UnresolvedWait, option: Option, recorded: int, source: int, answer: _ScoredCandidate) -> None:
        """Notes what a wait was found to be for."""
        stream, held = answer.stream, answer.blocked
        target, call = wait.target(held), wait.call_row
        if target >= 0:
            self._ends.explained(target, source)
        if option.kind >= 0:
            call = self._process.recordings.rows[recorded]
            self._candidates.note(wait, recorded, stream, source, held.stream)
        by_order = not answer.rank.is_other
        found = Provenance.CALL_ORDER if by_order else Provenance.TIMING
        recording = EventRecord(call, self._process.start(call), self._tails.streams[stream], found)
        self._found[wait.call_row] = InferredSource(recording, held.stream)
        self.counted[option.how if by_order else BY_TIME].append(wait.call_row)
