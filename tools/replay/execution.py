"""Replays execution graphs: computes when every node starts and ends if it waits for nothing but its dependencies.

A collective starts when its last member arrives, and lasts as long as its shortest measured member; on hosts each
member ends by itself. A wait that held its work up in the measured run is certain; of others only their evidence tells,
so that a changed run has a range (`MakespanRange`). Times are int64 ns from the run's start.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...converter.ranks import EVER, Calls, awaits_all
from ...schema import columns
from ...schema.columns import Categorical, Int64, Keys, Ns, Rows, Summary, nullable, signed_pct, time_text, to_pandas
from ...schema.errors import DataError, RequestError
from ...schema.graph import DependencyKind, ExecutionGraph
from ...schema.linked import NEVER
from ..terminal import list_names
from .changes import Changes, Named, Scale, given_changes, scale_workload
from .data_loading import waits_for_data, waits_of, with_waits
from .job_graphs import Graphs, given_graphs
from .player import Slots, earliest_ends, play
from .workload import WHY, NodeClass, Workload, gather_job, node_classes, shortest_members, with_causes

RANKS_NAMED = 8
WAIT = DependencyKind.EVENT_WAIT | DependencyKind.HOST_SYNC
BY_ORDER, BY_TIMING = DependencyKind.CALL_ORDER, DependencyKind.INFERRED
EVIDENCE = {"order": "the order of calls", "timing": "timing", "order or timing": "the order of calls or timing"}
UNCHANGED, CLEAR_PCT = 1e-4, 1.0
"""A run that differs by less than the first, a share, has not changed. A range narrower than the second, in % of its
upper end, is one figure to a reader."""


class MakespanRange(NamedTuple):
    """The shortest and the longest makespan of a changed run (ns), with and without the uncertain waits, and of a run
    without a profiler by each model of what recording costs, and with what is uncertain of its measured step. What
    `starts_fixed` says starts when it did in one bound, after the host's work before it in the other.

    `waits` nodes wait for something that held nothing up when measured, and that only the evidence in `known_by` tells,
    "" without such waits. `models` is in how many ways the cost of recording may have come about, `noise_pct` by how
    much steps without a profiler differ, and `off_pct` by how much an unchanged replay is off them. Where a loader's
    processes share `cores` with the loop, one bound has them take as much of a step as they may.

    >>> import execgraph as eg
    >>> answer = eg.link("tests/data/training", rank=0).to_graph().what_if({"class:computation": 0.5})
    >>> answer.after.range.waits, answer.after.range.is_clear
    (0, True)
    """

    low_ns: int
    high_ns: int
    waits: int
    known_by: str
    models: int = 1
    noise_pct: float = 0.0
    starts_fixed: str = ""
    off_pct: float = 0.0
    cores: int = 0

    @property
    def is_clear(self) -> bool:
        """Whether what is uncertain hardly changes the makespan."""
        return 100 * (self.high_ns - self.low_ns) <= CLEAR_PCT * self.high_ns

    @property
    def reason(self) -> str:
        """Why there is a range: `14 waits are known only from the order of calls and delayed nothing when measured`."""
        reasons = []
        if self.waits:
            waits = f"{self.waits:,} {'waits are' if self.waits != 1 else 'wait is'}"
            reasons.append(f"{waits} known only from {EVIDENCE[self.known_by]} and delayed nothing when measured")
        if self.models > 1:
            reasons.append("how much recording slowed each op is not known exactly")
        if self.noise_pct:
            reasons.append(f"steps of one program may differ by {self.noise_pct:.2g} %")
        if self.cores:
            reasons.append(f"the loader's processes share {self.cores} cores with the loop")
        if abs(self.off_pct) > CLEAR_PCT:
            reasons.append(f"without changes the replay is {signed_pct(self.off_pct)} off the measured steps")
        reasons += [self.starts_fixed] if self.starts_fixed else []
        return "; ".join(reasons)

    def widened(self, low_ns: float, high_ns: float) -> "MakespanRange":
        """Returns the range with more in it."""
        return self._replace(low_ns=round(min(self.low_ns, low_ns)), high_ns=round(max(self.high_ns, high_ns)))


class StartOffset(NamedTuple):
    """The largest start offset of a run's ranks, in ns, and how long the run takes if no rank has one."""

    rank: str
    offset_ns: int
    makespan_without_ns: int

    @property
    def text(self) -> str:
        """Says what no change scales."""
        return f"the start offset of rank {self.rank}, {time_text(self.offset_ns / 1000)}, is as measured ({WHY})"


