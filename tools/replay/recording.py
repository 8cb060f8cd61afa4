"""What recording did to a run: how long a step takes without a profiler, and models of the host that replay it so.

A profiler slows the host where an op or a call begins or ends, by a cost that `capture` measures where the device trace
was recorded alone; where a host trace was written, too, the first part of a stretch takes a share of its time. A replay
has to take as long as the steps measured without a profiler. Other models show how far an answer hangs on that.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...schema.arguments import GENERIC
from ...schema.columns import Floats, Int64, signed_pct, time_text
from ...schema.errors import RequestError
from ...schema.graph import (
    DATA_WAIT_WITHOUT_PROFILER_NS,
    STEP_WITHOUT_PROFILER_NS,
    STEPS,
    DependencyKind,
    ExecutionGraph,
)
from ...schema.linked import USER_SCOPE
from .changes import scale_nodes
from .data_loading import with_measured_waits
from .execution import Replay, makespan_ns, replay_job
from .job_graphs import Graphs, given_graphs
from .workload import NodeClass, Workload, gather_job

NOT_SLOWED = 0.98
"""A step without a profiler that takes at least this share of the recorded one was hardly slowed by recording."""
SLOWER, MUCH_SLOWER = 1.05, 1.5
"""Beyond this the machine was busier before, or the job was cold; beyond the other no model explains it."""
HELD_UP = 1.4
"""If a step is so much longer than unprofiled when ops cost the most, and by more than such steps differ, something
held it up: steps that nothing disturbed were up to 31 % longer, and disturbed ones 50 %."""
LEAST_FACTOR = 0.1
"""No profiler leaves less of host work: those in tests/data/gpu took up to 7 times as long with a host trace."""
DEVICES_ALONE = (0.97, 1.05)
"""If a replay without any host work takes this share of the measured step, the devices limit it."""
LIMITED, NEAR, REPLAYS = 1.01, 0.001, 30
"""A replay takes LIMITED of the measured step if devices limit it; others come NEAR it, within so many REPLAYS."""
COSTLIEST, TYPICAL_OP_NS = 2.5, 440
"""How many times what was measured on a quiet thread an op may cost: 0.9 to 2.2 in jobs on a CPU with PyTorch 2.13.
The second number is what it costs where that could not be measured: 370 to 740 ns elsewhere.
"""
OTHERS, ALL_BUSY = 0.1, 0.8
"""Other processes slow the loop's if they keep more of all cores busy, and both together more than the second share."""
DRIFT_PCT = 6.0
"""Of blocks of 20 steps of benchmarks/accuracy/changed_jobs on a CPU one in ten was further off the median, and of
eight jobs in tests/data/gpu that the host limits half differed by more when they were timed again."""
MOST_APART = 0.001
"""By at most a third of this share of the run, starts and the end of graphs as they were built replay otherwise."""
STARTS_DIFFER = "activities start up to {} from where they were measured; --scale compares with the replay"
DIFFERS = "{} were measured, but by its durations and dependencies the graph takes {}; --scale compares with the latter"
SLOWED_MEDIANS = 20
"""The part of a long stretch that a host trace slows, in medians of stretches. On a CPU 5 and 40 answered alike;
of the recordings in tests/data/gpu those of fused optimizers and compiled graphs were further off with 5 and 10.
"""


class Cause(Enum):
    """What a step without a profiler shows of the recorded one."""

    HOST_SLOWED = "host slowed"
    DEVICES_LIMIT = "devices limit"
    NOT_SLOWED = "not slowed"
    SLOWER_BEFORE = "slower before"
    NOT_THE_HOST = "not the host"
    HELD_UP = "held up"
    PAUSED = "paused"


TEXTS = {
    Cause.HOST_SLOWED: "recording slowed the host",
    Cause.DEVICES_LIMIT: "recording slowed the host; unprofiled, the devices limit the run",
    Cause.NOT_SLOWED: "recording hardly slowed it",
    Cause.SLOWER_BEFORE: "the machine was busier before recording, or the job not warm: record again when nothing else "
    "runs, with a longer wait, or ask --as-recorded",
    Cause.NOT_THE_HOST: "without any host work the replay is still longer, so what follows is about the recorded run",
    Cause.HELD_UP: "something held the recorded steps up, so record again",
    Cause.PAUSED: "recording slows no host so much, so something paused it, longest for {pause}: record again",
}

