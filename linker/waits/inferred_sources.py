"""Infers what waits are for where the trace does not say: the same call at one site of every step waits for the same.
An event record is inferred if its work ended right before the blocked work started; else by the order of the calls.
Work that ended after the blocked work went on, in any step, cannot have been awaited.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.linked import FOREVER, NEVER, Provenance
from ...schema.machine import latency_stats
from ...schema.reasons import Reason
from .candidates import TRIED, Candidates, Options, OrderBasis
from .process import EventRecord, FoundCalls, Process
from .submissions import MOST_STREAMS, StreamKey, StreamTails
from .unresolved_waits import UnresolvedWait

AT_ONCE = 1 << 20
"""Ends compared at a time."""
SAMPLE = 256
"""Calls of a call site for which all event records are tried, so that memory does not grow with their number."""


class Score(NamedTuple):
    """How ends fit the waits of a call site: limits (ns), and by option and stream late ends and explained waits."""

    latest_ns: Int64
    wrong_count: Int64
    explained_count: Int64


class TimingScorer:
    """Compares ends (ns) with when blocked work went on, usually `max_reaction_ns` after an end at most."""

    def __init__(self, process: Process, tails: StreamTails, waits: Sequence[UnresolvedWait]) -> None:
        self._calls, self._timing = process.calls, process.timing
        self._start, self.end = process.activities.start, np.append(process.activities.end, NEVER)
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

    def score(self, waits: list[UnresolvedWait], ends: Int64, waitings: Sequence[StreamKey | None]) -> Score:
        """Returns how well ends fit waits that block each of `waitings`; those that explain too few explain none."""
        # by what is measured, blocked stream and wait
        times = np.array([self._times(waits, waiting) for waiting in waitings], np.int64).transpose(2, 0, 1)
        step = max(1, AT_ONCE // max(1, ends.size))
        parts = [self._score(times[:, at : at + step], ends) for at in range(0, len(waitings), step)]
        return parts[0] if len(parts) == 1 else Score(*map(np.concatenate, zip(*parts, strict=True)))

    def may_explain(self, waits: list[UnresolvedWait]) -> bool:
        """Returns whether any of the waits was late, by whatever it blocks, so that an end could explain it."""
        expected, start, end = self._timing.expected_start_ns, self._start, self._calls.end
        for wait in waits:
            if None in wait.blocked and (wait.is_query or end[wait.call_row] > wait.expected_ns):
                return True
            if any(target >= 0 and start[target] > expected[target] for target in wait.blocked.values()):
                return True
        return False

    def _times(self, waits: list[UnresolvedWait], waiting: StreamKey | None) -> list[tuple[int, ...]]:
        """Returns when blocked work was ready, expected and started, how long it takes to go on, and clocks' error."""
        rows: list[tuple[int, ...]] = []
        timing, quantum = self._timing, self._timing.timestamp_quantum_ns
        for wait in waits:
            if waiting is None:
                expected, returned = NEVER if wait.is_query else wait.expected_ns, int(self._calls.end[wait.call_row])
                rows.append((NEVER, expected, returned, wait.reaction_ns, wait.lead_ns))
                continue
            target, times = wait.blocked.get(waiting, -1), (NEVER, FOREVER, FOREVER)
            if target >= 0:
                times = timing.ready_ns[target], timing.expected_start_ns[target], int(self._start[target])
            rows.append((*times, self.max_reaction_ns + quantum, quantum))
        return rows

    def _score(self, times: Int64, ends: Int64) -> Score:
        ready_ns, expected_start_ns, resumed_ns, reaction_ns, lead_ns = times[:, :, None, :, None]
        late, latest = resumed_ns > expected_start_ns, resumed_ns + lead_ns
        too_late: Bool = ends > latest
        explains = late & ~too_late & (ends > ready_ns) & (ends >= resumed_ns - reaction_ns)
        explained_count: Int64 = explains.sum(axis=2)
        explained_count[2 * explained_count < late.sum(axis=2)] = 0
        return Score(latest[:, 0, :, 0], too_late.sum(axis=2), explained_count)


class _CallSite(NamedTuple):
    """The waits of a call site, and by option and wait the event records, the last activities before and their ends."""

    waits: list[UnresolvedWait]
    options: Options
    event_records: Int64
    tails: Int64
    ends: Int64


class _Choice(NamedTuple):
    """The option and stream that fit the waits of a call site best, how many they explain, and which they fit."""

    option: int
    stream: int
    waiting: StreamKey | None
    explained_count: int
    by_order: bool
    fits: Bool


