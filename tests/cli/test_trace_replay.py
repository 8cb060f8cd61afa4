"""What trace-replay says about a replay: what-if factors, figures, the timeline and the command itself."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.columns import ABSENT
from execgraph.schema.errors import DataError, RequestError
from execgraph.schema.graph import Delay, DependencyKind, ExecutionGraph
from execgraph.schema.traces import FOREVER
from execgraph.tools.commands.trace_replay import main
from execgraph.tools.replay import (
    Replay,
    busy_ns,
    describe,
    parse_scale,
    pieces_of,
    replay,
    start_error,
    summarise,
    time_by_kind,
)
from execgraph.tools.view import write_timeline
from support.builder import TraceBuilder
from support.graphs import LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder, rank_with_collective, training_step
from support.runs import convert_run


def path_ns(replayed: Replay) -> dict[str, int]:
    return time_by_kind(pieces_of(replayed))


def scaled(graph: ExecutionGraph, *specs: str) -> Replay:
    return replay(graph, [parse_scale(spec) for spec in specs])


# What-if factors


@pytest.mark.parametrize(
    ("specs", "makespan"),
    [
        (["class:host=2"], 10 + 3 + 20 + 10 + 2 + 6 + 2 + 6),
        (["class:computation=0.5"], 5 + 3 + 10 + 5 + 2 + 6 + 1 + 3),
        (["class:memory=10"], 50 + 54),
        (["gemm=2"], 50 + 20),
        (["^vector_=2", "add$=2"], 50 + 30),
        (["host idle=0"], 50 - 3),
    ],
)
def test_scaling_changes_the_durations_of_what_it_names(specs: list[str], makespan: int) -> None:
    assert scaled(training_step(), *specs).makespan_ns == makespan


def test_time_of_unrecorded_work_is_not_host_time() -> None:
    g = GraphBuilder()
    released = g.host("unrecorded host", 0, 100, thread=-1)
    g.activity("kernel", 100, 5, after=[(released, LAUNCH)])
    assert scaled(g.build(), "class:host=0.1").makespan_ns == 105
    assert scaled(g.build(), "unrecorded=0.1").makespan_ns == 15


def delayed() -> ExecutionGraph:
    """10 ns of launching, a kernel of 20 ns, and a second one that starts 70 ns later than that and its gap explain."""
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    first = g.activity("first", 10, 20, after=[(op, LAUNCH)])
    delay = g.delay(30, 68, after=[(first, STREAM_ORDER)])
    released = [(op, LAUNCH), (first, STREAM_ORDER), (delay, STREAM_ORDER)]
    g.activity("second", 100, 20, gap=2, after=released)
    return g.build()


def test_a_stream_of_years_of_overlapping_work_is_replayed() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        for _ in range(200):
            t.launch("kernel", start=t.now, duration=3e13)
    nodes = convert_run(t)
    assert nodes.graph.integers("overlap_ns", 0).astype(float).sum() > FOREVER
    assert replay(nodes.graph).error_pct == pytest.approx(0, abs=0.5)


def test_times_that_add_up_to_more_than_64_bits_are_refused() -> None:
    g = GraphBuilder()
    last = g.host("op", 0, 1)
    for thread in range(2, 12):
        last = g.host("op", 0, FOREVER // 2, thread=thread, after=[(last, DependencyKind.HANDOFF)])
    with pytest.raises(DataError, match="add up to more than any clock shows"):
        replay(g.build())


def test_delays_are_a_class_of_their_own() -> None:
    assert scaled(delayed()).makespan_ns == 120
    assert scaled(delayed(), "class:delay=0").makespan_ns == 10 + 20 + 2 + 20
    assert scaled(delayed(), "class:host=0", "class:computation=0").makespan_ns == 68 + 2


def test_what_no_delay_is_of_the_critical_path_is_explained() -> None:
    summary = summarise(scaled(delayed()))
    assert summary.critical_path_us["delay"] == 0.068
    assert summary.explained_pct == pytest.approx(100 * (120 - 68) / 120)
    assert summarise(scaled(delayed(), "first=10")).explained_pct == pytest.approx(100 * (300 - 68) / 300)
    assert summarise(scaled(delayed(), "class:delay=0")).explained_pct == 100


def test_a_start_that_depends_on_nothing_is_not_explained() -> None:
    g = GraphBuilder()
    g.host("op", 0, 5)
    g.activity("kernel", 60, 40)
    assert summarise(replay(g.build())).explained_pct == pytest.approx(40)


def test_delays_have_a_track_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    write_timeline(scaled(delayed()), str(path))
    events = timeline_events(path)
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {"thread 1", "device 0 stream 7", "delays"}
    assert [event["dur"] for event in events if event["name"] == "delay"] == [0.068, 0.068]


def test_an_activity_waits_its_latency_after_the_launch_and_its_gap_after_what_it_follows() -> None:
    """Both began 5 ns after their last dependency; which of the two that is changes with what is made slower."""
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    first = g.activity("first", 15, 20, gap=5, after=[(op, LAUNCH)])
    later = g.host("later", 10, 40, after=[(op, PROGRAM_ORDER)])
    # launch-bound as it ran: the gap after the first one is only known from others
    g.activity("second", 55, 20, gap=5, chain_gap_ns=1, after=[(later, LAUNCH), (first, STREAM_ORDER)])
    graph = g.build()
    assert replay(graph).makespan_ns == 75
    assert scaled(graph, "first=10").makespan_ns == 15 + 200 + 1 + 20
    assert scaled(graph, "later=0").makespan_ns == 35 + 1 + 20


def test_a_queued_activity_made_launch_bound_waits_its_latency() -> None:
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    first = g.activity("first", 15, 100, gap=5, after=[(op, LAUNCH)])
    later = g.host("later", 10, 40, after=[(op, PROGRAM_ORDER)])
    g.activity("second", 116, 20, gap=1, latency_ns=5, after=[(later, LAUNCH), (first, STREAM_ORDER)])
    assert replay(g.build()).makespan_ns == 136
    assert scaled(g.build(), "first=0.1").makespan_ns == 50 + 5 + 20
    assert scaled(g.build(), "first=0").makespan_ns == 50 + 5 + 20


# Clocks and whole µs


def test_a_devices_clock_is_shifted_onto_the_hosts() -> None:
    """As recorded the kernel starts before its launch; 7 ns later it does not."""
    g = GraphBuilder(clock_offset_ns=7)
    op = g.host("op", 1000, 10)
    g.activity("kernel", 1003, 20, after=[(op, LAUNCH)])
    replayed = replay(g.build())
    assert (replayed.makespan_ns, replayed.measured_ns) == (30, 30)
    assert start_error(replayed).max == 0


def test_what_whole_microseconds_cut_off_is_scaled_with_the_duration() -> None:
    """Of durations in whole µs half a µs is missing on average, which is in the gap behind instead."""
    g = GraphBuilder(resolution_ns=1000)
    op = g.host("op", 0, 10_000)
    g.activity("kernel", 10_000, 3_000, after=[(op, LAUNCH)])
    assert replay(g.build()).makespan_ns == 13_000
    assert scaled(g.build(), "kernel=4").makespan_ns == 10_000 + 4 * 3_500 - 500
    assert scaled(g.build(), "kernel=0").makespan_ns == 10_000
    assert scaled(g.build(), "op=4").makespan_ns == 43_000


# Devices that are full


def on_streams(count: int, **metadata: int) -> ExecutionGraph:
    """Kernels of 10 ns, one on each stream, launched at once."""
    g = GraphBuilder(**metadata)
    op = g.host("op", 0, 5)
    for stream in range(count):
        g.activity(f"kernel {stream}", 5, 10, stream=stream, after=[(op, LAUNCH)])
    return g.build()


@pytest.mark.parametrize(("limit", "makespan"), [(1, 85), (2, 45), (3, 45), (4, 25), (9, 25)])
def test_a_device_with_a_concurrency_limit_runs_no_more_at_once(limit: int, makespan: int) -> None:
    assert scaled(on_streams(4, concurrency_limit_of_device_0=limit), "kernel=2").makespan_ns == makespan
    assert scaled(on_streams(4, concurrency_limit_of_device_1=limit), "kernel=2").makespan_ns == 25


def test_what_is_ready_first_gets_the_slot_first_and_the_path_leads_through_it() -> None:
    replayed = scaled(on_streams(3, concurrency_limit_of_device_0=1), "kernel 1=5")
    assert replayed.start_ns.tolist() == [0, 5, 15, 65]
    assert path_ns(replayed) == {"computation": 70, "host": 5}


def test_communication_takes_no_slot() -> None:
    g = GraphBuilder(concurrency_limit_of_device_0=1)
    op = g.host("op", 0, 5)
    g.activity("kernel", 5, 10, stream=7, after=[(op, LAUNCH)])
    g.collective(5, 10, ranks=[0], stream=8, after=[(op, LAUNCH)])
    assert scaled(g.build(), "kernel=2").makespan_ns == 25


def one_after_the_other() -> ExecutionGraph:
    """Two kernels of 10 ns, ready at once, on a device that has one slot."""
    g = GraphBuilder(concurrency_limit_of_device_0=1)
    op = g.host("op", 0, 5)
    g.activity("first", 5, 10, stream=7, after=[(op, LAUNCH)])
    delay = g.delay(5, 10, Delay.CONTENTION, after=[(op, LAUNCH)])
    g.activity("second", 15, 10, stream=8, after=[(op, LAUNCH), (delay, LAUNCH)])
    return g.build()


def test_what_waited_for_a_slot_waits_as_measured_in_the_run_as_it_was() -> None:
    assert replay(one_after_the_other()).makespan_ns == 25


@pytest.mark.parametrize(("factor", "makespan"), [("0.2", 17), ("3", 45)])
def test_what_waited_for_a_slot_waits_for_that_in_a_changed_run(factor: str, makespan: int) -> None:
    assert scaled(one_after_the_other(), f"first={factor}").makespan_ns == makespan


def test_scaled_durations_are_rounded_to_ns() -> None:
    g = GraphBuilder()
    g.host("op", 0, 3)
    assert scaled(g.build(), "op=0.5").makespan_ns == 2


def test_an_expression_is_split_at_its_last_equals_sign() -> None:
    g = GraphBuilder()
    g.host("tile=64", 0, 10)
    assert scaled(g.build(), "tile=64=3").makespan_ns == 30


@pytest.mark.parametrize(
    "spec", ["gemm", "=2", "gemm=", "gemm=fast", "gemm=-1", "gemm=nan", "gemm=inf", "class:gpu=2", "(=2"]
)
def test_a_malformed_factor_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=r"no class|expression|FACTOR|0 or more"):
        parse_scale(spec)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            "flash_attention=0.5",
            "no node has 'flash_attention' in its name: trace-view and trace-report show the names",
        ),
        ("memory=0.5", "no node has 'memory' in its name: write class:memory=0.5"),
        ("bound:compute=0.5", "the peaks of the devices are not known by their names: give them with --peak"),
    ],
)
def test_a_factor_that_matches_nothing_is_refused(spec: str, why: str) -> None:
    with pytest.raises(RequestError, match=re.escape(f"scale {spec}: {why}")):
        scaled(training_step(), "gemm=1", spec)


def test_a_class_that_is_absent_changes_nothing_and_each_change_says_what_it_applies_to() -> None:
    scale = [parse_scale(spec) for spec in ("class:communication=0", "gemm=2")]
    replayed = replay(training_step(), scale)
    assert replayed.makespan_ns == 50 + 20
    summary = summarise(replayed, scale=scale)
    assert [(change.nodes, change.time_us) for change in summary.matched] == [(0, 0), (1, 0.02)]
    lines = [line for line in describe(replayed, summary, scale).splitlines() if line.startswith("changed ")]
    assert [line.split() for line in lines] == [
        ["changed", "0", "nodes", "by", "class:communication=0,", "which", "took", "0.0", "µs"],
        ["changed", "1", "node", "by", "gemm=2,", "which", "took", "0.0", "µs"],
    ]


# Figures


def test_the_critical_path_is_told_by_kind() -> None:
    assert path_ns(replay(training_step())) == {
        "computation": 30,
        "host": 5 + 1 + 3,
        "memory": 6,
        "launch": 3,
        "event wait": 2,
    }


def test_the_time_before_a_late_first_node_is_on_the_critical_path() -> None:
    g = GraphBuilder()
    g.host("op", 0, 5)
    g.activity("kernel", 100, 10)
    assert path_ns(replay(g.build())) == {"unknown start": 100, "computation": 10}


def test_overlapping_activities_of_a_stream_are_busy_once() -> None:
    g = GraphBuilder()
    root = g.host("op", 0, 5)
    g.activity("long", 5, 30, after=[(root, LAUNCH)])
    short = g.activity("short", 5, 10, after=[(root, LAUNCH)])
    g.activity("short", 15, 10, after=[(short, LAUNCH)])
    assert busy_ns(replay(g.build())) == {"0/7": 30}


def test_the_start_error_is_that_of_activities_only() -> None:
    g = GraphBuilder()
    g.host("op", 0, 5)
    g.host("lost its edge", 80, 5)
    g.activity("kernel", 3, 5)
    for start in (23, 43):
        g.activity("lost its edge", start, 5)
    error = start_error(replay(g.build()))
    assert (error.median, error.max) == (0.023, 0.043)
    assert error.median < error.p95 < error.max


# The timeline


def timeline_events(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    return list(json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)["traceEvents"])


def test_the_timeline_shows_the_measured_run_and_the_replay_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json.gz"
    write_timeline(scaled(training_step(), "gemm=1.5"), str(path))
    events = timeline_events(path)
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(named.values()) == ["rank 0 measured", "rank 0 replay"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {"thread 1", "device 0 stream 7", "device 0 stream 8"}
    adds = {named[event["pid"]]: event for event in events if event["name"] == "vector_add"}
    assert adds["rank 0 measured"]["ts"] == 0.028
    assert adds["rank 0 replay"]["ts"] == 0.038
    assert adds["rank 0 replay"]["cat"] == "computation"


def test_dependencies_between_tracks_are_flows_from_slice_to_slice(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    write_timeline(replay(training_step()), str(path))
    slice_name, ends = "", dict[int, list[tuple[str, str, str]]]()
    for event in timeline_events(path):
        slice_name = event["name"] if event["ph"] == "X" else slice_name
        if event["ph"] in "sf":
            ends.setdefault(event["id"], []).append((event["ph"], slice_name, event["name"]))
    flows = [{phase: (name, reason) for phase, name, reason in pair} for pair in ends.values()]
    assert flows.count({"s": ("aten::mm", "launch"), "f": ("sgemm", "launch")}) == 2  # measured and replay
    assert all(set(pair) == {"s", "f"} for pair in flows)
    assert ("sgemm", "stream order") not in [pair["s"] for pair in flows]


def test_names_with_quotes_and_control_characters_survive_the_timeline(tmp_path: Path) -> None:
    g = GraphBuilder()
    g.host('a "b"\n\\ é', 0, 1)
    path = tmp_path / "timeline.json"
    write_timeline(replay(g.build()), str(path))
    assert [event["name"] for event in timeline_events(path) if event["ph"] == "X"] == ['a "b"\n\\ é'] * 2


# The command


@pytest.fixture
def graph_file(tmp_path: Path) -> str:
    path = str(tmp_path / "graph.0.et")
    training_step().write(path)
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0)


def test_json_prints_the_figures_in_us_and_nothing_else(graph_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--input", graph_file, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "makespan_us": 0.05,
        "measured_us": 0.05,
        "error_pct": 0.0,
        "start_error_us": {"median": 0.0, "p95": 0.0, "max": 0.0},
        "busy_us": {"0/7": 0.03, "0/8": 0.006},
        "critical_path_us": {"computation": 0.03, "host": 0.009, "memory": 0.006, "launch": 0.003, "event wait": 0.002},
        "explained_pct": 100.0,
    }


def test_the_result_goes_to_stdout(graph_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--input_filename", graph_file) == 0
    output = capsys.readouterr()
    assert output.err == ""
    for part in (
        "host 4, computation 2, memory 1",
        "program order 3, launch 2",
        "critical path",
        "+0.00 %",
        "100.00 %  of",
    ):
        assert part in output.out


def test_graphs_of_several_ranks_are_replayed_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / f"graph.{rank}.et") for rank in (0, 1)]
    for rank, (path, work, collective) in enumerate(zip(paths, (10, 40), (50, 20), strict=True)):
        rank_with_collective(rank, work=work, collective=collective, clock=1000).write(path)
    assert run("--input", paths[0], "--input", paths[1], "--json") == 0
    assert json.loads(capsys.readouterr().out)["busy_us"] == {"0/0/7": 0.065, "1/0/7": 0.065}


def test_absent_ranks_of_a_job_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        graph = of_world(4, rank_with_collective(rank, work=10, collective=20, clock=1000))
        graph.write(str(tmp_path / f"graph.{rank}.et"))
    assert run(str(tmp_path)) == 0
    assert "2 of 4 ranks are absent (2-3): no rank waits for them" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["--input", "g.et", "--scale", "gemm"], ["--input", "g.et", "--json", "--timeline", "-"], ["--inp", "g.et"]],
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    assert run(*arguments) == 2


def test_a_graph_that_cannot_be_replayed_is_one_line_that_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = GraphBuilder()
    g.host("itself", 0, 1, after=[(1, DependencyKind.PROGRAM_ORDER)])
    path = str(tmp_path / "cycle.et")
    g.build().write(path)
    assert run("--input", path) == 1
    assert capsys.readouterr().err.startswith(
        f"trace-replay: error: {path}: 1 of 1 nodes never become ready: node 1 (itself)"
    )


def test_a_missing_file_ends_with_1_and_leaves_no_timeline(tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    assert run("--input", str(tmp_path / "absent.et"), "--timeline", str(timeline)) == 1
    assert not timeline.exists()


@pytest.mark.parametrize("peak", ["fp16", "fp16=fast", "fp16=-1", "fp16=inf", "network=5"])
def test_a_peak_needs_a_known_name_and_a_number_above_0(peak: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--input", "graph.et", "--peak", peak])
    assert ended.value.code == 2
    assert (
        f"{peak!r}: expected one of fp64, fp32, tf32, fp16, fp8, int8, memory, = and a number above 0"
        in capsys.readouterr().err
    )


def written(folder: Path, *graphs: ExecutionGraph) -> list[str]:
    paths = [str(folder / f"graph.{rank}.et") for rank in range(len(graphs))]
    for graph, path in zip(graphs, paths, strict=True):
        graph.write(path)
    return paths


def pair(**more: Any) -> list[ExecutionGraph]:
    return [rank_with_collective(rank, work=10 + rank, collective=5, clock=1000, **more) for rank in range(2)]


def replayed_us(capsys: pytest.CaptureFixture[str], *arguments: str) -> float:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"])
    assert ended.value.code == 0
    return float(json.loads(capsys.readouterr().out)["makespan_us"])


def test_several_graphs_and_a_folder_of_them_are_the_same_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = written(tmp_path, *pair())
    once = replayed_us(capsys, "--input", *paths)
    assert (
        once
        == replayed_us(capsys, "--input", str(tmp_path))
        == replayed_us(capsys, "--input", paths[0], "--input", paths[1])
    )


def test_a_folder_without_graphs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--input", str(tmp_path)])
    assert ended.value.code == 1
    assert "holds no graph.N.et" in capsys.readouterr().err


def of_world(size: int, graph: ExecutionGraph) -> ExecutionGraph:
    graph.metadata["world_size"] = size
    return graph


def elsewhere() -> ExecutionGraph:
    """Rank 1 of a job in which it talks to rank 0 in a group of another name, by another collective."""
    g = GraphBuilder(rank=1)
    g.collective(1000, 5, ranks=[0, 1], comm_type=2, pg_name="99", pg_recorded="other")
    return g.build()


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (lambda: pair()[0], "2 graphs are of rank 0"),
        (lambda: of_world(16, pair()[1]), "rank 0 is of 2 ranks, rank 1 of 16"),
        (elsewhere, "of 1 collectives of rank 0 with other ranks that are given none meets theirs"),
    ],
)
def test_graphs_of_two_jobs_are_refused_unless_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], second: Any, reason: str
) -> None:
    paths = written(tmp_path, of_world(2, pair()[0]), second())
    with pytest.raises(SystemExit) as ended:
        main(["--input", *paths])
    assert ended.value.code == 1
    assert f"{reason}; give the graphs of one job (or --allow-mismatch)" in capsys.readouterr().err
    assert replayed_us(capsys, "--input", *paths, "--allow-mismatch") > 0


def test_a_run_without_a_device_shows_its_threads_instead_of_streams() -> None:
    g = GraphBuilder()
    first = g.host("op", 0, 30_000, thread=5)
    idle = g.host("host idle", 30_000, 10_000, thread=5, after=[(first, PROGRAM_ORDER)])
    g.host("op", 40_000, 50_000, thread=5, after=[(idle, PROGRAM_ORDER)])
    replayed = replay(g.build())
    said = describe(replayed, summarise(replayed))
    assert "stream busy" not in said
    heading, of_threads = said.split("thread busy")[1].splitlines()[:2]
    assert heading.strip() == "in ops and calls; on the critical path, host is Python between them, too"
    assert of_threads.split() == ["5", "80.0", "µs", "88.9", "%"]


def test_transfers_of_the_host_are_no_stream_and_threads_without_work_are_not_listed() -> None:
    g = GraphBuilder()
    work = g.host("op", 0, 30_000, thread=5)
    g.activity("gloo:all_reduce", 30_000, 10_000, device=ABSENT, stream=ABSENT, after=[(work, PROGRAM_ORDER)])
    g.host("## process_group:init ##", 0, 0, thread=-2)
    replayed = replay(g.build())
    said = describe(replayed, summarise(replayed))
    assert "?" not in said and "-2" not in said
    assert [line.split("  ")[1] for line in said.split("thread busy")[1].splitlines()[1:3]] == ["5", "host transfers"]
