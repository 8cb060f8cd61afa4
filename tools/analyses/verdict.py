"""What limits the run, in one sentence, or why that cannot be told."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...schema.columns import time_text
from ...schema.errors import Remedy, Words
from ...schema.machine import HOST_TRACE_US
from ..replay import Cause, NodeClass, off_by_target, why_not_one_job
from ..terminal import ranges
from .job import LEAST_PCT, Finding, Gain, Job, counted
from .ops import HOST_PHASES
from .rules_ranks import latest_begin

TWICE_AS_FAST = 0.5
MOST_OF_PATH = 50.0
"""What is less of the critical path is said by its gain."""
WORST_ERROR_PCT = 1.0
"""A replay that is further off the measured run says nothing about it."""
MOST_UNEXPLAINED_PCT = 20.0
"""If more of the critical path than this is unexplained, what limits the run may be in it."""
TOLERANCE_PCT = 5.0
"""By how much a gain may exceed the time in which the device does not compute."""
LIMITS = {
    NodeClass.HOST: ("host", "host delay", "launch", "hand-off", "program order", "unrecorded"),
    NodeClass.COMPUTATION: ("computation",),
    NodeClass.COMMUNICATION: ("communication", "collective"),
    NodeClass.MEMORY: ("memory",),
}
"""What may limit a run, and the kinds of time on the critical path that it stands for."""
GIVE_ONE_RUN = Words("give the traces of one run, or compare two with ", Remedy.DIFF)
GPU_CALLS = ("cuda", "cu", "hip")


class _Words(NamedTuple):
    """How a verdict names what limits a run, what would be faster, and what is left."""

    limits: str
    faster: str
    rest: str


WORDS = {
    NodeClass.HOST: _Words("The CPU limits the run", "A CPU", "work of the CPU"),
    NodeClass.COMPUTATION: _Words("Computation limits the run", "Kernels", "computation"),
    NodeClass.COMMUNICATION: _Words("Communication limits the run", "Communication", "communication"),
    NodeClass.MEMORY: _Words("Copies limit the run", "Copies", "copies"),
}


class Verdict(NamedTuple):
    """What limits the run, or, with `doubts`, that this cannot be told and why; it ends with `recording_cost`."""

    sentence: str
    doubts: list[str]
    recording_cost: str = ""


class _Limit(NamedTuple):
    """What limits the run most: how much sooner it ends if this is twice as fast, and its share of the path."""

    node_class: NodeClass
    gain: Gain
    path_pct: float


def verdict(job: Job, findings: Sequence[Finding]) -> Verdict:
    """Returns what limits the job, by how much and what to do; withdrawn where the figures contradict it. Says whether
    that is the run without a profiler.
    """
    limit = _limit(job)
    doubts = [*_doubts(job, limit)]
    said = _said(job, limit, doubts, findings)
    if job.recording and job.recording.cause is Cause.NOT_THE_HOST:
        said = f"As recorded, {said[0].lower()}{said[1:]}"
    cost = _recording_cost(job, _largest_part(job)[0] if doubts else limit.node_class)
    return Verdict(" ".join(filter(None, (said, cost))), doubts, cost)


def _said(job: Job, limit: _Limit, doubts: Sequence[str], findings: Sequence[Finding]) -> str:
    """Returns what limits the job and what to do, or why that cannot be told."""
    if doubts:
        uncertain = " The gains below are as uncertain." if any(finding.gain for finding in findings) else ""
        return f"What limits the run cannot be told: {'; '.join(doubts)}.{_otherwise(job)}{uncertain}"
    best = next((finding for finding in findings if finding.gain is not None), None)
    if best is None or best.gain is None:
        return f"{_head(job, limit)}. {WORDS[limit.node_class].faster} twice as fast would save {limit.gain.share} ({limit.gain.time})."
    saves = f"{best.remedy} would save {best.gain.share} ({best.gain.time})"
    return f"{_head(job, limit)}. {best.title}: {best.facts[0]}. {saves}."


def _limit(job: Job) -> _Limit:
    path = job.path_us
    present = [node_class for node_class in LIMITS if (job.work.node_class == node_class).any()] or [NodeClass.HOST]
    limits = [
        _Limit(
            node_class,
            job.gain_of_class(node_class, TWICE_AS_FAST),
            100 * sum(path.get(kind, 0.0) for kind in LIMITS[node_class]) / job.length_us,
        )
        for node_class in present
    ]
    return max(limits, key=lambda limit: limit.gain.us)


def _head(job: Job, limit: _Limit) -> str:
    if not job.is_on_device:
        phases = _phases(job)
        return f"All work is on the CPU{phases and f': {phases}'}"
    if limit.node_class is NodeClass.HOST:
        several = len(job.rows("temporal_breakdown")) > 1
        devices = f"{_device_word(job)}{'s wait' if several else ' waits'}"
        return f"The {devices} for the CPU: idle {100 - job.busy_pct:.0f} % of the time"
    if limit.path_pct < MOST_OF_PATH:
        return f"{WORDS[limit.node_class].limits} most: twice as fast, it would make the run {limit.gain.pct:.0f} % shorter"
    return f"{WORDS[limit.node_class].limits}: {limit.path_pct:.0f} % of the critical path"


def _phases(job: Job) -> str:
    """Returns the shares of the phases of the steps, the longest first, as far as they are known."""
    rows = job.rows("host_phases")
    whole = sum(row["time"] for row in rows)
    shares = {name: 100 * sum(row[name] for row in rows) / whole for name in HOST_PHASES} if whole else {}
    words = {"between_ops": "Python between ops", "data_loading": "data loading"}
    longest = sorted((share, name) for name, share in shares.items() if share >= 1)[::-1]
    return ", ".join(f"{share:.0f} % {words.get(name, name)}" for share, name in longest)


def _device_word(job: Job) -> str:
    calls = [name for rank in job.ranks for name in rank.graph.name.table]
    return "GPU" if any(name.startswith(GPU_CALLS) for name in calls) else "device"


def _doubts(job: Job, limit: _Limit) -> Iterator[str]:
    """Yields what contradicts any verdict, or this one."""
    yield from _unrelated(job)
    error = job.recorded.error_pct
    if error is None or abs(error) > WORST_ERROR_PCT:
        yield (
            "no time of the run was measured" if error is None else f"the replay is {error:+.1f} % off the measured run"
        )
    if reason := off_by_target(job.recorded):
        yield reason
    if 100 * job.unexplained_us > MOST_UNEXPLAINED_PCT * job.length_us:
        yield _unexplained(job)
    idle = 100 - max(job.device_shares("compute"), default=0.0)
    if limit.node_class is NodeClass.HOST and job.is_on_device and limit.gain.pct > idle + TOLERANCE_PCT:
        yield (
            f"a CPU twice as fast would save {limit.gain.pct:.0f} % in the replay, but the device already computes for "
            f"{100 - idle:.0f} % of the run: either kernels that run at once slow each other down, which the replay does not know, or "
            "the CPU waits for the device in calls that are not recorded as waits"
        )
    if limit.gain.pct < LEAST_PCT:
        yield (
            f"no kind of work at twice its speed would make the run more than {limit.gain.pct:.1f} % shorter: either several "
            "take as long side by side, or the traces do not show what waited for what"
        )
    if limit.node_class is NodeClass.COMMUNICATION and job.absent > 0:
        absent = counted(job.absent, "rank")
        yield f"it is communication, but without the traces of {absent}, waiting for them cannot be told from sending data"


def _unrelated(job: Job) -> Iterator[str]:
    """Yields why the ranks are not of one job, or that nothing shows that they are."""
    graphs = [rank.graph for rank in job.ranks]
    if len(graphs) < 2:
        return
    ranks = f"ranks {ranges(sorted(rank.rank for rank in job.ranks))}"
    if reason := why_not_one_job(graphs):
        yield f"{ranks} do not fit together, as {reason}: {GIVE_ONE_RUN}"
    elif job.world_size <= len(graphs) and not _is_joined(job):
        yield f"nothing shows that {ranks} are of one job, neither a collective nor a world size: {GIVE_ONE_RUN}"


def _is_joined(job: Job) -> bool:
    """Returns whether a rank communicates, or all say of how many ranks the job is."""
    sizes = [rank.graph.number("world_size", -1) for rank in job.ranks]
    return min(sizes) > 1 or bool((job.work.node_class == NodeClass.COMMUNICATION).any())


def _unexplained(job: Job) -> str:
    time, (rank, begin_us) = job.unexplained_us, latest_begin(job)
    share = f"{time_text(time)}, {100 * time / job.length_us:.0f} % of the run,"
    if begin_us and begin_us >= 0.5 * time:
        return f"rank {rank} begins {share} after the first rank, and the traces do not show whether it or only its recording was late"
    return f"for {share} the traces do not show what it waited for"


def _otherwise(job: Job) -> str:
    """Returns a sentence on the largest part of the rest of the critical path."""
    path_us = sum(job.path_us.values())
    explained_us = path_us - job.unexplained_us
    node_class, largest_us = _largest_part(job)
    lead = "the rest of " if explained_us < 0.99 * path_us else ""
    busy = f"; devices are busy for {job.busy_pct:.0f} % of the run" if job.rows("temporal_breakdown") else ""
    if explained_us <= 0:
        return ""
    return f" Of {lead}the critical path, {100 * largest_us / explained_us:.0f} % is {WORDS[node_class].rest}{busy}."


def _largest_part(job: Job) -> tuple[NodeClass, float]:
    """Returns what takes most of the critical path, and how long."""
    path = job.path_us
    times = {limit: sum(path.get(kind, 0.0) for kind in kinds) for limit, kinds in LIMITS.items()}
    return max(times.items(), key=lambda part: part[1])


def _recording_cost(job: Job, limit: NodeClass) -> str:
    """Returns what recording did to the run that the verdict is on, in a sentence; "" if it hardly changed the run, or
    nothing shows that it did.
    """
    recording = job.recording
    if recording is None:
        return _unmeasured(job) if limit is NodeClass.HOST and job.is_on_device else ""
    recorded, without = map(time_text, (recording.step_us, recording.step_without_profiler_us))
    if recording.is_known:
        return (
            f"This is the run without a profiler, in which a step takes {without} and not {recorded} as recorded "
            f"({recording.change_in_words}); tables, charts and the timeline show the recording."
        )
    return {
        Cause.SLOWER_BEFORE: f"What recording cost is not known: the steps before took {without}, the recorded ones {recorded}.",
        Cause.NOT_THE_HOST: f"A step takes {without} without a profiler and {recorded} as recorded, and a slower host alone does not "
        "explain that: gains are of the recording, and may be smaller without a profiler.",
    }.get(recording.cause, "")


def _unmeasured(job: Job) -> str:
    """Returns how much of the run recording may be, if there is a host trace; the profiler alone costs much less."""
    ops = sum(rank.recorded_ops for rank in job.ranks) / len(job.ranks)
    slowed_us = HOST_TRACE_US * ops
    if not ops:
        return ""
    share = f", so {time_text(slowed_us)} of these {time_text(job.length_us)} may come from it ({ops:,.0f} ops)"
    return (
        f"Recording a host trace slows every op, by about {HOST_TRACE_US} µs on the machine where we measured it"
        f"{share if slowed_us < job.length_us else ''}. To know, measure steps without a profiler: execgraph.capture does."
    )