@dataclass(slots=True, repr=False)
class Schedule(columns.SummaryRepr):
    """The run as an earliest-start problem: a row ends `cost_ns` after the latest of its sources' ends plus `lag_ns`.

    The first rows are the nodes; for matched communication these are its arrival only, and further rows its transfers.
    `finish_row` is the row whose end is that of the node, `slot_after` the one whose slot a row took, -1 for none.
    """

    source: Rows
    target: Rows
    lag_ns: Ns
    cost_ns: Ns
    end_ns: Ns
    finish_row: Rows
    slot_after: Rows

    @property
    def makespan_ns(self) -> int:
        """When the last node ends."""
        return int(self.end_ns[self.finish_row].max(initial=0))


@dataclass(slots=True, repr=False)
class Replay(columns.SummaryRepr):
    """When each node of `work` starts and ends (rows as there), beside the measured run.

    `measured_ns` is that of the run without a profiler where `work` is so, 0 or the unchanged run's for jobs of
    trace-scale. `start_offset` is the largest one, which no change scales, None where it is small.
    """

    work: Workload
    schedule: Schedule
    start_ns: Ns
    end_ns: Ns
    measured_ns: int
    range: MakespanRange | None = None
    start_offset: StartOffset | None = None
    changes: Sequence[Scale] = ()
    unchanged: Workload | None = None

    @property
    def makespan_ns(self) -> int:
        """How long the replayed run takes."""
        return self.schedule.makespan_ns

    @property
    def error_pct(self) -> float | None:
        """How much longer than measured the replay takes; None without a measured time."""
        return 100 * (self.makespan_ns - self.measured_ns) / self.measured_ns if self.measured_ns else None

    def summary(self) -> Summary:
        """Returns how many nodes of how many ranks were replayed, and how long they take."""
        error = "" if self.error_pct is None else f", {signed_pct(self.error_pct)}"
        measured = {self.work.origin: columns.microseconds_text(self.measured_ns)} if self.measured_ns else {}
        lines = measured | {"replayed": f"{columns.microseconds_text(self.makespan_ns)}{error}"}
        ranks = len(self.work.graphs)
        return Summary(f"Replay: {len(self.work):,} nodes of {ranks} rank{'s' if ranks != 1 else ''}", lines)

    def to_pandas(self) -> Any:
        """Returns a pandas.DataFrame with a row per node, rank after rank; ImportError where pandas is not installed.

        Columns: rank, id, name, class, and in ns from the run's start start_ns, end_ns, measured_start_ns and
        measured_end_ns, the latter null where they were not recorded.
        """
        return to_pandas(self._frame())

    def to_polars(self) -> Any:
        """Returns the table of `to_pandas` as a polars.DataFrame; ImportError where polars is not installed."""
        return columns.to_polars(self._frame())

    def _frame(self) -> dict[str, columns.Values]:
        work = self.work
        return {
            "rank": work.rank_column(np.arange(len(work))), "id": np.concatenate([graph.id for graph in work.graphs]),
            "name": Categorical.joined([graph.name for graph in work.graphs]),
            "class": Categorical(work.node_class.astype(np.int32), [kind.label for kind in NodeClass]),
            "start_ns": self.start_ns, "end_ns": self.end_ns, "measured_start_ns": nullable(work.measured_start_ns),
            "measured_end_ns": nullable(work.measured_end_ns),
        }  # fmt: skip


