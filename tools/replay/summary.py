"""Says what a replay gives: fields of `--json` and text for a terminal. Times are in µs."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from ...converter.timeline import IDLE
from ...schema.arguments import ASTRA_SIM
from ...schema.columns import ABSENT, Intervals, busy_until, group_sums, signed_pct, time_text
from ...schema.graph import STEP_WITHOUT_PROFILER_NS, STEPS, DependencyKind
from ...schema.machine import rounding
from ...schema.reasons import Counts, Reason
from .calls import Phase, phases_of
from .changes import MODULE, UNDER, Bound, Matched, Named, Scale, matched
from .critical_path import UNEXPLAINED, largest_part_left, time_by_kind
from .data_loading import waits_of
from .execution import Replay, makespan_ns
from .job_graphs import absence, losses, losses_in_words
from .recording import Recording, with_loaders_us
from .workload import WHY, NodeClass, Workload, node_classes, number_text

HOST_TRANSFERS = "host transfers"
"""What stands for the device and stream of transfers between hosts, as of gloo."""
STREAMS_SHOWN, LABEL = 16, 14
"""How many streams or threads are listed, and how many letters their labels have at least."""
RELIABLE_PCT, RELIABLE_MODEL_PCT = 1.0, 3.0
"""If a replay differs more from the measured run, or from the timed steps that a model is of, replays with changes are
not reliable. Models of tests/data/gpu are up to 2.3 % off, as recorded kernels take a little longer, and the host may
do as much work as does not hold devices up.
"""
MOST_UNEXPLAINED_PCT = 20.0
"""If more of the critical path than this is unexplained, what limits the run may be in it."""
CHANGED = {
    NodeClass.HOST: "the host", NodeClass.COMPUTATION: "all computation", NodeClass.COMMUNICATION: "all communication",
    NodeClass.MEMORY: "all memory copies", NodeClass.DELAY: "all delays", Bound.COMPUTE: "all compute-bound kernels",
    Bound.MEMORY: "all memory-bound kernels",
}  # fmt: skip
SAID = {
    "launch": "launch latency", "stream order": "gaps between kernels", "event wait": "event-wait latency",
    "host sync": "returns from waits",
}  # fmt: skip
"""What the text calls times after a dependency."""


class StartError(msgspec.Struct, frozen=True):
    """Absolute differences between the replayed and the measured starts of activities."""

    median: float
    p95: float
    max: float


class WithoutProfiler(msgspec.Struct, frozen=True):
    """How long a run of so many `steps` takes without a profiler (µs): as measured, and with changes, as a range."""

    measured_us: float
    changed_us: float
    low_us: float
    high_us: float
    steps: int


class ReplaySummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of a replay in µs; `error_pct` is None without a measured time. Where it is of a run
    `without_profiler`, so are all of them, and no start was measured.

    `busy_us` is by stream, `critical_path_us` by kind of node or wait. Of a changed run `makespan_low_us` and
    `makespan_high_us` are the makespan without and with the waits that nothing confirms, the smaller one first; without
    changes they are None, and left out of `--json`. Of several ranks, `start_offsets_us` says by rank how much later
    than the first one each began; where that matters to a changed run, `without_start_offsets_us` is the makespan
    without these. `recording` says how long a step takes without a profiler, where that was measured. `matched` says
    what each change applies to, `absent` which ranks of the job are missing, `differs` what graphs replay as that are
    not the run.

    >>> import execgraph as eg
    >>> results = eg.link("tests/data/training", rank=0).to_graph().replay().results
    >>> results.makespan_us, results.explained_pct, max(results.critical_path_us, key=results.critical_path_us.get)
    (4494.59, 100.0, 'computation')
    """

    makespan_us: float
    measured_us: float
    error_pct: float | None
    start_error_us: StartError | None
    busy_us: dict[str, float]
    critical_path_us: dict[str, float]
    explained_pct: float | None
    makespan_low_us: float | None = None
    makespan_high_us: float | None = None
    start_offsets_us: dict[str, float] = {}
    without_start_offsets_us: float | None = None
    recording: Recording | None = None
    matched: list[Matched] = []
    absent: str = ""
    differs: str = ""
    without_profiler: WithoutProfiler | None = None


