"""What holds a run up, and what to try, by rules over the job; and what limits the run, or why that cannot be told."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...linker.contradictions import RECORD_DEVICE
from ...schema.columns import time_text
from ...schema.errors import Remedy, Words
from ...schema.graph import STEP_WITHOUT_PROFILER_NS, DependencyKind
from ...schema.linked import kineto
from ...schema.machine import HOST_TRACE_US
from .. import replay as replays
from ..replay import DATA_WAIT, HOST_DELAY, WAITS, Cause, NodeClass, off_by_target, why_not_one_job
from ..terminal import ranges
from .critical_path import reliability
from .efficiency import layout_changes, matrix_products
from .finding_words import Found
from .job import Finding, Gain, Job
from .ops import HOST_PHASES
from .rules_cpu import RULES as CPU_RULES, TWICE_AS_FAST
from .rules_host import RULES as HOST_RULES
from .rules_ranks import RULES as RANK_RULES, latest_begin
from .table import Columns, Quantity, Table, tabulate

UNSURE = (Found.PAUSES, Found.CROWDED_CORES)
"""Findings after all others: slow calls, which may not recur, and other processes, which may not cost time."""
ADD_UP = 0.9
"""Gains overlap if all changes together bring a smaller share of their sum than this."""
RULES: tuple[Callable[[Job], Iterable[Finding]], ...] = (
    *HOST_RULES,
    *CPU_RULES,
    matrix_products,
    layout_changes,
    *RANK_RULES,
)
MOST_OF_PATH = 50.0
"""What is less of the critical path is said by its gain."""
LEAST_EXPLAINED = 0.5
"""What else the host does is said if findings gain less than this share of the time in which devices are idle."""
LEAST_SLOWED = 0.05
"""What a host trace costs is said from this share of the run on."""
TOLERANCE_PCT = 5.0
"""By how much a gain may exceed the time in which the device does not compute."""
WAIT_AFTER, BY_HOST = dict(WAITS), (DependencyKind.LAUNCH, DependencyKind.HANDOFF, DependencyKind.PROGRAM_ORDER)
OF_HOST = (
    NodeClass.HOST.label, HOST_DELAY, DATA_WAIT, *(WAIT_AFTER[kind] for kind in BY_HOST), NodeClass.UNRECORDED.label,
)  # fmt: skip
LIMITS = {
    NodeClass.HOST: OF_HOST, NodeClass.COMPUTATION: (NodeClass.COMPUTATION.label,),
    NodeClass.COMMUNICATION: (NodeClass.COMMUNICATION.label, WAIT_AFTER[DependencyKind.COLLECTIVE]),
    NodeClass.MEMORY: (NodeClass.MEMORY.label,),
}  # fmt: skip
"""What may limit a run, and the kinds of time on the critical path that it stands for."""
WORDS = {
    NodeClass.HOST: ("The CPU limits the run", "A CPU", "work of the CPU"),
    NodeClass.COMPUTATION: ("Computation limits the run", "Kernels", "computation"),
    NodeClass.COMMUNICATION: ("Communication limits the run", "Communication", "communication"),
    NodeClass.MEMORY: ("Copies limit the run", "Copies", "copies"),
}
"""How a verdict names what limits a run, what would be faster, and what is left."""
GIVE_ONE_RUN = Words("give the traces of one run, or compare two with ", Remedy.DIFF)


def find(job: Job) -> list[Finding]:
    """Returns what all rules find: the largest gain first, then what is unsure, then the rest."""
    findings = [finding for rule in RULES for finding in rule(job)]
    gains = [finding for finding in findings if finding.gain and finding.gain.is_worth_it and not job.lost_work]
    # an annotation without ops is one finding
    named = {finding.values["name"] for finding in gains if finding.what is Found.ANNOTATED_WORK}
    gains = [
        finding for finding in gains if finding.what is not Found.WITHOUT_OPS or finding.values["name"] not in named
    ]
    # few shapes can be as good as the best one
    last = (*UNSURE, Found.LOW_USE)
    gains.sort(key=lambda finding: (finding.what in last, -(finding.gain.us if finding.gain else 0.0)))
    return [*gains, *(finding for finding in findings if finding.gain is None)]


def together(job: Job, findings: Sequence[Finding]) -> Gain | None:
    """Returns the gain of all findings together if their gains overlap, so that they cannot be added; else None."""
    gains = [finding.gain for finding in findings if finding.gain is not None]
    factors = [gain.factor for gain in gains if gain.factor is not None]
    if len(factors) < max(len(gains), 2):  # of some no replay tells the gain
        return None
    removed = np.zeros(len(job.work.source), np.bool_)
    for gain in gains:
        removed |= False if gain.removed is None else gain.removed
    # of a node's factors the least holds
    of_all = job.gain(np.minimum.reduce(factors), removed)
    return of_all if of_all.us < ADD_UP * sum(gain.us for gain in gains) else None


class Verdict(NamedTuple):
    """What limits the run, or, with `doubts`, that this cannot be told and why.

    `twice_as_fast` has how long the run takes with half the durations of each class of work. A delay is no work.
    """

    sentence: str
    doubts: list[str]
    recording_cost: str
    twice_as_fast: Table


def verdict(job: Job, findings: Sequence[Finding]) -> Verdict:
    """Returns what limits the run, with a profiler or without, and what to do, unless figures contradict it."""
    present = [node_class for node_class in LIMITS if (job.work.node_class == node_class).any()] or [NodeClass.HOST]
    on_path = {limit: sum(job.path_us.get(kind, 0.0) for kind in kinds) for limit, kinds in LIMITS.items()}
    gains = dict[NodeClass, Gain]()
    for node_class in present:
        factor = np.where(job.work.node_class == node_class, TWICE_AS_FAST, 1.0)
        gains[node_class] = job.gain(factor, of_host_delays=TWICE_AS_FAST if node_class is NodeClass.HOST else 1.0)
    limit = max(present, key=lambda node_class: max(gains[node_class].pct, gains[node_class].freed_pct or 0.0))
    gain, largest = gains[limit], max(on_path, key=lambda node_class: on_path[node_class])
    doubts = [*_doubts(job, limit, gain)]
    best = next((each for each in findings if each.gain is not None and each.what not in UNSURE), None)
    if doubts:
        # the largest part of the rest of the critical path
        path_us, rest = sum(job.path_us.values()), ""
        if (explained_us := path_us - job.unexplained_us) > 0 and not job.lost_work:
            lead = "the rest of " if explained_us < 0.99 * path_us else ""
            busy = f"; devices are busy for {job.busy_pct:.0f} % of the run" if job.rows("temporal_breakdown") else ""
            share = f"{100 * on_path[largest] / explained_us:.0f} % is {WORDS[largest][2]}"
            rest = f" Of {lead}the critical path, {share}{busy}."
        said = f"What limits the run cannot be told: {'; '.join(doubts)}.{rest}"
    else:
        said = f"{_head(job, limit, gain, 100 * on_path[limit] / job.length_us)}. "
        if best is None:
            said += f"{WORDS[limit][1]} twice as fast would save {gain.share}, {gain.time}."
        else:
            said += f"{best.title}. {_saves(best)}"
            said += _rest(job, findings) if limit is NodeClass.HOST and job.is_on_device else ""
        # slow calls may not recur, so they come second
        slow = next((each for each in findings if each.gain and each.what is Found.PAUSES), None)
        if slow and slow.gain and slow.gain.us > ((best and best.gain) or gain).us:
            said += f" {slow.title}. {_saves(slow)}"
        said += "".join(f" {each.title}." for each in findings if each.what is Found.UNEVEN_STEPS)
    shown = [finding.gain for finding in findings if finding.gain] or [gain]
    if any(each.freed_pct is not None for each in shown):
        said += f" Gains are ranges, as {replays.fixed_in_words(job.work, job.with_causes[1])}."
    cost = _recording_cost(job, largest if doubts else limit, is_told=not doubts)
    saved_us = np.array([each.us for each in gains.values()])
    columns: Columns = {
        "change": [node_class.label for node_class in gains], "before": Quantity("µs", 0 * saved_us + job.length_us),
        "after": Quantity("µs", job.length_us - saved_us), "saved": Quantity("µs", saved_us),
        "saved_pct": Quantity("%", np.array([each.pct for each in gains.values()])),
    }  # fmt: skip
    limits = np.array([each.limits_pct[::-1] for each in gains.values()]).T * job.length_us / 100
    limits = limits if (limits[0] > limits[1]).any() else limits[:0]
    names = ("after_low", "after_high")
    columns = {**columns, **{name: Quantity("µs", job.length_us - of) for name, of in zip(names, limits, strict=False)}}
    note = reliability(job.recorded)
    classes = tabulate("twice_as_fast", "Each class of work at twice its speed", columns, note)
    classes = classes.take(slice(0)) if doubts else classes
    return Verdict(" ".join(filter(None, (said, cost))), doubts, cost, classes)


def _saves(finding: Finding) -> str:
    """Returns a sentence on what share of the run the remedy of a finding would save."""
    return f"{finding.remedy} would save {finding.gain.share}." if finding.gain else ""


def _head(job: Job, limit: NodeClass, gain: Gain, path_pct: float) -> str:
    if not job.is_on_device:
        phases = _phases(job)
        return f"All work is on the CPU{phases and f': {phases}'}"
    if limit is NodeClass.HOST:
        word = "GPU" if job.is_on_gpu else "device"
        devices = f"{word}{'s wait' if len(job.rows('temporal_breakdown')) > 1 else ' waits'}"
        return f"The {devices} for the CPU: idle {100 - job.busy_pct:.0f} % of the time"
    if path_pct < MOST_OF_PATH:
        return f"{WORDS[limit][0]} most: twice as fast, it would make the run {gain.pct:.0f} % shorter"
    return f"{WORDS[limit][0]}: {path_pct:.0f} % of the critical path"


def _phases(job: Job) -> str:
    """Returns the shares of the phases of the steps, the longest first; "" where these are not of the run."""
    if job.work.unprofiled:
        return ""
    rows = job.rows("host_phases")
    whole = sum(row["time"] for row in rows)
    shares = [(100 * sum(row[name] for row in rows) / whole, name) for name in HOST_PHASES] if whole else []
    words = {"between_ops": "Python between ops", "forward_and_other": "forward and other ops"}
    longest = sorted((share, name) for share, name in shares if share >= 1)[::-1]
    return ", ".join(f"{share:.0f} % {words.get(name, name)}".replace("_", " ") for share, name in longest)


def _rest(job: Job, findings: Sequence[Finding]) -> str:
    """Returns what the host does while devices are idle, if findings explain little of that; else ""."""
    gained_pct = sum(max(finding.gain.pct, finding.gain.freed_pct or 0) for finding in findings if finding.gain)
    if gained_pct >= LEAST_EXPLAINED * (100 - job.busy_pct):
        return ""
    phases = _phases(job)
    return f" The rest of the idle time goes to other work of the CPU{phases and f', whose time is {phases}'}."


def _doubts(job: Job, limit: NodeClass, gain: Gain) -> Iterator[str]:
    """Yields what contradicts any verdict, or this one."""
    if job.lost_work:
        before = [f"no activity of {device} was recorded" for device in job.unrecorded]
        yield f"{', '.join([*before, job.lost_work])}; trace-diagnose says what to do"
        return
    graphs, error = [rank.graph for rank in job.ranks], job.recorded.error_pct
    ranks = f"ranks {ranges(sorted(rank.rank for rank in job.ranks))}"
    # a rank communicates, or all say of how many ranks the job is
    is_joined = min(graph.number("world_size", -1) for graph in graphs) > 1
    is_joined |= bool((job.work.node_class == NodeClass.COMMUNICATION).any())
    if len(graphs) > 1 and (reason := why_not_one_job(graphs)):
        yield f"{ranks} do not fit together, as {reason}: {GIVE_ONE_RUN}"
    elif len(graphs) > 1 and job.world_size <= len(graphs) and not is_joined:
        yield f"nothing shows that {ranks} are of one job, neither a collective nor a world size: {GIVE_ONE_RUN}"
    if job.unrecorded:
        yield f"no activity of {', '.join(job.unrecorded)} was recorded, only the CPU's part: {RECORD_DEVICE}"
    if error is None:
        yield "no time of the run was measured"
    elif abs(error) > replays.RELIABLE_PCT:
        yield f"the replay is {error:+.1f} % off the measured run"
    if reason := off_by_target(job.recorded):
        yield reason
    if job.recording and abs(job.recording.error_pct) > replays.RELIABLE_MODEL_PCT:
        yield job.recording.mismatch
    if job.recording and job.recording.cause is Cause.PAUSED:
        yield job.recording.text
    if job.recording and job.recording.cause is Cause.NOT_THE_HOST:
        times = map(time_text, (job.recording.step_without_profiler_us, job.recording.step_us))
        why = (
            "which a slower host alone does not explain: record again, or ask about the recorded run with --as-recorded"
        )
        yield "an unprofiled step takes {} and a recorded one {}, ".format(*times) + why
    if 100 * job.unexplained_us > replays.MOST_UNEXPLAINED_PCT * job.length_us:
        (rank, begin_us), time_us = latest_begin(job), job.unexplained_us
        share = f"{time_text(time_us)}, {100 * time_us / job.length_us:.0f} % of the run,"
        why = "the traces do not show whether it or only its recording was late, or times are wrong"
        late = f"rank {rank} begins {share} after the first rank, and {why}"
        is_late = begin_us and begin_us >= 0.5 * time_us
        yield late if is_late else f"for {share} the traces do not show what it waited for"
    idle = 100 - max(job.device_shares("compute"), default=0.0)
    if limit is NodeClass.HOST and job.is_on_device and gain.pct > idle + TOLERANCE_PCT:
        yield (
            f"a CPU twice as fast would save {gain.pct:.0f} % in the replay, but the device already computes for "
            f"{100 - idle:.0f} % of the run: either kernels that run at once slow each other down, which the replay does not know, or "
            "the CPU waits for the device in calls that are not recorded as waits"
        )
    if not gain.is_worth_it:
        why = "either several take as long side by side, or the traces do not show what waited for what"
        yield f"no kind of work at twice its speed would make the run more than {gain.pct:.1f} % shorter: {why}"
    if limit is NodeClass.COMMUNICATION and job.absent > 0:
        absent = f"{job.absent:,} rank{'' if job.absent == 1 else 's'}"
        yield f"it is communication, but without the traces of {absent}, waiting for them cannot be told from sending data"


def _recording_cost(job: Job, limit: NodeClass, *, is_told: bool) -> str:
    """Returns a sentence on what recording did to the run; "" if that is little, or nothing shows that it did."""
    recording = job.recording
    if recording is not None:
        recorded, without = map(time_text, (recording.step_us, recording.step_without_profiler_us))
        if recording.is_known:
            shown = f"Tables and timeline show the recorded run ({recorded} a step)."
            doubt = f" {recording.doubt[:1].upper()}{recording.doubt[1:]}." if recording.doubt else ""
            return f"All this is about the unprofiled run ({without} a step).{doubt} {shown}"
        unknown = f"What recording cost is not known: the steps before took {without}, the recorded ones {recorded}."
        return unknown if recording.cause is Cause.SLOWER_BEFORE else ""
    if job.recorded.work.is_modelled:
        return "All this is about a model of the unprofiled run, which these graphs hold."
    if is_told and limit is NodeClass.HOST and not any(rank.recorded_ops for rank in job.ranks):
        return "No steps were timed without a profiler, which slows the host, so gains may be smaller: execgraph.capture times some."
    if all(STEP_WITHOUT_PROFILER_NS in rank.graph.metadata for rank in job.ranks):  # but the recorded run was asked for
        return ""
    # the profiler alone costs much less than a host trace
    beside = [rank.recorded_ops for rank in job.ranks if not rank.graph.number(kineto.RECORDED_ALONE, 0)]
    ops = sum(beside) / len(job.ranks)
    slowed_us = HOST_TRACE_US * ops
    if (limit is not NodeClass.HOST and job.is_on_device) or slowed_us < LEAST_SLOWED * job.length_us or job.lost_work:
        return ""
    share = f", so {time_text(slowed_us)} of these {time_text(job.length_us)} may come from it ({ops:,.0f} ops)"
    slows = f"Recording a host trace slows every op, by about {HOST_TRACE_US} µs on the machine where we measured it"
    slows += share if slowed_us < job.length_us else ""
    return f"{slows}. To know, time unprofiled steps: execgraph.capture does."