def replay(graph: Graphs, scale: Changes = ()) -> Replay:
    """Replays the graph of one rank, or those of several ranks together, as recorded; see `execgraph.replay`."""
    return replay_ranks(given_graphs(graph, "replay(graph)"), given_changes(scale, "replay(graph, changes)"))


def replay_ranks(graphs: Sequence[ExecutionGraph], scale: Sequence[Scale] = ()) -> Replay:
    """Replays the graphs of several ranks together. O(n + e) in time and memory.

    The ranks' clocks are aligned by what ends on several ranks, so that each rank begins when it did. Members of a
    group whose graphs are missing are not waited for. A send and its receive meet like the members of a collective.
    Whether the graphs are of one job is not checked; `execgraph.replay` does.

    >>> import execgraph as eg
    >>> graph = eg.link("tests/data/training", rank=0).to_graph()
    >>> len(eg.replay_ranks([graph, graph]).work.graphs)
    2

    Args:
        graphs: A graph per rank.
        scale: Changes to the durations of nodes.

    Returns:
        The replay, whose rows are those of the graphs, one graph after the other.

    Raises:
        DataError: Some nodes never become ready; the text says where each rank stops.
    """
    return replay_job(gather_job(graphs), scale)


def replay_job(job: Workload, scale: Sequence[Scale] = ()) -> Replay:
    """Replays a gathered job, see `replay_ranks`."""
    work = changed_job(job, scale) if scale else job
    schedule = _schedule(work)
    end = schedule.end_ns[schedule.finish_row]
    # a member of a collective occupies its stream from its own arrival on
    start = np.where(schedule.finish_row == np.arange(len(work)), end - work.duration_ns, schedule.end_ns[: len(work)])
    measured = int(work.measured_end_ns.max(initial=0))
    if job.unprofiled or work.is_of_scaled_job or (scale and work.differs):
        measured = makespan_ns(job) if scale else job.unprofiled.measured_ns if job.unprofiled else 0
    if not scale:
        return Replay(work, schedule, start, end, measured)
    makespan = schedule.makespan_ns
    between = _with_causes(job, _range(work, makespan), makespan, scale)
    if job.unprofiled:
        between = _of_models(job, between, (measured, makespan), scale)
    return Replay(work, schedule, start, end, measured, between, _start_offset(work, makespan), scale, job)


def _of_models(job: Workload, between: MakespanRange, times: tuple[int, int], scale: Sequence[Scale]) -> MakespanRange:
    """Returns the range of a changed run with what is uncertain of the run without a profiler; replays each model."""
    (before_ns, after_ns), run = times, job.unprofiled
    noise_pct, off_pct = (run.noise_pct, run.error_pct) if run else (0.0, 0.0)
    ratios = [makespan_ns(changed_job(other, scale)) / max(makespan_ns(other), 1) for other in job.others]
    ratios.append(after_ns / max(before_ns, 1))
    between = between.widened(before_ns * min(ratios), before_ns * max(ratios))
    noise_pct = noise_pct if max(abs(ratio - 1) for ratio in ratios) > UNCHANGED else 0.0
    noise_ns = noise_around(noise_pct, before_ns, after_ns)
    do_agree = 100 * (max(ratios) - min(ratios)) <= CLEAR_PCT * max(ratios)
    between = between._replace(models=1 if do_agree else len(ratios), noise_pct=noise_pct, off_pct=off_pct)
    # an answer is a share of the measured steps, or its time holds as it is, but a faster run is not a longer one
    apart_ns = (min if after_ns <= before_ns else max)(after_ns * (1 + off_pct / 100), before_ns)
    between = between.widened(after_ns, apart_ns)
    between = between.widened(max(between.low_ns - noise_ns, 0), between.high_ns + noise_ns)
    shared_ns = before_ns * _sharing_cores(job, scale)
    return between.widened(shared_ns, shared_ns)._replace(cores=run.cores) if run and shared_ns else between