def summarise(replay: Replay) -> ReplaySummary:
    """Returns the summary of a replay, in which critical_path_us adds up to makespan_us. O(n log n)."""
    path, makespan, work = time_by_kind(replay), replay.range, replay.work
    offsets = dict(zip(work.rank_labels(), (work.start_offset_ns / 1000).tolist(), strict=True))
    return ReplaySummary(
        makespan_us=replay.makespan_ns / 1000, measured_us=replay.measured_ns / 1000, error_pct=replay.error_pct,
        start_error_us=None if work.unprofiled else start_error(replay),
        busy_us={lane: time / 1000 for lane, time in busy_ns(replay).items()},
        critical_path_us={kind: time / 1000 for kind, time in path.items()},
        explained_pct=None if np.isnan(explained := explained_pct(replay)) else explained,
        makespan_low_us=makespan.low_ns / 1000 if makespan is not None else None,
        makespan_high_us=makespan.high_ns / 1000 if makespan is not None else None,
        start_offsets_us=offsets if len(offsets) > 1 else {},
        without_start_offsets_us=replay.start_offset.makespan_without_ns / 1000 if replay.start_offset else None,
        recording=work.recording, matched=[matched(replay.unchanged or work, change) for change in replay.changes],
        absent=absence(work), differs=work.differs, without_profiler=_without_profiler(replay),
    )  # fmt: skip


def _without_profiler(replay: Replay) -> WithoutProfiler | None:
    run, makespan = replay.work.unprofiled, replay.makespan_ns
    if run is None:
        return None
    # a replay of the run without changes is as long as that was, or nearly
    whole = run.measured_ns / (replay.measured_ns if replay.changes else makespan) / 1000
    low, high = replay.range[:2] if replay.range else (makespan, makespan)
    return WithoutProfiler(run.measured_ns / 1000, makespan * whole, low * whole, high * whole, run.steps)


def explained_pct(replay: Replay) -> float:
    """Returns the share of the makespan that dependencies explain: all but delays and starts that depend on nothing.

    What an unchanged replay that ends far too early lacks is not explained either. NaN where work was lost or has wrong
    times, or where nothing was to be explained, as all of the path is work of the host.
    """
    path, whole_ns, work = time_by_kind(replay), replay.makespan_ns, replay.work
    lost = Counts().add(*map(losses, work.graphs))
    has_lost, is_wrong = Reason.LAUNCHES_NOT_RECORDED in lost, bool(lost.keys() - {Reason.LAUNCHES_NOT_RECORDED})
    without_call = has_lost * (work.node_class == NodeClass.UNRECORDED).sum()
    unexplained_ns = sum(path.get(kind, 0) for kind in (*UNEXPLAINED, *[NodeClass.UNRECORDED.label] * has_lost))
    if replay.range is None and not work.differs and (replay.error_pct or 0) < -RELIABLE_PCT:
        unexplained_ns, whole_ns = unexplained_ns + replay.measured_ns - replay.makespan_ns, replay.measured_ns
    is_of_host = not unexplained_ns and work.is_activity.sum() <= without_call
    return np.nan if is_of_host or is_wrong else 100 - 100 * unexplained_ns / max(whole_ns, 1)


def trust(replay: Replay) -> str:
    """Returns in a few words how reliable conclusions from the replay are."""
    if replay.error_pct is None:
        return "there is no measured time to compare the replay with"
    text, explained = f"the replay is {signed_pct(replay.error_pct)} off the measured run", explained_pct(replay)
    text += "" if np.isnan(explained) else f" and explains {explained:.1f} % of it"
    return f"{text}: too far off to rely on" if abs(replay.error_pct) > RELIABLE_PCT else text


def off_by_target(replay: Replay) -> str:
    """Returns that graphs made for ASTRA-sim do not give the measured run back, where they do not; else ""."""
    targets = {graph.metadata.get("target") for graph in replay.work.graphs}
    if ASTRA_SIM not in targets or abs(replay.error_pct or 0.0) <= RELIABLE_PCT:
        return ""
    return f"these graphs are made for {ASTRA_SIM}, whose waits differ: build generic ones for a replay"


def start_error(replay: Replay) -> StartError | None:
    """Returns the start errors of all activities with a recorded start; None if there are none, as in a scaled job."""
    work = replay.work
    timed = work.is_activity & work.is_timed & (not work.is_of_scaled_job)
    error = np.abs(replay.start_ns[timed] - work.measured_start_ns[timed]) / 1000
    return StartError(*np.quantile(error, (0.5, 0.95, 1)).tolist()) if len(error) else None


