"""What recording did to a run: how long a step takes without a profiler, and the share of host time that gives it.

A profiler hardly slows the devices, and the host where it writes a row: where an op or a call begins or ends, which is
where a stretch of host work does. So without one the first part of a stretch takes a share of its recorded time, the
rest of a long one, such as a sleep or a large matrix product, all of it. The share is what makes a replay as long as
the measured step. Other processes get time to load data ahead while the loop is slowed: time in PyTorch's data loader
is replaced by what it was without.
"""

import math
from collections.abc import Sequence
from enum import Enum

import msgspec
import numpy as np

from ...schema.columns import time_text
from ...schema.graph import DATA_WAIT_WITHOUT_PROFILER_NS, STEP_WITHOUT_PROFILER_NS, STEPS
from .changes import Scale, scale_nodes
from .data_loading import with_measured_waits
from .execution import Replay, changed_job, makespan_ns, replay_job
from .job_graphs import Graphs, given_graphs
from .workload import NodeClass, Workload, gather_job

NOT_SLOWED = 0.98
"""A step without a profiler that takes at least this share of the recorded one was hardly slowed by recording."""
SLOWER = 1.05
DEVICES_ALONE = (0.97, 1.05)
"""If a replay without any host work takes this share of the measured step, the devices limit it."""
CLOSE = 0.005
PRECISION = 1000
"""Factors are found to 1 in so many."""
SLOWED_MEDIANS = 20
"""How many times as long as the median stretch of host work is the part of a long one that recording slows. On a CPU
with PyTorch 2.13, jobs of 1,200 small ops beside a sleep and beside matrix products answered alike with 5 and with 40;
of the recordings in tests/data/gpu those of fused optimizers and compiled graphs were further off with 5 and 10.
"""


class Cause(Enum):
    """What a step without a profiler shows of the recorded one."""

    HOST_SLOWED = "host slowed"
    DEVICES_LIMIT = "devices limit"
    NOT_SLOWED = "not slowed"
    SLOWER_BEFORE = "slower before"
    NOT_THE_HOST = "not the host"


TEXTS = {
    Cause.HOST_SLOWED: "ops are slowed; without it {change}",
    Cause.DEVICES_LIMIT: "the devices limit the run without a profiler, in which {change}",
    Cause.NOT_SLOWED: "recording hardly slowed it",
    Cause.SLOWER_BEFORE: "the steps before were slower, as while compiling; raise the wait of capture",
    Cause.NOT_THE_HOST: "even without host work a replay takes longer, so that no factor gives it",
}


class Recording(msgspec.Struct, frozen=True):
    """The length of a step (µs) as recorded and without a profiler, what that shows, and the factor for the host that
    replays the step as it is without; None where no factor does. It applies to the first `slowed_us` of each stretch of
    host work.

    There are so many `steps`. `data_wait_us` is how long a step without a profiler waits for PyTorch's data loader,
    which the factor does not apply to; 0 where that was not measured.
    """

    step_us: float
    step_without_profiler_us: float
    host_factor: float | None
    slowed_us: float
    cause: Cause
    steps: int
    data_wait_us: float = 0

    @property
    def is_known(self) -> bool:
        """Whether the run without a profiler is known, and another one than the recording."""
        return self.host_factor is not None and (self.host_factor != 1 or self.data_wait_us > 0)

    def without_profiler(self, job: Workload) -> Workload:
        """Returns the job as it runs without a profiler, where that is known."""
        if not self.is_known or self.host_factor is None:
            return job
        return _unrecorded(job, self.host_factor, 1000 * self.slowed_us)

    def without_host(self, job: Workload) -> Workload | None:
        """Returns the job whose host takes no time but to wait for data, if the host may be as fast as that."""
        return _unrecorded(job, 0.0, math.inf) if self.cause is Cause.DEVICES_LIMIT else None

    @property
    def change(self) -> str:
        """Says what a replay of the recording changes to be the run without a profiler; "" where no change does."""
        if self.host_factor is None:
            return ""
        share = f"{100 * self.host_factor:.3g} % of its recorded time{' or less' * (self.cause is Cause.DEVICES_LIMIT)}"
        data = f", and a step waits {time_text(self.data_wait_us)} for its data" if self.data_wait_us else ""
        return f"host work takes {share}, in the first {time_text(self.slowed_us)} of each stretch{data}"

    @property
    def text(self) -> str:
        """Says how long a step takes with and without a profiler, and why."""
        times = (time_text(time) for time in (self.step_us, self.step_without_profiler_us))
        return "{} a step, {} without a profiler: {}".format(*times, TEXTS[self.cause].format(change=self.change))


def recording(graphs: Graphs) -> Recording | None:
    """Returns what recording did to the run of these ranks; None where no rank was measured without a profiler.

    Args:
        graphs: The graph of one rank, or a list with one for each rank; graphs or paths of .et files.

    Raises:
        DataError: Some nodes never become ready.
        TypeError: `graphs` are of another kind.
    """
    return recording_of(replay_job(gather_job(given_graphs(graphs, "recording(graphs)", allow_mismatch=True))))


