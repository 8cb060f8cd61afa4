"""True dependencies are told from false and missing ones, and the command reports on all of it.

Random programs end on any machine, are equal in all steps and on all ranks, and keep the rules of CUDA.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from execgraph.schema.columns import Int64, Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.generate import DEFAULT, Job, Run, draw_machine, is_recorded, simulate
from execgraph.tools.generate.instructions import Launch, get, put, record_event, synchronize, wait_event, work
from execgraph.tools.generate.job import Activity, Instruction
from execgraph.tools.generate.record import STREAM_SYNC
from execgraph.tools.replay import MakespanRange
from hypothesis import HealthCheck, given, settings, strategies as st
from support.commands import Ended, Run as RunCommand
from support.for_simulator import assert_storages_are_ordered, assert_waits_are_kept
from support.tasks import in_turn

from benchmarks.accuracy import __main__ as accuracy, measuring
from benchmarks.accuracy.dependencies import HELD_UP, Tally, TrueOrder, dependency_accuracy
from benchmarks.accuracy.partial_order import PartialOrder
from benchmarks.accuracy.tables import Result, Subject, groups
from benchmarks.accuracy.what_if import CHANGES, VARIANTS, Answer, graphs_of, true_outcomes
from benchmarks.programs import JOBS, NAMED, RANDOM, build_job, ranks_of
from benchmarks.programs.more_instructions import GraphLaunch

RESOLVED = VARIANTS[0]
ACROSS = "across streams"


def rows(*numbers: int) -> Int64:
    return np.array(numbers, np.int64)


def test_order_leads_over_lanes_and_points_are_found_by_time() -> None:
    order = PartialOrder(rows(0, 0, 1, 1, 2), rows(0, 5, 3, 6, 0), rows(2, 6, 4, 9, 9), rows(0, 2, 0), rows(1, 3, 3))
    assert order.holds(rows(0, 0, 2), rows(1, 3, 3)).all()
    assert not order.holds(rows(0, 1, 3, 4, 0, -1), rows(2, 3, 1, 3, 4, 3)).any()
    order = PartialOrder(rows(0, 1, 0), rows(0, 2, 5), rows(3, 4, 6), rows(0), rows(2))
    assert order.last_ended(rows(0, 0, 0, 1, -1), rows(2, 3, 9, 9, 9)).tolist() == [-1, 0, 2, 1, -1]
    assert order.first_begun(rows(0, 0, 0, 1), rows(0, 1, 6, 2)).tolist() == [0, 2, -1, 1]


def launch(stream: int) -> Launch:
    return Launch("cudaLaunchKernel", Activity("kernel"), stream, 1000, 100, 100, 10, 5)


def job_of(*threads: list[Instruction]) -> Job:
    names = tuple(f"thread {number}" for number in range(len(threads)))
    return Job("test", 0, 1, names, (), lambda rank: iter([threads]))


def followers(*threads: list[Instruction]) -> set[tuple[int, int]]:
    """Which activities of a program have to come after which."""
    run = simulate(job_of(*threads))
    true = TrueOrder(run.ranks[0], run.job.machine)
    pairs = [(a, b) for a in range(len(true.ended)) for b in range(len(true.ended)) if a != b]
    before, after = rows(*(a for a, _ in pairs)), rows(*(b for _, b in pairs))
    holds = true.order.holds(true.ended[before], true.started[after])
    return {pair for pair, sure in zip(pairs, holds.tolist(), strict=True) if sure}


FOLLOWERS: dict[str, tuple[list[list[Instruction]], set[tuple[int, int]]]] = {
    "an event orders what comes after the wait and before the recording": (
        [[launch(7), partial(record_event, 1, 7, 1), launch(7), launch(8), partial(wait_event, 8, 1, 1), launch(8)]],
        {(0, 1), (2, 3), (0, 3)},
    ),
    "the host orders what it launches after what it waited for": (
        [[launch(7), partial(synchronize, STREAM_SYNC, 7, -1, 1), launch(8)]], {(0, 1)}
    ),
    "the order leads over threads": (
        [[launch(7), partial(synchronize, STREAM_SYNC, 7, -1, 1), partial(put, "q", 0)], [partial(get, "q", 5), launch(8)]],
        {(0, 1)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLLOWERS)
def test_activities_follow_others_by_what_orders_them(case: str) -> None:
    threads, expected = FOLLOWERS[case]
    assert followers(*threads) == expected


@cache
def run_of(name: str) -> Run:
    return simulate(build_job(name, seed=1, steps=2, ranks=2 if JOBS[name].size.ranks > 1 else 1))


def tallies_of(run: Run, graphs: list[ExecutionGraph]) -> dict[str, Tally]:
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    for rank, graph in zip(run.ranks, graphs, strict=True):
        for kind, tally in dependency_accuracy(run.job, rank, graph).items():
            tallies[kind] += tally
    return tallies


def changed(graph: ExecutionGraph, source: Int64, target: Int64, kind: Int64) -> ExecutionGraph:
    """The graph with these dependencies, between rows, instead of its own."""
    by_target = np.argsort(target, kind="stable")
    graph.data_deps = Ragged.grouped(target[by_target], graph.id[source[by_target]], len(graph))
    graph.attributes["data_dep_kinds"] = Ragged.grouped(target[by_target], kind[by_target], len(graph))
    return graph


def dependencies(graph: ExecutionGraph) -> tuple[Int64, Int64, Int64]:
    kinds = graph.attributes["data_dep_kinds"]
    assert isinstance(kinds, Ragged)
    return graph.rows_of(graph.data_deps.values), graph.data_deps.rows(), kinds.values


def test_what_a_graph_lacks_is_counted_as_missing() -> None:
    run = run_of("prefetch")
    (graph,) = graphs_of(run, RESOLVED)
    source, target, kind = dependencies(graph)
    kept = (kind & (DependencyKind.EVENT_WAIT | DependencyKind.HOST_SYNC | DependencyKind.HANDOFF)) == 0
    tallies = tallies_of(run, [changed(graph, source[kept], target[kept], kind[kept])])
    lacking = [tallies[kind_of] for kind_of in (ACROSS, "host for device", "between threads")]
    assert all(tally.missing > 0 and tally.edges == 0 for tally in lacking)


def test_what_a_graph_makes_up_is_counted_as_false() -> None:
    run = run_of("prefetch")
    (graph,) = graphs_of(run, RESOLVED)
    copies = np.flatnonzero(graph.is_activity & (graph.integers("stream") != 7))
    kernels = np.flatnonzero(graph.is_activity & (graph.integers("stream") == 7))
    # the second copy fills the buffer that the first step does not use
    unrelated = kernels[graph.start_ns[kernels] >= (graph.start_ns + graph.duration_ns)[copies[1]]][:1]
    source, target, kind = dependencies(graph)
    before = tallies_of(run, [graph])[ACROSS]
    kind = np.append(kind, DependencyKind.EVENT_WAIT | DependencyKind.INFERRED)
    made_up = changed(graph, np.append(source, copies[1]), np.append(target, unrelated), kind)
    after = tallies_of(run, [made_up])[ACROSS]
    assert (after.edges, after.false, after.missing) == (before.edges + 1, before.false + 1, before.missing)


def test_a_graph_of_another_run_is_refused() -> None:
    (graph,) = graphs_of(run_of("simple"), RESOLVED)
    with pytest.raises(DataError, match="activities are not the"):
        tallies_of(run_of("prefetch"), [graph])


@pytest.mark.parametrize(("whole_us", "lost"), [(False, 0.05), (True, 0.0)])
@pytest.mark.parametrize("name", ["ddp", "graph", RANDOM])
def test_activities_are_found_whatever_the_clock_shows(name: str, whole_us: bool, lost: float) -> None:
    job = build_job(name, seed=1, steps=2, machine=replace(draw_machine(3), whole_us=whole_us, lost=lost))
    run = simulate(job)
    tallies, kept = tallies_of(run, graphs_of(run, RESOLVED)), [is_recorded(rank) for rank in run.ranks]
    waits = [of[np.array(rank.event_waits.columns())].all(0).sum() for rank, of in zip(run.ranks, kept, strict=True)]
    assert tallies[ACROSS].needed == sum(waits)
    assert tallies[ACROSS].missing <= tallies[ACROSS].needed
    (outcome,) = true_outcomes(job, CHANGES[:1]).values()
    assert len(outcome.start_ns) == sum(int(of_rank.sum()) for of_rank in kept)
    assert outcome.makespan_ns == run.makespan_ns


def test_a_thread_is_known_as_exactly_as_its_times_are_written() -> None:
    run = simulate(job_of([launch(7), partial(synchronize, STREAM_SYNC, 7, -1, 300), launch(8)]))
    exact, coarse = (TrueOrder(run.ranks[0], replace(DEFAULT, whole_us=whole_us)) for whole_us in (False, True))
    ended = int(run.ranks[0].calls.end[1])
    assert exact.from_then(rows(0), rows(ended), 0).tolist() == [exact.call_end[1]]
    assert coarse.from_then(rows(0), rows(ended // 1000 * 1000), 2000).tolist() >= [coarse.call_end[1]]
    assert coarse.by_then(rows(0), rows(ended // 1000 * 1000), 2000).tolist() <= [coarse.call_end[1]]


def result(job: str, machine_seed: int | None, errors_pct: list[float], base_pct: float = 0.0) -> Result:
    subject, slower = Subject(job, 1, 0, machine_seed), next(change for change in CHANGES if change.kind == "host")
    answers = [Answer(slower, 100_000, round(100_000 + 1000 * error), 0) for error in errors_pct]
    return Result(subject, RESOLVED, [Answer(CHANGES[0], 100_000, round(100_000 + 1000 * base_pct), 0), *answers], {})


@pytest.mark.parametrize(
    ("errors_pct", "holds"),
    [([0.9] * 99 + [-2.9], True), ([0.9] * 99 + [-3.1], False), ([0.9] * 98 + [1.1, -1.1], False)],
)
def test_a_group_holds_where_few_are_off_and_none_by_much(errors_pct: list[float], holds: bool) -> None:
    (group,) = groups([result("simple", None, errors_pct, base_pct=0.4)])
    assert group.holds == holds
    assert group.as_measured_pct == pytest.approx(0.4)
    assert group.percentile(100) == pytest.approx(max(map(abs, errors_pct)))
    far = sorted((abs(error) for error in errors_pct if abs(error) > 1), reverse=True)
    assert [case.error_pct for case in group.worst(3)] == pytest.approx(far)


def test_a_group_holds_where_every_wait_that_held_something_up_is_found_and_counts_ranges_with_the_truth() -> None:
    right, ranged = result("simple", None, [0.5]), result("simple", None, [0.0, 20.0, 20.0])
    found, missing = (right._replace(tallies={HELD_UP[1]: Tally(needed=50, missing=count)}) for count in (0, 1))
    for results, found_pct in (([found], 100), ([found, missing], 99)):
        (group,) = groups(results)
        assert (group.found_pct, group.holds) == (found_pct, found_pct == 100)
    narrow, wide = MakespanRange(119_500, 120_000, 1, "order"), MakespanRange(98_000, 120_000, 1, "order")
    answers = [replace(one, range=of) for one, of in zip(ranged.answers[1:], (None, narrow, wide), strict=True)]
    (group,) = groups([ranged._replace(answers=answers)])
    assert (group.range_pct, group.in_range_pct) == pytest.approx((100 / 3, 200 / 3))


def test_jobs_and_machines_make_groups_of_their_own() -> None:
    results = [result(job, seed, [0.1]) for job in ("simple", "ddp", RANDOM) for seed in (None, 3)]
    kinds, machines = {"named jobs": 2, "random programs": 1}, ("the default machine", "machines drawn per job")
    expected = {f"{kind} on {machine}": count for kind, count in kinds.items() for machine in machines}
    assert {group.name: len(group.changed) for group in groups(results)} == expected


def test_a_subject_has_the_same_machine_whatever_else_is_measured() -> None:
    few, many = measuring.subjects(["ddp"], 1, 1), measuring.subjects(NAMED, 3, 5)
    assert set(few) <= set(many) and len(set(many)) == len(many)
    drawn = [one.machine for one in many if one.machine_seed is not None]
    assert 2 * len(drawn) == len(many) and len(set(drawn)) == len(drawn)


@pytest.fixture
def measure(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """The command, with what takes the place of measuring."""

    def ended(measured: Callable[[Subject], list[Result]], *options: str) -> Ended:
        monkeypatch.setattr(accuracy, "in_processes", in_turn)
        monkeypatch.setattr(accuracy, "measure", measured)
        return run(accuracy.main, "--jobs", "critical_path", "--seeds", "1", "--random", "1", *options)

    return ended


@cache
def measured_once(subject: Subject) -> list[Result]:
    """Of one step, which takes a quarter as long as those that the command measures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "STEPS", 1)
        return measuring.measure(subject)