def busy_ns(replay: Replay) -> dict[str, int]:
    """Returns the time (ns) in which each device stream runs an activity; waiting in a collective counts as running."""
    work = replay.work
    rows = np.flatnonzero(work.is_activity)
    rows = rows[np.lexsort((replay.start_ns[rows], work.lane[rows]))]
    lane, start, end = work.lane[rows], replay.start_ns[rows], replay.end_ns[rows]
    busy = end - np.maximum(start, busy_until(lane, Intervals(start, end)))
    total, labels = group_sums(lane, np.maximum(busy, 0), len(work.lanes)), _lane_labels(work)
    return {labels[number]: int(total[number]) for number in np.unique(lane).tolist()}


def _lane_labels(work: Workload) -> list[str]:
    """Returns the number of each thread, or device/stream, `RANK/` before it if there are several ranks."""
    prefixes = [f"{label}/" for label in work.rank_labels()] if len(work.graphs) > 1 else [""]
    labels = []
    for lane in work.lanes:
        label = number_text(lane.number)
        if lane.is_stream:
            is_unknown = (lane.number, lane.stream) == (ABSENT, ABSENT)
            label = HOST_TRANSFERS if is_unknown else f"{label}/{number_text(lane.stream)}"
        labels.append(prefixes[lane.rank] + label)
    return labels


def describe(replay: Replay, summary: ReplaySummary, scale: Sequence[Scale] = ()) -> str:
    """Returns the summary as aligned text: of a changed run the answer in sentences, and below it what it rests on."""
    work, starts = replay.work, summary.start_error_us
    lines = [answer(replay, scale), ""] if scale else _compared(replay, summary)
    of_steps = summary.without_profiler.steps if summary.without_profiler else 0
    lines += [f"changed        {change.nodes:>14,}  {change.of_spec(of_steps)}" for change in summary.matched]
    lines += [f"recording      {summary.recording.text}"] if summary.recording else []
    texts = {"differs": summary.differs, "absent": summary.absent, "lost": losses_in_words(work)}
    texts["rounded"] = rounding(np.concatenate([graph.duration_ns for graph in work.graphs])[work.is_activity])
    lines += [f"{label:<15}{text}" for label, text in texts.items() if text]
    if late := work.late_rank(replay.makespan_ns):
        lines.append(f"start offset   {late[1] / 1000:>14,.1f} µs  of rank {late[0]}; {WHY}")
    if starts and not scale and not work.is_of_scaled_job:
        times = f"{starts.median:>14,.1f} µs median, {starts.p95:,.1f} p95, {starts.max:,.1f} max"
        lines.append(f"start error    {times}, of kernels, copies and communication")
    explained = "no device activity was recorded, so nothing had to be explained"
    explained = "not known, as records were lost or are wrong" if work.is_activity.any() else explained
    if summary.explained_pct is not None:
        rest = 100 - summary.explained_pct
        why = f"; {rest:.2f} % has no recorded reason" if rest >= 0.005 else " (no unexplained delay)"
        explained = f"{summary.explained_pct:>14,.2f} %  of the critical path{why}"
    of_host = "" if work.is_activity.any() else "host is ops and the Python between them"
    head = f"critical path  {'of a step; ' * bool(summary.without_profiler)}{of_host}".rstrip("; ")
    lines += [f"explained      {explained}", *([] if scale else _busy(replay, summary)), head]
    path_us = {SAID.get(kind, kind): time_us for kind, time_us in summary.critical_path_us.items()}
    return "\n".join([*lines, *_shares(path_us, summary)])


def _compared(replay: Replay, summary: ReplaySummary) -> list[str]:
    """Returns lines on what was replayed without changes, and how long that takes beside the measured run."""
    work, whole = replay.work, summary.without_profiler
    classes = np.bincount(work.node_class, minlength=len(NodeClass)).tolist()
    reasons = {bit.label: int((work.kind & bit != 0).sum()) for bit in DependencyKind}
    reasons["of unknown kind"] = int((work.kind == 0).sum())
    lines = [
        f"nodes          {len(work):>14,}  {_counts({kind.label: classes[kind] for kind in NodeClass})}",
        f"dependencies   {len(work.source):>14,}  {_counts(reasons)}",
    ]
    steps, of_step = (whole.steps, "  a step, unprofiled") if whole else (1, "")
    if not work.is_of_scaled_job:
        lines.append(f"{work.origin:<15}{summary.measured_us / steps:>14,.1f} µs{of_step}")
    error = "" if summary.error_pct is None else f"  {signed_pct(summary.error_pct)}"
    error += " (fitted to it)" if error and work.unprofiled else ""
    return [*lines, f"replayed       {summary.makespan_us / steps:>14,.1f} µs{error}"]


