"""How long transfers take in networks of one dimension and of two."""

import pytest
from execgraph.converter.network import (
    AWAITED_MESSAGE,
    GIB,
    MESSAGE,
    Link,
    Network,
    Transfer,
    TwoDimensions,
    network_time_ns,
)
from execgraph.schema.graph import CollectiveType

GB_S = 1e9 / GIB
"""A byte takes a ns."""
TWO = TwoDimensions(Link(2, GB_S, 100.0), Link(2, GB_S / 10, 1_000.0), 0, None, direct=True)


def test_a_message_that_waits_takes_the_latency_twice() -> None:
    network = Network(GB_S, 100.0)
    times = [network_time_ns(network, Transfer(kind, 2, 1_000, 0)) for kind in (MESSAGE, AWAITED_MESSAGE)]
    assert times == pytest.approx([1_200, 1_400])


@pytest.mark.parametrize(
    ("ranks", "ns"),
    [((0, 1), 1_400), ((0, 2), 14_000), ((0, 1, 2, 3), 700 + 9_000 + 700)],
    ids=["within a node", "across nodes", "all"],
)
def test_groups_take_the_time_of_their_links(ranks: tuple[int, ...], ns: float) -> None:
    transfer = Transfer(CollectiveType.ALL_REDUCE, len(ranks), 1_000, 0, ranks)
    assert network_time_ns(Network(two_dimensions=TWO), transfer) == pytest.approx(ns)


def test_no_network_has_broadcasts() -> None:
    assert network_time_ns(Network(), Transfer(CollectiveType.BROADCAST, 2, 1_000, 0)) is None
