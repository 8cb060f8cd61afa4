"""Traces of PyTorch's CUPTI backend: names from arguments, streams, and dependencies within launched graphs."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link, read_linked
from execgraph.linker.readers import DeviceTrace, read_device_trace, read_host_trace
from execgraph.linker.readers.cupti_rows import activity_name
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.schema.linked import LinkedTrace, kineto, write_linked
from execgraph.schema.reasons import Reason
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.replay import parse_scale, replay
from support.builder.timeline import TraceBuilder
from support.cupti_backend import FIRST, dependencies_of, rewritten

from benchmarks.programs import build_job

GRAPH = DependencyKind.LAUNCHED_GRAPH
COPY = {"copy_kind": "HtoD", "copy_source": "pageable", "copy_target": "device"}
CAPTURE = Path(__file__).parents[2] / "data" / "gpu" / "small_graph"


@pytest.mark.parametrize(
    ("name", "args", "usual"),
    [
        ("Memcpy", COPY, "Memcpy HtoD (Pageable -> Device)"),
        (
            "Memcpy",
            COPY | {"copy_source": None, "copy_target": "managed_static"},
            "Memcpy HtoD (Unknown -> Managed Static)",
        ),
        ("Memcpy", {}, "Memcpy"),
        ("Memset", {"set_kind": 3}, "Memset (Device)"),
        ("Memset", {"set_kind": 77}, "Memset (77)"),
        ("gemm", {"set_kind": 3}, "gemm"),
    ],
)
def test_copies_and_sets_are_named_by_their_arguments(name: str, args: dict[str, Any], usual: str) -> None:
    assert activity_name(kineto.Event("X", name=name, args=kineto.Args(**args))) == usual


def written(trace: dict[str, Any], path: Path) -> DeviceTrace:
    path.write_text(json.dumps(trace))
    return read_device_trace(str(path))


def graph_edges(graph: ExecutionGraph) -> set[tuple[int, int]]:
    kinds, sources = graph.attributes["data_dep_kinds"], graph.data_deps
    rows = np.flatnonzero(kinds.values & GRAPH)  # type: ignore[union-attr]
    return {*zip(sources.values[rows].tolist(), graph.id[sources.rows()[rows]].tolist(), strict=True)}


def test_a_generated_graph_keeps_its_streams_and_gets_its_true_dependencies(tmp_path: Path) -> None:
    job = build_job("graph", steps=2, layers=2, seed=1)
    run = simulate(job)
    host, device = write_traces(run, tmp_path)[0]
    true = dependencies_of(run.ranks[0])
    usual = link(read_host_trace(str(host)), read_device_trace(str(device)))
    trace = rewritten(json.loads(device.read_text()), true, lanes={24: 7})
    moved = [row for row in trace["traceEvents"] if "original_stream" in row.get("args", {})]
    assert moved and {row["tid"] for row in moved} == {7}
    linked = link(read_host_trace(str(host)), written(trace, tmp_path / "cupti.json"))
    for column in ("name", "stream", "start", "end", "graph_node", "call_row", "op_row"):
        assert list(getattr(linked.activities, column)) == list(getattr(usual.activities, column))
    graph, count = convert(linked), len({(launch, *pair) for launch, pairs in true.items() for pair in pairs})
    assert linked.report.waits[Reason.WITHIN_GRAPHS] == count == len(graph_edges(graph))
    assert "inferred" not in graph.report.edges and convert(usual).report.edges["inferred"]  # type: ignore[union-attr]
    write_linked(linked, str(tmp_path / "linked.json"))
    assert graph_edges(convert(read_linked(str(tmp_path / "linked.json")))) == graph_edges(graph)
    slower = "reduce_kernel=10"
    answer, truth = replay(graph, [parse_scale(slower)]).makespan_ns, simulate(job, [slower]).makespan_ns
    assert abs(answer - truth) / truth < 0.001


def kernels(t: TraceBuilder, *rows: tuple[str, int, float, float]) -> dict[str, Any]:
    """A trace of one launched graph with kernels of (name, stream, start, duration), whose nodes are numbered so."""
    made = t.call("cudaGraphLaunch")
    for number, (name, stream, start, duration) in enumerate(rows):
        activity = t.activity(name, stream, start, duration, made)
        activity.args |= {"graph id": 5, "graph node id": number}
    return t.device_trace()


def links(trace: LinkedTrace) -> set[tuple[str, str]]:
    names, waits = trace.activities.name, trace.device_waits
    return {(names[a], names[b]) for a, b in zip(waits.source_row.tolist(), waits.target_row.tolist(), strict=True)}


def test_what_follows_events_in_a_graph_follows_what_they_stand_for(t: TraceBuilder, tmp_path: Path) -> None:
    trace = kernels(t, ("a", 7, 20, 5), ("x", 7, 26, 0), ("y", 20, 27, 0), ("b", 20, 30, 5), ("c", 24, 31, 1))
    for row in trace["traceEvents"]:
        if row["name"] in "xy":
            row |= {"cat": "graph_event_node"}
    launch = t.calls[-1].correlation
    device = written(rewritten(trace, {launch: [(0, 1), (1, 2), (2, 3), (1, 4)]}), tmp_path / "cupti.json")
    assert sorted(device.activities.name) == ["a", "b", "c"]
    assert device.activities.graph_node.tolist() == [(5 << 32) + node for node in (0, 3, 4)]
    assert links(link(None, device)) == {("a", "b"), ("a", "c")}


def test_flows_that_name_no_activity_or_contradict_the_clock_are_counted(t: TraceBuilder, tmp_path: Path) -> None:
    trace = kernels(t, ("a", 7, 20, 5), ("b", 20, 24, 5), ("c", 24, 30, 5), ("d", 24, 30, 5))
    launch = t.calls[-1].correlation
    rows = rewritten(trace, {launch: [(0, 1), (0, 2), (1, 3)]})
    lost = {"ph": "s", "id": FIRST + (1 << 20), "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 1.5}
    rows["traceEvents"].append(lost)
    device = written(rows, tmp_path / "cupti.json")
    assert device.oddities[Reason.FLOWS_OF_NO_ACTIVITY] == 3
    linked = link(None, device)
    assert links(linked) == set() and linked.report.dropped[Reason.GRAPH_AGAINST_CLOCK] == 1


def test_a_captured_graph_replays_as_it_ran(tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((CAPTURE / "device_rank0.json.gz").read_bytes()))
    rows = [row for row in trace["traceEvents"] if row.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    launches = {
        row["args"]["correlation"]
        for row in trace["traceEvents"]
        if row.get("cat") == "cuda_runtime" and row["name"] == "cudaGraphLaunch"
    }
    nodes: dict[int, int] = defaultdict(int)
    for row in sorted(rows, key=lambda row: row["ts"]):
        launch = row["args"]["correlation"]
        if launch in launches:
            nodes[launch] += 1
            row["args"] |= {"graph id": 1, "graph node id": nodes[launch]}
    chains = {launch: [(node, node + 1) for node in range(1, count)] for launch, count in nodes.items()}
    linked = link(
        read_host_trace(str(CAPTURE / "host_rank0.json.gz")), written(rewritten(trace, chains), tmp_path / "c.json")
    )
    graph = convert(linked)
    assert linked.report.waits[Reason.WITHIN_GRAPHS] == sum(nodes.values()) - len(nodes) == len(graph_edges(graph))
    measured = int((graph.host_clock_start_ns + graph.duration_ns).max() - graph.host_clock_start_ns.min())
    assert abs(replay(graph).makespan_ns - measured) / measured < 0.0002
