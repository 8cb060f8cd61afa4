"""How long and how large collectives are when their group grows: fits, lengths and shards."""

import pytest
from execgraph.converter.ranks import GIB, Transfer
from execgraph.converter.scaling.lengths import SOURCES, Fits, GroupTransfer, Line, cost_of
from execgraph.schema.graph import CollectiveType
from execgraph.tools.replay import replay_ranks
from support.scaled_jobs import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    KB,
    REDUCE_SCATTER,
    Rank,
    data_parallel,
    lengths,
    line,
    plan_of,
    scaled,
    sizes,
    tensor_by_data,
)

REDUCED, GATHERED = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER
STEP, BYTE = 1_000, 2
"""ns of a step, and of a byte."""
STEPS_OF = {REDUCED: 2, GATHERED: 1}
"""Of two members."""


def measured(size: int, group: int = 0, kind: CollectiveType = REDUCED, off: int = 0) -> GroupTransfer:
    """A collective of two, `off` ns longer than steps and bytes take."""
    return GroupTransfer(Transfer(kind, 2, size, STEPS_OF[kind] * STEP + size * BYTE + off), group)


def test_two_sizes_tell_both() -> None:
    fit = Fits([measured(1_000), measured(50_000)]).of(REDUCED, 0)
    assert fit is not None
    assert fit.line == pytest.approx((STEP, BYTE))
    assert (fit.source, fit.transfers, fit.fit_error_pct, fit.identifiable) == (SOURCES[0], 2, 0.0, True)


@pytest.mark.parametrize(
    ("other", "source", "transfers"),
    [
        (measured(50_000, 1), SOURCES[1], 2),
        (measured(50_000, 0, GATHERED), SOURCES[2], 2),
        (measured(50_000, 1, GATHERED), SOURCES[3], 2),
    ],
    ids=["of the type", "of the group", "of the job"],
)
def test_what_collectives_of_a_type_and_group_do_not_tell_others_do(
    other: GroupTransfer, source: str, transfers: int
) -> None:
    fit = Fits([measured(1_000), other]).of(REDUCED, 0)
    assert fit is not None
    assert (fit.source, fit.transfers) == (source, transfers)
    assert fit.line == pytest.approx((STEP, BYTE))


def test_a_type_that_was_not_measured_in_a_group_has_the_line_of_others() -> None:
    fit = Fits([measured(1_000), measured(50_000)]).of(GATHERED, 7)
    assert fit is not None
    assert fit.source == SOURCES[3]


def test_what_nothing_tells_has_no_line_unless_both_factors_are_given() -> None:
    assert Fits([]).of(REDUCED, 0) is None
    assert Fits([], STEP).of(REDUCED, 0) is Fits([], None, BYTE).of(REDUCED, 0) is None
    given = Fits([], STEP, BYTE).of(REDUCED, 0)
    assert given is not None
    assert (given.line, given.source, given.transfers, given.fit_error_pct) == (Line(STEP, BYTE), "given", 0, 0.0)
    assert given.identifiable


@pytest.mark.parametrize(
    "transfer",
    [
        Transfer(REDUCED, 2, 1_000, 0),
        Transfer(REDUCED, 1, 1_000, 5),
        Transfer(CollectiveType.ALL_TO_ALL, 2, 1_000, 5),
    ],
    ids=["no time", "one member", "not by ring"],
)
def test_what_takes_no_time_alone_or_not_by_ring_tells_nothing(transfer: Transfer) -> None:
    assert Fits([GroupTransfer(transfer, 0)]).of(transfer.kind, 0) is None


@pytest.mark.parametrize(("step_ns", "byte_ns"), [(STEP, None), (None, BYTE), (STEP, BYTE)])
def test_a_given_factor_leaves_the_other_one_to_be_fitted(step_ns: float | None, byte_ns: float | None) -> None:
    fits = Fits([measured(1_000)], step_ns, byte_ns)
    fit = fits.of(REDUCED, 0)
    assert fit is not None
    assert fits.is_given and not Fits([]).is_given
    assert fit.line == pytest.approx((STEP, BYTE))
    assert (fit.source, fit.transfers, fit.fit_error_pct) == (f"as given; {SOURCES[0]}", 1, 0.0)


def test_a_fitted_factor_is_never_below_zero() -> None:
    for given, fitted in (((10 * STEP, None), (10 * STEP, 0)), ((None, 10 * BYTE), (0, 10 * BYTE))):
        fit = Fits([measured(1_000)], *given).of(REDUCED, 0)
        assert fit is not None
        assert fit.line == fitted


def test_of_one_size_the_line_has_the_least_latency_and_others_would_do() -> None:
    fit = Fits([measured(1_000), measured(1_000)]).of(REDUCED, 0)
    assert fit is not None
    assert (fit.identifiable, fit.source, fit.transfers) == (False, SOURCES[0], 2)
    assert fit.line.ns(cost_of(measured(1_000).transfer)) == pytest.approx(2 * STEP + 1_000 * BYTE)


