"""Predicts a step of one job on a GPU from the recording of another, without a profiler, beside what it really takes.

    python -m benchmarks.accuracy.recording

The captures in tests/data/gpu know how long their steps take without a profiler: `capture` measures it. How long
steps of all jobs take is in measured.json there, for both jobs of a row from one session, but for TF32.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from execgraph import what_if
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.schema.graph import STEPS, ExecutionGraph
from execgraph.tools.analyses import Gain, analyse, facts_of, find, job_of, read_rank
from execgraph.tools.replay import Recording, changed_job, gather_job, makespan_ns, parse_scale, recording

from .tables import markdown

CAPTURES = Path(__file__).parents[2] / "tests" / "data" / "gpu"
LARGER_BATCH = (
    ("attention_bf16", "attention_bf16_batch128"),
    ("attention_fp32", "attention_fp32_batch32"),
    ("convolutions_batch128", "convolutions_batch512"),
)
REPAIRED = (
    ("small", "small_graph", "small kernels"),
    ("compiled", "compiled_graphs", "small kernels"),
    ("small_synchronised", "small", "to wait for the device"),
    ("loader_slow", "loader_fast", "waits for its data"),
    ("loader_in_process", "loader_in_process_ahead", "waits for its data"),
    ("loader_pinned", "loader_pinned_fast", "waits for its data"),
    ("copies_pageable", "copies_pinned", "pageable"),
    ("optimizer_loop", "optimizer_fused", "small kernels"),
    ("attention_fp32_batch32", "attention_tf32_batch32", "tensor cores"),
    ("faults", "faults_loader", "waits for its data"),
    ("faults", "faults_reads", "to wait for the device"),
    ("faults", "faults_pageable", "pageable"),
)
"""A job, the same with something repaired, and a part of the title of the finding of `trace-report` that offers to."""


class Capture(NamedTuple):
    """The graph of a capture, and what recording did to its run."""

    graph: ExecutionGraph
    recording: Recording

    def step_us(self, recorded: Recording | None = None, computation: float = 1) -> float:
        """Returns how long a step takes with a factor for kernels, without a profiler if it is known what that did."""
        job = gather_job([self.graph])
        job = recorded.without_profiler(job) if recorded else job
        work = changed_job(job, [parse_scale(f"class:computation={computation}")])
        return makespan_ns(work) / 1000 / self.graph.number(STEPS, 1)

    def kernels_us(self) -> float:
        """Returns how long the activities of a step take in all."""
        total_ns = int(self.graph.duration_ns[self.graph.is_activity].sum())
        return total_ns / 1000 / self.graph.number(STEPS, 1)


@cache
def capture_of(name: str) -> Capture:
    """Returns a capture by the name of its folder."""
    host, device = (CAPTURES / name / f"{kind}_rank0.json.gz" for kind in ("host", "device"))
    graph = convert(link(str(host), str(device)))
    found = recording(graph)
    assert found is not None, name
    return Capture(graph, found)


def larger_batch(small: str, large: str) -> list[str]:
    """Returns a row for a job with kernels as long as those of the same job with a larger batch."""
    capture = capture_of(small)
    kernels = capture_of(large).kernels_us() / capture.kernels_us()
    recorded_us, predicted_us = capture.step_us(computation=kernels), capture.step_us(capture.recording, kernels)
    return _row(small, large, f"kernels ×{kernels:.2f}", recorded_us, (predicted_us,))


def repaired(job: str, better: str, title: str) -> list[str]:
    """Returns a row for a job without what a finding says that it loses."""
    recorded, predicted = (_without(job, title, is_measured=is_measured) for is_measured in (False, True))
    return _row(job, better, f"“{title}”", recorded[0], predicted)


def unchanged(name: str) -> list[str]:
    """Returns a row for how far a replay of the run without a profiler is off the steps that were measured without."""
    found = capture_of(name).recording
    error = f"{round(found.error_pct, 2) + 0.0:+.2f}" if found.is_known else "no model"
    return [name, *_milliseconds([found.step_us, found.step_without_profiler_us]).split(" to "), error]


def _without(name: str, title: str, *, is_measured: bool) -> tuple[float, ...]:
    """Returns the length of a step (µs) less the gain of a finding, without a profiler if the job was measured, and
    the least and the most of it where the gain is a range.
    """
    host, device = (CAPTURES / name / f"{kind}_rank0.json.gz" for kind in ("host", "device"))
    rank = read_rank(str(device), str(host))
    assert rank.graph is not None
    job = job_of([facts_of(rank)], analyse([rank]), as_recorded=not is_measured)
    assert job is not None
    found = next((finding.gain for finding in find(job) if finding.gain and title in finding.title), Gain(0, 0))
    limits = () if found.least_us is None or found.most_us is None else (found.most_us, found.least_us)
    steps = capture_of(name).graph.number(STEPS, 1)
    step_us = capture_of(name).recording.step_without_profiler_us if is_measured else job.length_us / steps
    return tuple(step_us - gain / steps for gain in (found.us, *limits))


def part_of_the_host(job: str, change: str, better: str) -> list[str]:
    """Returns a row for a job without a part of its host's work, which the repair of it cannot gain more than."""
    run = what_if(capture_of(job).graph, {change: 0}).after
    steps = run.results.without_profiler
    assert steps is not None
    times = steps.changed_us, steps.low_us, steps.high_us
    recorded_us = what_if(capture_of(job).graph, {change: 0}, as_recorded=True).after.makespan_us / steps.steps
    return _row(job, better, f"{change}=0", recorded_us, [time / steps.steps for time in times])


