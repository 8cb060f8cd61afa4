"""The lengths of collectives in a scaled job: by the line that was measured, or by a given network."""

import pytest
from execgraph.tools.replay import replay_ranks
from support.scaled_jobs import (
    ALL_REDUCE,
    KB,
    REDUCE_SCATTER,
    Rank,
    data_parallel,
    lengths,
    line,
    plan_of,
    scaled,
    tensor_by_data,
)


@pytest.mark.parametrize("copies", [2, 4, 16])
def test_lengths_follow_the_line_that_was_measured(copies: int) -> None:
    assert lengths(scaled(data_parallel(2), copies)[0]) == pytest.approx(
        [line(ALL_REDUCE, 2 * copies, size) for size in (1_000_000, 4_000_000)], rel=1e-3
    )


def test_the_time_that_members_wait_for_each_other_does_not_grow() -> None:
    late = 3_000 * KB
    graphs, alone = scaled(data_parallel(2, late=late), 8), scaled(data_parallel(2), 8)
    assert lengths(graphs[1]) == lengths(alone[1])
    assert lengths(graphs[0]) == [length + late for length in lengths(alone[0])]


def test_collectives_of_groups_that_do_not_grow_stay_as_they_are() -> None:
    before, after = tensor_by_data()[0], scaled(tensor_by_data(), 4)[0]
    assert lengths(after)[:2] == lengths(before)[:2]
    assert all(then > now for then, now in zip(lengths(after)[2:], lengths(before)[2:], strict=True))


def test_whole_microseconds_stay_right_in_sum() -> None:
    graphs = data_parallel(2, sizes=(100_333, 200_777, 300_111))
    before, after = graphs[0], scaled(graphs, 3)[0]
    longer_ns = int((after.duration_ns - before.duration_ns).sum())
    assert int((after.duration_micros - before.duration_micros).sum()) == pytest.approx(longer_ns / 1000, abs=1)
    unchanged = after.duration_ns == before.duration_ns
    assert unchanged[0]
    assert (after.duration_micros[unchanged] == before.duration_micros[unchanged]).all()


def test_whole_microseconds_of_long_collectives_are_those_of_their_nanoseconds() -> None:
    before = data_parallel(2, sizes=(100_000_000, 400_000_000))
    for short, long in zip(before, scaled(before, 3), strict=False):
        added = long.duration_ns - short.duration_ns
        assert (long.duration_micros - short.duration_micros).tolist() == pytest.approx((added / 1000).tolist(), abs=1)


def test_a_given_network_stands_instead_of_the_measured_one() -> None:
    gib = 1 << 30
    graphs = scaled(data_parallel(2), 2, bandwidth_gib_s=10 * 1e9 / gib, latency_ns=500.0)
    assert lengths(graphs[0]) == pytest.approx([6 * 500 + 1.5 * size / 10 for size in (1_000_000, 4_000_000)], abs=1)


def test_a_given_latency_leaves_the_bandwidth_to_be_fitted() -> None:
    graphs = data_parallel(2, sizes=(1_000_000,))
    [grown] = plan_of(graphs, latency_ns=1000.0).grown
    assert grown.fit
    assert grown.fit.line == pytest.approx((1000.0, 1.0), rel=1e-3)


def test_collectives_of_one_size_do_not_tell_latency_from_bandwidth() -> None:
    [grown] = plan_of(data_parallel(2, sizes=(1_000_000, 1_000_000))).grown
    assert grown.fit
    assert not grown.fit.identifiable
    [known] = plan_of(data_parallel(2)).grown
    assert known.fit
    assert (known.fit.identifiable, known.fit.fit_error_pct) == (True, 0.0)


def test_what_one_type_does_not_tell_others_do() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, line(ALL_REDUCE, 2, 1_000_000))
        one.meet(REDUCE_SCATTER, [0, 1], 1_000, line(REDUCE_SCATTER, 2, 1_000))
    fits = [grown.fit for grown in plan_of([one.build() for one in job]).grown]
    assert [fit and fit.source for fit in fits] == ["collectives of all types in this group"] * 2
    assert all(fit and fit.line == pytest.approx((1000, 1), rel=1e-2) for fit in fits)


def test_a_scaled_job_takes_as_long_as_its_collectives_say() -> None:
    graphs = data_parallel(2, late=0)
    grown = sum(line(ALL_REDUCE, 8, size) - line(ALL_REDUCE, 2, size) for size in (1_000_000, 4_000_000))
    longer = replay_ranks(scaled(graphs, 4)).makespan_ns - replay_ranks(graphs).makespan_ns
    assert longer == pytest.approx(grown, rel=1e-3)
