"""What recording did to a run: how long a step takes without a profiler, and the factor for the host that gives it.

A profiler slows the host, hardly the devices. So host work takes a share of its recorded time without one, and that
share is what makes a replay as long as the measured step.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from ...schema.columns import time_text
from ...schema.graph import STEP_WITHOUT_PROFILER_NS, STEPS, ExecutionGraph
from ..given_graphs import Graphs, given_graphs
from .execution import Replay, makespan_ns, replay_job
from .node_class import NodeClass
from .rank_clocks import GatheredJob, gather_job
from .scaling import CLASS_PREFIX, Scale, parse_scale, scale_workload

NOT_SLOWED = 0.98
"""A step without a profiler that takes at least this share of the recorded one was hardly slowed by recording."""
SLOWER = 1.05
DEVICES_ALONE = (0.97, 1.05)
"""If a replay without any host work takes this share of the measured step, the devices limit it."""
CLOSE = 0.005
PRECISION = 1000
"""Factors are found to 1 in so many."""


class Cause(Enum):
    """What a step without a profiler shows of the recorded one."""

    HOST_SLOWED = "host slowed"
    DEVICES_LIMIT = "devices limit"
    NOT_SLOWED = "not slowed"
    SLOWER_BEFORE = "slower before"
    NOT_THE_HOST = "not the host"


TEXTS = {
    Cause.HOST_SLOWED: "ops are slowed; {scale} replays the step as it is without",
    Cause.DEVICES_LIMIT: "the devices limit the run without a profiler; {scale} or less replays it",
    Cause.NOT_SLOWED: "recording hardly slowed it",
    Cause.SLOWER_BEFORE: "the steps before were slower, as while compiling; raise the wait of capture",
    Cause.NOT_THE_HOST: "even without host work a replay takes longer, so that no factor gives it",
}


class Recording(msgspec.Struct, frozen=True):
    """The length of a step (µs) as recorded and without a profiler, what that shows, and the factor for the host that
    replays the step as it is without; None where no factor does.
    """

    step_us: float
    step_without_profiler_us: float
    host_factor: float | None
    cause: Cause

    @property
    def scale(self) -> list[Scale]:
        """The change that replays the run as it is without a profiler; none if there is no such change."""
        is_scaled = self.host_factor is not None and self.host_factor != 1
        return [parse_scale(f"{CLASS_PREFIX}{NodeClass.HOST.label}={self.host_factor:g}")] if is_scaled else []

    @property
    def text(self) -> str:
        """Says how long a step takes with and without a profiler, and why."""
        times = (time_text(time) for time in (self.step_us, self.step_without_profiler_us))
        cause = TEXTS[self.cause].format(scale=", ".join(change.spec for change in self.scale))
        return "{} a step, {} without a profiler: {}".format(*times, cause)


def recording(graphs: Graphs) -> Recording | None:
    """Returns what recording did to the run of these ranks; None where no rank was measured without a profiler.

    Args:
        graphs: The graph of one rank, or a list with one for each rank; graphs or paths of .et files.

    Raises:
        DataError: Some nodes never become ready.
        TypeError: `graphs` are of another kind.
    """
    job = gather_job(given_graphs(graphs, "recording(graphs)"))
    return recording_of(job, replay_job(job))


def recording_of(job: GatheredJob, replay: Replay) -> Recording | None:
    """Returns what recording did to a job, of which this is the replay without changes; None where no rank knows.

    Replays up to a dozen times.
    """
    graphs = job.work.graphs
    steps, step_ns = {graph.number(STEPS, 0) for graph in graphs}, _step_without_profiler_ns(graphs)
    if len(steps) > 1 or min(steps) < 1 or step_ns <= 0 or not replay.makespan_ns:
        return None
    count = min(steps)
    factor, cause = _factor(job, replay.makespan_ns, step_ns * count)
    return Recording(replay.makespan_ns / count / 1000, step_ns / 1000, factor, cause)


def without_profiler(job: GatheredJob, recording: Recording | None, scale: Sequence[Scale]) -> str:
    """Returns a sentence on what the changes bring without a profiler; "" if that is not known or they say it."""
    base = recording.scale if recording else []
    if not base or any(change.target == NodeClass.HOST for change in scale):
        return ""
    before_ns, after_ns = (
        makespan_ns(job._replace(work=scale_workload(job.work, changes))) for changes in (base, [*base, *scale])
    )
    change_pct = 100 * (after_ns - before_ns) / max(before_ns, 1)
    times = time_text(after_ns / 1000), time_text(before_ns / 1000)
    return (
        f" That is of the recording, which slowed the ops of the host. Without a profiler ({base[0].spec}) the run would "
        f"take {times[0]} instead of {times[1]}, {abs(change_pct):.1f} % {'less' if change_pct <= 0 else 'more'}."
    )


def _step_without_profiler_ns(graphs: Sequence[ExecutionGraph]) -> int:
    """Returns the longest of the ranks, as ranks wait for each other; 0 where no rank knows."""
    return max(graph.number(STEP_WITHOUT_PROFILER_NS, 0) for graph in graphs)


def _factor(job: GatheredJob, recorded_ns: int, measured_ns: int) -> tuple[float | None, Cause]:
    """Returns the factor for the host that replays the run as it was measured, and what that shows."""
    if measured_ns >= NOT_SLOWED * recorded_ns:
        is_slower = measured_ns > SLOWER * recorded_ns
        return None if is_slower else 1.0, Cause.SLOWER_BEFORE if is_slower else Cause.NOT_SLOWED
    devices_ns = _makespan_ns(job, 0.0)
    low, high = DEVICES_ALONE
    if devices_ns > high * measured_ns:
        return None, Cause.NOT_THE_HOST
    if devices_ns >= low * measured_ns:
        return _largest_factor(job, max(devices_ns, measured_ns) * (1 + 2 * CLOSE)), Cause.DEVICES_LIMIT
    return _largest_factor(job, measured_ns), Cause.HOST_SLOWED


def _largest_factor(job: GatheredJob, longest_ns: float) -> float:
    """Returns the largest factor for the host with which the run takes about this long, by bisection."""
    low, high = 0, PRECISION
    while high - low > 1:
        middle = (low + high) // 2
        makespan = _makespan_ns(job, middle / PRECISION)
        if abs(makespan - longest_ns) < CLOSE * longest_ns:
            return middle / PRECISION
        low, high = (low, middle) if makespan > longest_ns else (middle, high)
    return low / PRECISION


def _makespan_ns(job: GatheredJob, factor: float) -> int:
    scale = parse_scale(f"{CLASS_PREFIX}{NodeClass.HOST.label}={factor:g}")
    return makespan_ns(job._replace(work=scale_workload(job.work, [scale])))