GROUPS = 4
"""A job and a random program, each on the default machine and on a drawn one."""


def test_the_tables_have_a_row_per_job_and_per_kind_of_dependency(measure: Callable[..., Ended]) -> None:
    out = measure(measured_once).out
    assert out.count("Error of the makespan in %, ") == out.count("Dependencies recovered, ") == GROUPS
    assert out.count(" % within ") == GROUPS * len(VARIANTS)
    assert out.count("\n| critical_path | ") == 2 * len(VARIANTS)
    assert "\n| sync records | host for device | " in out
    assert len({line.count("|") for line in out.splitlines() if line.startswith("| critical_path")}) == 1


def test_json_has_every_group_answer_and_tally(measure: Callable[..., Ended]) -> None:
    ended = measure(measured_once, "--json")
    figures = json.loads(ended.out)
    assert ended.code == (figures["wrong"] > 0)
    assert len(figures["groups"]) == GROUPS * len(VARIANTS)
    assert figures["wrong"] == sum(not group["holds"] for group in figures["groups"])
    assert sum(group["cases"] for group in figures["groups"]) == sum(bool(one["scale"]) for one in figures["what_if"])
    base = next(answer for answer in figures["what_if"] if answer["scale"] == [])
    assert base["true_us"] == pytest.approx(base["replayed_us"], rel=0.005)
    assert {tally["traces"] for tally in figures["dependencies"]} == {variant.name for variant in VARIANTS}


