"""The network that measured collectives fit: one switch, or links within nodes and across them, and stages in these."""

from collections.abc import Sequence

import numpy as np
import pytest
from execgraph.converter.ranks import (
    AWAITED_MESSAGE,
    GIB,
    MESSAGE,
    RING,
    Link,
    Network,
    Transfer,
    TwoDimensions,
    fitted_factors,
    fitted_network,
    for_more_ranks,
    links_text,
    network_time_ns,
    stages,
    step_cost,
)
from execgraph.converter.ranks.network import node_sizes
from execgraph.schema.graph import CollectiveType
from hypothesis import given, strategies as st

REDUCE_SCATTER, ALL_REDUCE, ALL_GATHER, ALL_TO_ALL = (
    int(kind)
    for kind in (
        CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.ALL_TO_ALL
    )
)  # fmt: skip
MB = 1 << 20
SIMULATED = {
    (CollectiveType.ALL_REDUCE, 4): 246_748, (CollectiveType.ALL_GATHER, 4): 471_754,
    (CollectiveType.REDUCE_SCATTER, 4): 120_559, (CollectiveType.ALL_TO_ALL, 4): 40_064,
    (CollectiveType.ALL_GATHER, 8): 1_100_758, (CollectiveType.ALL_TO_ALL, 8): 20_533,
}  # fmt: skip
"""ns that ASTRA-sim takes for 16 MB, by type and ranks: a switch with 100 GB/s and 500 ns a link, rings, direct
all-to-alls.
"""


@pytest.mark.parametrize(
    ("kind", "steps", "bytes_on_link"),
    [
        (ALL_REDUCE, 6, 1500), (CollectiveType.BARRIER, 6, 0), (CollectiveType.ALL_GATHER, 3, 3000),
        (CollectiveType.GATHER, 3, 3000), (CollectiveType.REDUCE_SCATTER, 3, 750), (CollectiveType.SCATTER, 3, 750),
        (CollectiveType.BROADCAST, 3, 1000), (CollectiveType.REDUCE, 3, 1000),
    ],
)  # fmt: skip
def test_a_ring_of_four_takes_steps_and_bytes_by_what_it_does(kind: int, steps: int, bytes_on_link: int) -> None:
    """Each rank puts in 1000 bytes."""
    assert RING[kind](4, 1000) == (steps, bytes_on_link)


@pytest.mark.parametrize(("direct", "steps", "bytes_on_link"), [(True, 1, 250), (False, 6, 1500)])
def test_in_a_ring_an_all_to_alls_parts_go_past_the_ranks_in_between(direct, steps, bytes_on_link):
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
def test_messages_and_all_reduces_of_several_sizes_tell_bandwidth_and_latency(gib_s, ns, ranks):
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


def test_a_fit_is_judged_on_sizes_that_it_was_made_without_and_two_sizes_do_not_judge_it() -> None:
    fit = fitted_network([sent(1_000, 2_000), sent(2_000, 3_000), sent(3_000, 6_000)])
    # from the first two 4,000 of 6,000, from the outer ones 4,000 of 3,000; the median of three
    assert fit.fit_error_pct == pytest.approx(33.3)
    assert fitted_network([sent(1_000, 2_000), sent(2_000, 3_000)]).fit_error_pct is None


def test_times_of_one_size_say_what_no_network_describes() -> None:
    once = [sent(1_000, 2_000), sent(2_000, 3_000)]
    assert fitted_network(once).repeat_error_pct is None
    again = [sent(1_000, 1_000), sent(1_000, 2_000), sent(1_000, 3_000), sent(1_000, 4_000)]
    assert fitted_network(once[1:] + again).repeat_error_pct == 40.0
    assert fitted_network([*once, sent(1_000, 3_000)]).repeat_error_pct == 20.0


def test_transfers_of_one_size_are_of_one_size_whatever_time_they_take() -> None:
    """Half bytes on a link are not exact any more where they are divided by a time and multiplied by it."""
    fit = fitted_network([Transfer(REDUCE_SCATTER, 2, 13, ns) for ns in range(1000, 1100)])
    assert (fit.transfers, fit.sizes) == (100, 1)


def test_neither_figure_is_below_nothing_and_a_slow_network_still_has_a_bandwidth() -> None:
    fit = fitted_network([Transfer(MESSAGE, 2, 1_000, 10_000), Transfer(MESSAGE, 2, 1_000_000, 5_000)])
    assert fit.latency_ns >= 0
    assert 0 < fit.bandwidth_gib_s < 1e6
    assert fitted_network([Transfer(MESSAGE, 2, 4, 1_000_000)]).bandwidth_gib_s > 0


