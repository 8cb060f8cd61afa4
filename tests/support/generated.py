"""Graphs of generated jobs, one per rank."""

import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from execgraph.converter.convert import convert
from execgraph.converter.options import Options
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.linked import LinkedTrace
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.job import BuildOptions, BuildReport, Outcomes, build

from benchmarks.programs import JOBS, build_job

ALONE = [job for job, preset in JOBS.items() if preset.size.ranks == 1]
TOGETHER = [job for job in JOBS if job not in ALONE]


@cache
def linked_job(job: str, ranks: int) -> list[LinkedTrace]:
    with tempfile.TemporaryDirectory() as folder:
        files = write_traces(simulate(build_job(job, ranks=ranks, steps=2, layers=2, seed=1)), folder)
        return [link(read_host_trace(str(host)), read_device_trace(str(device))) for host, device in files]


@cache
def graphs_of(job: str, ranks: int = 0, promote: str = "sync") -> tuple[ExecutionGraph, ...]:
    """Two steps of a job of two layers. The graphs are shared: they must not be changed."""
    linked = linked_job(job, ranks or JOBS[job].size.ranks)
    return tuple(convert(one, Options(promote=promote)) for one in linked)


class Built(NamedTuple):
    """A job that trace-build built: its report, the graphs, which are shared, and how long the job took."""

    report: BuildReport
    graphs: tuple[ExecutionGraph, ...]
    makespan_ns: int


@cache
def built_job(job: str, ranks: int) -> Built:
    """One step of a job of one layer."""
    run = simulate(build_job(job, ranks=ranks, steps=1, layers=1, seed=ranks))
    with tempfile.TemporaryDirectory() as folder:
        traces, out = Path(folder, "traces"), Path(folder, "graphs")
        write_traces(run, traces)
        report = build(traces, out, BuildOptions(), here).report
        graphs = tuple(ExecutionGraph.read(str(out / f"graph.{rank}.et")) for rank in range(ranks))
    return Built(report, graphs, run.makespan_ns)


def here(function: Callable[[Any], Any], tasks: Sequence[Any], _: object = None) -> Outcomes:
    """Builds one rank after the other, in this process."""
    for task in tasks:
        yield task, function(task)
