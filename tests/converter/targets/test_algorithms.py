"""Collectives as messages: every member ends with all that it should have, nobody waits for ever, no byte is sent
twice, and what that costs.

A message carries what its sender had when it could be sent at the earliest: what the member put in, and what came by
the steps it follows. The network of messages: which collectives share a link, what they took beyond it, and the cpus of
a rank.
"""

from collections.abc import Callable, Sequence

import pytest
from execgraph.converter.ranks import measured_times
from execgraph.converter.targets import algorithms
from execgraph.converter.targets.algorithms import Algorithm, Collective, CollectiveMember, fitted_messages, steps_of
from execgraph.converter.targets.goal_program import LARGEST_COUNT, Cpus, cpus_of
from execgraph.schema.errors import DataError
from execgraph.schema.graph import NodeType
from hypothesis import given, strategies as st
from support.graphs import LAUNCH, GraphBuilder
from support.simulator import Op, run, troubles


@st.composite
def parts(draw: st.DrawFn, algorithm: Algorithm) -> list[CollectiveMember]:
    """The parts of all members of a collective."""
    members = 2 if algorithm.is_message else draw(st.integers(2, 7))
    counts = st.integers(0, 40)
    sizes = draw(st.tuples(*[counts] * members).filter(lambda sizes: sum(sizes) > 0))
    if algorithm not in (Algorithm.ALL_GATHER_RING, Algorithm.GATHER):
        sizes = (max(sizes),) * members
    row = st.tuples(*[counts] * members)
    shares = draw(st.tuples(*[row] * members)) if algorithm == Algorithm.ALL_TO_ALL else ()
    root, chunk = draw(st.integers(0, members - 1)), draw(st.integers(1, 50))
    return [CollectiveMember(place, members, sizes, shares, root, chunk) for place in range(members)]


def operations(algorithm: Algorithm, members: Sequence[CollectiveMember]) -> list[list[Op]]:
    """The members' steps as a job of their own, a cpu for each step, so that only what a step follows holds it up."""
    found = []
    for part in members:
        tags: dict[tuple[bool, int], int] = {}
        ops = []
        for number, step in enumerate(steps_of(algorithm, part)[0]):
            tag = tags[step.sends, step.peer] = tags.get((step.sends, step.peer), -1) + 1
            ops.append(Op("send" if step.sends else "recv", step.size, number, step.peer, tag, number, [*step.after]))
        found.append(ops)
    return found


def known_at_the_end(algorithm: Algorithm, members: Sequence[CollectiveMember]) -> list[set[int]]:
    """The members of which each one has something in the end."""
    steps = [steps_of(algorithm, part)[0] for part in members]
    carried: dict[tuple[int, int], set[int]] = {}
    sent: dict[tuple[int, int], list[int]] = {}
    for place, own in enumerate(steps):
        for number, step in enumerate(own):
            if step.sends:
                sent.setdefault((place, step.peer), []).append(number)

    def has(place: int, number: int) -> set[int]:
        """What is known at the member when the step is over."""
        if (place, number) not in carried:
            step = steps[place][number]
            known = {place}.union(*(has(place, before) for before in step.after))
            if not step.sends:
                nth = sum(not one.sends and one.peer == step.peer for one in steps[place][:number])
                known |= has(step.peer, sent[step.peer, place][nth])
            carried[place, number] = known
        return carried[place, number]

    return [{place}.union(*(has(place, number) for number in range(len(own)))) for place, own in enumerate(steps)]


@pytest.mark.parametrize("algorithm", algorithms.ALGORITHMS)
@given(data=st.data())
def test_messages_fit_and_nobody_waits_for_ever(algorithm: Algorithm, data: st.DataObject) -> None:
    members = data.draw(parts(algorithm))
    ops = operations(algorithm, members)
    # a step for each of many pieces is no cpu of a real job
    assert [trouble for trouble in troubles(ops) if ": cpu" not in trouble] == []
    for rendezvous in (False, True):
        assert run(ops, rendezvous=rendezvous) == [0] * len(ops)


def everyone(part: CollectiveMember) -> set[int]:
    return set(range(part.members))


def givers(part: CollectiveMember) -> set[int]:
    return {member for member, size in enumerate(part.sizes) if size}


def root(part: CollectiveMember) -> set[int]:
    return {part.root}


