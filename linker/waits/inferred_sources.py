"""Infers what waits are for where the trace does not say: the same call at one site of every step waits for the same.
An event record is inferred if its work ended right before the blocked work started; else by the order of the calls.
Work that ended after the blocked work went on, in any step, cannot have been awaited.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, cumcount
from ...schema.linked import FOREVER, NEVER, Provenance
from ...schema.machine import latency_stats
from ...schema.reasons import Reason
from .candidates import NONE, REASONS, TRIED, Candidates, Options, Rank
from .process import EventRecord, FoundCalls, Process
from .submissions import MOST_STREAMS, StreamKey, StreamTails
from .unresolved_waits import UnresolvedWait

AT_ONCE = 1 << 20
"""Ends compared at a time."""
SAMPLE = 256
"""Calls of a call site for which all event records are tried, so that memory does not grow with their number."""
Place = tuple[int, int, int]
"""The number of what is blocked, an option's row of tails, and a stream."""
EndsMet = tuple[int, int, tuple[int, ...], int, int]
"""The number of what is blocked, a stream, rows of tails whose ends on it may explain when late work went on, that work
(-1 for the host), and the earliest of such ends (ns).
"""


class WaitTimes(NamedTuple):
    """When the awaited work ended at the latest (ns), by what a wait blocks, and which ends the wait can have met."""

    latest_ns: list[int]
    met: list[EndsMet]


