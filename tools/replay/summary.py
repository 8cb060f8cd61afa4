"""Summarises a replay as the fields of `--json` and as text for a terminal. Times are in µs."""

from collections.abc import Sequence

import msgspec
import numpy as np

from ...schema.arguments import ASTRA_SIM
from ...schema.columns import ABSENT, Int64, Intervals, busy_until, group_sums
from ...schema.graph import DependencyKind
from .answer import answer
from .changes import Matched, Scale, matched
from .critical_path import UNEXPLAINED, crossing_names, pieces_of, time_by_kind
from .execution import MakespanRange, Replay
from .gathered_job import WHY, absence, is_noteworthy, largest_offset
from .recording import Recording
from .workload import Lane, NodeClass, Workload, number_text

HOST_TRANSFERS = "host transfers"
"""What stands for the device and stream of transfers between hosts, as of gloo."""
STREAMS_SHOWN, LABEL = 16, 14
"""How many streams or threads are listed, and how many letters their labels have at least."""
IDLE = "host idle"
NAMES_SHOWN = 4
RELIABLE_PCT = 1.0
"""If a replay differs more from the measured run, replays with changes are not reliable."""


class StartError(msgspec.Struct, frozen=True):
    """Absolute differences between the replayed and the measured starts of activities."""

    median: float
    p95: float
    max: float


class ReplaySummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of a replay in µs; `error_pct` is None without a measured time.

    `busy_us` is by stream, `critical_path_us` by kind of node or wait. Of a changed run `makespan_low_us` and
    `makespan_high_us` are the makespan without and with the waits that nothing confirms, the smaller one first; without
    changes they are None, and left out of `--json`. Of several ranks, `start_offsets_us` says by rank how much later
    than the first one each began; where that matters to a changed run, `without_start_offsets_us` is the makespan
    without these. `recording` says how long a step takes without a profiler, where that was measured. `matched` says
    what each change applies to, `absent` which ranks of the job are not replayed.

    >>> import execgraph as eg
    >>> results = eg.link("tests/data/training", rank=0).to_graph().replay().results
    >>> results.makespan_us, results.explained_pct, max(results.critical_path_us, key=results.critical_path_us.get)
    (4494.59, 100.0, 'computation')
    """

    makespan_us: float
    measured_us: float
    error_pct: float | None
    start_error_us: StartError
    busy_us: dict[str, float]
    critical_path_us: dict[str, float]
    explained_pct: float
    makespan_low_us: float | None = None
    makespan_high_us: float | None = None
    start_offsets_us: dict[str, float] = {}
    without_start_offsets_us: float | None = None
    recording: Recording | None = None
    matched: list[Matched] = []
    absent: str = ""


def summarise(replay: Replay, recording: Recording | None = None, scale: Sequence[Scale] = ()) -> ReplaySummary:
    """Returns the summary of a replay with these changes, in which critical_path_us adds up to makespan_us, with what
    recording did to the run. O(n log n).
    """
    path, makespan, work = time_by_kind(pieces_of(replay)), replay.range, replay.work
    offsets = dict(zip(work.rank_labels(), (work.start_offset_ns / 1000).tolist(), strict=True))
    return ReplaySummary(
        makespan_us=replay.makespan_ns / 1000,
        measured_us=replay.measured_ns / 1000,
        error_pct=replay.error_pct,
        start_error_us=start_error(replay),
        busy_us={lane: time / 1000 for lane, time in busy_ns(replay).items()},
        critical_path_us={kind: time / 1000 for kind, time in path.items()},
        explained_pct=explained_pct(replay, path),
        makespan_low_us=makespan.low_ns / 1000 if makespan is not None else None,
        makespan_high_us=makespan.high_ns / 1000 if makespan is not None else None,
        start_offsets_us=offsets if len(offsets) > 1 else {},
        without_start_offsets_us=replay.start_offset.makespan_without_ns / 1000 if replay.start_offset else None,
        recording=recording,
        matched=[matched(work.graphs, change) for change in scale],
        absent=absence(work),
    )


def explained_pct(replay: Replay, path: dict[str, int]) -> float:
    """Returns the share of the makespan that known dependencies explain: all of the critical path but delays and starts
    that depend on nothing.

    Where an unchanged replay ends far too early, the time that it lacks is not explained either.
    """
    unexplained_ns, whole_ns = sum(path.get(kind, 0) for kind in UNEXPLAINED), replay.makespan_ns
    is_changed = replay.range is not None
    if not is_changed and (replay.error_pct or 0) < -RELIABLE_PCT:
        unexplained_ns, whole_ns = unexplained_ns + replay.measured_ns - replay.makespan_ns, replay.measured_ns
    return 100 - 100 * unexplained_ns / max(whole_ns, 1)


def trust(replay: Replay) -> str:
    """Returns in a few words how reliable conclusions from the replay are."""
    if replay.error_pct is None:
        return "there is no measured time to compare the replay with"
    share_pct = explained_pct(replay, time_by_kind(pieces_of(replay)))
    text = f"the replay is {replay.error_pct:+.2f} % off the measured run and explains {share_pct:.1f} % of it"
    return f"{text}: too far off to rely on" if abs(replay.error_pct) > RELIABLE_PCT else text


def off_by_target(replay: Replay) -> str:
    """Returns that graphs made for ASTRA-sim do not give the measured run back, where they do not; else ""."""
    targets = {graph.metadata.get("target") for graph in replay.work.graphs}
    if ASTRA_SIM not in targets or abs(replay.error_pct or 0.0) <= RELIABLE_PCT:
        return ""
    return f"these graphs are made for {ASTRA_SIM}, whose waits differ: build generic ones for a replay"


def start_error(replay: Replay) -> StartError:
    """Returns the start errors of all activities with a recorded start; zeros if there are none, as in a scaled job."""
    work = replay.work
    timed = work.is_activity & work.is_timed & (not work.is_of_scaled_job)
    error = np.abs(replay.start_ns[timed] - work.measured_start_ns[timed]) / 1000
    if not len(error):
        return StartError(0.0, 0.0, 0.0)
    return StartError(*np.quantile(error, (0.5, 0.95, 1)).tolist())


def busy_ns(replay: Replay) -> dict[str, int]:
    """Returns the time (ns) in which each device stream runs an activity; waiting in a collective counts as running."""
    work = replay.work
    rows = np.flatnonzero(work.is_activity)
    rows = rows[np.lexsort((replay.start_ns[rows], work.lane[rows]))]
    lane, start, end = work.lane[rows], replay.start_ns[rows], replay.end_ns[rows]
    busy = end - np.maximum(start, busy_until(lane, Intervals(start, end)))
    total = group_sums(lane, np.maximum(busy, 0), len(work.lanes))
    ranks = _rank_prefixes(work)
    streams = [work.lanes[number] for number in np.unique(lane).tolist()]
    labels = [f"{ranks[lane.rank]}{_short_label(lane)}" for lane in streams]
    return dict(zip(labels, total[np.unique(lane)].tolist(), strict=True))


def _short_label(lane: Lane) -> str:
    """Returns the number of a thread, or device/stream; what ran on no recorded stream is a transfer of the host."""
    if not lane.is_stream:
        return number_text(lane.number)
    if (lane.number, lane.stream) == (ABSENT, ABSENT):
        return HOST_TRANSFERS
    return f"{number_text(lane.number)}/{number_text(lane.stream)}"


def _rank_prefixes(work: Workload) -> list[str]:
    """Returns what stands before a lane's name by rank: `RANK/`, nothing of a single rank."""
    return [f"{label}/" for label in work.rank_labels()] if len(work.graphs) > 1 else [""]


