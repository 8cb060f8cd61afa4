"""Runs of trace-report and what it says as JSON, jobs for the rules of findings, and merged traces of a folder."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.schema.columns import Categorical
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.analyses import (
    Column,
    Finding,
    Job,
    RankFacts,
    RankTrace,
    Table,
    analyse,
    facts_of,
    find,
    graph_of,
    job_of,
)
from execgraph.tools.commands import trace_report
from execgraph.tools.job import merge_for_viewing
from execgraph.tools.trace_files import RankFile, by_rank, find_traces

from support.builder.timeline import TraceBuilder
from support.databases import Api, Op, Range, write_database
from support.references import linked_of
from support.runs import link_run

needs_page = pytest.mark.skipif(find_spec("altair") is None, reason="needs the extra `report`")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        trace_report.main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def small_run(kernels: int = 2) -> TraceBuilder:
    t = TraceBuilder(rank=0)
    for number in range(kernels):
        with t.op("aten::mm", inputs=[t.tensor()]):
            t.work(2)
            t.launch(f"gemm {number}", duration=50)
    t.device_synchronize()
    return t


def as_json(capfd: pytest.CaptureFixture[str], *arguments: object) -> dict[str, list[dict[str, Any]]]:
    assert run("-q", "--json", *arguments) == 0
    found: dict[str, list[dict[str, Any]]] = json.loads(capfd.readouterr().out)
    return found


def table(name: str, /, **columns: list[object]) -> dict[str, Table]:
    """Returns a table by its name, of columns without units."""
    values = {key: given if isinstance(given[0], str) else np.array(given) for key, given in columns.items()}
    return {name: Table(name, name, [Column(key, "", value) for key, value in values.items()])}  # type: ignore[arg-type]


def played(*runs: TraceBuilder, modules: bool = False) -> Job:
    """The job whose ranks were played."""
    linked = [link_run(t, modules) for t in runs]
    ranks = [RankTrace(number, one, graph_of(one)) for number, one in enumerate(linked)]
    job = job_of([facts_of(rank) for rank in ranks], analyse(ranks))
    assert job is not None
    return job


def built(*graphs: ExecutionGraph, tables: Mapping[str, Table] | None = None, **facts: Any) -> Job:
    """The job of these graphs, of which nothing else is known but `facts` of all ranks."""
    ranks = [replace(facts_alone(graph, number), **facts) for number, graph in enumerate(graphs)]
    traces = [RankTrace(rank.rank, linked_of([]), rank.graph) for rank in ranks]
    job = job_of(ranks, {**analyse(traces, ["critical_path"]), **(tables or {})})
    assert job is not None
    return job


def facts_alone(graph: ExecutionGraph, rank: int = 0) -> RankFacts:
    nothing = Categorical.nulls(len(graph))
    return RankFacts(rank, graph, np.zeros(len(graph), np.bool_), nothing, nothing, nothing, np.empty(0, np.int64))


def titled(findings: Iterable[Finding], title: str) -> Finding:
    """The one finding whose title has this text."""
    (found,) = (finding for finding in findings if title in finding.title)
    return found


def titles(job: Job) -> list[str]:
    return [finding.title for finding in find(job)]


ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
Jobs = Callable[[int], Path]


def ranks_in(folder: Path) -> list[RankFile]:
    return by_rank(find_traces([folder]).devices, {})[0]


def merged(folder: Path, output: Path) -> dict[str, Any]:
    merge_for_viewing(ranks_in(folder), str(output))
    content = output.read_bytes()
    trace: dict[str, Any] = json.loads(gzip.decompress(content) if output.suffix == ".gz" else content)
    return trace


def recorded_activities(folder: Path) -> Counter[tuple[int, int]]:
    """Activities by (rank, device) in the ranks' own files."""
    counts: Counter[tuple[int, int]] = Counter()
    for rank, path in ranks_in(folder):
        counts.update((rank, row["pid"]) for row in rows_of(json.loads(path.read_text())) if row["cat"] in ACTIVITIES)
    return counts


def rows_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in trace["traceEvents"] if row["ph"] == "X"]


def process_database(folder: Path, which: str, pid: int) -> Path:
    """A process whose two kernels run on its device 0."""
    ops = [Op("gemm", 1_000, 9_000, caller=1), Op("ncclDevKernel_Generic", 10_000, 19_000 + pid, caller=2, queue=5)]
    api = [Api("hipLaunchKernel", 100, 200, pid, pid), Api("hipExtLaunchKernel", 300, 400, pid, pid)]
    return write_database(folder / f"trace_{pid}.db", which, ops, api, [Range("step", 50, 30_000, pid, pid)], pid)
