"""The network of messages: which collectives share a link, what they took beyond it, and the cpus of a rank."""

import pytest
from execgraph.converter.ranks import measured_times
from execgraph.converter.targets.algorithms import (
    LAST_LINK,
    Algorithm,
    Collective,
    CollectiveMember,
    MessageNetwork,
    excess_times,
    links_of,
)
from execgraph.converter.targets.goal_program import LARGEST_COUNT, Cpus, cpus_of
from execgraph.schema.errors import DataError
from execgraph.schema.graph import NodeType
from support.graphs import LAUNCH, GraphBuilder

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
    assert links_of(at_once, NETWORK) == ([0, 1, 0], [0, 0, 0])


def test_collectives_that_took_twice_as_long_at_the_same_time_share_a_link() -> None:
    assert links_of([collective(0, 2_000), collective(0, 2_000)], NETWORK) == ([0, 0], [1_000, 1_000])


def test_all_members_of_a_collective_use_the_same_link() -> None:
    """The last one meets the first on rank 0 and the second on rank 2."""
    apart = [collective(0, 1_000), collective(100, 1_000, (2, 3)), collective(200, 1_000, (0, 2))]
    assert links_of(apart, NETWORK)[0] == [0, 0, 1]


def test_collectives_one_after_the_other_and_messages_take_the_first_link() -> None:
    in_turn = [collective(0, 1_000), collective(1_000, 1_000), collective(0, 500, algorithm=Algorithm.MESSAGE)]
    assert links_of(in_turn, NETWORK) == ([0, 0, 0], [0, 0, 0])
    assert links_of(in_turn, None) == ([0, 0, 0], [0, 0, 0])


def test_a_rank_has_no_more_links_than_goal_has_nics() -> None:
    at_once = [collective(number, 1_000) for number in range(LAST_LINK + 9)]
    assert max(links_of(at_once, NETWORK)[0]) == LAST_LINK


NETWORK_GOAL_EXCESS_TIME = MessageNetwork(latency_ns=100, ns_per_byte=1.0, transfers=9, fit_error_pct=0.0)
GATHER = Algorithm.ALL_GATHER_RING
"""Of two members that give 1,000 bytes each: a latency and 1,000 ns."""


def collective_of_goal_excess_time(
    *duration_ns: int, algorithm: Algorithm = GATHER, members: tuple[int, ...] = (0, 1)
) -> Collective:
    sizes = (1_000,) * len(members)
    return Collective(algorithm, members, CollectiveMember(0, len(members), sizes), 0, duration_ns)


def excess(*collectives: Collective, waited_ns: int = 0) -> list[tuple[int, ...]]:
    return excess_times(collectives, [waited_ns] * len(collectives), NETWORK_GOAL_EXCESS_TIME)


def test_each_member_keeps_what_it_took_beyond_the_network() -> None:
    assert excess(collective_of_goal_excess_time(1_500, 1_100)) == [(400, 0)]


def test_what_the_network_gives_too_much_is_taken_off_the_next_collectives_of_the_members() -> None:
    apart = collective_of_goal_excess_time(1_500, 1_500, members=(0, 2))
    assert excess(collective_of_goal_excess_time(800, 800), apart, collective_of_goal_excess_time(1_500, 1_500)) == [
        (0, 0), (400, 400), (100, 100),
    ]  # fmt: skip


def test_waiting_for_others_on_the_link_is_no_excess() -> None:
    assert excess(collective_of_goal_excess_time(1_500, 1_100), waited_ns=300) == [(100, 0)]


def test_in_an_all_to_all_a_member_with_little_to_exchange_waits_for_the_busiest() -> None:
    """The first sends 900 bytes to each other one, which send nothing; all end together."""
    first = CollectiveMember(0, 3, (1_800, 0, 0), shares=((0, 900, 900), (0, 0, 0), (0, 0, 0)))
    together = Collective(Algorithm.ALL_TO_ALL, (0, 1, 2), first, 0, (1_900,) * 3)
    assert excess(together) == [(0, 900, 900)]


@pytest.mark.parametrize("algorithm", [Algorithm.MESSAGE, Algorithm.AWAITED_MESSAGE, Algorithm.BARRIER])
def test_messages_and_barriers_have_none(algorithm: Algorithm) -> None:
    assert excess(collective_of_goal_excess_time(9_000, 9_000, algorithm=algorithm)) == [(0, 0)]


def cpus(graph: GraphBuilder, first: list[str]) -> Cpus:
    built = graph.build()
    return cpus_of(built, measured_times(built), first)


def test_threads_and_streams_come_behind_the_given_ones_and_metadata_has_none() -> None:
    g = GraphBuilder(rank=0)
    g.host("group", 0, 0, type=NodeType.METADATA)
    g.host("op", 0, 5, thread=3)
    g.activity("kernel", 5, 5, stream=9)
    g.host("op", 5, 5, thread=3)
    found = cpus(g, ["network"])
    assert (found.of_node.tolist(), found.lanes) == ([-1, 1, 2, 1], 3)
    assert found.names == ["network", "thread 3", "device 0 stream 9"]


def test_a_graph_of_metadata_alone_has_only_the_given_ones() -> None:
    g = GraphBuilder(rank=0)
    g.host("group", 0, 0, type=NodeType.METADATA)
    found = cpus(g, ["network"])
    assert (found.of_node.tolist(), found.names, found.lanes) == ([-1], ["network"], 1)


def test_delays_that_overlap_have_cpus_of_their_own_and_use_the_first_free_one_again() -> None:
    g = GraphBuilder(rank=0)
    op = g.host("op", 0, 10)
    for start, length in ((10, 20), (15, 5), (20, 30), (30, 5)):
        g.delay(start, length, after=[(op, LAUNCH)])
    found = cpus(g, [])
    assert found.of_node.tolist() == [0, 1, 2, 2, 1]
    assert (found.names, found.lanes) == (["thread 1", "delays", "delays"], 1)


def test_a_delay_that_follows_nothing_lasts_from_the_begin_of_the_run() -> None:
    g = GraphBuilder(rank=0)
    op = g.host("op", 0, 10)
    g.delay(10, 10)
    g.delay(5, 4, after=[(op, LAUNCH)])
    assert cpus(g, []).of_node.tolist() == [0, 1, 2]


def test_there_are_no_more_cpus_than_goal_has_numbers() -> None:
    g = GraphBuilder(rank=5)
    for thread in range(LARGEST_COUNT):
        g.host("op", 0, 5, thread=thread)
    assert len(cpus(g, []).names) == LARGEST_COUNT
    with pytest.raises(DataError, match=f"rank 5 has {LARGEST_COUNT + 1} threads, streams and delays at once"):
        cpus(g, ["network"])