DOUBTFUL = (Cause.SLOWER_BEFORE, Cause.HELD_UP, Cause.PAUSED)


class Model(msgspec.Struct, frozen=True):
    """What is left of a stretch of host work without a profiler: its time less `cost_us`, its start times a factor.

    The first `slowed_us`, None for all, are multiplied by `host_factor`. `machine_factor` then multiplies all times: it
    is not 1 if the machine was more or less busy while it recorded.
    """

    cost_us: float
    host_factor: float
    slowed_us: float | None = None
    machine_factor: float = 1.0


class Recording(msgspec.Struct, frozen=True):
    """The length of a step (µs) as recorded and without a profiler, what that shows, and the models of the host that
    replay the step as it is without, the likeliest first; none where no model does.

    There are so many `steps`. `data_wait_us` is how long a step without a profiler waits for PyTorch's data loader,
    which no model changes; 0 where that was not measured. `noise_pct` is by how much of their median such steps may
    differ: from p10 or p90, and where the host limits them no less than from run to run. What an op cost `is_typical`
    where the capture could not measure it. Where recording explains no stretch of host work as long as the longest,
    `pause` is that. By the likeliest model a replay is `error_pct` off such steps. In a step this process keeps the
    `cores` that it may use busy for `own_cpu_us`, and other processes for `others_cpu_us`; 0 cores where not measured.
    So many `threads` run an op; 0 where not known.
    """

    step_us: float
    step_without_profiler_us: float
    cause: Cause
    steps: int
    models: tuple[Model, ...] = ()
    data_wait_us: float = 0
    noise_pct: float = 0
    is_typical: bool = False
    pause: str = ""
    error_pct: float = 0
    cores: int = 0
    own_cpu_us: float = 0
    others_cpu_us: float = 0
    threads: int = 0

    @property
    def busy_cores(self) -> float:
        """How many cores all processes kept busy, as measured; 0 if not measured."""
        return (self.own_cpu_us + self.others_cpu_us) / self.step_without_profiler_us if self.cores else 0.0

    @property
    def has_no_free_core(self) -> bool:
        """Whether all cores were measured to be busy."""
        return self.busy_cores > ALL_BUSY * self.cores > 0

    @property
    def is_crowded(self) -> bool:
        """Whether other processes took cores that the loop could have used."""
        return self.has_no_free_core and self.others_cpu_us > OTHERS * self.cores * self.step_without_profiler_us

    @property
    def lost_share(self) -> float:
        """Which share of a step other processes take at most: what they have of the cores' busy time, or what they
        compute, up to half. Threads that wait for each other at the end of an op all wait for one that shares its core.
        A loop of one thread lacks no more than the time in which that did not run.
        """
        own_us, others_us, step_us = self.own_cpu_us, self.others_cpu_us, self.step_without_profiler_us
        most = max(1 - own_us / step_us, 0.0) if self.threads == 1 else 1.0
        return (
            min(max(others_us / (own_us + others_us), min(others_us / step_us, 0.5)), most) if self.is_crowded else 0.0
        )

    @property
    def is_known(self) -> bool:
        """Whether the run without a profiler is known."""
        return bool(self.models)

    @property
    def measured_ns(self) -> int:
        """How long all steps take without a profiler."""
        return round(1000 * self.step_without_profiler_us * self.steps)

    def without_profiler(self, job: Workload) -> Workload:
        """Returns the job as it runs without a profiler, or as it is where that is not known."""
        host = _Host(job)
        likeliest, *others = (host.by(model) for model in self.models) if self.models else (job,)
        return replace(likeliest, recording=self, others=others)

    @property
    def text(self) -> str:
        """Says how long a step took recorded and unprofiled, and why."""
        times = (time_text(time) for time in (self.step_us, self.step_without_profiler_us))
        is_slower = self.step_us > self.step_without_profiler_us or self.cause in DOUBTFUL
        cause = TEXTS[self.cause if is_slower else Cause.NOT_SLOWED].format(pause=self.pause)
        said = ["a step took {} recorded, {} unprofiled".format(*times), cause]
        said += ["how much was not measured, so a typical cost of an op stands in"] if self.is_typical else []
        others = self.others_cpu_us / self.step_without_profiler_us
        busy = f"other processes (a loader's and other ranks' count) kept {others:.1f} of {self.cores} cores busy"
        said += [busy] if self.is_crowded else []
        return "; ".join(filter(None, [*said, self.mismatch]))

    @property
    def doubt(self) -> str:
        """Says why to record again, or that a prediction is of the recorded run; "" where nothing speaks for that."""
        if self.cause is Cause.NOT_THE_HOST:
            unprofiled, recorded = map(time_text, (self.step_without_profiler_us, self.step_us))
            return f"it is about the recorded run, in which a step takes {recorded}, not {unprofiled} as unprofiled"
        return TEXTS[self.cause].format(pause=self.pause) if self.cause in DOUBTFUL else ""

    @property
    def mismatch(self) -> str:
        """Says how far a replay is off the measured steps, if it is; else ""."""
        is_off = abs(self.error_pct) > 100 * NEAR
        return f"a replay is {signed_pct(self.error_pct)} off the unprofiled steps" if is_off else ""


