"""The figures of a replay: the critical path by kind, busy streams, start errors, and the text that says them."""

import pytest
from execgraph.schema.columns import ABSENT
from execgraph.tools.replay import busy_ns, describe, parse_scale, replay, start_error, summarise
from support.graphs import LAUNCH, PROGRAM_ORDER, GraphBuilder, training_step
from support.runs import delayed, path_ns, scaled


def test_what_no_delay_is_of_the_critical_path_is_explained() -> None:
    summary = summarise(scaled(delayed()))
    assert summary.critical_path_us["delay"] == 0.068
    assert summary.explained_pct == pytest.approx(100 * (120 - 68) / 120)
    assert summarise(scaled(delayed(), "first=10")).explained_pct == pytest.approx(100 * (300 - 68) / 300)
    assert summarise(scaled(delayed(), "class:delay=0")).explained_pct == 100


def test_a_scaled_job_was_never_measured_so_a_change_is_compared_with_its_replay() -> None:
    def replayed(*specs: str) -> list[str]:
        g = GraphBuilder(ranks_of_group_0="0-7")
        launch = g.host("launch", 0, 10_000)
        g.activity("gemm", 500_000, 40_000, gap=0, after=[(launch, LAUNCH)])
        result = scaled(g.build(), *specs)
        return describe(result, summarise(result), [parse_scale(spec) for spec in specs]).splitlines()

    assert not any(line.startswith(("measured", "start error")) for line in replayed())
    changed = replayed("gemm=0.5")
    assert changed[2:4] == ["unchanged                50.0 µs", "replayed                 30.0 µs  -40.00 %"]
    assert "30.0 µs instead of 50.0 µs, 40 % less" in changed[-1]


def test_a_start_that_depends_on_nothing_is_not_explained() -> None:
    g = GraphBuilder()
    g.host("op", 0, 5)
    g.activity("kernel", 60, 40)
    assert summarise(replay(g.build())).explained_pct == pytest.approx(40)


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