def test_what_tells_nothing_is_left_out() -> None:
    nothing = [Transfer(ALL_REDUCE, 1, 8, 5), Transfer(ALL_REDUCE, 2, 0, 5), Transfer(ALL_REDUCE, 2, 8, 0)]
    other = [Transfer(CollectiveType.BROADCAST, 2, 8, 5)]
    assert fitted_network(nothing + other) == fitted_network([]) == Network()


@given(st.permutations(range(12)))
def test_the_order_of_the_transfers_decides_no_digit_of_the_factors(order):
    times = [(MB * (1 + turn % 3), 60_005 * (1 + turn % 3) + 97 * turn) for turn in range(12)]
    relative = np.array([[6 / ns, size / ns] for size, ns in times])
    assert fitted_factors(relative[order]) == fitted_factors(relative)


def test_bandwidth_has_three_digits_and_latency_one() -> None:
    """A byte takes a ns, and a message of two links 2,000 ns and a little."""
    fit = fitted_network([sent(1_000, 3_000), sent(1_000_000, 1_002_001)])
    assert (fit.bandwidth_gib_s, fit.latency_ns) == (0.931, 1_000.0)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ALL_REDUCE, [(0, REDUCE_SCATTER, 800), (2, ALL_REDUCE, 200), (0, ALL_GATHER, 200)]),
        (REDUCE_SCATTER, [(0, REDUCE_SCATTER, 800), (2, REDUCE_SCATTER, 200)]),
        (ALL_GATHER, [(2, ALL_GATHER, 800), (0, ALL_GATHER, 1600)]),
        (ALL_TO_ALL, [(0, ALL_TO_ALL, 800), (2, ALL_TO_ALL, 800)]),
    ],
)
def test_dimensions_of_one_rank_are_passed_over(kind: int, expected: list[tuple[int, int, int]]) -> None:
    assert [tuple(stage) for stage in stages(kind, (4, 1, 2), 800)] == expected


def test_one_dimension_has_one_stage() -> None:
    assert [tuple(stage) for stage in stages(ALL_REDUCE, (8,), 800)] == [(0, ALL_REDUCE, 800)]


NODE, RANKS = 4, 8
LINKS = ((1_000.0, 300.0), (6_000.0, 20.0))
"""ns and GB/s of a link within nodes and across them."""
WITHIN, ACROSS, EVERYONE = (0, 1, 2, 3), (1, 5), tuple(range(RANKS))
SIZES = (1_000_000, 4_000_000, 30_000_000)


