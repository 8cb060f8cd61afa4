"""What collectives took beyond the fitted network of messages."""

import pytest
from execgraph.converter.targets.algorithms import Algorithm, CollectiveMember
from execgraph.converter.targets.goal_network import Collective, MessageNetwork, excess_times

NETWORK = MessageNetwork(latency_ns=100, ns_per_byte=1.0, transfers=9, fit_error_pct=0.0)
GATHER = Algorithm.ALL_GATHER_RING
"""Of two members that give 1,000 bytes each: a latency and 1,000 ns."""


def collective(*duration_ns: int, algorithm: Algorithm = GATHER, members: tuple[int, ...] = (0, 1)) -> Collective:
    sizes = (1_000,) * len(members)
    return Collective(algorithm, members, CollectiveMember(0, len(members), sizes), 0, duration_ns)


def excess(*collectives: Collective, waited_ns: int = 0) -> list[tuple[int, ...]]:
    return excess_times(collectives, [waited_ns] * len(collectives), NETWORK)


def test_each_member_keeps_what_it_took_beyond_the_network() -> None:
    assert excess(collective(1_500, 1_100)) == [(400, 0)]


def test_what_the_network_gives_too_much_is_taken_off_the_next_collectives_of_the_members() -> None:
    apart = collective(1_500, 1_500, members=(0, 2))
    assert excess(collective(800, 800), apart, collective(1_500, 1_500)) == [
        (0, 0), (400, 400), (100, 100),
    ]  # fmt: skip


def test_waiting_for_others_on_the_link_is_no_excess() -> None:
    assert excess(collective(1_500, 1_100), waited_ns=300) == [(100, 0)]


def test_in_an_all_to_all_a_member_with_little_to_exchange_waits_for_the_busiest() -> None:
    """The first sends 900 bytes to each other one, which send nothing; all end together."""
    first = CollectiveMember(0, 3, (1_800, 0, 0), shares=((0, 900, 900), (0, 0, 0), (0, 0, 0)))
    together = Collective(Algorithm.ALL_TO_ALL, (0, 1, 2), first, 0, (1_900,) * 3)
    assert excess(together) == [(0, 900, 900)]


@pytest.mark.parametrize("algorithm", [Algorithm.MESSAGE, Algorithm.AWAITED_MESSAGE, Algorithm.BARRIER])
def test_messages_and_barriers_have_none(algorithm: Algorithm) -> None:
    assert excess(collective(9_000, 9_000, algorithm=algorithm)) == [(0, 0)]