def _busy(replay: Replay, summary: ReplaySummary) -> list[str]:
    """Returns lines for the streams, or for the host threads of a run without a device, the busiest first."""
    work, busy = replay.work, summary.busy_us
    unit, head = "streams", f"stream busy    {'rank/' if len(work.graphs) > 1 else ''}device/stream"
    if not any(lane.is_stream and lane.number != ABSENT for lane in work.lanes):
        unit = "threads"
        head = f"thread busy    {'rank/' if len(work.graphs) > 1 else ''}thread; in ops and calls"
        idle = np.concatenate([graph.name.equal(IDLE) for graph in work.graphs])
        # a transfer between hosts may take less time than measured, as all come together
        lasted = np.minimum(work.duration_ns, replay.end_ns - replay.start_ns)
        total, labels = np.bincount(work.lane, np.where(idle, 0, lasted), len(work.lanes)) / 1000, _lane_labels(work)
        order = np.argsort(-total, kind="stable").tolist()
        busy = {labels[number]: float(total[number]) for number in order if total[number] > 0}
    hidden = [f"  and {len(busy) - STREAMS_SHOWN} more {unit}"] if len(busy) > STREAMS_SHOWN else []
    return [head, *_shares(dict([*busy.items()][:STREAMS_SHOWN]), summary), *hidden]


def _shares(times_us: Mapping[str, float], summary: ReplaySummary) -> list[str]:
    """Returns a line for each time, of a step if the run is known without a profiler."""
    width, whole = max([LABEL, *(len(label) + 1 for label in times_us)]), summary.makespan_us or 1
    run = summary.without_profiler
    of_step = (run.changed_us / whole if summary.matched else 1) / run.steps if run else 1
    return [f"  {label:<{width}}{us * of_step:>13,.1f} µs  {100 * us / whole:5.1f} %" for label, us in times_us.items()]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{label} {count:,}" for label, count in counts.items() if count)


def answer(replay: Replay, scale: Sequence[Scale]) -> str:
    """Returns how long the run, or a step without a profiler, would take with changes, and what is uncertain."""
    before, after, makespan, offset = replay.measured_ns, replay.makespan_ns, replay.range, replay.start_offset
    without = _without_profiler(replay)
    recorded = max(graph.number(STEPS, 1) for graph in replay.work.graphs)
    what, steps = ("a step", without.steps) if without else (f"the run{f' of {recorded} steps' * (recorded > 1)}", 1)
    times_us = (without.measured_us, without.changed_us) if without else (before / 1000, after / 1000)
    times, is_clear = [time_text(time / steps) for time in times_us], makespan is None or makespan.is_clear
    if not before:
        outcome = f"take {times[1]}"
    elif times[0] == times[1]:
        outcome = f"still take {times[1]}" + ("" if is_clear else f", {change_text(replay)}")
    else:
        outcome = f"take {times[1]} instead of {times[0]}, {change_text(replay)}"
    is_faster = all(change.factor < 1 and change.each_ns is None for change in scale)
    sentences = [f"If {_condition(scale)}, {what} would {outcome}."]
    sentences += filter(None, [largest_part_left(replay, scale) if is_faster else ""])
    if makespan is not None and not makespan.is_clear:
        sentences.append(f"{makespan.reason[:1].upper()}{makespan.reason[1:]}.")
    if offset is not None:
        text, makespan_text = offset.text, time_text(offset.makespan_without_ns / 1000)
        sentences.append(f"{text[0].upper()}{text[1:]}: without start offsets, the run would take {makespan_text}.")
    sentences += [*_of_ops_alone(replay, scale), *_of_loaders(replay, scale)]
    reasons, absent = [*_reasons_for_doubt(replay, scale)], absence(replay.work)
    texts = (
        _of_loading(replay, scale, what, times_us, steps),
        _of_recorded_host(replay, scale),
        "" if absent in reasons else absent,
    )
    sentences += [f"{text[:1].upper()}{text[1:]}." for text in texts if text]
    return "\n".join([*sentences, *([f"Do not rely on this: {'; '.join(reasons)}."] if reasons else [])])


