"""The network that measured collectives fit, by what the simulator makes of a bandwidth and a latency."""

import numpy as np
import pytest
from execgraph.converter.ranks import (
    AWAITED_MESSAGE,
    GIB,
    MESSAGE,
    RING,
    Network,
    Transfer,
    fitted_factors,
    fitted_network,
    network_time_ns,
    step_cost,
)
from execgraph.schema.graph import CollectiveType
from hypothesis import given, strategies as st

ALL_REDUCE, ALL_TO_ALL = CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL
MB = 1 << 20
SIMULATED = {
    (CollectiveType.ALL_REDUCE, 4): 246_748,
    (CollectiveType.ALL_GATHER, 4): 471_754,
    (CollectiveType.REDUCE_SCATTER, 4): 120_559,
    (CollectiveType.ALL_TO_ALL, 4): 40_064,
    (CollectiveType.ALL_GATHER, 8): 1_100_758,
    (CollectiveType.ALL_TO_ALL, 8): 20_533,
}
"""ns that ASTRA-sim takes for 16 MB, by type and ranks: a switch with 100 GB/s and 500 ns a link, rings, direct
all-to-alls.
"""


@pytest.mark.parametrize(
    ("kind", "steps", "bytes_on_link"),
    [
        (ALL_REDUCE, 6, 1500),
        (CollectiveType.BARRIER, 6, 0),
        (CollectiveType.ALL_GATHER, 3, 3000),
        (CollectiveType.GATHER, 3, 3000),
        (CollectiveType.REDUCE_SCATTER, 3, 750),
        (CollectiveType.SCATTER, 3, 750),
        (CollectiveType.BROADCAST, 3, 1000),
        (CollectiveType.REDUCE, 3, 1000),
    ],
)
def test_a_ring_of_four_takes_steps_and_bytes_by_what_it_does(kind: int, steps: int, bytes_on_link: int) -> None:
    """Each rank puts in 1000 bytes."""
    assert RING[kind](4, 1000) == (steps, bytes_on_link)


@pytest.mark.parametrize(("direct", "steps", "bytes_on_link"), [(True, 1, 250), (False, 6, 1500)])
def test_in_a_ring_an_all_to_alls_parts_go_past_the_ranks_in_between(
    direct: bool, steps: int, bytes_on_link: int
) -> None:
    assert step_cost(ALL_TO_ALL, 4, 1000, direct) == (steps, bytes_on_link)


def test_the_simulators_own_times_give_the_network_that_it_had() -> None:
    fit = fitted_network([Transfer(kind, ranks, 16 * MB, ns) for (kind, ranks), ns in SIMULATED.items()])
    assert fit.bandwidth_gib_s == pytest.approx(100, rel=0.02)
    assert fit.latency_ns == pytest.approx(500, rel=0.1)
    assert (fit.transfers, fit.sizes, fit.direct) == (6, 6, True)
    reduced = Transfer(ALL_REDUCE, 4, 16 * MB, SIMULATED[ALL_REDUCE, 4])
    assert network_time_ns(fit, reduced) == pytest.approx(reduced.ns, rel=0.03)
    assert network_time_ns(fit, Transfer(CollectiveType.BROADCAST, 4, 16 * MB, 1)) is None
    assert fit.fit_error_pct is not None and fit.fit_error_pct < 2


@given(st.floats(0.5, 900), st.floats(10, 50_000), st.integers(2, 64))
def test_messages_and_all_reduces_of_several_sizes_tell_bandwidth_and_latency(
    gib_s: float, ns: float, ranks: int
) -> None:
    steps = 2 * (ranks - 1)
    sizes = (1_000, 300_000, 90_000_000)
    reduced = [
        Transfer(ALL_REDUCE, ranks, size, round(steps * (2 * ns + size / ranks / gib_s / GIB * 1e9))) for size in sizes
    ]
    sent = [
        Transfer(kind, 2, size, round(steps * 2 * ns + size / gib_s / GIB * 1e9))
        for kind, steps in ((MESSAGE, 1), (AWAITED_MESSAGE, 2))
        for size in sizes
    ]
    fit = fitted_network(reduced + sent)
    assert fit.bandwidth_gib_s == pytest.approx(gib_s, rel=0.02)
    assert fit.latency_ns == pytest.approx(ns, rel=0.05, abs=1)


def test_all_to_alls_go_in_a_ring_where_that_fits_better() -> None:
    times = [Transfer(ALL_REDUCE, 4, 16 * MB, 246_748), Transfer(ALL_TO_ALL, 4, 16 * MB, 240_379)]
    assert not fitted_network(times).direct
    times[1] = Transfer(ALL_TO_ALL, 4, 16 * MB, 40_064)
    assert fitted_network(times).direct


def sent(size: int, ns: int) -> Transfer:
    return Transfer(MESSAGE, 2, size, ns)


def test_a_fit_is_judged_on_sizes_that_it_was_made_without() -> None:
    fit = fitted_network([sent(1_000, 2_000), sent(2_000, 3_000), sent(3_000, 6_000)])
    # from the first two 4,000 of 6,000, from the outer ones 4,000 of 3,000; the median of three
    assert fit.fit_error_pct == pytest.approx(33.3)


def test_two_sizes_do_not_judge_a_fit() -> None:
    assert fitted_network([sent(1_000, 2_000), sent(2_000, 3_000)]).fit_error_pct is None


def test_times_of_one_size_say_what_no_network_describes() -> None:
    once = [sent(1_000, 2_000), sent(2_000, 3_000)]
    assert fitted_network(once).repeat_error_pct is None
    again = [sent(1_000, 1_000), sent(1_000, 2_000), sent(1_000, 3_000), sent(1_000, 4_000)]
    assert fitted_network(once[1:] + again).repeat_error_pct == 40.0
    assert fitted_network([*once, sent(1_000, 3_000)]).repeat_error_pct == 20.0


def test_neither_figure_is_below_nothing() -> None:
    fit = fitted_network([Transfer(MESSAGE, 2, 1_000, 10_000), Transfer(MESSAGE, 2, 1_000_000, 5_000)])
    assert fit.latency_ns >= 0
    assert 0 < fit.bandwidth_gib_s < 1e6


def test_what_tells_nothing_is_left_out() -> None:
    nothing = [Transfer(ALL_REDUCE, 1, 8, 5), Transfer(ALL_REDUCE, 2, 0, 5), Transfer(ALL_REDUCE, 2, 8, 0)]
    other = [Transfer(CollectiveType.BROADCAST, 2, 8, 5)]
    assert fitted_network(nothing + other) == fitted_network([]) == Network()


def test_a_network_that_is_slower_than_the_file_can_say_still_has_a_bandwidth() -> None:
    assert fitted_network([Transfer(MESSAGE, 2, 4, 1_000_000)]).bandwidth_gib_s > 0


@given(st.permutations(range(12)))
def test_the_order_of_the_transfers_decides_no_digit_of_the_factors(order):
    times = [(MB * (1 + turn % 3), 60_005 * (1 + turn % 3) + 97 * turn) for turn in range(12)]
    relative = np.array([[6 / ns, size / ns] for size, ns in times])
    assert fitted_factors(relative[order]) == fitted_factors(relative)


def test_bandwidth_has_three_digits_and_latency_one() -> None:
    """A byte takes a ns, and a message of two links 2,000 ns and a little."""
    fit = fitted_network([sent(1_000, 3_000), sent(1_000_000, 1_002_001)])
    assert (fit.bandwidth_gib_s, fit.latency_ns) == (0.931, 1_000.0)
