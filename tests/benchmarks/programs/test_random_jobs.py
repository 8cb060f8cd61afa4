"""Random programs end on any machine, are equal in all steps and on all ranks, and keep the rules of CUDA."""

from collections import Counter
from functools import cache

import pytest
from execgraph.tools.generate import DEFAULT, Job, RankRun, Run, draw_machine, simulate
from execgraph.tools.generate.instructions import GraphLaunch, HostWork, Launch
from hypothesis import HealthCheck, given, settings, strategies as st
from support.for_simulator import assert_storages_are_ordered, spans

from benchmarks.programs import RANDOM, build_job, ranks_of

SEEDS = range(12)


@cache
def run_of(seed: int) -> Run:
    return simulate(build_job(RANDOM, seed=seed))


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
def test_every_program_ends_and_keeps_the_order_of_streams_waits_and_storages(
    job: Job, scale: dict[str, float]
) -> None:
    run = simulate(job, scale)
    instructions = [len([*thread]) for rank in range(job.ranks) for thread in job.instructions(rank)]
    assert sum(instructions) > 0
    for rank in run.ranks:
        assert min(rank.ops.end, default=0) >= 0 and min(rank.activities.end) >= 0
        assert_everything_was_run(job, rank)
        assert_waits_are_kept(rank)
        assert_storages_are_ordered(rank)


def assert_everything_was_run(job: Job, rank: RankRun) -> None:
    program = [one for thread in job.instructions(rank.rank) for one in thread]
    launched = sum(len(one.nodes) if isinstance(one, GraphLaunch) else isinstance(one, Launch) for one in program)
    assert len(rank.activities) == launched


def assert_waits_are_kept(rank: RankRun) -> None:
    until: dict[int, int] = {}
    for (start, end), stream in zip(spans(rank), rank.activities.stream, strict=True):
        assert start >= until.get(stream, 0)
        until[stream] = end
    start, end = rank.activities.start, rank.activities.end
    for edges in (rank.event_waits, rank.graph_order):
        assert all(end[a] <= start[b] for a, b in zip(*edges.columns(), strict=True))
    assert all(rank.calls.end[call] >= end[row] for call, row in zip(*rank.host_waits.columns(), strict=True))


@MANY
@given(any_program())
def test_a_change_by_one_is_none(job: Job) -> None:
    base, same = simulate(job), simulate(job, {"class:host": 1.0, ".": 1.0})
    for one, other in zip(base.ranks, same.ranks, strict=True):
        assert [one.ops, one.calls, one.activities, one.syncs] == [
            other.ops,
            other.calls,
            other.activities,
            other.syncs,
        ]


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_and_ranks_resemble_each_other(seed: int) -> None:
    job = build_job(RANDOM, seed=seed, steps=4)
    steps = [[Counter(map(type, part)) for part in step] for rank in range(job.ranks) for step in job.program(rank)]
    # the first step has nothing behind it to wait for, and the device is waited for after the last one
    middle = [step for number, step in enumerate(steps) if number % 5 in (1, 2, 3)]
    assert all(step == middle[0] for step in middle)
    first, second, *_ = (
        [one.ns for part in step for one in part if isinstance(one, HostWork)] for step in list(job.program(0))[1:]
    )
    assert first != second


def test_seeds_draw_all_kinds_of_programs() -> None:
    ranks = [rank for seed in SEEDS for rank in run_of(seed).ranks]
    assert {ranks_of(RANDOM, seed) for seed in SEEDS} == {1, 2}
    assert len({len(set(rank.activities.stream)) for rank in ranks}) >= 4
    calls = {name for rank in ranks for name in rank.call_names}
    assert calls >= {
        "cudaEventSynchronize",
        "cudaEventQuery",
        "cudaStreamSynchronize",
        "cudaDeviceSynchronize",
        "cudaGraphLaunch",
        "cudaStreamWaitEvent",
        "cudaMemcpyAsync",
    }
    assert any(len(rank.handoffs) for rank in ranks) and not all(len(rank.handoffs) for rank in ranks)
    assert any(activity.collective for rank in ranks for activity in rank.activity_table)


def test_equal_seeds_give_equal_programs_and_others_do_not() -> None:
    once, again, other = (simulate(build_job(RANDOM, seed=seed)).ranks[0].activities for seed in (5, 5, 6))
    assert once == again != other