@pytest.mark.parametrize("errors_pct", [[0.5, 7.25], [0.5]])
def test_answers_that_are_further_off_than_allowed_are_named_and_exit_1(measure, errors_pct):
    ended = measure(lambda one: [result(one.job, one.machine_seed, errors_pct)])
    assert ended.code == len(errors_pct) - 1
    named = f"critical_path, seed 0, {draw_machine(7100).name}: class:host=0.5 is +7.25 % off"
    assert (named in ended.err) == (len(errors_pct) > 1) and "0.50 %" not in ended.err


@pytest.mark.parametrize("wrong", ["--seeds 0", "--jobs unknown", "--random -1"])
def test_wrong_usage_is_exit_2(wrong: str, measure: Callable[..., Ended]) -> None:
    assert measure(measured_once, *wrong.split()).code == 2


SEEDS = range(12)


@st.composite
def any_program(draw: st.DrawFn) -> Job:
    seed = draw(st.integers(0, 10_000))
    machine = draw(st.sampled_from([DEFAULT, *map(draw_machine, range(20))]))
    size = {"ranks": draw(st.sampled_from([None, 1, 2, 3])), "steps": draw(st.integers(1, 3))}
    return build_job(RANDOM, seed=seed, layers=draw(st.integers(1, 5)), machine=machine, **size)


