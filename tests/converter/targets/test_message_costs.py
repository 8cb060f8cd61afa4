"""Steps and bytes of collectives as messages, one after the other, and the network that their times fit."""

import pytest
from execgraph.converter.targets.algorithms import Algorithm, CollectiveMember, cost_of
from execgraph.converter.targets.goal_network import Collective, MessageNetwork, fitted_messages

EQUAL = (400, 400, 400, 400)
SHARES = ((9, 1, 2, 3), (4, 9, 5, 6), (7, 8, 9, 9), (0, 0, 0, 9))


@pytest.mark.parametrize(
    ("algorithm", "sizes", "cost"),
    [
        (Algorithm.ALL_REDUCE_RING, EQUAL, (6, 600)),
        (Algorithm.ALL_REDUCE_DOUBLING, EQUAL, (2, 800)),
        (Algorithm.ALL_GATHER_RING, (100, 200, 300, 400), (3, 900)),
        (Algorithm.ALL_GATHER_DOUBLING, (100, 200, 300, 400), (2, 900)),
        (Algorithm.REDUCE_SCATTER_RING, EQUAL, (3, 300)),
        (Algorithm.BROADCAST, EQUAL, (3, 400 + 2 * 150)),
        (Algorithm.REDUCE, EQUAL, (3, 400 + 2 * 150)),
        (Algorithm.GATHER, (100, 200, 300, 400), (1, 300)),
        (Algorithm.SCATTER, (0, 0, 0, 400), (1, 300)),
        (Algorithm.ALL_TO_ALL, EQUAL, (1, 24)),
    ],
)
def test_a_collective_of_four_costs_steps_and_bytes(
    algorithm: Algorithm, sizes: tuple[int, ...], cost: tuple[int, int]
) -> None:
    """The root is the last one, which has the most; pieces are of up to 150 bytes."""
    assert cost_of(algorithm, CollectiveMember(0, 4, sizes, SHARES, root=3, chunk=150)) == cost


def test_a_small_broadcast_is_passed_on_in_one_piece() -> None:
    assert cost_of(Algorithm.BROADCAST, CollectiveMember(0, 4, EQUAL)) == (3, 3 * 400)


def test_a_message_that_waits_for_its_receiver_takes_a_step_more() -> None:
    member = CollectiveMember(0, 2, (100, 0))
    assert cost_of(Algorithm.MESSAGE, member) == (1, 100)
    assert cost_of(Algorithm.AWAITED_MESSAGE, member) == (2, 100)


def sent(size: int, ns: int, algorithm: Algorithm = Algorithm.MESSAGE) -> Collective:
    return Collective(algorithm, (0, 1), CollectiveMember(0, 2, (size, size)), 0, (ns, ns))


def test_the_network_is_that_of_the_measured_times() -> None:
    """500 ns and a quarter of a ns for each byte; two sizes are too few to leave one out."""
    timed = [sent(4_000, 1_500), sent(400_000, 100_500)]
    assert fitted_messages(timed) == MessageNetwork(500, 0.25, 2, None)
    assert fitted_messages([*timed, sent(40_000, 10_500)]) == MessageNetwork(500, 0.25, 3, 0.0)


def test_the_error_of_the_network_is_of_sizes_that_it_was_not_fitted_to() -> None:
    """The median of three errors, each in the network that fits the two others."""
    fit = fitted_messages([sent(1_000, 1_000), sent(2_000, 2_000), sent(3_000, 6_000)])
    assert fit is not None
    assert fit.fit_error_pct == 20.0


def test_barriers_and_what_took_no_time_tell_nothing() -> None:
    nothing = [sent(0, 100, Algorithm.BARRIER), sent(1_000, 0)]
    assert fitted_messages(nothing) is None
    assert fitted_messages([*nothing, sent(1_000, 1)]) == fitted_messages([sent(1_000, 1)])