HAS: dict[Algorithm, Callable[[CollectiveMember], set[int]]] = {
    Algorithm.ALL_REDUCE_RING: everyone, Algorithm.BARRIER: everyone,
    Algorithm.ALL_GATHER_RING: givers, Algorithm.GATHER: givers,
    Algorithm.BROADCAST: root, Algorithm.SCATTER: root, Algorithm.REDUCE: everyone,
}  # fmt: skip
"""Of whom a member has something in the end; only the root, where one gathers or reduces."""


@pytest.mark.parametrize("algorithm", HAS)
@given(data=st.data())
def test_members_have_something_of_all_that_they_should(algorithm: Algorithm, data: st.DataObject) -> None:
    members = data.draw(parts(algorithm))
    # a buffer of fewer bytes than members leaves some without a block to pass on
    in_blocks = HAS[algorithm] != givers and algorithm != Algorithm.REDUCE
    if in_blocks and not min(algorithms.blocks(members[0].sizes[0], len(members))):
        return
    for part, known in zip(members, known_at_the_end(algorithm, members), strict=True):
        if algorithm not in (Algorithm.GATHER, Algorithm.REDUCE) or part.group_rank == part.root:
            assert known >= HAS[algorithm](part)


def received(part: CollectiveMember, size: Callable[[int], int]) -> int:
    """The sum over the other members."""
    return sum(size(place) for place in range(part.members) if place != part.group_rank)


TAKES: dict[str, Callable[[CollectiveMember], int]] = {
    Algorithm.ALL_GATHER_RING: lambda part: received(part, lambda place: part.sizes[place]),
    Algorithm.ALL_TO_ALL: lambda part: received(part, lambda place: part.shares[place][part.group_rank]),
    # the sums so far of all blocks but the one that the member begins with
    Algorithm.REDUCE_SCATTER_RING: lambda part: (
        part.sizes[0] - algorithms.blocks(part.sizes[0], part.members)[part.group_rank - 1]
    ),
    Algorithm.BROADCAST: lambda part: part.sizes[0] * (part.group_rank != part.root),
    Algorithm.SCATTER: lambda part: (
        algorithms.blocks(part.sizes[0], part.members)[part.group_rank] * (part.group_rank != part.root)
    ),
    Algorithm.MESSAGE: lambda part: part.sizes[0] * part.group_rank,
}
"""How many bytes a member receives."""


@pytest.mark.parametrize("algorithm", TAKES)
@given(data=st.data())
def test_each_receives_what_it_lacks_and_no_byte_twice(algorithm: Algorithm, data: st.DataObject) -> None:
    for part in data.draw(parts(algorithm)):
        steps: list[algorithms.Step] = steps_of(algorithm, part)[0]
        assert sum(step.size for step in steps if not step.sends) == TAKES[algorithm](part)


@pytest.mark.parametrize("members", range(2, 9))
def test_the_last_block_of_a_reduce_scatter_is_the_members_own(members: int) -> None:
    """Blocks are told by their sizes."""
    size = sum(range(members)) + members
    for place in range(members):
        part = CollectiveMember(place, members, (size,) * members)
        last = [step for step in steps_of(Algorithm.REDUCE_SCATTER_RING, part)[0] if not step.sends][-1]
        assert last.size == algorithms.blocks(size, members)[place]


def test_a_message_that_waits_follows_the_sign_of_its_receiver() -> None:
    sender, receiver = (
        steps_of(Algorithm.AWAITED_MESSAGE, CollectiveMember(rank, 2, (100, 100), chunk=60))[0] for rank in (0, 1)
    )
    assert [step.says_ready for step in sender] == [step.says_ready for step in receiver] == [True, False, False]
    assert [(step.sends, step.size) for step in sender] == [(False, 1), (True, 60), (True, 40)]
    assert [(step.sends, step.size) for step in receiver] == [(True, 1), (False, 60), (False, 40)]
    assert sender[1].after == (0,)
    assert receiver[1].after == ()