ANY_SCALE = st.dictionaries(
    st.sampled_from(["class:host", "class:computation", "class:communication", "class:memory", "gemm", "^aten::"]),
    st.sampled_from([0.0, 0.2, 0.5, 2.0, 4.0]),
)
MANY = settings(suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(any_program(), ANY_SCALE)
def test_every_program_ends_and_keeps_the_order_of_streams_waits_and_storages(job, scale):
    run = simulate(job, scale)
    for rank in run.ranks:
        program = [one for thread in job.instructions(rank.rank) for one in thread]
        launched = sum(len(one.nodes) if isinstance(one, GraphLaunch) else isinstance(one, Launch) for one in program)
        assert len(rank.activities) == launched > 0
        assert min(rank.ops.end, default=0) >= 0 and min(rank.activities.end) >= 0
        assert_waits_are_kept(rank)
        assert_storages_are_ordered(rank)


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_and_ranks_resemble_each_other(seed: int) -> None:
    job = build_job(RANDOM, seed=seed, steps=4)
    steps = [
        [Counter(getattr(one, "func", type(one)) for one in part) for part in step]
        for rank in range(job.ranks)
        for step in job.program(rank)
    ]
    # the first step has nothing behind it to wait for, and the device is waited for after the last one
    middle = [step for number, step in enumerate(steps) if number % 5 in (1, 2, 3)]
    assert all(step == middle[0] for step in middle)
    parts = [[one for part in step for one in part] for step in list(job.program(0))[1:3]]
    first, second = ([one.args[0] for one in step if getattr(one, "func", None) is work] for step in parts)
    assert first != second


def test_seeds_draw_all_kinds_of_programs() -> None:
    ranks = [rank for seed in SEEDS for rank in simulate(build_job(RANDOM, seed=seed)).ranks]
    assert {ranks_of(RANDOM, seed) for seed in SEEDS} == {1, 2}
    assert len({len(set(rank.activities.stream)) for rank in ranks}) >= 4
    calls = {name.removeprefix("cuda") for rank in ranks for name in rank.call_names}
    waits = {"EventSynchronize", "EventQuery", "StreamSynchronize", "DeviceSynchronize", "StreamWaitEvent"}
    assert calls >= waits | {"GraphLaunch", "MemcpyAsync"}
    assert any(len(rank.handoffs) for rank in ranks) and not all(len(rank.handoffs) for rank in ranks)
    assert any(activity.collective for rank in ranks for activity in rank.activity_table)