def describe(replay: Replay, summary: ReplaySummary, scale: Sequence[Scale] = (), without_profiler: str = "") -> str:
    """Returns the summary as aligned text, for a changed run with the answer in a sentence at the end, and what the
    answer is `without_profiler`.
    """
    starts, error = summary.start_error_us, summary.error_pct
    verdict = "" if error is None else f"  {error:+.2f} %"
    whole, busy, path = summary.makespan_us, list(summary.busy_us.items()), list(summary.critical_path_us.items())
    has_streams = any(lane.is_stream and lane.number != ABSENT for lane in replay.work.lanes)
    hidden = [f"  and {len(busy) - STREAMS_SHOWN} more streams"] if len(busy) > STREAMS_SHOWN else []
    error_of_starts = f"start error    {starts.median:>14,.1f} µs median, {starts.p95:,.1f} p95, {starts.max:,.1f} max"
    streams = f"stream busy    {'rank/' if len(replay.work.graphs) > 1 else ''}device/stream"
    lines = [
        f"nodes          {len(replay.work):>14,}  {_counts(_node_counts(replay.work))}",
        f"dependencies   {len(replay.work.source):>14,}  {_counts(_dependency_counts(replay.work.kind))}",
        *_measured(replay),
        f"replayed       {summary.makespan_us:>14,.1f} µs{verdict}",
        *(f"changed        {change.nodes:>14,}  {change.of_spec}" for change in summary.matched),
        *([f"recording      {summary.recording.text}"] if summary.recording else []),
        *([f"absent         {summary.absent}"] if summary.absent else []),
        *_range(replay.range),
        *_start_offset(replay),
        *([] if scale or replay.work.is_of_scaled_job else [error_of_starts]),
        f"explained      {summary.explained_pct:>14,.2f} %  of the critical path; delays and starts that nothing explains are the rest",
        *([streams, *_shares(busy[:STREAMS_SHOWN], whole), *hidden] if has_streams else _threads(replay, whole)),
        "critical path",
        *_shares(path, whole),
        *_crossings(replay),
        *([answer(replay, scale) + without_profiler] if scale else []),
    ]
    return "\n".join(lines)