def with_loaders_us(run: Recording | None, rest_us: float, loading_us: float, processes: int = 1) -> float:
    """Returns how long a step takes (µs) if so many processes load ahead what a loop loads itself: as the rest of the
    loop, as a process for its batches, or as all cores for all that is computed, where threads that spin count. If no
    core is free, a step does not get shorter.

    >>> with_loaders_us(None, 2_000, 12_000), with_loaders_us(None, 2_000, 12_000, processes=6)
    (12000.0, 2000)
    """
    cores_us = 0.0
    if run and run.cores:
        share = 1.0 if run.has_no_free_core else run.busy_cores / run.cores
        cores_us = share * run.step_without_profiler_us
    return max(rest_us, loading_us / processes, cores_us)


def recording(graphs: Graphs) -> Recording | None:
    """Returns what recording did to the run of these ranks; None where no rank was measured without a profiler."""
    return run_of(given_graphs(graphs, "recording(graphs)", allow_mismatch=True)).job.recording


def recording_of(replay: Replay) -> Recording | None:
    """Returns what recording did to a job of this unchanged replay, by up to 50 replays; None where no rank knows."""
    job, graphs = replay.work, replay.work.graphs
    steps = {graph.number(STEPS, 0) for graph in graphs}
    # the longest time of the ranks, as ranks wait for each other
    slowest = max(graphs, key=lambda graph: graph.number(STEP_WITHOUT_PROFILER_NS, 0))
    step_ns = slowest.number(STEP_WITHOUT_PROFILER_NS, 0)
    if job.differs or len(steps) > 1 or min(steps) < 1 or step_ns <= 0 or not replay.makespan_ns:
        return None
    count, host = min(steps), _Host(job)
    data_ns = max(graph.number(DATA_WAIT_WITHOUT_PROFILER_NS, 0) for graph in graphs) if host.is_data.any() else 0
    times_us = replay.makespan_ns / count / 1000, step_ns / 1000
    spread = noise_of(step_ns, slowest.metadata, is_of_devices=True) / 100
    models, cause = _models(host, step_ns * count, count, spread)
    is_typical = bool(models and models[0].cost_us and not host.op_ns)
    pause = host.pause(step_ns * count, count) if cause is Cause.PAUSED else ""
    error_pct = 100 * (host.makespan_ns(models[0]) / (step_ns * count) - 1) if models else 0.0
    is_of_devices = host.has_devices and cause in (Cause.DEVICES_LIMIT, Cause.NOT_SLOWED)
    noise_pct = noise_of(step_ns, slowest.metadata, count, is_of_devices=is_of_devices)
    if cause in (Cause.SLOWER_BEFORE, Cause.HELD_UP):  # what made the difference may have hit any part of the step
        lengths_ns = host.makespan_ns(Model(0.0, 1.0)), step_ns * count
        noise_pct = max(noise_pct, 100 * (1 - min(lengths_ns) / max(lengths_ns)))
    own_us, others_us = (slowest.number(name, 0) / 1000 for name in ("own_cpu_ns", "others_cpu_ns"))
    return Recording(
        *times_us, cause, count, models, data_ns / 1000, noise_pct, is_typical, pause, error_pct, slowest.number("cores", 0),
        own_us, others_us, slowest.number("threads", 0),
    )  # fmt: skip


