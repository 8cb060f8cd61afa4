"""Whether collectives of a rank share a link, as their measured times say."""

from execgraph.converter.targets.algorithms import Algorithm, CollectiveMember
from execgraph.converter.targets.goal_network import LAST_LINK, Collective, Links, MessageNetwork, links_of

NETWORK = MessageNetwork(latency_ns=0, ns_per_byte=1.0, transfers=9, fit_error_pct=0.0)


def collective(
    start_ns: int, lasts_ns: int, members: tuple[int, ...] = (0, 1), algorithm: Algorithm = Algorithm.ALL_GATHER_RING
) -> Collective:
    """Alone it takes 1,000 ns."""
    sizes = (1_000,) * len(members)
    return Collective(
        algorithm, members, CollectiveMember(0, len(members), sizes), start_ns, (lasts_ns,) * len(members)
    )


def test_collectives_at_the_same_time_that_took_as_long_as_alone_have_links_of_their_own() -> None:
    at_once = [collective(0, 1_000), collective(500, 1_000), collective(1_000, 1_000)]
    assert links_of(at_once, NETWORK) == Links([0, 1, 0], [0, 0, 0])


def test_collectives_that_took_twice_as_long_at_the_same_time_share_a_link() -> None:
    assert links_of([collective(0, 2_000), collective(0, 2_000)], NETWORK) == Links([0, 0], [1_000, 1_000])


def test_all_members_of_a_collective_use_the_same_link() -> None:
    """The last one meets the first on rank 0 and the second on rank 2."""
    apart = [collective(0, 1_000), collective(100, 1_000, (2, 3)), collective(200, 1_000, (0, 2))]
    assert links_of(apart, NETWORK).number == [0, 0, 1]


def test_collectives_one_after_the_other_and_messages_take_the_first_link() -> None:
    in_turn = [collective(0, 1_000), collective(1_000, 1_000), collective(0, 500, algorithm=Algorithm.MESSAGE)]
    assert links_of(in_turn, NETWORK) == Links([0, 0, 0], [0, 0, 0])
    assert links_of(in_turn, None) == Links([0, 0, 0], [0, 0, 0])


def test_a_rank_has_no_more_links_than_goal_has_nics() -> None:
    at_once = [collective(number, 1_000) for number in range(LAST_LINK + 9)]
    assert max(links_of(at_once, NETWORK).number) == LAST_LINK