def _measured(replay: Replay) -> list[str]:
    """Returns the line for the measured run; for a changed run of a scaled job, which was never measured, for the
    replay without changes.
    """
    label = "unchanged" if replay.work.is_of_scaled_job else "measured"
    is_known = replay.measured_ns > 0 or not replay.work.is_of_scaled_job
    return [f"{label:<15}{replay.measured_ns / 1000:>14,.1f} µs"] if is_known else []


def _range(makespan: MakespanRange | None) -> list[str]:
    """Returns the line for a makespan that uncertain waits could change."""
    if makespan is None or makespan.is_clear:
        return []
    low, high = makespan.low_ns / 1000, makespan.high_ns / 1000
    return [f"range          {low:>14,.1f} µs  to {high:,.1f} µs; {makespan.reason}"]


def _start_offset(replay: Replay) -> list[str]:
    """Returns the line for the rank that began last, if that is large enough to matter."""
    if not is_noteworthy(replay.work, replay.makespan_ns):
        return []
    rank, offset_ns = largest_offset(replay.work)
    return [f"start offset   {offset_ns / 1000:>14,.1f} µs  of rank {rank}; {WHY}"]


def _crossings(replay: Replay) -> list[str]:
    """Returns the line that says by what the critical path goes from rank to rank, if it does."""
    counts = list(crossing_names(replay).items())
    shown = [f"{name.partition('(')[0]} {count:,}" for name, count in counts[:NAMES_SHOWN]]
    if others := sum(count for _, count in counts[NAMES_SHOWN:]):
        shown.append(f"others {others:,}")
    total = sum(count for _, count in counts)
    return [f"rank to rank   {total:>14,}  times on the critical path: {', '.join(shown)}"] if counts else []


def _threads(replay: Replay, whole_us: float) -> list[str]:
    """Returns lines for the host threads of a run without a device, the busiest first."""
    work = replay.work
    idle = np.concatenate([graph.name.equal(IDLE) for graph in work.graphs])
    # a transfer between hosts may take less time than measured, as all come together
    lasted = np.minimum(work.duration_ns, replay.end_ns - replay.start_ns)
    total = np.bincount(work.lane, np.where(idle, 0, lasted), len(work.lanes)) / 1000
    ranks = _rank_prefixes(work)
    names = [f"{ranks[lane.rank]}{_short_label(lane)}" for lane in work.lanes]
    worked = int((total > 0).sum())
    order = np.argsort(-total, kind="stable")[: min(worked, STREAMS_SHOWN)].tolist()
    hidden = [f"  and {worked - STREAMS_SHOWN} more threads"] if worked > STREAMS_SHOWN else []
    return [
        "thread busy     in ops and calls; on the critical path, host is Python between them, too",
        *_shares([(names[lane_number], float(total[lane_number])) for lane_number in order], whole_us),
        *hidden,
    ]


def _shares(times_us: Sequence[tuple[str, float]], whole_us: float) -> list[str]:
    width = max([LABEL, *(len(label) + 1 for label, _ in times_us)])
    return [f"  {label:<{width}}{time:>13,.1f} µs  {100 * time / (whole_us or 1):5.1f} %" for label, time in times_us]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{label} {count:,}" for label, count in counts.items() if count)


def _node_counts(work: Workload) -> dict[str, int]:
    counts = np.bincount(work.node_class, minlength=len(NodeClass)).tolist()
    return {node_class.label: counts[node_class] for node_class in NodeClass}


def _dependency_counts(kind: Int64) -> dict[str, int]:
    """Returns how many dependencies each reason has; one with several reasons counts for each."""
    counts = {bit.label: int((kind & bit != 0).sum()) for bit in DependencyKind}
    return counts | {"of unknown kind": int((kind == 0).sum())}