class Run(NamedTuple):
    """The run that graphs hold: the `job` as it is without a profiler, where known, and the replay as `recorded`."""

    job: Workload
    recorded: Replay


def run_of(graphs: Sequence[ExecutionGraph], *, as_recorded: bool = False) -> Run:
    """Returns the run of these ranks without a profiler, if known, or `as_recorded`.

    Raises RequestError if graphs of the former are wanted `as_recorded`, DataError for a cycle.
    """
    job = gather_job(graphs)
    if as_recorded and job.is_modelled:
        raise RequestError("the graphs hold the unprofiled run: build them with --as-recorded")
    recorded = replay_job(job)
    starts_apart_ns = np.abs(recorded.start_ns - job.measured_start_ns)[job.is_activity & job.is_timed]
    late_ns, apart_ns = int(starts_apart_ns.max(initial=0)), abs(recorded.makespan_ns - recorded.measured_ns)
    is_generic = all(graph.metadata.get("target") == GENERIC for graph in graphs)
    if is_generic and not job.is_of_scaled_job and max(late_ns, apart_ns) > MOST_APART * recorded.measured_ns:
        measured, replayed, late = (
            time_text(ns / 1000) for ns in (recorded.measured_ns, recorded.makespan_ns, late_ns)
        )
        by_length = DIFFERS.format(measured, replayed)
        job = replace(job, differs=by_length if measured != replayed else STARTS_DIFFER.format(late))
    recorded = replace(recorded, work=job)
    found = None if as_recorded else recording_of(recorded)
    return Run(found.without_profiler(job) if found else job, recorded)


def noise_of(step_ns: int, measured: Mapping[str, Any], steps: int = 1, *, is_of_devices: bool) -> float:
    """Returns by how much of this length means of so many steps differ (%), and runs whose host takes part of it."""
    spread_ns = measured.get("step_p90_ns", 0) - measured.get("step_p10_ns", 0)
    return float(max(50 * spread_ns / step_ns / steps**0.5, 0.0 if is_of_devices else DRIFT_PCT))