def _row(job: str, other: str, change: str, recorded_us: float, predicted_us: Sequence[float]) -> list[str]:
    """Returns a row of what was predicted and really measured, in % of the step before the change as each knows it: the
    machine of the recording was faster or slower than that of the measurement.
    """
    recording, timed = capture_of(job).recording, json.loads((CAPTURES / "measured.json").read_text())
    true_pct = 100 * (timed[other]["median"] / timed[job]["median"] - 1)
    likeliest, *limits = (100 * (us / recording.step_without_profiler_us - 1) for us in predicted_us)
    is_within = ("yes" if limits[0] <= true_pct <= limits[1] else "no") if limits else "–"
    errors = likeliest - true_pct, 100 * (recorded_us / recording.step_us - 1) - true_pct
    shown = [f"{likeliest:+.1f}", " to ".join(f"{limit:+.1f}" for limit in limits) or "–", f"{true_pct:+.1f}"]
    before = _milliseconds([recording.step_without_profiler_us])
    return [f"{job} → {other}", change, before, *shown, is_within, *(f"{error:+.1f}" for error in errors)]


def _milliseconds(times_us: Sequence[float]) -> str:
    return " to ".join(f"{time_us / 1000:.2f}" for time_us in times_us)


def main() -> None:
    """Prints the tables."""
    head = ["recorded → predicted", "change", "before, ms", "predicted, %", "range, %", "really, %", "in range"]
    errors = ["off by, points", "as recorded off by, points"]
    rows = [*(larger_batch(*pair) for pair in LARGER_BATCH), *(repaired(*of_job) for of_job in REPAIRED)]
    rows.append(part_of_the_host("optimizer_loop", "phase:optimizer", "optimizer_fused"))
    print("A step of another job\n", *markdown([*head, *errors], rows), sep="\n")
    several = {path.parent for path in CAPTURES.glob("*/host_rank1.json.gz")}
    names = sorted(path.parent.name for path in CAPTURES.glob("*/host_rank0.json.gz") if path.parent not in several)
    columns = ["job", "as recorded, ms", "without profiler, ms", "replay off by %"]
    print("The run without a profiler\n", *markdown(columns, [unchanged(name) for name in names]), sep="\n")


if __name__ == "__main__":
    main()