class InferredSources:
    """Infers sources by call site, in the order of first waits; `untried` waits have more options than were tried."""

    def __init__(self, process: Process, waits: list[UnresolvedWait], guessed: FoundCalls) -> None:
        """`waits` are in the order of time."""
        self._process, self._waits, self._guessed = process, waits, guessed
        self._tails = StreamTails(process.queues)
        calls = [wait.call_row for wait in waits]
        self._at_calls = dict(zip(calls, self._tails.before([process.start[call] for call in calls]), strict=True))
        self._candidates = Candidates(process, self._tails, waits)
        self._scorer = TimingScorer(process, self._tails, waits)
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
        may_explain = waits[0].of_stream or self._scorer.may_explain(waits)
        options = self._candidates.of_call_site(waits) if by_order or may_explain else None
        if options is None or not (may_explain or options.has_favourite):
            return False
        site = self._call_site(waits, options)
        best = self._best(site)
        if waits[0].of_stream and not (best is not None and best.explained_count):
            site = self._passed_on(waits) or site
            best = self._best(site)
        if best is None or not (by_order or best.explained_count):
            return False
        has_source = site.tails[best.option, :, best.stream] >= 0
        for number in np.flatnonzero(has_source & best.fits).tolist():
            self._add(site, number, best)
        for number in np.flatnonzero(has_source & ~best.fits).tolist() if len(waits) > 1 else ():
            wait, returned = waits[number], self._process.end[waits[number].call_row]
            waited = best.waiting is None and returned > wait.expected_ns
            late_ns = int(site.ends[best.option, number, best.stream]) - returned
            # a clock that is right in most steps need not be so in all
            is_near = late_ns <= self._process.timing.clock_uncertainty_ns
            if waited and best.explained_count and is_near and not self._infer([wait], by_order=False):
                self._add(site, number, best)
            elif wait.call_row not in self._inferred:
                self._infer([wait], by_order=True)
        return True

    def _passed_on(self, waits: list[UnresolvedWait]) -> _CallSite | None:
        """Returns waits for a stream as waits for the event that this stream was told to wait for."""
        # None if no event record explains when the calls returned. Only SAMPLE of the calls are checked, as all event
        # records are tried
        late = [wait for wait in waits if self._process.end[wait.call_row] > wait.expected_ns][:SAMPLE]
        records = self._candidates.before(late[0]) if late else None
        if records is None or not len(records.record):
            return None
        best = self._best(self._call_site(late, records))
        if best is None or not best.explained_count:
            return None
        return self._call_site(waits, records.part(slice(best.option, best.option + 1)))

    def _call_site(self, waits: list[UnresolvedWait], options: Options) -> _CallSite:
        """Returns the waits of a call site with their options, and by when the work that each one marks had ended."""
        event_records = self._candidates.event_records(options, waits)
        at_calls = np.array([self._at_calls[wait.call_row] for wait in waits])
        tails = np.where((options.record < 0)[:, None, None], at_calls, self._candidates.tails[event_records])
        return _CallSite(waits, options, event_records, tails, self._scorer.end[tails])

    def _best(self, site: _CallSite) -> _Choice | None:
        """Returns the option and stream that contradict fewest waits and explain most, else the likeliest by order."""
        waits, options, is_query = site.waits, site.options, site.waits[0].is_query
        latest, wrong, explained = self._scorer.score(waits, site.ends, [*waits[0].blocked])
        # by number of the blocked stream, option and stream
        by_order, is_likely = np.zeros((2, *wrong.shape), np.bool_)
        is_ranked, order = (options.basis < int(OrderBasis.NONE))[:, None], options.stream_position
        # another stream than the likeliest one is better than one whose work ended too late
        by_order[0], is_likely[0] = is_ranked & (order == 0), is_ranked & (order < order.shape[1])
        possible = (site.ends > NEVER).any(axis=1) & (is_likely | ((explained > 0) & (not is_query)))
        for number, waiting in enumerate(waits[0].blocked):
            possible[number] &= self._candidates.possible_streams(waiting)
        if not possible.any():
            return None
        for rank in ([] if is_query else [wrong, -explained]) + [~by_order]:
            possible &= rank == rank[possible].min()
        blocked, option, stream = np.nonzero(possible)
        basis, position = options.basis[option], options.position[option]
        ranks = [basis == int(OrderBasis.NONE), blocked, basis, position, order[option, stream]]
        best = np.lexsort(ranks[::-1])[0]
        chosen = number, of_option, of_stream = int(blocked[best]), int(option[best]), int(stream[best])
        fits = site.ends[of_option, :, of_stream] <= latest[number]
        waiting = [*waits[0].blocked][number]
        return _Choice(of_option, of_stream, waiting, int(explained[chosen]), bool(by_order[chosen]), fits)

    def _add(self, site: _CallSite, number: int, best: _Choice) -> None:
        """Adds what a wait of a call site is for."""
        wait, stream, waiting = site.waits[number], best.stream, best.waiting
        record, source = int(site.event_records[best.option, number]), int(site.tails[best.option, number, stream])
        target, call = wait.blocked.get(waiting, -1), wait.call_row
        if target >= 0:
            self._process.timing.add_dependency(target, int(self._scorer.end[source]), self._scorer.max_reaction_ns)
        if record >= 0:
            call = self._process.event_records.rows[record]
            if not wait.of_stream:
                self._candidates.add_resolved(wait, record, stream, source, waiting)
        provenance = Provenance.CALL_ORDER if best.by_order else Provenance.TIMING
        event_record = EventRecord(self._process.start[call], self._tails.streams[stream], provenance, waiting)
        self._inferred[wait.call_row] = event_record
        basis = [*OrderBasis][site.options.basis[best.option]]
        self._guessed[basis.reason if best.by_order else Reason.END_OF_WORK].append(wait.call_row)