@pytest.mark.parametrize(
    "algorithm", [Algorithm.ALL_REDUCE_RING, Algorithm.ALL_GATHER_RING, Algorithm.REDUCE_SCATTER_RING]
)
def test_a_block_is_passed_on_when_all_its_pieces_are_there(algorithm: Algorithm) -> None:
    pieces_of_a_block = 3
    size = 30 if algorithm == Algorithm.ALL_GATHER_RING else 120
    steps, _ = steps_of(algorithm, CollectiveMember(0, 4, (size,) * 4, chunk=10))
    received = [number for number, step in enumerate(steps) if not step.sends]
    sent = [step for step in steps if step.sends]
    for number, step in enumerate(sent[pieces_of_a_block:]):
        whole_block = pieces_of_a_block * (number // pieces_of_a_block + 1)
        assert step.after == (received[whole_block - 1],)


EQUAL = (400, 400, 400, 400)
SHARES = ((9, 1, 2, 3), (4, 9, 5, 6), (7, 8, 9, 9), (0, 0, 0, 9))


@pytest.mark.parametrize(
    ("algorithm", "sizes", "cost"),
    [
        (Algorithm.ALL_REDUCE_RING, EQUAL, (6, 600)),
        (Algorithm.ALL_GATHER_RING, (100, 200, 300, 400), (3, 900)),
        (Algorithm.REDUCE_SCATTER_RING, EQUAL, (3, 300)), (Algorithm.BROADCAST, EQUAL, (3, 400 + 2 * 150)),
        (Algorithm.REDUCE, EQUAL, (3, 400 + 2 * 150)), (Algorithm.GATHER, (100, 200, 300, 400), (1, 300)),
        (Algorithm.SCATTER, (0, 0, 0, 400), (1, 300)), (Algorithm.ALL_TO_ALL, EQUAL, (1, 24)),
    ],
)  # fmt: skip
def test_a_collective_of_four_costs_steps_and_bytes(algorithm, sizes, cost):
    """The root is the last one, which has the most; pieces are of up to 150 bytes."""
    assert algorithms.ALGORITHMS[algorithm].cost(CollectiveMember(0, 4, sizes, SHARES, root=3, chunk=150)) == cost


def test_a_small_broadcast_is_passed_on_in_one_piece_and_a_message_that_waits_takes_a_step_more() -> None:
    assert algorithms.ALGORITHMS[Algorithm.BROADCAST].cost(CollectiveMember(0, 4, EQUAL)) == (3, 3 * 400)
    member = CollectiveMember(0, 2, (100, 0))
    assert algorithms.ALGORITHMS[Algorithm.MESSAGE].cost(member) == (1, 100)
    assert algorithms.ALGORITHMS[Algorithm.AWAITED_MESSAGE].cost(member) == (2, 100)


def sent(size: int, ns: int, algorithm: Algorithm = Algorithm.MESSAGE) -> Collective:
    return Collective(algorithm, (0, 1), CollectiveMember(0, 2, (size, size)), 0, (ns, ns))


def test_the_network_is_that_of_the_measured_times():
    """500 ns and a quarter of a ns for each byte; two sizes are too few to leave one out."""
    timed = [sent(4_000, 1_500), sent(400_000, 100_500)]
    assert fitted_messages(timed) == algorithms.MessageNetwork(500, 0.25, 2, None)
    assert fitted_messages([*timed, sent(40_000, 10_500)]) == algorithms.MessageNetwork(500, 0.25, 3, 0.0)
    # the error is the median of three, each in the network that fits the two other sizes
    assert fitted_messages([sent(1_000, 1_000), sent(2_000, 2_000), sent(3_000, 6_000)]).fit_error_pct == 20.0
    # barriers and what took no time tell nothing
    nothing = [sent(0, 100, Algorithm.BARRIER), sent(1_000, 0)]
    assert fitted_messages(nothing) is None
    assert fitted_messages([*nothing, sent(1_000, 1)]) == fitted_messages([sent(1_000, 1)])


NETWORK = algorithms.MessageNetwork(latency_ns=100, ns_per_byte=1.0, transfers=9, fit_error_pct=0.0)


def collective(*duration_ns, start_ns=0, members=(0, 1), algorithm=Algorithm.ALL_GATHER_RING):
    """Of members that give 1,000 bytes each and took so long, each or all: two alone take a latency and 1,000 ns."""
    first = CollectiveMember(0, len(members), (1_000,) * len(members))
    lasted = duration_ns if len(duration_ns) > 1 else duration_ns * len(members)
    return Collective(algorithm, members, first, start_ns, lasted)


IN_TURN = [collective(1_100), collective(1_100, start_ns=1_100), collective(550, algorithm=Algorithm.MESSAGE)]


@pytest.mark.parametrize(
    ("collectives", "network", "links", "waited_ns"),
    [
        ([collective(1_100, start_ns=start) for start in (0, 550, 1_100)], NETWORK, [0, 1, 0], [0, 0, 0]),
        ([collective(2_200), collective(2_200)], NETWORK, [0, 0], [1_100, 1_100]),
        (IN_TURN, NETWORK, [0, 0, 0], [0, 0, 0]),
        (IN_TURN, None, [0, 0, 0], [0, 0, 0]),
    ],
    ids=["at once as long as alone", "at once twice as long", "in turn, and a message", "without a network"],
)
def test_collectives_share_a_link_if_they_took_longer_together_than_alone(collectives, network, links, waited_ns):
    assert algorithms.links_of(collectives, network) == (links, waited_ns)


def test_all_members_of_a_collective_use_the_same_link_of_no_more_than_goal_has_nics() -> None:
    """The last one meets the first on rank 0 and the second on rank 2."""
    ranks = ((0, 1), (2, 3), (0, 2))
    apart = [collective(1_100, start_ns=100 * at, members=members) for at, members in enumerate(ranks)]
    assert algorithms.links_of(apart, NETWORK)[0] == [0, 0, 1]
    at_once = [collective(1_100, start_ns=number) for number in range(algorithms.LAST_LINK + 9)]
    assert max(algorithms.links_of(at_once, NETWORK)[0]) == algorithms.LAST_LINK


def excess(*collectives: Collective, waited_ns: int = 0) -> list[tuple[int, ...]]:
    return algorithms.excess_times(collectives, [waited_ns] * len(collectives), NETWORK)


@pytest.mark.parametrize(("waited_ns", "beyond"), [(0, (400, 0)), (300, (100, 0))], ids=["alone", "after a wait"])
def test_each_member_keeps_what_it_took_beyond_the_network_and_the_wait_for_the_link(waited_ns, beyond):
    assert excess(collective(1_500, 1_100), waited_ns=waited_ns) == [beyond]


def test_what_the_network_gives_too_much_is_taken_off_the_next_collectives_of_the_members() -> None:
    found = excess(collective(800), collective(1_500, members=(0, 2)), collective(1_500))
    assert found == [(0, 0), (400, 400), (100, 100)]


def test_in_an_all_to_all_a_member_with_little_to_exchange_waits_for_the_busiest() -> None:
    """The first sends 900 bytes to each other one, which send nothing; all end together."""
    first = CollectiveMember(0, 3, (1_800, 0, 0), shares=((0, 900, 900), (0, 0, 0), (0, 0, 0)))
    assert excess(Collective(Algorithm.ALL_TO_ALL, (0, 1, 2), first, 0, (1_900,) * 3)) == [(0, 900, 900)]


@pytest.mark.parametrize("algorithm", [Algorithm.MESSAGE, Algorithm.AWAITED_MESSAGE, Algorithm.BARRIER])
def test_messages_and_barriers_have_none(algorithm: Algorithm) -> None:
    assert excess(collective(9_000, 9_000, algorithm=algorithm)) == [(0, 0)]


def cpus(graph: GraphBuilder, first: list[str]) -> Cpus:
    built = graph.build()
    return cpus_of(built, measured_times(built), first)


@pytest.mark.parametrize("runs", [True, False], ids=["a thread and a stream", "metadata alone"])
def test_threads_and_streams_come_behind_the_given_ones_and_metadata_has_none(g: GraphBuilder, runs: bool) -> None:
    g.host("group", 0, 0, type=NodeType.METADATA)
    if runs:
        g.host("op", 0, 5, thread=3)
        g.activity("kernel", 5, 5, stream=9)
        g.host("op", 5, 5, thread=3)
    found = cpus(g, ["network"])
    assert (found.of_node.tolist(), found.lanes) == (([-1, 1, 2, 1], 3) if runs else ([-1], 1))
    assert found.names == ["network", *(["thread 3", "device 0 stream 9"] if runs else [])]


def test_delays_that_overlap_have_cpus_of_their_own_and_use_the_first_free_one_again(g: GraphBuilder) -> None:
    op = g.host("op", 0, 10)
    for start, length in ((10, 20), (15, 5), (20, 30), (30, 5)):
        g.delay(start, length, after=[(op, LAUNCH)])
    found = cpus(g, [])
    assert found.of_node.tolist() == [0, 1, 2, 2, 1]
    assert (found.names, found.lanes) == (["thread 1", "delays", "delays"], 1)


def test_a_delay_that_follows_nothing_lasts_from_the_begin_of_the_run(g: GraphBuilder) -> None:
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