def _sharing_cores(job: Workload, scale: Sequence[Scale]) -> float:
    """Returns how many times as long a changed step takes if other processes take as much of it as they may; 0 where no
    loader shares the cores. The rest changes with the nodes of the loop, and what they take with the loader's factor.
    """
    run, loader = job.recording, waits_of(job)[0]
    if not run or not run.is_crowded or not len(loader):
        return 0.0
    of_loop = (job.node_class == NodeClass.HOST) & ~np.concatenate([waits_for_data(graph) for graph in job.graphs])
    by_factor = [change for change in scale if change.each_ns is None]
    after = (scale_workload(job, changes).duration_ns for changes in (scale, by_factor))
    own, others = (
        time[rows].sum() / max(job.duration_ns[rows].sum(), 1)
        for time, rows in zip(after, (of_loop, loader), strict=True)
    )
    return float(own * (1 - run.lost_share) + others * run.lost_share)


def noise_around(noise_pct: float, before: float, after: float) -> float:
    """Returns by how much a changed run may be off if steps differ by so many %: as much of it, and of what is gone."""
    return noise_pct / 100 * max(after, before)


def changed_job(job: Workload, scale: Sequence[Scale]) -> Workload:
    """Returns a gathered job with changes, in which loops wait for their data as long as they then have to.

    A call that is named and takes no time is left out: it does not wait for the device either. Raises RequestError for
    a data loader that becomes slower by a factor, where the loop did not wait for it.
    """
    has_time, left_out = np.zeros((2, len(job)), np.bool_)
    for change in scale:
        _refuse_unknown_pace(job, change)
        leaves_out = isinstance(change.target, Named | re.Pattern) and 0 in (change.factor, change.each_ns)
        for graph, first in zip(job.graphs, job.first_row.tolist(), strict=True):
            if leaves_out or change.each_ns is not None:
                of_rank = slice(first, first + len(graph))
                chosen = change.matches(graph, job.node_class[of_rank])
                has_time[of_rank] |= chosen & (change.each_ns is not None)
                left_out[of_rank] |= chosen & leaves_out
    waits = (job.kind & DependencyKind.HOST_SYNC != 0) & (left_out & ~job.is_activity)[job.target]
    return with_waits(job, scale_workload(job, scale).without_dependencies(waits), ends_ns, has_time)


def _refuse_unknown_pace(job: Workload, change: Scale) -> None:
    """Raises RequestError for a longer time of loading, of which only a loop that waits shows how long it is."""
    if not isinstance(change.target, re.Pattern) or change.each_ns is not None or change.factor <= 1:
        return
    row, _, _, is_waiting = waits_of(job)
    chosen = np.concatenate([change.matches(graph, node_classes(graph)) for graph in job.graphs])[row]
    if chosen.any() and not is_waiting[chosen].any():
        problem = "the loop did not wait for its data loader, so the trace does not show how long a batch takes to load"
        raise RequestError(f"scale {change.spec}: {problem}; record a run in which it waits")


def ends_ns(work: Workload) -> Ns:
    """Returns when each node of a gathered job ends."""
    schedule = _schedule(work)
    return schedule.end_ns[schedule.finish_row]


def makespan_ns(work: Workload) -> int:
    """Returns how long a gathered job takes, which may be changed."""
    return _schedule(work).makespan_ns


