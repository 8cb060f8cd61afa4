"""Links within nodes and across them: which groups tell them apart, and when a job gets both."""

from collections.abc import Sequence

import pytest
from execgraph.converter.ranks import (
    GIB,
    MESSAGE,
    Link,
    Network,
    Transfer,
    TwoDimensions,
    fitted_network,
    for_more_ranks,
    network_time_ns,
    stages,
    step_cost,
)
from execgraph.converter.ranks.network import node_sizes
from execgraph.schema.graph import CollectiveType

ALL_REDUCE, ALL_TO_ALL = int(CollectiveType.ALL_REDUCE), int(CollectiveType.ALL_TO_ALL)
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


def links_of(network: Network) -> list[float]:
    two = network.two_dimensions
    assert two and (two.within.ranks, two.across.ranks) == (NODE, RANKS // NODE)
    return [two.within.latency_ns, two.within.bandwidth_gib_s, two.across.latency_ns, two.across.bandwidth_gib_s]


@pytest.mark.parametrize("more", [(), (ALL_REDUCE,), (ALL_REDUCE, ALL_TO_ALL)], ids=["parts", "all", "all to all"])
def test_both_links_are_found(more: tuple[int, ...]) -> None:
    parts = [transfer(ALL_REDUCE, ranks, size) for ranks in (WITHIN, ACROSS) for size in SIZES]
    measured = [*parts, *(transfer(kind, EVERYONE, size) for kind in more for size in SIZES)]
    fit = fitted_network(measured, RANKS)
    assert links_of(fit) == pytest.approx([1_000, 300, 6_000, 20], rel=0.01)
    assert fit.two_dimensions and fit.two_dimensions.fit_error_pct == pytest.approx(0, abs=0.5)
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
    known = [transfer(ALL_REDUCE, ranks, size) for ranks in (WITHIN, ACROSS) for size in SIZES]
    assert fitted_network([one._replace(ranks=()) for one in known], RANKS).two_dimensions is None


def test_a_size_that_alone_tells_of_its_links_is_not_judged() -> None:
    measured = [transfer(MESSAGE, (0, 1), SIZES[0]), *(transfer(ALL_REDUCE, ACROSS, size) for size in SIZES)]
    two = fitted_network(measured, RANKS).two_dimensions
    assert two is None or two.fit_error_pct == pytest.approx(0, abs=0.5)


def test_too_few_sizes_are_the_reason_for_one_network() -> None:
    fit = fitted_network([transfer(ALL_REDUCE, ranks, SIZES[0]) for ranks in (WITHIN, ACROSS)], RANKS)
    assert fit.two_dimensions is None
    assert fit.one_because == "there are too few sizes to distinguish links within nodes from links across them"


def test_a_group_that_no_node_has_is_the_reason_for_one_network() -> None:
    parts = [transfer(ALL_REDUCE, ranks, size) for ranks in (WITHIN, ACROSS) for size in SIZES]
    fit = fitted_network([*parts, Transfer(ALL_REDUCE, 3, 1_000_000, 5_000, (0, 1, 6))], RANKS)
    assert fit.two_dimensions is None
    assert fit.one_because.startswith("no number of ranks per node puts every group within a node")


@pytest.mark.parametrize(
    ("groups", "nodes"),
    [
        ([(0, 1), (2, 3), (0, 2, 4, 6)], [2]),
        ([(0, 1), (0, 4)], [2, 4]),
        ([(0, 1), EVERYONE], [2, 4]),
        ([(0, 1), (1, 2), (0, 4)], [4]),
        ([(0, 1, 2, 3)], []),
        ([(0, 4), (1, 5)], []),
        ([(0, 1), (0, 3)], []),
        ([(0, 1), (0, 5)], []),
    ],
)
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