def test_a_latency_within_the_scatter_of_the_times_is_not_known() -> None:
    """It is measured with 1,000 ns, but so are the differences between alike collectives."""
    scattered = [measured(size, off=off) for size in (20_000, 40_000) for off in (-900, 900)]
    fit = Fits(scattered).of(REDUCED, 0)
    assert fit is not None
    assert not fit.identifiable
    steady = [measured(size, off=off) for size in (20_000, 40_000) for off in (-9, 9)]
    known = Fits(steady).of(REDUCED, 0)
    assert known is not None
    assert known.identifiable


def test_the_error_is_that_of_the_median() -> None:
    fit = Fits([measured(1_000), measured(1_000), measured(1_000, off=3_000)], STEP, BYTE).of(REDUCED, 0)
    assert fit is not None
    assert fit.fit_error_pct == 0.0


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
    assert (grown.step_ns, grown.gib_s) == pytest.approx((1000.0, 1e9 / GIB), rel=1e-3)


def test_collectives_of_one_size_do_not_tell_latency_from_bandwidth() -> None:
    [grown] = plan_of(data_parallel(2, sizes=(1_000_000, 1_000_000))).grown
    assert not grown.identifiable
    [known] = plan_of(data_parallel(2)).grown
    assert (known.identifiable, known.fit_error_pct) == (True, 0.0)


def test_what_one_type_does_not_tell_others_do() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, line(ALL_REDUCE, 2, 1_000_000))
        one.meet(REDUCE_SCATTER, [0, 1], 1_000, line(REDUCE_SCATTER, 2, 1_000))
    for grown in plan_of([one.build() for one in job]).grown:
        assert grown.fitted_to == "collectives of all types in this group"
        assert (grown.step_ns, grown.gib_s) == pytest.approx((1000, 1e9 / GIB), rel=1e-2)


def test_a_scaled_job_takes_as_long_as_its_collectives_say() -> None:
    graphs = data_parallel(2, late=0)
    grown = sum(line(ALL_REDUCE, 8, size) - line(ALL_REDUCE, 2, size) for size in (1_000_000, 4_000_000))
    longer = replay_ranks(scaled(graphs, 4)).makespan_ns - replay_ranks(graphs).makespan_ns
    assert longer == pytest.approx(grown, rel=1e-3)


def test_shards_get_smaller_where_the_whole_stays() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_GATHER, [0, 1], 500_001, 100 * KB, backward=False)
        one.meet(REDUCE_SCATTER, [0, 1], 1_000_002, 100 * KB)
        one.meet(ALL_REDUCE, [0, 1], 7, 10 * KB)
    graphs = [one.build() for one in job]
    assert sizes(scaled(graphs, 4)[5]) == [125_001, 1_000_002, 7]


@pytest.mark.parametrize(
    ("target", "expected"), [("generic", [1, 75, 500]), ("astra-sim", [2, 128, 500])], ids=["generic", "astra-sim"]
)
def test_shards_for_astra_sim_keep_the_bytes_without_which_it_never_ends(target: str, expected: list[int]) -> None:
    """What was smaller before stays as it is."""
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.metadata["target"] = target
        one.meet(REDUCE_SCATTER, [0, 1], 4, 10 * KB)
        for size in (2, 150, 1000):
            one.meet(ALL_GATHER, [0, 1], size, 10 * KB, backward=False)
    assert sizes(scaled([one.build() for one in job])[0])[1:] == expected


def test_what_is_gathered_without_being_scattered_grows_with_the_group() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, 100 * KB)
        one.meet(ALL_GATHER, [0, 1], 64, 10 * KB, backward=False)
    graphs = [one.build() for one in job]
    assert sizes(scaled(graphs)[0]) == [1_000_000, 64]
    assert plan_of(graphs).undivided == 2


def test_the_root_of_a_joined_group_is_one_for_all() -> None:
    job = [Rank(rank, 2) for rank in range(2)]
    for one in job:
        one.meet(ALL_REDUCE, [0, 1], 1_000_000, 100 * KB)
        one.meet(BROADCAST, [0, 1], 1000, 10 * KB, comm_src=1)
    graphs = scaled([one.build() for one in job], 3)
    assert {int(graph.integers("comm_src").max()) for graph in graphs} == {1}


def test_groups_that_stay_as_they_are_keep_what_they_gather() -> None:
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(ALL_REDUCE, range(4), 1_000_000, 100 * KB, pg_name="0", pg_desc="dp")
        one.meet(ALL_GATHER, [one.rank // 2 * 2, one.rank // 2 * 2 + 1], 64, 10 * KB, backward=False, pg_name="tp")
    graphs = [one.build() for one in job]
    assert sizes(scaled(graphs)[0]) == [1_000_000, 64]
    assert plan_of(graphs).undivided == 0
