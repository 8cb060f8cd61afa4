"""Predicts a step of one job on a GPU from the recording of another, without a profiler, beside what it really takes.

    python -m benchmarks.accuracy.recording

The captures in tests/data/gpu know how long their steps take without a profiler: `capture` measures it.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from execgraph import what_if
from execgraph.converter import convert
from execgraph.linker import link
from execgraph.schema.graph import STEP_WITHOUT_PROFILER_NS, STEPS, ExecutionGraph
from execgraph.tools.analyses import analyse, read_rank
from execgraph.tools.findings import facts_of, find, job_of
from execgraph.tools.replay import Recording, recording

from .tables import markdown

CAPTURES = Path(__file__).parents[2] / "tests" / "data" / "gpu"
HOST, COMPUTATION = "class:host", "class:computation"
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
)
"""A job, the same with something repaired, and the finding of `trace-report` that offers to."""
OTHER_JOB = (
    ("attention_bf16", "attention_bf16_batch128"),
    ("attention_bf16", "attention_fp32"),
    ("attention_bf16", "attention_memory"),
    ("attention_bf16", "language_model"),
    ("attention_bf16", "compiled"),
    ("convolutions_batch128", "convolutions_fp32"),
    ("small", "small_synchronised"),
    ("small", "decoding"),
    ("small", "streams"),
)
"""The job that was measured, and one whose recording is replayed with the factor for the host of that one."""


class Capture(NamedTuple):
    """The graph of a capture, and what recording did to its run."""

    graph: ExecutionGraph
    recording: Recording

    def step_us(self, changes: Mapping[str, float]) -> float:
        """Returns how long a step takes with these changes to the recording."""
        return what_if(self.graph, changes).after.makespan_ns / 1000 / self.graph.number(STEPS, 1)

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
    with_profiler = capture.step_us({COMPUTATION: kernels})
    predicted = capture.step_us({COMPUTATION: kernels, HOST: capture.recording.host_factor or 1})
    return _row(small, large, f"kernels ×{kernels:.2f}", with_profiler, predicted)


def repaired(job: str, better: str, title: str) -> list[str]:
    """Returns a row for a job without what a finding says that it loses."""
    recorded, predicted = (_without(job, title, is_measured=is_measured) for is_measured in (False, True))
    return _row(job, better, f"“{title}”", recorded, predicted)


def _without(name: str, title: str, *, is_measured: bool) -> float:
    """Returns the length of a step (µs) less the gain of a finding, whether or not the job was measured."""
    host, device = (CAPTURES / name / f"{kind}_rank0.json.gz" for kind in ("host", "device"))
    rank = read_rank(str(device), str(host))
    assert rank.graph is not None
    if not is_measured:
        rank.graph.metadata.pop(STEP_WITHOUT_PROFILER_NS)
    job = job_of([facts_of(rank)], analyse([rank]))
    assert job is not None
    gain = sum(finding.gain.us for finding in find(job) if finding.gain and title in finding.title)
    return (job.length_us - gain) / capture_of(name).graph.number(STEPS, 1)


def other_job(measured: str, other: str) -> list[str]:
    """Returns a row for a recording that is replayed with the factor of another job."""
    factor, capture = capture_of(measured).recording.host_factor or 1, capture_of(other)
    return _row(measured, other, f"host ×{factor:g}", capture.recording.step_us, capture.step_us({HOST: factor}))


def _row(job: str, other: str, change: str, recorded_us: float, predicted_us: float) -> list[str]:
    true_us = capture_of(other).recording.step_without_profiler_us
    times = (f"{time_us / 1000:.2f}" for time_us in (recorded_us, predicted_us, true_us))
    errors = (f"{100 * (time_us / true_us - 1):+.1f}" for time_us in (recorded_us, predicted_us))
    recorded, predicted, true = times
    recorded_error, error = errors
    return [job, other, change, recorded, recorded_error, predicted, error, true]


def main() -> None:
    """Prints the tables."""
    head = [
        "recorded",
        "predicted",
        "change",
        "as recorded, ms",
        "off by %",
        "without profiler, ms",
        "off by %",
        "measured, ms",
    ]
    rows = [larger_batch(*pair) for pair in LARGER_BATCH] + [repaired(*pair) for pair in REPAIRED]
    print("A step of another job\n", *markdown(head, rows), sep="\n")
    head = ["measured", "recorded", *head[2:]]
    print("A factor of another job\n", *markdown(head, [other_job(*pair) for pair in OTHER_JOB]), sep="\n")


if __name__ == "__main__":
    main()