def _range(work: Workload, makespan: int) -> MakespanRange:
    """Replays once more without uncertain waits, if there are any.

    These are waits for an event or of the host that no record, no other rule and no time of the measured run confirms:
    one that alone held its target up, as all others were met before, is certain.
    """
    kind = work.kind
    is_unconfirmed = (kind & (BY_ORDER | BY_TIMING) != 0) & (kind & WAIT != 0)
    is_unconfirmed &= kind & ~int(WAIT | BY_ORDER | BY_TIMING) == 0
    met = work.measured_end_ns[work.source] + work.lag_ns
    last, last_certain = np.full((2, len(work)), NEVER, np.int64)
    np.maximum.at(last, work.target, met)
    np.maximum.at(last_certain, work.target[~is_unconfirmed], met[~is_unconfirmed])
    is_uncertain = is_unconfirmed & ((met != last[work.target]) | (met <= last_certain[work.target]))
    if not is_uncertain.any():
        return MakespanRange(makespan, makespan, 0, "")
    low, high = sorted((makespan, makespan_ns(work.without_dependencies(is_uncertain))))
    evidence = [word for bit, word in ((BY_ORDER, "order"), (BY_TIMING, "timing")) if (kind[is_uncertain] & bit).any()]
    return MakespanRange(low, high, len(np.unique(work.target[is_uncertain])), " or ".join(evidence))


def _with_causes(job: Workload, between: MakespanRange, makespan: int, scale: Sequence[Scale]) -> MakespanRange:
    """Replays the changed job once more with causes of what starts at a fixed time, if anything does."""
    free, fixed = with_causes(job)
    if not len(fixed):
        return between
    after_ns = makespan_ns(job) * makespan_ns(changed_job(free, scale)) / max(makespan_ns(free), 1)
    if 100 * abs(after_ns - makespan) <= CLEAR_PCT * max(after_ns, makespan):
        return between
    return between.widened(after_ns, after_ns)._replace(starts_fixed=fixed_in_words(job, fixed))


def fixed_in_words(work: Workload, fixed: Rows) -> str:
    """Says what starts at a fixed time, as nothing shows what it waited for, and what both bounds are."""
    names = Categorical.joined(graph.name for graph in work.graphs)
    named = list_names([*dict.fromkeys(names[row] for row in fixed.tolist())], 2)
    what = named if len(fixed) == 1 else f"{len(fixed):,} nodes ({named})"
    return (
        f"nothing shows what {what} waited for: a start as measured, or after the host work before, bounds the answer"
    )


def _start_offset(work: Workload, makespan: int) -> StartOffset | None:
    """Replays once more with all ranks beginning at once, if start offsets matter."""
    if (late := work.late_rank(makespan)) is None:
        return None
    offset = np.where(work.is_rooted, work.start_offset_ns[work.ranks_of(np.arange(len(work)))], 0)
    return StartOffset(*late, makespan_ns(replace(work, wait_ns=work.wait_ns - offset)))


def _schedule(work: Workload) -> Schedule:
    members, matches = work.members, int(work.members.matched.max(initial=-1)) + 1
    elsewhere = ~work.is_timed[members.row] | work.is_activity[members.row]
    # all members ran on host threads, at recorded times
    on_hosts = np.bincount(members.matched[elsewhere], minlength=matches)[members.matched] == 0
    on_host, members = members.take(on_hosts), members.take(~on_hosts)
    nodes, first_several = len(work), len(work) + matches
    finish_row = np.arange(nodes)
    finish_row[members.row] = nodes + members.matched
    # a kernel that carries several messages ends with the last of them
    several = np.flatnonzero(np.bincount(members.row, minlength=nodes) > 1)
    count = first_several + len(several)
    finish_row[several] = np.arange(first_several, count)
    last = np.flatnonzero(finish_row[members.row] >= first_several)
    last = last[np.argsort(members.row[last], kind="stable")]
    source, target, host_cost, finish_row[on_host.row] = _host_ends(work, on_host, count)
    source = np.concatenate((finish_row[work.source], members.row, nodes + members.matched[last], source))
    target = np.concatenate((work.target, nodes + members.matched, finish_row[members.row[last]], target))
    lag = np.concatenate((work.lag_ns, np.zeros(len(source) - len(work.lag_ns), np.int64)))
    several_cost, transfer = np.zeros(len(several), np.int64), np.zeros(matches, np.int64)
    transfer[members.matched] = shortest_members(members, work.duration_ns)
    cost = np.concatenate((work.wait_ns + work.duration_ns, transfer, several_cost, host_cost))
    ends_elsewhere = finish_row[:nodes] != np.arange(nodes)
    cost[:nodes][ends_elsewhere] = work.wait_ns[ends_elsewhere]
    order = columns.topological_order(source, target, len(cost))
    if len(order) < len(cost):
        ready = np.zeros(len(cost), bool)
        ready[order] = True
        raise DataError(_never_ready(work, np.flatnonzero(~ready[finish_row])))
    try:
        if work.slot_pool.max(initial=-1) < 0:
            end, slot_after = earliest_ends(source, target, lag, cost, order), np.full(len(cost), -1)
        else:
            slots = Slots(cost, work.slot_pool, work.slot_pools)
            end, slot_after = play(source, target, lag, slots), np.array(slots.slot_after, np.int64)
    except OverflowError as error:
        reason = "the times of the graphs add up to more than any clock shows"
        raise DataError(f"{reason}; convert the traces again") from error
    return Schedule(source, target, lag, cost, end, finish_row, slot_after)