def transfer(kind: int, ranks: Sequence[int], size: int, links: Sequence[tuple[float, float]] = LINKS) -> Transfer:
    """A transfer that takes as long as the links of the dimensions say."""
    everyone = len(ranks) == RANKS
    parts = [*stages(kind, (NODE, RANKS // NODE), size)] if everyone else [(int(ranks[-1] >= NODE), kind, size)]
    ns = 0.0
    for dimension, part, part_size in parts:
        members = (NODE, RANKS // NODE)[dimension] if everyone else len(ranks)
        steps, moved = step_cost(part, members, part_size, direct=everyone)
        latency, gib_s = links[dimension]
        ns += 2 * steps * latency + moved / gib_s / GIB * 1e9
    return Transfer(kind, len(ranks), size, round(ns), tuple(ranks))


PARTS = [transfer(ALL_REDUCE, ranks, size) for ranks in (WITHIN, ACROSS) for size in SIZES]


@pytest.mark.parametrize("more", [(), (ALL_REDUCE,), (ALL_REDUCE, ALL_TO_ALL)], ids=["parts", "all", "all to all"])
def test_both_links_are_found(more: tuple[int, ...]) -> None:
    measured = [*PARTS, *(transfer(kind, EVERYONE, size) for kind in more for size in SIZES)]
    fit = fitted_network(measured, RANKS)
    two = fit.two_dimensions
    assert two and (two.within.ranks, two.across.ranks) == (NODE, RANKS // NODE)
    assert (two.within.latency_ns, two.within.bandwidth_gib_s) == pytest.approx((1_000, 300), rel=0.01)
    assert (two.across.latency_ns, two.across.bandwidth_gib_s) == pytest.approx((6_000, 20), rel=0.01)
    assert two.fit_error_pct == pytest.approx(0, abs=0.5)
    assert [network_time_ns(fit, one) for one in measured] == pytest.approx([one.ns for one in measured], rel=0.01)


def test_one_network_where_the_links_are_alike() -> None:
    same = (LINKS[0], LINKS[0])
    fit = fitted_network(
        [transfer(ALL_REDUCE, ranks, size, same) for ranks in (WITHIN, ACROSS) for size in SIZES], RANKS
    )
    assert (fit.two_dimensions, fit.one_because) == (None, "")
    assert fit.bandwidth_gib_s == pytest.approx(300, rel=0.01)


def scattered(pct: int) -> Network:
    """Of times that are so many % longer and shorter than the links take, in turn."""
    exact = [
        transfer(ALL_REDUCE, ranks, size + more) for ranks in (WITHIN, ACROSS) for size in SIZES for more in (0, 1)
    ]
    off = [one._replace(ns=one.ns * (100 + (-1) ** at * pct) // 100) for at, one in enumerate(exact)]
    return fitted_network(off, RANKS)


def test_two_networks_need_not_fit_exactly_but_much_better_than_one() -> None:
    found = scattered(5)
    assert found.two_dimensions and found.fit_error_pct
    assert (found.two_dimensions.sizes, found.sizes) == (12, 12)
    assert found.two_dimensions.fit_error_pct == pytest.approx(7.5, abs=2.5)
    assert found.fit_error_pct > 2 * 10
    assert scattered(45).two_dimensions is None


def test_one_network_where_ranks_are_not_known() -> None:
    assert fitted_network([one._replace(ranks=()) for one in PARTS], RANKS).two_dimensions is None


def test_a_size_that_alone_tells_of_its_links_is_not_judged() -> None:
    measured = [transfer(MESSAGE, (0, 1), SIZES[0]), *(transfer(ALL_REDUCE, ACROSS, size) for size in SIZES)]
    two = fitted_network(measured, RANKS).two_dimensions
    assert two is None or two.fit_error_pct == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize(
    ("transfers", "because"),
    [
        (PARTS[:: len(SIZES)], "there are too few sizes to distinguish links within nodes from links across them"),
        (
            [*PARTS, Transfer(ALL_REDUCE, 3, 1_000_000, 5_000, (0, 1, 6))],
            "no number of ranks per node puts every group",
        ),
    ],
)
def test_too_few_sizes_or_a_group_that_no_node_has_is_the_reason_for_one_network(transfers, because):
    fit = fitted_network(transfers, RANKS)
    assert fit.two_dimensions is None and fit.one_because.startswith(because)


@pytest.mark.parametrize(
    ("groups", "nodes"),
    [
        ([(0, 1), (2, 3), (0, 2, 4, 6)], [2]), ([(0, 1), (0, 4)], [2, 4]), ([(0, 1), EVERYONE], [2, 4]),
        ([(0, 1), (1, 2), (0, 4)], [4]), ([(0, 1, 2, 3)], []), ([(0, 4), (1, 5)], []), ([(0, 1), (0, 3)], []),
        ([(0, 1), (0, 5)], []),
    ],
)  # fmt: skip
def test_nodes_are_as_large_as_groups_allow(groups: list[tuple[int, ...]], nodes: list[int]) -> None:
    assert node_sizes(groups, RANKS) == nodes


def test_another_job_has_more_nodes_of_the_same_size_if_they_tell_its_groups_apart() -> None:
    two = TwoDimensions(Link(4, 200.0, 500.0), Link(2, 25.0, 2000.0), 8, 0.0, True)
    network = Network(two_dimensions=two)
    scaled = for_more_ranks(network, [(4, 5, 6, 7), (1, 5, 9, 13), tuple(range(16))], 16).two_dimensions
    assert scaled is not None
    assert (scaled.within, scaled.across) == (two.within, Link(4, 25.0, 2000.0))
    for groups, ranks in (([(0, 1, 8, 9)], 16), ([(0, 1), (0, 1, 8, 9)], 16), ([(0, 1)], 6), ([(0, 1, 2, 3)], 4)):
        other = for_more_ranks(network, groups, ranks)
        assert other.two_dimensions is None and other.one_because.startswith("nodes of 4 ranks")


def test_links_of_three_dimensions_are_all_named() -> None:
    """Whoever edits the simulator's configuration may have as many as the simulator knows."""
    links = [Link(2, 100.0, 500.0), Link(4, 25.0, 1500.0), Link(8, 10.0, 5000.0)]
    assert links_text(links) == "100 GiB/s, 500 ns a link; 25 GiB/s, 1500 ns a link; 10 GiB/s, 5000 ns a link"
    found = links_text(links[:2])
    assert found == "100 GiB/s, 500 ns a link within nodes of 2 ranks, 25 GiB/s, 1500 ns a link across 4 nodes"