def recording_of(replay: Replay) -> Recording | None:
    """Returns what recording did to a job, of which this is the replay without changes; None where no rank knows.

    Replays up to twenty times.
    """
    job, graphs = replay.work, replay.work.graphs
    steps = {graph.number(STEPS, 0) for graph in graphs}
    # the longest time of the ranks, as ranks wait for each other
    step_ns, data_ns = (
        max(graph.number(key, 0) for graph in graphs)
        for key in (STEP_WITHOUT_PROFILER_NS, DATA_WAIT_WITHOUT_PROFILER_NS)
    )
    if len(steps) > 1 or min(steps) < 1 or step_ns <= 0 or not replay.makespan_ns:
        return None
    count, has_data = min(steps), with_measured_waits(job)[1].any()
    slowed_ns, measured_ns = _longest_slowed_ns(job), step_ns * count
    # where long stretches must have been slowed as a whole
    longest_ns, longest_stretch = DEVICES_ALONE[1] * measured_ns, max(job.duration_ns.max(), job.host_delay_ns.max())
    while slowed_ns < longest_stretch and makespan_ns(_unrecorded(job, 0.0, slowed_ns)) > longest_ns:
        slowed_ns *= 2
    factor, cause = _factor(job, measured_ns, slowed_ns)
    data_us = (data_ns if has_data else 0) / 1000
    return Recording(replay.makespan_ns / count / 1000, step_ns / 1000, factor, slowed_ns / 1000, cause, count, data_us)


def without_profiler(job: Workload, recording: Recording | None, scale: Sequence[Scale]) -> str:
    """Returns a sentence on what the changes bring without a profiler; "" if that is not known."""
    if recording is None or not recording.is_known:
        return ""
    job = recording.without_profiler(job)
    before_ns, after_ns = makespan_ns(job), makespan_ns(changed_job(job, scale))
    change_pct = 100 * (after_ns - before_ns) / max(before_ns, 1)
    times = time_text(after_ns / 1000), time_text(before_ns / 1000)
    return (
        " That is of the recording, which slowed the ops of the host. Without a profiler "
        f"({recording.change}) the run would take {times[0]} instead of {times[1]}, {abs(change_pct):.1f} % "
        f"{'less' if change_pct <= 0 else 'more'}."
    )


def _longest_slowed_ns(job: Workload) -> float:
    """Returns how much of a stretch of host work recording slows. Host time that a graph of devices alone leaves out
    before an activity is a stretch, too.
    """
    stretches = job.duration_ns[job.node_class == NodeClass.HOST]
    if not len(stretches):
        stretches = job.host_delay_ns[job.host_delay_ns > 0]
    return SLOWED_MEDIANS * max(float(np.median(stretches)), 1.0) if len(stretches) else 1.0


def _unrecorded(job: Workload, host_factor: float, slowed_ns: float) -> Workload:
    """Returns the job with the waits for data that were measured, and the part of other host work that recording slowed
    multiplied by a factor.
    """
    work, is_data = with_measured_waits(job)
    durations, delays = (
        1 - (1 - host_factor) * np.minimum(time_ns, slowed_ns) / np.maximum(time_ns, 1)
        for time_ns in (work.duration_ns, work.host_delay_ns)
    )
    return scale_nodes(work, np.where((work.node_class == NodeClass.HOST) & ~is_data, durations, 1.0), delays)


def _factor(job: Workload, measured_ns: int, slowed_ns: float) -> tuple[float | None, Cause]:
    """Returns the factor for the host that replays the run as it was measured, and what that shows."""
    recorded_ns = makespan_ns(_unrecorded(job, 1.0, slowed_ns))
    if measured_ns >= NOT_SLOWED * recorded_ns:
        is_slower = measured_ns > SLOWER * recorded_ns
        return None if is_slower else 1.0, Cause.SLOWER_BEFORE if is_slower else Cause.NOT_SLOWED
    shortest_ns = makespan_ns(_unrecorded(job, 0.0, slowed_ns))
    low, high = DEVICES_ALONE
    if shortest_ns > high * measured_ns:
        return None, Cause.NOT_THE_HOST
    has_device = any(bool(graph.is_activity.any()) for graph in job.graphs)
    is_limit = has_device and makespan_ns(_unrecorded(job, 0.0, math.inf)) >= low * measured_ns
    longest_ns = max(shortest_ns, measured_ns) * (1 + 2 * CLOSE) if is_limit else measured_ns
    # the largest factor with which the run takes about this long, by bisection
    low_factor, high_factor = 0, PRECISION
    while high_factor - low_factor > 1:
        middle = (low_factor + high_factor) // 2
        makespan = makespan_ns(_unrecorded(job, middle / PRECISION, slowed_ns))
        if abs(makespan - longest_ns) < CLOSE * longest_ns:
            low_factor = high_factor = middle
        elif makespan > longest_ns:
            high_factor = middle
        else:
            low_factor = middle
    return low_factor / PRECISION, Cause.DEVICES_LIMIT if is_limit else Cause.HOST_SLOWED