def _host_ends(work: Workload, members: Calls, first: int) -> tuple[Int64, Int64, Int64, Int64]:
    """Returns dependencies, costs and end rows, numbered from `first` on, of communication between host threads.

    A member ends as long after the last arrival as measured; in messages and collectives with a root, after the last of
    the arrivals before its measured end. It has two rows: for its arrival and all earlier ones, and for its end.
    """
    order = np.lexsort((work.measured_start_ns[members.row], members.matched))
    member, group, kind = members.row[order], members.matched[order], members.kind[order]
    start, end, count = work.measured_start_ns[member], work.measured_end_ns[member], len(member)
    ended = Keys(group, np.where(awaits_all(kind), EVER, end))
    last_arrival = np.maximum(np.arange(count), columns.group_searchsorted(Keys(group, start), ended) - 1)
    # a changed duration changes the time after the last arrival by the same factor
    factor = work.duration_ns[member] / np.maximum(end - start, 1)
    cost = np.rint(np.maximum(end - start[last_arrival], 0) * factor).astype(np.int64)
    arrived, ended_row = first + np.arange(count), first + count + np.arange(count)
    follows = np.flatnonzero(np.diff(group) == 0)
    finish_row = np.empty(count, np.int64)
    finish_row[order] = ended_row
    source = np.concatenate((member, arrived[follows], arrived[last_arrival]))
    target = np.concatenate((arrived, arrived[follows + 1], ended_row))
    by_target = np.argsort(target, kind="stable")
    return source[by_target], target[by_target], np.concatenate((np.zeros(count, np.int64), cost)), finish_row


def _never_ready(work: Workload, stuck: Int64) -> str:
    """Returns the message that names for each rank the first node, by id, that never becomes ready."""
    ids, ranks = np.concatenate([graph.id for graph in work.graphs])[stuck], work.ranks_of(stuck)
    by_rank = np.lexsort((ids, ranks))
    firsts, shown = stuck[by_rank][np.unique(ranks[by_rank], return_index=True)[1]], []
    for row, rank in zip(firsts[:RANKS_NAMED].tolist(), np.unique(ranks).tolist(), strict=False):
        graph, graph_row = work.graphs[rank], row - int(work.first_row[rank])
        node = f"node {graph.id[graph_row]} ({graph.name[graph_row]})"
        if work.node_class[row] == NodeClass.COMMUNICATION:
            node += f" of group {graph.texts('pg_name')[graph_row] or '?'}"
        shown.append(f"rank {work.rank_labels()[rank]} at {node}" if len(work.graphs) > 1 else node)
    more = [f"and {len(firsts) - RANKS_NAMED} more ranks"] if len(firsts) > RANKS_NAMED else []
    remedy = "its dependencies form a cycle, convert the trace again"
    if len(work.graphs) > 1:
        problem = "the ranks issue their collectives in different orders, or one has a cycle"
        remedy = f"{problem}; check that all are of one run"
    return f"{len(stuck)} of {len(work)} nodes never become ready: {', '.join(shown + more)}; {remedy}"
