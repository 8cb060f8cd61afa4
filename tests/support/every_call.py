"""Uses everything that `import execgraph` gives, as typed code of a user does: `make types` checks its types."""

from pathlib import Path

import execgraph as eg


def traces(folder: Path, out: Path) -> eg.LinkedTrace:
    """From files to a linked trace and back."""
    host: eg.HostTrace = eg.read_host_trace(folder / "host_rank0.json.gz")
    with (folder / "device_rank0.json.gz").open("rb") as stream:
        device: eg.DeviceTrace = eg.read_device_trace(stream)
    whole: eg.LinkedTrace = eg.link(host, device)
    part = eg.link(str(folder), rank=0, window=eg.Window(clock=(0, 4000)))
    assert 0 < len(part.activities) <= len(whole.activities)
    whole.write(out / "linked.json")
    eg.write_linked(whole, out / "same.json")
    linked = eg.read_linked(out / "linked.json")
    kernels: eg.Frame = linked.kernels
    waits: int = linked.unresolved_waits
    assert len(kernels) and kernels.frame_columns().keys() == kernels.columns.keys() and waits == 0
    assert linked.summary() == whole.summary()
    return linked


def graphs(trace: eg.LinkedTrace, out: Path) -> eg.ExecutionGraph:
    """From a linked trace to a graph, its nodes and tables, and back."""
    options = eg.Options(target="generic", delays=False)
    graph: eg.ExecutionGraph = trace.to_graph(delays=False)
    assert len(eg.convert(trace, options)) == len(graph)
    report: eg.ConvertReport | None = graph.report
    changes: eg.TargetChanges | None = trace.to_graph("astra-sim").changes
    assert report is not None and changes is not None
    node: eg.Node = graph.node(graph[-1].id)
    edges: list[eg.Dependency] = [*node.dependencies, *node.dependents]
    kinds: list[eg.DependencyKind] = [edge.kind for edge in edges]
    duration: int = sum(node.duration_ns for node in graph if node.type is not eg.NodeType.METADATA)
    first: int = min(node.start_ns for node in graph[:3])
    assert kinds and duration > 0 and first > 0 and node.name and node.attributes and node == graph[node.row]
    assert len(graph.nodes) == len(graph) == len(graph.to_networkx()) and len(graph.edges) > 0
    assert not (graph.collective_types() == eg.CollectiveType.BARRIER).any()
    assert not (graph.integers("delay") == eg.Delay.CONTENTION).any()
    graph.draw(out / "part.svg", around=node.id, hops=1)
    graph.write(out / "graph.0.et")
    assert len(eg.ExecutionGraph.read(out / "graph.0.et")) == len(graph)
    return eg.read_graph(out / "graph.0.et")


def runs(graph: eg.ExecutionGraph, out: Path) -> None:
    """What a replay tells, and what changes would bring."""
    run: eg.Replay = eg.replay(graph, {"class:host": 1.0})
    results: eg.ReplaySummary = run.results
    assert run.makespan_us == results.makespan_us and run.measured_us > 0 and run.error_pct is not None
    assert len(run.nodes) == len(graph) and len(run.critical_path) > 0 and "critical path" in run.describe()
    answer: eg.WhatIf = run.what_if({"class:communication": 0.5})
    assert eg.what_if(graph, {}, as_recorded=True).saved_us == 0
    certain: eg.MakespanRange | None = answer.after.range
    assert certain is not None and answer.speedup > 1 and answer.saved_us > 0 and answer.before.error_pct is not None
    changed: list[eg.Scale] = []
    assert graph.changed({"class:host": 1}).replay().makespan_us == eg.replay(run.changed_graphs()).makespan_us
    assert eg.what_if(graph, changed).saved_us == graph.what_if({}).saved_us == 0
    assert eg.replay_ranks([graph]).makespan_ns == graph.replay().makespan_ns
    run.write_timeline(out / "timeline.json")


def jobs(folder: Path, out: Path) -> None:
    """All ranks together."""
    job: eg.Job = eg.build(folder, out / "graphs")
    assert job.folder == out / "graphs" and job.build_report is not None and len(job.build_report.ranks) == 2
    assert job.graph(1).metadata["rank"] == job[1].metadata["rank"] == 1 and not job.failures and not job.notes
    assert sum(len(graph) for graph in job) == len(job.replay().nodes)
    assert job.what_if({"class:computation": 0.5}).speedup > 1
    assert job.scale(data_parallel=2).write(out / "scaled").ranks == eg.read_job(out / "scaled").ranks
    options = eg.AstraSimOptions(bandwidth_gib_s=100.0, latency_ns=500.0)
    simulated: eg.Simulated = eg.build(folder, target=options, start_offsets=False).simulate()
    assert options.bandwidth_gib_s == simulated.network[0].bandwidth_gib_s and options.peaks is None
    whole = eg.build(folder, target=eg.GoalOptions(measured_communication=True))
    assert (whole.folder / "job.goal").is_file()
    assert simulated.ranks.keys() == {"0", "1"}
    report: eg.Report = job.report(only=["critical_path"])
    eg.report(folder, only="kernel_breakdown", options=eg.AnalysisOptions(top=1)).write_csv(out / "tables")
    assert eg.compare(folder, out / "graphs").verdict
    assert report.tables.keys() == eg.report(out / "graphs", only=["critical_path"]).tables.keys()
    groups = eg.read_groups(out / "graphs" / "comm_groups.json")
    eg.write_groups(out / "groups.json", groups)
    try:
        eg.build(out / "nothing")
    except (eg.RequestError, eg.MissingLibrary) as wrong:
        assert isinstance(wrong, eg.DataError)
    except eg.DataError as error:
        assert "nothing" in str(error)


def before_linking(out: Path) -> None:
    """What is done with traces besides linking."""
    files: list[tuple[Path, Path]] = eg.generate("ddp", out / "made", ranks=2, steps=1, layers=1)
    diagnosis: eg.Diagnosis = eg.diagnose(out / "made")
    merged: eg.MergeReport = eg.merge([device for _, device in files], out / "merged.json")
    assert len(diagnosis.processes) == len(merged.ranks) == len(files) and diagnosis.wrong == 0


def pictures(folder: Path) -> None:
    """Charts and data frames, for which further libraries are needed."""
    job = eg.build(folder)
    for chart in (job[0].plot(stream=7, max_nodes=10), job.replay().plot(), job.plot()):
        assert chart.to_dict()
    assert len(job[0].nodes.to_polars()) == len(job[0].nodes.to_pandas())


def recording(out: Path) -> None:
    """Both traces of a training loop, for which PyTorch is needed."""
    with eg.capture(out / "traces", active=1) as recorder:
        for _ in range(3):
            recorder.step()