class _Host:
    """A recorded job with the waits for data that were measured, and what models take off its other host work."""

    def __init__(self, job: Workload) -> None:
        """Finds what is host work, and how much of a cost each node has."""
        self.work, self.is_data = with_measured_waits(job)
        self.has_devices = any(bool(graph.is_activity.any()) for graph in job.graphs)
        self.is_work = (self.work.node_class == NodeClass.HOST) & ~self.is_data
        numbers = ("recorded_alone", "recorded_op_ns", "recorded_call_ns")
        alone, op, call = (min(graph.number(name, 0) for graph in job.graphs) for name in numbers)
        self.op_ns = op
        self.cost_ns = (op or TYPICAL_OP_NS) / 2 if alone == 1 else 0
        """What a begin or end of an op costs, 0 where a host trace was written beside."""
        launches = self.work.source[self.work.kind & DependencyKind.LAUNCH != 0]
        calls = np.bincount(launches, minlength=len(self.work)) * self.is_work
        self.costs = 1 + calls * (call / self.cost_ns if self.cost_ns else 0.0)
        stretches = self.work.duration_ns[self.is_work & (self.work.duration_ns > 0)]
        # host time that a graph of devices alone leaves out before an activity is a stretch, too
        if not len(stretches):
            stretches = self.work.host_delay_ns[self.work.host_delay_ns > 0]
        self.median_ns = max(float(np.median(stretches)), 1.0) if len(stretches) else 1.0
        self.longest_ns = float(max(self.work.duration_ns.max(initial=0), self.work.host_delay_ns.max(initial=0)))
        self.has_functions = any("python_function" in graph.attributes for graph in job.graphs)
        is_named = np.concatenate([graph.integers("scope") == USER_SCOPE for graph in job.graphs])
        others_ns = self.work.duration_ns[self.is_work & ~is_named]
        self.longest_other_us = None if self.has_functions else float(others_ns.max(initial=0)) / 1000
        """Of stretches outside of ops of an annotation, which are slowed as a whole only with Python's functions."""

    def pause(self, measured_ns: int, steps: int) -> str:
        """Returns the longest stretch of host work, in words, if no profiler slows the host so much, else ""."""
        work, graphs = self.work, self.work.graphs
        # Python's functions are slowed within a stretch where they are recorded, and other processes slow all on a CPU
        most_ns = measured_ns / steps * (1 / LEAST_FACTOR if self.has_functions else MUCH_SLOWER)
        first_us = None if self.has_functions or not self.has_devices else SLOWED_MEDIANS * self.median_ns / 1000
        is_beyond = self.makespan_ns(Model(0.0, LEAST_FACTOR, first_us)) > MUCH_SLOWER * measured_ns
        stretch_ns = np.maximum(work.duration_ns * self.is_work, work.host_delay_ns)
        node = int(stretch_ns.argmax())
        others = np.where(np.arange(len(work)) == node, 0.0, 1.0)
        without = scale_nodes(work, np.where(self.is_work, others, 1.0), others)
        if not is_beyond and makespan_ns(work) - makespan_ns(without) <= max(most_ns, SLOWED_MEDIANS * self.median_ns):
            return ""
        rank = int(work.ranks_of(np.array([node]))[0])
        return f"{time_text(stretch_ns[node] / 1000)}, in {graphs[rank].name[node - int(work.first_row[rank])]}"

    def by(self, model: Model) -> Workload:
        """Returns the job without a profiler by this model."""
        slowed_ns = math.inf if model.slowed_us is None else 1000 * model.slowed_us

        def left(time_ns: Int64, costs: Floats | float) -> Floats:
            rest = np.maximum(time_ns - 1000 * model.cost_us * costs, 0)
            share = rest - (1 - model.host_factor) * np.minimum(rest, slowed_ns)
            return np.where(time_ns > 0, share / np.maximum(time_ns, 1), 1.0)

        durations = np.where(self.is_work, left(self.work.duration_ns, self.costs), 1.0)
        work = scale_nodes(self.work, durations, left(self.work.host_delay_ns, 1.0))
        if model.machine_factor == 1:
            return work
        factors = np.where(self.is_data, 1.0, model.machine_factor)  # waits for data were measured without a profiler
        names = {"duration_ns": factors, **dict.fromkeys(("host_delay_ns", "wait_ns", "lag_ns"), model.machine_factor)}
        times = {name: np.rint(factor * getattr(work, name)).astype(np.int64) for name, factor in names.items()}
        return replace(work, **times)

    def completed(self, model: Model, goal_ns: float) -> Model:
        """Returns the model with the machine as fast as the job shows that it was; devices are as fast as recorded."""
        makespan = self.makespan_ns(model)
        if self.has_devices or abs(makespan - goal_ns) <= NEAR * goal_ns:
            return model
        factor = goal_ns / makespan
        scaled = self.makespan_ns(msgspec.structs.replace(model, machine_factor=factor))
        # what the factor leaves as it is leaves the run, which is linear in it, off the goal
        factor += (goal_ns - scaled) * (factor - 1) / ((scaled - makespan) or math.inf)
        return msgspec.structs.replace(model, machine_factor=max(factor, LEAST_FACTOR))

    def makespan_ns(self, model: Model) -> int:
        """Returns how long the job takes by this model."""
        return makespan_ns(self.by(model))

    def fitted(self, model: Callable[[float], Model], goal_ns: float) -> Model:
        """Returns by regula falsi (Illinois) the model of about this length, of those that grow with a number."""
        low, high = (model(0.0), self.makespan_ns(model(0.0))), (model(1.0), self.makespan_ns(model(1.0)))
        if low[1] >= goal_ns or high[1] <= goal_ns:
            return low[0] if low[1] >= goal_ns else high[0]
        ends, over, nearest, side = [0.0, 1.0], [low[1] - goal_ns, high[1] - goal_ns], high, -1
        for _ in range(REPLAYS):
            at = ends[0] - over[0] * (ends[1] - ends[0]) / (over[1] - over[0])
            nearest = (model(at), self.makespan_ns(model(at)))
            if abs(nearest[1] - goal_ns) <= NEAR * goal_ns:
                break
            of = int(nearest[1] > goal_ns)
            ends[of], over[of] = at, nearest[1] - goal_ns
            if side == of:  # the other end would stay for ever
                over[1 - of] /= 2
            side = of
        return nearest[0]