class TimingScorer:
    """Compares ends (ns) with when blocked work went on, usually `max_reaction_ns` after an end at most."""

    def __init__(self, process: Process, tails: StreamTails, waits: Sequence[UnresolvedWait]) -> None:
        self._calls, self._timing = process.calls, process.timing
        self._start, self.end = process.activities.start, np.append(process.activities.end, NEVER)
        self.end_at = self.end.data
        blocked = ((wait.call_row, tails.number.get(wait.waiting, -1), wait.blocked[wait.waiting]) for wait in waits)
        expected = self._timing.expected_start_ns
        late = [row for row in blocked if row[2] >= 0 and self._start[row[2]] > expected[row[2]]]
        call, stream, target = np.array(late, np.int64).reshape(-1, 3).T
        ends, start = self.end[tails.before(self._calls.start[call].tolist())], self._start[target]
        ends[np.arange(len(call)), stream] = NEVER
        ends[ends > start[:, None]] = NEVER
        latest = ends.max(axis=1, initial=NEVER)
        explains = latest > np.asarray(self._timing.ready_ns)[target]
        usual = latency_stats(start[explains] - latest[explains]).upper
        self.max_reaction_ns = max(self._timing.max_gap_ns, usual)

    def score(self, waits: list[UnresolvedWait], ends: Int64, blocked: Sequence[StreamKey | None]) -> list[Int64]:
        """Returns by `blocked` and wait the latest ends, and by place how many waits ends explain, none if too few."""
        # by what is measured, what is blocked, and wait
        times = self._times([(wait, stream) for stream in blocked for wait in waits])
        times = times.reshape(len(times), len(blocked), len(waits))
        step = max(1, AT_ONCE // max(1, ends.size))
        parts = [self._score(times[:, at : at + step], ends) for at in range(0, len(blocked), step)]
        return [*map(np.concatenate, zip(*parts, strict=True))]

    def times(self, waits: Sequence[UnresolvedWait], candidates: Candidates) -> dict[int, WaitTimes]:
        """Returns, by call, what times say of each wait alone."""
        of_wait = np.repeat(np.arange(len(waits)), [len(wait.blocked) for wait in waits])
        times = self._times([(wait, stream) for wait in waits for stream in wait.blocked])
        _, ready_ns, expected_start_ns, resumed_ns, reaction_ns, lead_ns = times
        latest_ns, first = resumed_ns + lead_ns, np.searchsorted(of_wait, np.arange(len(waits) + 1)).tolist()
        of_each = [WaitTimes(latest_ns[since:until].tolist(), []) for since, until in pairwise(first)]
        late, earliest_ns = resumed_ns > expected_start_ns, np.maximum(ready_ns, resumed_ns - reaction_ns - 1) + 1
        own = np.array([candidates.number.get(stream, -1) for wait in waits for stream in wait.blocked], np.int64)
        columns = (column[late] for column in (of_wait, cumcount(of_wait), times[0], own, earliest_ns, latest_ns))
        of_wait, number, target, own, earliest_ns, latest_ns = columns
        last = np.array([before.start + 1 for before in candidates.before.values()], np.int64)[of_wait]
        call = candidates.no_record + 1 + of_wait
        for stream in np.flatnonzero(candidates.is_launched).tolist():
            ends = self.end[candidates.tails[:, stream]]
            recorded, at_call = ends[: candidates.no_record], ends[call]
            since = np.maximum.accumulate(recorded).searchsorted(earliest_ns)
            until = np.minimum.accumulate(recorded[::-1])[::-1].searchsorted(latest_ns, side="right")
            since, until = np.maximum(since, last - TRIED), np.minimum(until, last)
            is_met = (since < until) | ((earliest_ns <= at_call) & (at_call <= latest_ns))
            is_met &= (own != stream) | candidates.is_single_stream
            columns = (column[is_met].tolist() for column in (of_wait, number, since, until, call, target, earliest_ns))
            for wait, blocked, begin, end, itself, activity, earliest in zip(*columns, strict=True):
                of_each[wait].met.append((blocked, stream, (*range(begin, end), itself), activity, earliest))
        return {wait.call_row: times for wait, times in zip(waits, of_each, strict=True)}

    def explained(self, times: WaitTimes, options: Options) -> dict[Place, int]:
        """Returns where work ended that explains when what a wait may block went on."""
        timing, start, end = self._timing, self._start.data, self.end_at
        tails, places = options.tails, dict[Place, int]()
        for blocked, stream, rows, target, earliest_ns in times.met:
            since_ns, latest_ns = earliest_ns, times.latest_ns[blocked]
            if target >= 0:
                since_ns = max(earliest_ns, timing.ready_ns[target] + 1)
                if start[target] <= timing.expected_start_ns[target]:
                    continue
            for row in rows:
                if since_ns <= end[tails[row, stream]] <= latest_ns and row in options:
                    places[blocked, row, stream] = 1
        return places

    def _times(self, blocked: Sequence[tuple[UnresolvedWait, StreamKey | None]]) -> Int64:
        """Returns blocked work (-1 for none or the host), when it was ready, expected and started, how long it takes to
        go on, and clocks' error.
        """
        # the host, None, is blocked by no activity
        target = np.array([wait.blocked.get(stream, -1) for wait, stream in blocked], np.int64)
        quantum, follows = self._timing.timestamp_quantum_ns, np.flatnonzero(target >= 0)
        usual = np.array([-1, NEVER, FOREVER, FOREVER, self.max_reaction_ns + quantum, quantum], np.int64)
        times = np.repeat(usual[:, None], len(blocked), axis=1)
        times[0] = target
        for row, column in enumerate((self._timing.ready_ns, self._timing.expected_start_ns, self._start), 1):
            times[row, follows] = np.asarray(column)[target[follows]]
        for at in [at for at, (_, stream) in enumerate(blocked) if stream is None]:
            wait, _ = blocked[at]
            expected_ns, returned_ns = NEVER if wait.is_query else wait.expected_ns, self._calls.end[wait.call_row]
            times[1:, at] = NEVER, expected_ns, returned_ns, wait.reaction_ns, wait.lead_ns
        return times

    def _score(self, times: Int64, ends: Int64) -> tuple[Int64, Int64]:
        _, ready_ns, expected_start_ns, resumed_ns, reaction_ns, lead_ns = times[:, :, None, :, None]
        late, latest = resumed_ns > expected_start_ns, resumed_ns + lead_ns
        explains = late & (ends <= latest) & (ends > ready_ns) & (ends >= resumed_ns - reaction_ns)
        explained_count: Int64 = explains.sum(axis=2)
        explained_count[2 * explained_count < late.sum(axis=2)] = 0
        return latest[:, 0, :, 0], explained_count


class _CallSite:
    """The waits of a call site, and how options fit them: places are what is blocked, an option's row, and a stream."""

    def __init__(
        self, waits: list[UnresolvedWait], options: Options, scorer: TimingScorer, times: dict[int, WaitTimes]
    ) -> None:
        self.waits, self.options, self._end, self._rows = waits, options, scorer.end_at, dict[int, list[int]]()
        if len(waits) == 1:
            of_wait = times[waits[0].call_row]
            self._latest_ns: list[int] | Int64 = of_wait.latest_ns
            self.explained = scorer.explained(of_wait, options)
            return
        rows = options.of_waits(waits)
        self._rows = dict(zip(options.rows, rows.tolist(), strict=True))
        self._ends = scorer.end[np.asarray(options.tails)[rows]]
        self._latest_ns, explained = scorer.score(waits, self._ends, [*waits[0].blocked])
        places = zip(*(column.tolist() for column in explained.nonzero()), strict=True)
        self.explained = {
            (blocked, options.rows[at], of): int(explained[blocked, at, of]) for blocked, at, of in places
        }

    def rows(self, row: int) -> Sequence[int]:
        """Returns the row of tails that an option means for each wait."""
        return self._rows.get(row, (row,))

    def fits(self, blocked: int, row: int, stream: int) -> list[bool]:
        """Returns which waits work did not end too late for."""
        if not self._rows:
            return [self._end[self.options.tails[row, stream]] <= self._latest_ns[blocked]]
        ends = self._ends[self.options.rows.index(row), :, stream]
        return [*map(bool, ends <= self._latest_ns[blocked])]

    def choices(self, candidates: Candidates) -> Iterator[tuple[int, ...]]:
        """Yields how possible places fit, the least best: first by order till that is best, then what explains."""
        tails, explained = candidates.tails_at, {} if self.waits[0].is_query else self.explained
        goal, of_any = (0, -max(explained.values(), default=0), False), candidates.possible_streams[None]
        possible = [candidates.possible_streams.get(stream, of_any) for stream in self.waits[0].blocked]
        for row, rank in self.options.likeliest():
            for stream in rank.streams:
                if possible[0][stream] and any(tails[of_wait, stream] >= 0 for of_wait in self.rows(row)):
                    yield (choice := self._choice(0, row, stream, rank))
                    if choice[:3] == goal:
                        return
            if explained and not self._rows:
                # whatever explains the only wait is better
                break
        for blocked, row, stream in explained:
            if possible[blocked][stream]:
                yield self._choice(blocked, row, stream, self.options.rank(row))

    def _choice(self, blocked: int, row: int, stream: int, rank: Rank) -> tuple[int, ...]:
        wrong = count = 0
        if not self.waits[0].is_query:
            wrong = self.fits(blocked, row, stream).count(False)
            count = self.explained.get((blocked, row, stream), 0)
        # another stream than the likeliest one is better than one whose work ended too late
        order = rank.streams.index(stream) if stream in rank.streams else MOST_STREAMS
        by_order = not (order or blocked) and rank.basis < NONE
        likely = rank.basis == NONE, blocked, rank.basis, rank.position, order
        return wrong, -count, not by_order, *likely, row == self.options.itself, -row, stream


class _Choice(NamedTuple):
    """The option and stream that fit the waits of a call site best, how many they explain, and which they fit."""

    row: int
    stream: int
    basis: int
    waiting: StreamKey | None
    explained_count: int
    by_order: bool
    rows: Sequence[int]
    fits: list[bool]


class InferredSources:
    """Infers sources by call site, in the order of first waits; `untried` waits have more options than were tried."""

    def __init__(self, process: Process, waits: list[UnresolvedWait], guessed: FoundCalls) -> None:
        """`waits` are in the order of time."""
        self._process, self._waits, self._guessed = process, waits, guessed
        self._tails = StreamTails(process.queues)
        self._candidates = Candidates(process, self._tails, waits)
        self._scorer = TimingScorer(process, self._tails, waits)
        self._times = self._scorer.times(waits, self._candidates)
        self.untried: FoundCalls = {}
        self._inferred: dict[int, EventRecord] = {}

    def by_call(self) -> dict[int, EventRecord]:
        """Returns the inferred source of each waiting call that has one."""
        waits = self._waits
        calls, is_query = [wait.call_row for wait in waits], [int(wait.is_query) for wait in waits]
        stream = [self._tails.number.get(wait.waiting, -1) for wait in waits]
        sites = self._process.call_sites.groups(calls, stream, is_query)
        # what times show comes first: it uses up event records that only the order of the calls would favour
        for by_order in (False, True):
            sites = [site for site in sites if not self._infer([waits[number] for number in site], by_order)]
        cut_off = self._candidates.cut_off - set(self._inferred)
        self.untried[Reason.BEYOND_LAST_RECORDS.of(TRIED)] = sorted(cut_off)
        self.untried[Reason.BEYOND_BUSIEST_STREAMS.of(MOST_STREAMS)] = calls if self._tails.is_partial else []
        return self._inferred

    def _infer(self, waits: list[UnresolvedWait], by_order: bool) -> bool:
        """Infers what the waits of a call site are for, and returns whether there was a candidate."""
        # without `by_order` only a candidate that times explain is taken. Waits that the best candidate contradicts are
        # resolved one by one
        of_stream = waits[0].of_stream
        if not (by_order or of_stream or any(self._times[wait.call_row].met for wait in waits)):
            return False
        site = _CallSite(waits, self._candidates.of_call_site(waits), self._scorer, self._times)
        if not (by_order or of_stream or site.explained):
            return False
        best = self._best(site)
        if of_stream and not (best is not None and best.explained_count):
            best = self._best(self._passed_on(waits) or site)
        if best is None or not (by_order or best.explained_count):
            return False
        contradicted: list[tuple[UnresolvedWait, int]] = []
        for wait, row, fits in zip(waits, best.rows, best.fits, strict=True):
            if fits and self._candidates.tails_at[row, best.stream] >= 0:
                self._add(wait, row, best)
            elif self._candidates.tails_at[row, best.stream] >= 0 and len(waits) > 1:
                contradicted.append((wait, row))
        for wait, row in contradicted:
            returned = self._process.end[wait.call_row]
            waited = best.waiting is None and returned > wait.expected_ns
            late_ns = self._scorer.end_at[self._candidates.tails_at[row, best.stream]] - returned
            # a clock that is right in most steps need not be so in all
            is_near = late_ns <= self._process.timing.clock_uncertainty_ns
            if waited and best.explained_count and is_near and not self._infer([wait], by_order=False):
                self._add(wait, row, best)
            elif wait.call_row not in self._inferred:
                self._infer([wait], by_order=True)
        return True

    def _passed_on(self, waits: list[UnresolvedWait]) -> _CallSite | None:
        """Returns waits for a stream as waits for the event that this stream was told to wait for."""
        # None if no event record explains when the calls returned. Only SAMPLE of the calls are checked, as all event
        # records are tried
        late = [wait for wait in waits if self._process.end[wait.call_row] > wait.expected_ns][:SAMPLE]
        records = self._candidates.before[late[0].call_row] if late else ()
        if not records:
            return None
        options = Options(self._candidates, late[0], records)
        best = self._best(_CallSite(late, options, self._scorer, self._times))
        if best is None or not best.explained_count:
            return None
        return _CallSite(waits, Options(self._candidates, late[0], [best.row]), self._scorer, self._times)

    def _best(self, site: _CallSite) -> _Choice | None:
        """Returns the option and stream that contradict fewest waits and explain most, else the likeliest by order."""
        streams = [*site.waits[0].blocked]
        best = min(site.choices(self._candidates), default=None)
        if best is None:
            return None
        _, _, is_unlikely, _, blocked, basis, *_, row, stream = best
        place = blocked, -row, stream
        rows, count, fits = site.rows(-row), site.explained.get(place, 0), site.fits(*place)
        return _Choice(-row, stream, basis, streams[blocked], count, not is_unlikely, rows, fits)

    def _add(self, wait: UnresolvedWait, row: int, best: _Choice) -> None:
        """Adds what a wait of a call site is for."""
        source, candidates = self._candidates.tails_at[row, best.stream], self._candidates
        target, call = wait.blocked.get(best.waiting, -1), wait.call_row
        if target >= 0:
            self._process.timing.add_dependency(target, self._scorer.end_at[source], self._scorer.max_reaction_ns)
        if row < candidates.no_record:
            call = candidates.records.rows[row]
            if not wait.of_stream:
                candidates.add_resolved(wait, row, best.stream, source, best.waiting)
        known_by = Provenance.CALL_ORDER if best.by_order else Provenance.TIMING
        time, stream = self._process.start[call], self._tails.streams[best.stream]
        self._inferred[wait.call_row] = EventRecord(time, stream, known_by, best.waiting)
        self._guessed[REASONS[best.basis if best.by_order else NONE]].append(wait.call_row)
