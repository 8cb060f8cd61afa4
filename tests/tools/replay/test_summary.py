"""What is said of a replay: its numbers, its text, and the answer to a change in a sentence.

A replay with scaled durations: which nodes a factor names, and what their latencies, gaps and delays then are. Graphs
are given one or several, as objects or files; anything else is named.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from execgraph import link, what_if
from execgraph.schema.columns import ABSENT
from execgraph.schema.errors import DataError, RequestError
from execgraph.schema.graph import CollectiveType, DependencyKind, ExecutionGraph
from execgraph.schema.linked import FOREVER, USER_SCOPE
from execgraph.tools.replay import (
    Cause,
    Recording,
    busy_ns,
    describe,
    parse_scale,
    replay,
    replay_job,
    replay_ranks,
    run_of,
    summarise,
    with_loaders_us,
)
from execgraph.tools.replay.changed_graphs import changed_graphs
from execgraph.tools.replay.summary import answer, start_error
from execgraph.tools.replay.workload import node_classes
from support.builder.timeline import TraceBuilder
from support.graphs import LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder, rank_with_collective, training_step
from support.runs import convert_run, delayed, link_run, path_ns, scaled


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
    assert "30.0 µs instead of 50.0 µs, −40 %" in replayed("gemm=0.5")[0]


def test_edited_graphs_have_no_run_without_a_profiler_and_changes_are_compared_with_their_own_replay() -> None:
    def replayed(kernel_ns: int, *specs: str) -> list[str]:
        g = GraphBuilder(target="generic", steps=1, step_without_profiler_ns=80_000)
        first = g.activity("gemm", 10_000, kernel_ns, gap=0, after=[(g.host("launch", 0, 10_000), LAUNCH)])
        g.activity("last", 50_000, 50_000, gap=0, after=[(first, STREAM_ORDER)])
        scales = [parse_scale(spec) for spec in specs]
        result = replay_job(run_of([g.build()]).job, scales)
        return describe(result, summarise(result), scales).splitlines()

    assert not any(line.startswith("differs") for line in replayed(40_000))
    lines = replayed(90_000)
    assert lines[2:4] == ["measured                100.0 µs", "replayed                150.0 µs  +50.00 %"]
    assert lines[4].startswith("differs        100.0 µs were measured, but by its durations and dependencies")
    assert "105.0 µs instead of 150.0 µs, −30 %" in replayed(90_000, "gemm=0.5")[0]


def test_the_critical_path_is_told_by_kind() -> None:
    found = path_ns(replay(training_step()))
    assert found == {"computation": 30, "host": 5 + 1 + 3, "memory": 6, "launch": 3, "event wait": 2}


def test_the_time_before_a_start_that_depends_on_nothing_is_on_the_critical_path_and_not_explained() -> None:
    g = GraphBuilder()
    g.host("op", 0, 5)
    g.activity("kernel", 60, 40)
    replayed = replay(g.build())
    assert path_ns(replayed) == {"unknown start": 60, "computation": 40}
    assert summarise(replayed).explained_pct == pytest.approx(40)


def test_time_before_what_lost_its_launch_call_is_not_explained_and_what_if_says_so() -> None:
    g = GraphBuilder(rank=0, lost_launches=1)
    g.activity("kernel", 60, 40, after=[(g.host("unrecorded host", 0, 60, thread=-1), LAUNCH)])
    assert summarise(replay(g.build())).explained_pct == pytest.approx(40)
    assert "Do not rely on this: the launch calls of 1 of 1 activities were not recorded" in answered(
        [g.build()], "kernel=0.5"
    )
    g = GraphBuilder(rank=0, lost_launches=1)
    g.activity("kernel", 9, 1, after=[(g.host("unrecorded host", 0, 9, thread=-1), LAUNCH)])
    g.host("op", 0, 60)
    assert summarise(replay(g.build())).explained_pct is None


def test_a_prediction_says_not_to_rely_on_it_if_its_replay_is_off_or_much_is_not_explained() -> None:
    def doubts(length: int, start: int) -> str:
        g = GraphBuilder()
        first = g.activity("gemm", 0, 80_000)
        g.activity("relu", start, length, gap=0, after=[(first, STREAM_ORDER)])
        return answered([g.build()], "relu=0.5").partition("Do not rely on this: ")[2]

    assert doubts(20_000, 80_000) == doubts(20_000, 80_900) == ""
    assert doubts(20_000, 82_000) == "without changes the replay is -1.96 % off the measured run."
    g = GraphBuilder()
    g.activity("gemm", 30_000, 70_000, gap=0, after=[(g.delay(0, 30_000), STREAM_ORDER)])
    assert "Do not rely" not in answered([g.build()], "gemm=2")
    assert answered([g.build()], "gemm=0.5").endswith(
        "\nDo not rely on this: nothing explains 46 % of the critical path."
    )


def test_a_name_of_an_op_that_launches_leads_to_what_it_launches(data: Path) -> None:
    graph = link(data / "training", rank=0).to_graph()
    assert "That changes the host alone: under:addmm takes what it launches" in answered([graph], "addmm=0.5")
    assert "host alone" not in answered([graph], "gemm=0.5") + answered([graph], "under:addmm=0.5")
    # a name as tables cut it
    assert "That changes the host alone" in answered([graph], "aten::a…mm=0.5")


def test_a_name_of_an_op_that_hardly_works_itself_leads_to_what_it_calls(t: TraceBuilder) -> None:
    with t.op("aten::linear"):
        t.idle(5)
        t.leaf("aten::mm", 90)
    graph = link_run(t).to_graph()
    assert "% of its time: under:linear takes the ops" in answered([graph], "linear=0.5")
    assert "of its time" not in answered([graph], "mm=0.5") + answered([graph], "under:linear=0.5")


def test_activities_beside_each_other_on_a_stream_are_not_of_a_build_and_what_if_says_so() -> None:
    changed = {"changed_by": "gemm=2"}, {"ranks_of_group_0": "0-7"}
    for stream, changes, found in ((7, {}, [2]), (8, {}, []), *((7, change, []) for change in changed)):
        g = GraphBuilder(rank=0, tool="execgraph 1", target="generic", **changes)
        g.activity("gemm", 0, 40_000)
        g.activity("relu", 20_000, 30_000, stream=stream)
        graph = g.build()
        assert graph.out_of_turn.tolist() == found
        assert ("activities that begin before their stream can run them: 1" in answered([graph], "gemm=0.5")) == bool(
            found
        )
        assert (summarise(replay(graph)).explained_pct is None) == bool(found)


def test_whole_microseconds_of_many_short_activities_are_said() -> None:
    for count, duration_ns, is_said in (
        (100, 3_000, True),
        (99, 3_000, False),
        (100, 3_001, False),
        (100, 10_000, False),
    ):
        g = GraphBuilder(rank=0)
        for number in range(count):
            g.activity("relu", 20_000 * number, duration_ns)
        replayed = replay(g.build())
        assert ("up to 100.0 µs (33 % of their time) longer" in describe(replayed, summarise(replayed))) == is_said


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
    assert heading.strip() == "thread; in ops and calls"
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


def test_an_answer_says_if_the_host_limits_a_run_of_which_no_step_was_timed_without_a_profiler() -> None:
    said = "No steps were timed without a profiler"
    for host_ns, known, is_said in ((60_000, {}, True), (40_000, {}, False), (60_000, {"unprofiled": 1}, False)):
        g = GraphBuilder(rank=0, **known)
        launch = g.host("launch", 0, host_ns)
        g.activity("gemm", host_ns, 100_000 - host_ns, after=[(launch, LAUNCH)])
        assert (said in answered([g.build()], "gemm=0.99")) == is_said


@pytest.mark.parametrize(
    ("loading_ns", "kernels", "said"),
    [
        (60_000, 0, "takes about 60.0 µs, 40 % less"),
        (40_000, 0, "may be as short, if a core is free"),
        (60_000, 1, ""),
    ],
)
def test_an_answer_about_a_loop_that_loads_says_how_long_it_is_if_another_process_loads(
    loading_ns: int, kernels: int, said: str
) -> None:
    g = GraphBuilder(rank=0)
    loaded = g.host("load batch", 0, loading_ns, slice=0, scope=USER_SCOPE)
    step = g.host("aten::mm", loading_ns, 100_000 - loading_ns, slice=0, after=[(loaded, PROGRAM_ORDER)])
    for _ in range(kernels):
        g.activity("gemm", 100_000, 1_000, after=[(step, LAUNCH)])
    without, twice = answered([g.build()], "load batch=0"), answered([g.build()], "load batch=0.5")
    assert said in without and ("num_workers=1" in without) == bool(said) and "num_workers" not in twice


def test_of_several_ranks_the_one_that_loads_longest_tells_how_long_a_process_loads() -> None:
    ranks = []
    for rank, loading_ns in enumerate((20_000, 80_000)):
        g = GraphBuilder(rank=rank)
        loaded = g.host("load batch", 0, loading_ns, slice=0, scope=USER_SCOPE)
        g.host("aten::mm", loading_ns, 20_000, slice=0, after=[(loaded, PROGRAM_ORDER)])
        ranks.append(g.build())
    assert "takes about 80.0 µs, 20 % less" in answered(ranks, "load batch=0")


def test_processes_that_load_ahead_do_not_make_a_step_shorter_than_all_work_takes_on_all_cores() -> None:
    step = Recording(10_000, 10_000, Cause.NOT_SLOWED, 4, cores=2, own_cpu_us=15_000, others_cpu_us=1_000)
    assert with_loaders_us(step, 5_000, 5_000) == 8_000
    assert with_loaders_us(step, 1_000, 9_000) == 9_000


def answered(ranks: list[ExecutionGraph], *specs: str) -> str:
    scale = [parse_scale(spec) for spec in specs]
    return answer(replay_ranks(ranks, scale), scale)


@pytest.fixture
def ranks() -> list[ExecutionGraph]:
    """60 µs: 40 of computing, then both ranks reduce for 20."""
    of_both = {"work": 40_000, "collective": 20_000, "clock": 0, "comm_type": int(CollectiveType.ALL_REDUCE)}
    return [rank_with_collective(rank, **of_both) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        (["class:computation=0.5"], "all computation were twice as fast, the run would take 40.0 µs instead of 60.0 µs, −33 %."
            "\nThe largest part left as it was is the all-reduce, 50 % of the critical path."),
        (["class:communication=2"], "all communication took twice as long, the run would take 80.0 µs instead of 60.0 µs, +33 %."),
        (["gemm=0.25", "class:communication=0.25"], "everything whose name matches 'gemm' and all communication were 4 times as fast "
            "(factors multiply where several apply), the run would take 15.0 µs instead of 60.0 µs, −75 %."),
        (["gemm=0", "class:communication=2.9"], "everything whose name matches 'gemm' took no time and all communication took 2.9 times "
            "as long (factors multiply where several apply), the run would take 58.0 µs instead of 60.0 µs, −3.3 %."),
        (["rank:1/gemm=80us"], "everything whose name matches 'gemm' of rank 1 took 80.0 µs each time, the run would take 100.0 µs "
            "instead of 60.0 µs, +67 %."),
    ],
)  # fmt: skip
def test_the_answer_says_what_changes_and_what_limits_the_gain(ranks, specs, sentence):
    assert answered(ranks, *specs) == f"If {sentence}"
    # a run that was not measured is compared with nothing
    scale = [parse_scale(spec) for spec in specs]
    assert " instead of " not in answer(replace(replay_ranks(ranks, scale), measured_ns=0), scale)


@pytest.mark.parametrize(("spec", "share"), [("gemm=0", 97), ("gemm=0.5", 83)])
def test_what_is_left_of_a_kind_after_a_part_of_it_took_less_time_is_its_rest(spec: str, share: int) -> None:
    g = GraphBuilder()
    launch = g.host("launch", 0, 1_000)
    first = g.activity("gemm", 1_000, 10_000, after=[(launch, LAUNCH)])
    g.activity("softmax", 11_000, 30_000, after=[(first, STREAM_ORDER)])
    assert answered([g.build()], spec).endswith(
        f"largest part left as it was is the rest of the computation, {share} % of the critical path."
    )


def late() -> list[ExecutionGraph]:
    """Rank 1 begins 25 µs after rank 0, which waits for it."""
    early = rank_with_collective(0, work=10_000, collective=50_000, clock=0)
    return [early, rank_with_collective(1, work=15_000, collective=20_000, clock=0)]


def test_the_start_offset_that_no_change_scales_is_said_with_the_run_without_it_and_a_line_and_key_of_its_own() -> None:
    assert (
        "\nThe start offset of rank 1, 25.0 µs, is as measured (recording began later, the rank was late, or times are wrong: not known): "
        "without start offsets, the run would take 65.0 µs.\n"
    ) in answered(late(), "class:computation=3")
    replayed = replay_ranks(late())
    summary = summarise(replayed)
    assert summary.start_offsets_us == {"0": 0, "1": 25}
    assert summary.without_start_offsets_us is None
    assert summary.explained_pct == pytest.approx(100 * 35 / 60, abs=0.01)
    offset = "start offset             25.0 µs  of rank 1; recording began later, the rank was late, or times are wrong: not known"
    assert offset in describe(replayed, summary).splitlines()
    changed = summarise(replay_ranks(late(), [parse_scale("class:computation=3")]))
    assert changed.without_start_offsets_us == 65.015


def test_start_offsets_of_less_than_a_hundredth_of_the_run_are_not_worth_a_line(ranks: list[ExecutionGraph]) -> None:
    scale = [parse_scale("gemm=0.5")]
    replayed, unchanged = replay_ranks(ranks, scale), replay_ranks(ranks)
    assert replayed.start_offset is None
    said = describe(replayed, summarise(replayed), scale)
    assert "start offset" not in said and said.startswith(f"{answer(replayed, scale)}\n\n")
    assert "If" not in describe(unchanged, summarise(unchanged))


def test_waiting_before_changed_nodes_is_not_changed() -> None:
    g = GraphBuilder()
    op = g.host("aten::mm", 0, 1_000)
    g.activity("gemm", 51_000, 100_000, gap=50_000, after=[(op, LAUNCH)])
    specs = "class:computation=0.5", "class:host=0.5"
    said = "left as it was is launch latency, 50 % of the critical path.\nNo steps were timed without a profiler"
    assert said in answered([g.build()], *specs)


@pytest.mark.parametrize(("specs", "makespan"), [
    (["class:host=2"], 10 + 3 + 20 + 10 + 2 + 6 + 2 + 6),
    (["class:computation=0.5"], 5 + 3 + 10 + 5 + 2 + 6 + 1 + 3), (["class:memory=10"], 50 + 54),
    (["gemm=2"], 50 + 20), (["^vector_=2", "add$=2"], 50 + 30), (["host idle=0"], 50 - 3),
])  # fmt: skip
def test_scaling_changes_the_durations_of_what_it_names(specs: list[str], makespan: int) -> None:
    assert scaled(training_step(), *specs).makespan_ns == makespan


def test_time_of_unrecorded_work_is_not_host_time() -> None:
    g = GraphBuilder()
    released = g.host("unrecorded host", 0, 100, thread=-1)
    g.activity("kernel", 100, 5, after=[(released, LAUNCH)])
    with pytest.raises(RequestError, match="there is no host in these graphs, only computation"):
        scaled(g.build(), "class:host=0.1")
    assert scaled(g.build(), "unrecorded=0.1").makespan_ns == 15


def test_a_stream_of_years_of_overlapping_work_is_replayed(t: TraceBuilder) -> None:
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

    g = GraphBuilder()
    op = g.host("op", 0, 10)
    first = g.activity("first", 15, 100, gap=5, after=[(op, LAUNCH)])
    later = g.host("later", 10, 40, after=[(op, PROGRAM_ORDER)])
    g.activity("second", 116, 20, gap=1, latency_ns=5, after=[(later, LAUNCH), (first, STREAM_ORDER)])
    assert replay(g.build()).makespan_ns == 136
    for factor in ("0.1", "0"):
        assert scaled(g.build(), f"first={factor}").makespan_ns == 50 + 5 + 20


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


@pytest.mark.parametrize(("name", "duration", "spec", "makespan"), [("op", 3, "op=0.5", 2), ("n=64", 10, "n=64=3", 30)])
def test_scaled_durations_are_rounded_to_ns_and_a_change_splits_at_its_last_equals_sign(name, duration, spec, makespan):
    g = GraphBuilder()
    g.host(name, 0, duration)
    assert scaled(g.build(), spec).makespan_ns == makespan


def test_a_malformed_change_is_refused() -> None:
    for spec in (
        *("gemm", "=2", "gemm=", "gemm=fast", "gemm=-1", "gemm=nan", "gemm=inf", "class:gpu=2", "(=2"),
        *("host=2", "under:=2", "phase:x=2", "gemm=-1ms", "class:host=5ms", "rank:1/bound:memory=5ms", "gemm=1e300"),
        *("gemm=5e9s", "rank:x/gemm=2", "rank:1/=2", "rank:0/rank:1/gemm=2"),
    ):
        with pytest.raises(
            ValueError, match=r"no (class|phase)|nothing|class or|express|factor|0 or m|clock|times|once"
        ):
            parse_scale(spec)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("flash_attention=0.5", "no node has 'flash_attention' in its name: the table `nodes` of a graph has the names"),
        ("under:aten::linaer=0", "no node has 'aten::linaer' around it: did you mean 'aten::linear'?"),
        ("module:Net=0", "no module was recorded: capture with modules=True, and build with modules=True"),
        ("phase:optimizer=0", "there is no optimizer in these graphs, only data_loading, forward_and_other, backward"),
        ("class:communication=0", "there is no communication in these graphs, only host, computation"),
        ("rank:3/class:host=0", "there is no rank 3: the graphs record no rank"),
        ("phase:forward_and_other=1ms", "the graph has no steps whose time could be set; give a factor"),
        ("mod:linear=0", "no node has 'mod:linear' in its name: did you mean 'module:'?"),
        ("Under:linear=0", "no node has 'Under:linear' in its name: did you mean 'under:'?"),
        ("gloo:all_reduce=0", "no node has 'gloo:all_reduce' in its name: the table"),
        ("load=5us under:load=6us", "load=5us sets another time for some of the same work"),
        ("gemm=1e16", "the changed run would take longer than any clock shows"),
    ],
)  # fmt: skip
def test_what_matches_nothing_or_contradicts_is_refused_with_what_there_is(spec: str, why: str, t: TraceBuilder):
    with pytest.raises(RequestError, match=rf"^(scale {re.escape(spec.split()[-1])}: )?{re.escape(why)}"):
        replay(trained(t), spec.split())


def test_a_module_that_is_none_and_a_name_as_it_is_are_refused_with_what_to_write(g: GraphBuilder) -> None:
    g.host("mm(a)", 0, 10, module="Net_0/Linear_0")
    for name, why in ("module:stem", "choose from Net_0, Linear_0"), ("mm(a)", "for that name write mm\\(a\\)"):
        with pytest.raises(RequestError, match=f"{re.escape(why)}$"):
            replay(g.build(), [f"{name}=0.5"])


BACKWARD = "autograd::engine::evaluate_function: "


def trained(t: TraceBuilder) -> ExecutionGraph:
    """Data for 20 µs, a linear layer whose kernel runs late, its backward op with a kernel, and another backward op."""
    t.leaf("load batch", 20)
    with t.op("aten::linear"):
        t.work(3)
        t.leaf("aten::t", 5)
        with t.op("aten::addmm", seq_id=7):
            t.launch("gemm", start=t.now + 200, duration=30)
    for name, seq_id in ("AddmmBackward0", 7), ("MulBackward0", 6):
        with t.op(f"{BACKWARD}{name}", seq_id=seq_id, fw_thread=1):
            t.launch(f"kernel of {name}", duration=40)
    return convert_run(t).graph


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (
            "under:linear",
            {"aten::linear", "aten::t", "aten::addmm", "gemm", f"{BACKWARD}AddmmBackward0", "kernel of AddmmBackward0"},
        ),
        ("phase:forward_and_other", {"aten::linear", "aten::t", "aten::addmm", "gemm"}),
        ("phase:data_loading", {"load batch"}),
        (
            "phase:backward",
            {f"{of}{name}Backward0" for of in (BACKWARD, "kernel of ") for name in ("Addmm", "Mul")},
        ),
    ],
)  # fmt: skip
def test_a_selector_reaches_what_happens_within(spec: str, names: set[str], t: TraceBuilder) -> None:
    graph = trained(t)
    chosen = parse_scale(f"{spec}=0.5").matches(graph, node_classes(graph))
    assert {graph.name[row] for row in chosen.nonzero()[0]} - {"host idle"} == names


@pytest.mark.parametrize(("spec", "saved"), [("load=5us", 15), ("under:load=0.035ms", -15), ("gemm$=0", 0)])
def test_an_absolute_time_is_that_of_each_occurrence(spec: str, saved: int, t: TraceBuilder) -> None:
    graph = trained(t)
    for changes in ([spec], [spec, "class:host=0.1"], ["class:host=0.1", spec]):
        spent = graph.duration_ns - replay(graph, changes).work.duration_ns
        assert spent[graph.name.equal("load batch" if "load" in spec else "gemm of backward")].sum() == saved * 1000


def test_graphs_of_a_changed_run_replay_as_it_does(ranks: list[ExecutionGraph]) -> None:
    for spec in ("gemm=3", "rank:1/gemm=80us", "class:communication=0.5"):
        run = replay_ranks(ranks, [parse_scale(spec)])
        again = replay_ranks(changed_graphs(run))
        assert again.makespan_ns == run.makespan_ns and again.error_pct is None  # nobody measured it


def test_files_of_any_name_json_and_an_open_file_replay_as_the_graph_in_them(tmp_path: Path) -> None:
    for name in ("graph.json.gz", "graph.0.et", "graph.et"):
        training_step().write(tmp_path / name)
        assert replay(tmp_path / name).makespan_ns == 50
    with (tmp_path / "graph.et").open("rb") as stream:
        assert replay(stream).makespan_ns == 50


def test_a_folder_stands_for_the_graphs_in_it_and_one_rank_twice_is_no_job(tmp_path: Path) -> None:
    graphs = [rank_with_collective(rank, work=10 + rank, collective=5, clock=0) for rank in (0, 1)]
    for rank in (1, 0):
        graphs[rank].write(tmp_path / f"graph.{rank}.et")
    assert replay(tmp_path).work.rank_labels() == ["0", "1"]
    graph = graphs[0]
    with pytest.raises(DataError, match=r"replay\(graph\): 2 graphs are of rank 0; give the graphs of one job"):
        replay([graph, graph])


def test_one_graph_a_list_and_changes_go_into_either_function() -> None:
    ranks = [rank_with_collective(rank, work=10 + rank, collective=5, clock=0) for rank in (0, 1)]
    assert len(replay(ranks).work.graphs) == 2
    assert (
        what_if(training_step(), {"class:computation": 1}).saved_us
        == 0
        == replay(training_step(), ["gemm=1"]).error_pct
    )


ONE = "an ExecutionGraph (trace.to_graph() makes one), a Job, a .et file, a folder of these, or a list"


@pytest.mark.parametrize(
    ("given", "expected"), [(3, ONE), (None, ONE), ([3], "ExecutionGraphs and .et files in a list, not int")]
)
def test_what_is_no_graph_is_named(given: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"replay(graph) takes {expected}")):
        replay(given)


def test_no_graph_at_all_and_changes_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="takes at least one graph"):
        what_if([], {})
    with pytest.raises(TypeError, match="takes changes such as"):
        what_if(training_step(), 0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"takes changes such as .*, not str"):
        replay(training_step(), "class:host=0.5")