def _models(host: _Host, measured_ns: int, steps: int, spread: float) -> tuple[tuple[Model, ...], Cause]:
    """Returns the models that replay the run as it was measured, and what that shows; steps differ by this `spread`."""
    as_recorded, without_host = Model(0.0, 1.0), Model(0.0, 0.0)
    recorded_ns, shortest_ns = host.makespan_ns(as_recorded), host.makespan_ns(without_host)
    if measured_ns > max(SLOWER, 1 + spread * (not host.has_devices)) * recorded_ns:
        if not host.cost_ns or measured_ns > MUCH_SLOWER * recorded_ns:
            return (), Cause.SLOWER_BEFORE
        # nothing tells of what the time was more
        of_host = host.fitted(lambda share: Model(0.0, 1 + share), measured_ns)
        return tuple(dict.fromkeys((host.completed(as_recorded, measured_ns), of_host))), Cause.SLOWER_BEFORE
    low, high = DEVICES_ALONE
    if shortest_ns > high * measured_ns:
        return (), Cause.NOT_THE_HOST
    if measured_ns >= NOT_SLOWED * recorded_ns:
        return (host.completed(as_recorded, measured_ns),), Cause.NOT_SLOWED
    is_limit = host.has_devices and shortest_ns >= low * measured_ns
    if not is_limit and host.pause(measured_ns, steps):
        return (), Cause.PAUSED
    goal_ns = max(shortest_ns * (LIMITED if is_limit else 1), measured_ns)
    first_us, dearest_us = SLOWED_MEDIANS * host.median_ns / 1000, COSTLIEST * host.cost_ns / 1000
    is_more = bool(dearest_us) and not host.has_devices
    is_more = is_more and host.makespan_ns(Model(dearest_us, 1.0)) > max(HELD_UP, 1 + spread) * measured_ns
    # where long stretches must have been slowed as a whole
    while 1000 * first_us < host.longest_ns and host.makespan_ns(Model(0.0, 0.0, first_us)) > (1 + NEAR) * goal_ns:
        first_us *= 2
    of_first = host.fitted(lambda share: Model(0.0, share, first_us), goal_ns)
    if dearest_us:
        cost_us = host.fitted(lambda share: Model(dearest_us * (1 - share), 1.0), goal_ns).cost_us
        of_cost = host.fitted(lambda share: Model(cost_us, share, first_us), goal_ns)
        # what a cost leaves of a run with devices cannot be told from them
        by_cost = [] if host.has_devices else [Model(host.cost_ns / 1000, 1.0)]
        likeliest = [*by_cost, of_cost] if is_more else [of_cost, *by_cost]
        models = [host.completed(model, goal_ns) for model in (*likeliest, of_first)]
    else:
        is_enough = host.makespan_ns(Model(0.0, 0.0, host.longest_other_us)) <= goal_ns
        of_all = host.fitted(lambda share: Model(0.0, share, host.longest_other_us if is_enough else None), goal_ns)
        models = [of_first, of_all, host.fitted(lambda share: Model(first_us * (1 - share), 1.0), goal_ns)]
    if is_limit and goal_ns > measured_ns:  # steps do not show the host, which takes between no time and all of it
        models = [msgspec.structs.replace(of_first, host_factor=of_first.host_factor / 2), *models]
    models += [without_host] if is_limit else []
    cause = Cause.DEVICES_LIMIT if is_limit else Cause.HELD_UP if is_more else Cause.HOST_SLOWED
    return tuple(dict.fromkeys(models)), cause
