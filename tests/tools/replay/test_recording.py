"""What recording cost, and how long a changed run takes without it."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from execgraph import build, link, report, what_if
from execgraph.schema.errors import RequestError
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.schema.linked import USER_SCOPE
from execgraph.tools.replay import Cause, Recording, gather_job, recording, replay_job, run_of
from support.graphs import LAUNCH, PROGRAM_ORDER, GraphBuilder

HOST_NS, KERNEL_NS = 80_000, 20_000


def steps(without_profiler_ns: int | None, *, count: int = 2) -> ExecutionGraph:
    """Steps in which the host works for 80 µs, then launches a kernel of 20 µs that it does not wait for."""
    g = GraphBuilder(rank=0, steps=count)
    before: list[tuple[int, DependencyKind]] = []
    for step in range(count):
        op = g.host("aten::mm", HOST_NS * step, HOST_NS, after=before)
        before, clock = [(op, PROGRAM_ORDER)], HOST_NS * (step + 1)
        g.activity("gemm", clock, KERNEL_NS, stream=op, after=[(op, LAUNCH)])
    graph = g.build()
    known = {} if without_profiler_ns is None else {"step_without_profiler_ns": without_profiler_ns}
    return replace(graph, metadata={**graph.metadata, **known})


def known(graph: ExecutionGraph) -> Recording:
    found = recording(graph)
    assert found is not None
    return found


def test_the_factor_replays_the_step_as_it_is_without_a_profiler() -> None:
    graph = steps(30_000)
    found = known(graph)
    assert (found.step_us, found.step_without_profiler_us, found.cause) == (90, 30, Cause.HOST_SLOWED)
    model = found.models[0]
    assert (model.cost_us, model.slowed_us) == (0, 1_600)
    changed = what_if(graph, {"class:host": model.host_factor}, as_recorded=True).after
    assert changed.makespan_ns / 2 == pytest.approx(30_000, rel=0.01)
    assert found.text == "a step took 90.0 µs recorded, 30.0 µs unprofiled; recording slowed the host"


def test_a_measured_cost_is_taken_off_each_op_and_no_sleep() -> None:
    # 50 ops of 1 µs and a sleep of 50; a begin or end costs 0.1 µs, which is 5 of the 10 µs that recording took
    g, after = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=90_000), list[tuple[int, DependencyKind]]()
    g.metadata |= {"recorded_alone": 1, "recorded_op_ns": 200}
    for start, length in [*((1_000 * op, 1_000) for op in range(50)), (50_000, 50_000)]:
        after = [(g.host("op", start, length, after=after), PROGRAM_ORDER)]
    found = known(g.build())
    assert found.models[0].cost_us == pytest.approx(0.2, abs=0.01) and found.models[1].cost_us == 0.1
    durations = found.without_profiler(gather_job([g.build()])).duration_ns
    assert durations.sum() == pytest.approx(90_000, rel=0.01) and durations.max() == pytest.approx(49_800, abs=20)
    answer = what_if(g.build(), {"op": 0.5}).after
    assert answer.work.unprofiled is not None and answer.range is not None
    assert answer.range.models == 1 and answer.range.noise_pct == 6 and "typical" not in found.text
    del g.metadata["recorded_op_ns"]
    assert known(g.build()).text.endswith("how much was not measured, so a typical cost of an op stands in")


def test_python_in_an_annotation_keeps_its_time_by_every_model_unless_its_functions_are_recorded() -> None:
    for function, least in ({}, 490_000), ({"python_function": "sleep"}, 473_000):
        g, after = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=520_000), list[tuple[int, DependencyKind]]()
        for op in range(50):
            after = [(g.host("op", 1_000 * op, 1_000, after=after), PROGRAM_ORDER)]
        g.host("augment", 50_000, 500_000, after=after, scope=USER_SCOPE, **function)
        run = known(g.build()).without_profiler(gather_job([g.build()]))
        times = [int(model.duration_ns.max()) for model in (run, *run.others)]
        assert min(times) == pytest.approx(least, abs=2_000) and len(times) > 1


def test_models_that_agree_but_not_with_the_likeliest_one_are_a_reason(data: Path) -> None:
    host, device = (str(data / "gpu" / "small" / f"{of}_rank0.json.gz") for of in ("host", "device"))
    said = what_if(link(host, device).to_graph(), {"class:host": 0.5}).after.describe()
    assert "\nHow much recording slowed each op is not known exactly; steps of one program may differ by 6 %.\n" in said


@pytest.mark.parametrize(("step_ns", "cause", "noise_pct"), [
    (60_000, Cause.HELD_UP, 40.0), (68_000, Cause.HELD_UP, 32.0), (130_000, Cause.SLOWER_BEFORE, 23.1),
])  # fmt: skip
def test_where_no_cost_explains_a_step_of_a_cpu_the_machine_was_slower_or_faster(
    step_ns: int, cause: Cause, noise_pct: float
) -> None:
    # 60 ops of 0.1 µs, a product of 44 and a sleep of 50, of which recording slows 2 at most
    g, after = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=step_ns), list[tuple[int, DependencyKind]]()
    g.metadata |= {"recorded_alone": 1, "recorded_op_ns": 20}
    work = [*(("op", 100 * op, 100) for op in range(60)), ("product", 6_000, 44_000), ("sleep", 50_000, 50_000)]
    for name, start, length in work:
        after = [(g.host(name, start, length, after=after), PROGRAM_ORDER)]
    found = known(g.build())
    assert found.cause is cause and found.models[0].machine_factor == pytest.approx(step_ns / 100_000, rel=0.12)
    # what made the difference may have hit any part of the step
    assert found.noise_pct == pytest.approx(noise_pct, abs=0.1)
    answer = what_if(g.build(), {"sleep": 0})
    assert answer.before.makespan_ns == pytest.approx(step_ns, rel=0.002)
    assert answer.after.makespan_ns == pytest.approx(step_ns / 2, rel=0.12)


def test_a_range_holds_all_models_and_the_spread_of_steps_and_less_is_noise() -> None:
    graph = steps(30_000)
    spread_ns = 3_000 * 2**0.5  # the mean of the two recorded steps may then be 10 % off
    graph.metadata.update({"steps_measured": 9, "step_p10_ns": 30_000 - spread_ns, "step_p90_ns": 30_000 + spread_ns})
    changed = what_if(graph, {"class:computation": 0.5}).after
    # no model takes more of the last kernel than its half
    assert changed.range is not None and changed.range.noise_pct == pytest.approx(10)
    assert changed.range.low_ns == pytest.approx(44_000, rel=0.01) and changed.range.high_ns > 55_900
    found = changed.results.without_profiler
    assert found is not None and (found.measured_us, found.steps) == (60, 2)
    assert (found.changed_us, found.low_us, found.high_us) == pytest.approx((50, 44, 56), rel=0.01)
    assert "a step would take 25.0 µs instead of 30.0 µs, −17 % (−27 to −7 %)" in changed.describe()
    noise = what_if(graph, {"class:computation": 0.9}).after.describe()
    assert "−3.3 % (−13.3 to +6.7 %), within the noise of its steps" in noise


def test_recording_slows_what_is_short_and_no_sleep() -> None:
    # of 100 µs the last 50 are a sleep; without a profiler 60 are left
    g, after = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=60_000), list[tuple[int, DependencyKind]]()
    for start, length in [*((1_000 * op, 1_000) for op in range(50)), (50_000, 50_000)]:
        after = [(g.host("op", start, length, after=after), PROGRAM_ORDER)]
    graph = g.build()
    found = known(graph)
    assert found.models[0].host_factor == pytest.approx(1 - 40 / 70, abs=0.01) and found.models[0].slowed_us == 20
    durations = found.without_profiler(gather_job([graph])).duration_ns
    assert durations.sum() == pytest.approx(60_000, rel=0.01) and durations.max() == pytest.approx(38_600, rel=0.01)


@pytest.mark.parametrize(("without_profiler_ns", "cause", "factor"), [
    (10_050, Cause.DEVICES_LIMIT, 0.002), (5_000, Cause.NOT_THE_HOST, None), (89_000, Cause.NOT_SLOWED, 1.0),
    (95_000, Cause.SLOWER_BEFORE, None),
])  # fmt: skip
def test_it_says_when_no_factor_for_the_host_tells(without_profiler_ns, cause, factor):
    found = known(steps(without_profiler_ns))
    assert found.cause is cause
    assert found.is_known == (factor is not None)
    told = "it is about the recorded run, in which a step takes 90.0 µs, not 5.0 µs as unprofiled"
    assert (found.doubt == told) == (cause is Cause.NOT_THE_HOST)
    assert factor is None or found.models[0].host_factor == pytest.approx(factor, abs=0.002)


@pytest.mark.parametrize(("name", "most_pct"), [("convolutions_fp32", 0.1), ("loader_pinned", 0.1), ("small_graph", 3)])
def test_a_run_without_a_profiler_replays_as_measured_though_the_host_holds_up_devices_from_one_point_on(
    data: Path, name: str, most_pct: float
) -> None:
    host, device = (str(data / "gpu" / name / f"{of}_rank0.json.gz") for of in ("host", "device"))
    run = run_of([link(host, device).to_graph()])
    assert run.job.recording is not None and abs(run.job.recording.error_pct) < most_pct
    assert run.job.recording.error_pct == pytest.approx(replay_job(run.job).error_pct)


@pytest.mark.parametrize("name", ["gpu/loader_pinned", "gpu/faults", "attention", "gloo_slow"])
def test_the_gain_of_a_finding_is_what_its_question_answers(data: Path, name: str) -> None:
    """Without waits for its loader loader_pinned really takes 74 % less time."""
    job, asked = build(data / name), 0
    for found in report(data / name).findings:
        if found.gain and found.question:
            spec, factor = shlex.split(found.question)[-1].rsplit("=", 1)
            assert found.gain.pct == pytest.approx(100 - 100 / job.what_if({spec: float(factor)}).speedup, abs=1.0)
            asked += 1
    assert asked


def test_a_slower_loader_is_refused_where_the_loop_never_waited_for_it(data: Path) -> None:
    job = build(data / "gpu" / "loader_fast")
    with pytest.raises(RequestError, match="the loop did not wait for its data loader"):
        job.what_if({r"enumerate\(DataLoader\)": 2})
    assert job.what_if({r"enumerate\(DataLoader\)": 0.5, "class:host": 2}).speedup < 1


def test_where_steps_do_not_show_the_host_the_likeliest_one_is_in_the_middle() -> None:
    limited, by_host = (what_if(steps(step_ns), {"class:computation": 0.1}).after.range for step_ns in (10_050, 30_000))
    likeliest = what_if(steps(10_050), {"class:computation": 0.1}).after.makespan_ns
    assert limited is not None and by_host is not None and (limited.noise_pct, by_host.noise_pct) == (0, 6)
    assert limited.low_ns + 50 < likeliest < limited.high_ns - 50


def test_a_change_of_what_holds_nothing_up_has_no_range() -> None:
    assert "a step would still take 30.0 µs" in what_if(steps(30_000), {"class:host": 1}).after.describe()


def test_how_far_a_replay_is_off_the_measured_steps_is_in_its_answers() -> None:
    # even without host work a step takes 10 µs
    graph = steps(9_800)
    assert known(graph).text.endswith("; a replay is +2.55 % off the unprofiled steps")
    said = what_if(graph, {"class:computation": 0.5}).after.describe()
    assert "a step would take 4.9 µs instead of 9.8 µs, −50 % (−50 to −47 %)" in said
    assert "without changes the replay is +2.55 % off the measured steps.\n" in said


def test_a_step_of_several_ranks_takes_as_long_as_that_of_the_slowest() -> None:
    found = recording([steps(30_000), steps(60_000)])
    assert found is not None and found.step_without_profiler_us == 60
    # nothing is said of other numbers of steps, and of a run that was not measured
    assert recording([steps(30_000), steps(30_000, count=3)]) is None
    assert recording(steps(None)) is None