def _reasons_for_doubt(replay: Replay, scale: Sequence[Scale]) -> Iterator[str]:
    """Yields what makes an answer unreliable."""
    work, unchanged = replay.work, replay.unchanged or replay.work
    if work.recording and work.recording.doubt:
        yield work.recording.doubt
    if lost := losses_in_words(work):
        yield lost
    if work.members.disagreements:
        yield "ranks disagree on what they communicate"
    limit, off_pct = RELIABLE_MODEL_PCT, replay.range.off_pct if replay.range else 0.0
    if not (work.unprofiled or work.differs or work.is_of_scaled_job) and replay.measured_ns:
        limit, off_pct = RELIABLE_PCT, 100 * (makespan_ns(unchanged) / replay.measured_ns - 1)
    if abs(off_pct) > limit:
        yield f"without changes the replay is {signed_pct(off_pct)} off the measured run"
    if (unexplained := 100 - explained_pct(replay)) > MOST_UNEXPLAINED_PCT:
        yield f"nothing explains {unexplained:.0f} % of the critical path"
    pairs = ((graph, node_classes(graph)) for graph in work.graphs)
    changed = (kind[change.matches(graph, kind)] for graph, kind in pairs for change in scale)
    if (absent := absence(work)) and any((kinds == NodeClass.COMMUNICATION).any() for kinds in changed):
        yield absent


def _of_recorded_host(replay: Replay, scale: Sequence[Scale]) -> str:
    """Returns that the host matters and no step shows how long it takes unprofiled, or that this is a model; or ""."""
    work, host_ns = replay.work, time_by_kind(replay).get(NodeClass.HOST.label, 0)
    if work.is_modelled:
        return "these graphs hold a model of the unprofiled run: for a range, build them without --without-profiler"
    is_timed = all(STEP_WITHOUT_PROFILER_NS in graph.metadata for graph in work.graphs)
    is_of_host = 2 * host_ns >= replay.makespan_ns or any(_changed_ns(replay, change)[0] for change in scale)
    if is_timed or work.is_of_scaled_job or not is_of_host:
        return ""
    return "no steps were timed without a profiler, which slows the host: in the real job the change may differ"


def _of_ops_alone(replay: Replay, scale: Sequence[Scale]) -> Iterator[str]:
    """Yields a sentence for each name that changes ops, but neither what they launch nor most of what they call."""
    loader = waits_of(replay.unchanged or replay.work)[0]
    for change in scale:
        of_ranks = [change.matches(graph, node_classes(graph)) for graph in replay.work.graphs]
        if not isinstance(name := change.target, re.Pattern) or np.concatenate(of_ranks)[loader].any():
            continue
        below = dataclasses.replace(change, target=Named(UNDER, name))
        (host_ns, device_ns), (host_below_ns, device_below_ns) = (_changed_ns(replay, each) for each in (change, below))
        if device_below_ns and not device_ns:
            yield f"That changes the host alone: {UNDER}{name.pattern} takes what it launches with it."
        elif 2 * host_ns < host_below_ns and not device_ns:
            pct = 100 * host_ns / host_below_ns
            yield f"That changes {pct:.0f} % of its time: {UNDER}{name.pattern} takes the ops that it calls with it."


def _of_loaders(replay: Replay, scale: Sequence[Scale]) -> Iterator[str]:
    """Yields what a factor for waits for data changes, which other processes load."""
    row, _, _, is_waiting = waits_of(replay.unchanged or replay.work)
    factors = (change for change in scale if change.each_ns is None and change.factor not in (0, 1))
    chosen = [[change.matches(graph, node_classes(graph)) for graph in replay.work.graphs] for change in factors]
    is_chosen = np.any([np.concatenate(of_change)[row] for of_change in chosen] or [row < 0], axis=0)
    if is_chosen.any():
        unknown = "The loop did not wait for its data loader: how long its processes need for a batch is not known."
        known = "This assumes that the factor applies to all of the time in which its processes prepare a batch."
        yield known if (is_chosen & is_waiting).any() else unknown


