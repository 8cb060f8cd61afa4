"""Infers what waits are for where the trace does not say: which stream is awaited, and up to which event record.

The same call at the same call site of every step waits for the same. An event record is inferred if the work it marks
ended right before the blocked work started, or the blocked call returned; else by the order of the calls. Work that
ended after the blocked work went on, in any step, cannot have been awaited.

Scores by times what the waits of one call site are for: which ends are too late, and how many waits each end
explains.

Blocked work goes on right after the end of what it waited for. What ended later was not awaited.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64
from ...schema.linked import FOREVER, NEVER, Activities, Calls, Provenance
from ...schema.machine import latency_stats
from ...schema.reasons import Reason
from .candidates import Candidates, Option, OrderRank
from .events import EventRecord, no_findings
from .process import Process, TimingModel
from .submissions import StreamKey, StreamTails
from .unresolved_waits import BlockedWork, UnresolvedWait


class Times(NamedTuple):
    """Of the blocked work of each wait: from when on it was ready but for the wait (`ready_ns`), when it was expected
    to start then (`expected_start_ns`), and when it started (`resumed_ns`).
    """

    ready_ns: Int64
    expected_start_ns: Int64
    resumed_ns: Int64


class TimingScorer:
    """Compares ends with the times at which blocked work went on.

    `max_reaction_ns` is how long after an end on another stream a stream usually goes on at most.
    """

    def __init__(
        self,
        activities: Activities,
        calls: Calls,
        timing: TimingModel,
        tails: StreamTails,
        waits: Sequence[UnresolvedWait],
    ) -> None:
        self._start, self._end, self._calls = activities.start, np.append(activities.end, NEVER), calls
        self._timing = timing
        self.max_reaction_ns = max(timing.max_gap_ns, self._max_late_reaction(tails, waits))

    def _max_late_reaction(self, tails: StreamTails, waits: Sequence[UnresolvedWait]) -> int:
        """Returns how long after the last end on other streams late work usually starts at most, ns."""
        blocked = [
            (wait.call_row, tails.number.get(wait.blocked[0].stream, -1), wait.blocked[0].target) for wait in waits
        ]
        expected = self._timing.expected_start_ns
        late = [row for row in blocked if row[2] >= 0 and self._start[row[2]] > expected[row[2]]]
        call, stream, target = np.array(late, np.int64).reshape(-1, 3).T
        ends = self._end[tails.before(self._calls.start[call].tolist())]
        ends[np.arange(len(call)), stream] = NEVER
        start = self._start[target]
        ends[ends > start[:, None]] = NEVER
        latest = ends.max(axis=1, initial=NEVER)
        explains = latest > np.asarray(self._timing.ready_ns)[target]
        return latency_stats(start[explains] - latest[explains]).upper

    def ends(self, tails: Int64) -> Int64:
        """Returns the ends of activities, NEVER for -1."""
        return self._end[tails]

    def score(self, waits: list[UnresolvedWait], ends: Int64, blocked: BlockedWork) -> tuple[Bool, Int64]:
        """Returns which ends are too late, and how many waits each option and stream explains.

        `ends` and the first result are by option, wait and stream, the second by option and stream. It is 0 where fewer
        than half of the late waits are explained.
        """
        times, on_host = self._times(waits, blocked), blocked.stream is None
        quantum = self._timing.timestamp_quantum_ns
        reaction, lead = np.array(
            [
                (wait.max_reaction_ns + wait.clock_error_ns, wait.max_lead_ns)
                if on_host
                else (self.max_reaction_ns + quantum, quantum)
                for wait in waits
            ]
        ).T
        late = times.resumed_ns > times.expected_start_ns
        latest = times.resumed_ns + lead
        too_late: Bool = ends > latest[None, :, None]
        explains = late[None, :, None] & ~too_late & (ends > times.ready_ns[None, :, None])
        explains &= ends >= (times.resumed_ns - reaction)[None, :, None]
        explained_count = np.asarray(explains.sum(axis=1), np.int64)
        explained_count[2 * explained_count < int(late.sum())] = 0
        return too_late, explained_count

    def _times(self, waits: list[UnresolvedWait], blocked: BlockedWork) -> Times:
        rows, timing = [], self._timing
        for wait in waits:
            target = wait.target(blocked)
            if blocked.stream is None:
                expected = NEVER if wait.is_query else wait.since + wait.max_reaction_ns
                rows.append((NEVER, expected, int(self._calls.end[wait.call_row])))
            elif target >= 0:
                rows.append((timing.ready_ns[target], timing.expected_start_ns[target], int(self._start[target])))
            else:
                rows.append((NEVER, FOREVER, FOREVER))
        return Times(*np.array(rows, np.int64).T)

    def add_dependency(self, activity: int, source: int) -> None:
        """Adds that an activity follows another one."""
        self._timing.add_dependency(activity, int(self._end[source]), self.max_reaction_ns)


SAMPLE = 256
"""Calls of a call site for which all event records are tried, so that memory does not grow with their number."""


class InferredSource(NamedTuple):
    """What a wait is for, and which stream it blocks, None for the host."""

    event_record: EventRecord
    waiting: StreamKey | None


class _CallSite(NamedTuple):
    """The waits of a call site, the options for them, and what each option means for each wait.

    `event_records` are by option and wait; `tails`, the last activity submitted before that event record, and `ends`,
    its end in ns, also by stream. `by_order` says by option and stream whether the order of the calls favours it,
    `is_likely` whether that order allows it, and `rank_keys` are the sort keys of its rank: basis, position and the
    position of the stream in the option.
    """

    waits: list[UnresolvedWait]
    options: Sequence[Option]
    event_records: Int64
    tails: Int64
    ends: Int64
    by_order: Bool
    is_likely: Bool
    rank_keys: Int64


class _Rank(NamedTuple):
    """The rank of an option on a stream by the order of the calls; the smaller, the likelier.

    That order favours only the likeliest stream of an option, and only where it blocks the likeliest work (number 0);
    all others are `is_unfavoured`.
    """

    is_unfavoured: bool
    is_unranked: bool
    blocked_number: int
    order: OrderRank
    stream_position: int


class _ScoredCandidate(NamedTuple):
    """How well an option on a stream fits the waits of a call site.

    It contradicts the times of `wrong_count` waits and explains those of `explained_count`; `fits` are the waits that
    it does not contradict.
    """

    wrong_count: int
    explained_count: int
    rank: _Rank
    option: int
    stream: int
    fits: Bool
    blocked: BlockedWork

    def badness(self) -> tuple[int, int, _Rank]:
        """Returns the sort key that puts the best candidate first."""
        return self.wrong_count, -self.explained_count, self.rank


class InferredSources:
    """Infers sources by call site, in the order of their first waits, and counts the reasons in `findings`."""

    def __init__(self, process: Process, waits: list[UnresolvedWait]) -> None:
        """`waits` are in the order of time."""
        self._process, self._waits = process, waits
        self._tails = StreamTails(process.queues)
        self._candidates = Candidates(process, self._tails, waits)
        self._scorer = TimingScorer(process.activities, process.calls, process.timing, self._tails, waits)
        self.findings = no_findings()
        self._inferred: dict[int, InferredSource] = {}

    def by_call(self) -> dict[int, InferredSource]:
        """Returns the inferred source of each waiting call that has one."""
        waits = self._waits
        stream = [self._tails.number.get(wait.blocked[0].stream, -1) for wait in waits]
        sites = self._process.call_sites.groups(
            [wait.call_row for wait in waits], stream, [int(wait.is_query) for wait in waits]
        )
        # what times show comes first: it uses up event records that only the order of the calls would favour
        for by_order in (False, True):
            sites = [site for site in sites if not self._infer([waits[number] for number in site], by_order)]
        return self._inferred

    def among_busiest(self) -> list[int]:
        """Returns all waits if only the busiest streams were tried, as there are very many."""
        return [wait.call_row for wait in self._waits] if self._tails.is_partial else []

    def cut_off(self) -> list[int]:
        """Returns the waits that fit none of the event records tried, but have others further back."""
        return sorted(self._candidates.cut_off - set(self._inferred))

    def _infer(self, waits: list[UnresolvedWait], by_order: bool) -> bool:
        """Infers what the waits of a call site are for, and returns whether there was a candidate.

        Without `by_order` only a candidate that times explain is taken. Waits that the best candidate contradicts are
        resolved one by one.
        """
        site = self._call_site(waits, self._candidates.of_call_site(waits))
        best = self._best(site)
        if waits[0].of_stream and not (best is not None and best.explained_count):
            site = self._passed_on(waits) or site
            best = self._best(site)
        if best is None or not (by_order or best.explained_count):
            return False
        has_source = site.tails[best.option, :, best.stream] >= 0
        for number in np.flatnonzero(has_source & best.fits).tolist():
            self._add(site, number, best)
        if len(waits) > 1:
            for number in np.flatnonzero(has_source & ~best.fits).tolist():
                if self._is_nearly_explained(site, number, best) and not self._infer([waits[number]], by_order=False):
                    self._add(site, number, best)
                elif waits[number].call_row not in self._inferred:
                    self._infer([waits[number]], by_order=True)
        return True

    def _is_nearly_explained(self, site: _CallSite, number: int, best: _ScoredCandidate) -> bool:
        """Returns whether the host waited, and its source ended too late by less than clocks may be off.

        A clock that is right in most steps need not be so in all.
        """
        wait, returned = site.waits[number], self._process.end(site.waits[number].call_row)
        waited = best.blocked.stream is None and returned > wait.since + wait.max_reaction_ns
        allowed = returned + self._process.timing.clock_uncertainty_ns
        return waited and bool(best.explained_count) and int(site.ends[best.option, number, best.stream]) <= allowed

    def _passed_on(self, waits: list[UnresolvedWait]) -> _CallSite | None:
        """Returns waits for a stream as waits for the event that this stream was told to wait for.

        None if no event record explains when the calls returned. Only SAMPLE of the calls are checked, as all event
        records are tried.
        """
        late = [wait for wait in waits if self._process.end(wait.call_row) > wait.since + wait.max_reaction_ns][:SAMPLE]
        records = self._candidates.before(late[0]) if late else []
        best = self._best(self._call_site(late, records)) if records else None
        if best is None or not best.explained_count:
            return None
        return self._call_site(waits, [records[best.option]])

    def _call_site(self, waits: list[UnresolvedWait], options: Sequence[Option]) -> _CallSite:
        """Returns the waits of a call site with their options, and by when the work that each one marks had ended."""
        event_records = self._candidates.event_records(options, waits)
        at_calls = self._tails.before([self._process.start(wait.call_row) for wait in waits])
        is_call = np.array([option.kind < 0 for option in options])
        tails = np.where(is_call[:, None, None], at_calls, self._candidates.tails[event_records])
        return _CallSite(waits, options, event_records, tails, self._scorer.ends(tails), *self._ranks(options))

    def _ranks(self, options: Sequence[Option]) -> tuple[Bool, Bool, Int64]:
        """Returns `by_order`, `is_likely` and `rank_keys` of a call site."""
        shape = len(options), len(self._tails.streams)
        (by_order, is_likely), rank_keys = np.zeros((2, *shape), np.bool_), np.full((3, *shape), shape[1], np.int64)
        for number, option in enumerate(options):
            rank_keys[:2, number] = np.array(option.rank)[:, None]
            rank_keys[2, number, list(option.streams)] = np.arange(len(option.streams))
            if option.rank.is_known:
                by_order[number, option.streams[0]] = is_likely[number, list(option.streams)] = True
        return by_order, is_likely, rank_keys

    def _best(self, site: _CallSite) -> _ScoredCandidate | None:
        """Returns the best option and stream for the waits of a call site, None where none is possible."""
        scored = (self._best_for(site, number) for number in range(len(site.waits[0].blocked)))
        return min(
            (candidate for candidate in scored if candidate is not None), key=_ScoredCandidate.badness, default=None
        )

    def _best_for(self, site: _CallSite, blocked_number: int) -> _ScoredCandidate | None:
        """Returns the best option and stream if the waits block the work of that number, None where none is possible.

        What a query is for does not show in its time, so that only the order of the calls can tell.
        """
        blocked, is_query = site.waits[0].blocked[blocked_number], site.waits[0].is_query
        too_late, explained_count = self._scorer.score(site.waits, site.ends, blocked)
        # another stream than the likeliest one is better than one whose work ended too late
        by_order, is_likely = (mask & (blocked_number == 0) for mask in (site.by_order, site.is_likely))
        possible = (site.ends > NEVER).any(axis=1)
        possible &= is_likely | ((explained_count > 0) & (not is_query))
        possible[:, ~self._candidates.possible_streams(blocked.stream)] = False
        if not possible.any():
            return None
        wrong = np.asarray(too_late.sum(axis=1), np.int64)
        keys = [~by_order, *site.rank_keys] if is_query else [wrong, -explained_count, ~by_order, *site.rank_keys]
        first = np.lexsort([key[possible] for key in reversed(keys)])[0]
        option, stream = np.argwhere(possible)[first].tolist()
        order = site.options[option].rank
        position = int(site.rank_keys[2, option, stream])
        return _ScoredCandidate(
            int(wrong[option, stream]),
            int(explained_count[option, stream]),
            _Rank(not by_order[option, stream], not order.is_known, blocked_number, order, position),
            option,
            stream,
            ~too_late[option, :, stream],
            blocked,
        )

    def _add(self, site: _CallSite, number: int, best: _ScoredCandidate) -> None:
        """Adds what a wait of a call site is for."""
        wait, option, stream, waiting = site.waits[number], site.options[best.option], best.stream, best.blocked.stream
        record, source = int(site.event_records[best.option, number]), int(site.tails[best.option, number, stream])
        target, call = wait.target(best.blocked), wait.call_row
        if target >= 0:
            self._scorer.add_dependency(target, source)
        if option.kind >= 0:
            call = self._process.event_record_calls.rows[record]
            if not wait.of_stream:
                self._candidates.add_resolved(wait, record, stream, source, waiting)
        by_order = not best.rank.is_unfavoured
        provenance = Provenance.CALL_ORDER if by_order else Provenance.TIMING
        event_record = EventRecord(call, self._process.start(call), self._tails.streams[stream], provenance)
        self._inferred[wait.call_row] = InferredSource(event_record, waiting)
        self.findings[option.reason if by_order else Reason.END_OF_WORK].append(wait.call_row)