def _of_loading(replay: Replay, scale: Sequence[Scale], what: str, times_us: Sequence[float], steps: int) -> str:
    """Returns how long a step of a loop that loads itself is if another process does, or "" if loading stays. The
    `steps` take so long with it and without it.
    """
    work, before_us, after_us = replay.unchanged or replay.work, *(time / steps for time in times_us)
    gone = [
        each for each in scale if each.factor == 0 and _phases(replay, each) == {[*Phase].index(Phase.DATA_LOADING)}
    ]
    if not gone or not before_us or len(waits_of(work)[0]) or work.is_activity.any():
        return ""
    is_gone = (np.any([each.matches(g, node_classes(g)) for each in gone], axis=0) for g in work.graphs)
    loading_ns = np.bincount(work.ranks_of(np.arange(len(work))), np.concatenate([*is_gone]) * work.duration_ns)
    loading_us = float(loading_ns.max()) / 1000 / steps
    least_us = min(with_loaders_us(work.recording, after_us, loading_us), before_us)
    least = f"takes about {time_text(least_us)}, {100 * (1 - least_us / before_us):.0f} % less"
    least = least if least_us > after_us else "may be as short, if a core is free for it"
    least = least if least_us < before_us else "does not get shorter, as no core is free"
    return f"this is for loading that takes no time; with one process that loads ahead (num_workers=1), {what} {least}"


def _phases(replay: Replay, change: Scale) -> set[int]:
    """Returns the numbers of the phases that a change is about."""
    return {
        int(phase) for g in replay.work.graphs for phase in np.unique(phases_of(g)[change.matches(g, node_classes(g))])
    }


def _changed_ns(replay: Replay, change: Scale) -> tuple[int, int]:
    """Returns how long the nodes of hosts and of devices last that a change is about."""
    times_ns = np.zeros(2, np.int64)
    for graph in replay.work.graphs:
        changed = change.matches(graph, node_classes(graph))
        times_ns += np.bincount(graph.is_activity[changed], graph.duration_ns[changed], 2).astype(np.int64)
    return int(times_ns[0]), int(times_ns[1])


def change_text(replay: Replay) -> str:
    """Says by how much longer a changed run takes: `−21 % (−24 to −18 %)`, or that this is within the noise."""
    before, makespan, run = replay.measured_ns, replay.range, replay.work.unprofiled
    low, high = (makespan.low_ns, makespan.high_ns) if makespan else (replay.makespan_ns,) * 2
    changes = [100 * (time - before) / before for time in (replay.makespan_ns, low, high)]
    size = abs(changes[0])
    decimals = 0 if size >= 10 else 2 if 0 < size < 0.05 else 1
    text, *between = (f"{change:+.{decimals}f}".replace("-", "\u2212") for change in changes)
    is_clear = makespan is None or makespan.is_clear or between[0] == between[1]
    said = f"{text} %" if is_clear else f"{text} % ({' to '.join(between)} %)"
    # a wider range has other reasons
    is_noise = run and size < run.noise_pct and max(map(abs, changes)) <= size + run.noise_pct + 1
    return f"{said}, within the noise of its steps" if is_noise else said


def _condition(scale: Sequence[Scale]) -> str:
    """Returns the condition: what would be changed, grouped by the factor."""
    subjects: dict[str, list[str]] = {}
    for change in scale:
        target, each_ns = change.target, change.each_ns
        if isinstance(target, re.Pattern):
            subject = f"everything whose name matches '{target.pattern}'"
        elif isinstance(target, Named):
            subject = f"all work in {'modules' if target.by == MODULE else 'calls'} whose name matches '{target.pattern.pattern}'"
        else:
            subject = f"the phase {target.value}" if isinstance(target, Phase) else CHANGED[target]
        subject += f" of rank {change.rank}" if change.rank is not None else ""
        in_steps = isinstance(target, Phase) or (isinstance(target, Named) and target.by == MODULE)
        of = "in each step" if in_steps else "each time"
        predicate = _predicate(change.factor) if each_ns is None else f"took {time_text(each_ns / 1000)} {of}"
        subjects.setdefault(predicate, []).append(subject)
    condition = " and ".join(f"{' and '.join(names)} {predicate}" for predicate, names in subjects.items())
    may_overlap = len(scale) > 1 and not all(isinstance(change.target, NodeClass) for change in scale)
    return condition + (" (factors multiply where several apply)" if may_overlap else "")


def _predicate(factor: float) -> str:
    """
    >>> _predicate(0.5), _predicate(0.999), _predicate(3), _predicate(0)
    ('were twice as fast', 'were 1.001 times as fast', 'took 3 times as long', 'took no time')
    """
    if factor in (0, 1):
        return "were as fast as measured" if factor else "took no time"
    times = 1 / factor if factor < 1 else factor
    digits = ",.0f" if times >= 100 else ".3g" if times >= 1.01 else ".6g"
    words = "twice" if times == 2 else f"{times:{digits}} times"
    return f"were {words} as fast" if factor < 1 else f"took {words} as long"
