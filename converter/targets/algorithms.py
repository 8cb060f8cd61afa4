"""Collectives as messages under an algorithm: what each member sends and receives, what that follows, what it costs. A
message waits only for earlier rounds, and both its ends are of one round, so there is no deadlock. A nic sends one
message at a time, unlike in ASTRA-sim. Collectives that ran at once and took as long as alone did not share a link.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from enum import Enum
from functools import cache, lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from ...schema.columns import Int64, group_ids
from ..ranks import Cost, carried_excess, fitted_factors, held_out_pct

Sizes = tuple[int, ...]
LAST_LINK = 99
"""A nic is eight bits in GOAL, and each link has two."""


class Algorithm(Enum):
    """How a collective or message is done, and what that is called."""

    ALL_REDUCE_RING = "all-reduce by ring"
    ALL_GATHER_RING = "all-gather by ring"
    REDUCE_SCATTER_RING = "reduce-scatter by ring"
    BROADCAST = "broadcast along the ring"
    REDUCE = "reduce along the ring"
    GATHER = "gather, each to the root"
    SCATTER = "scatter, from the root to each"
    ALL_TO_ALL = "all-to-all pairwise"
    BARRIER = "barrier by dissemination"
    MESSAGE = "message"
    AWAITED_MESSAGE = "message when its receiver is ready"

    @property
    def is_message(self) -> bool:
        """Whether it is a message between two ranks, not a collective."""
        return self in (Algorithm.MESSAGE, Algorithm.AWAITED_MESSAGE)


class Step(NamedTuple):
    """A message to or from a peer, after the member's steps `after`; one that `says_ready` is only such a sign."""

    sends: bool
    peer: int
    size: int
    after: tuple[int, ...] = ()
    says_ready: bool = False


class CollectiveMember(NamedTuple):
    """A member of a collective: the bytes that each puts in, or sends to each, and those of the largest message."""

    group_rank: int
    members: int
    sizes: Sizes
    shares: tuple[Sizes, ...] = ()
    root: int = 0
    chunk: int = 1 << 62


def pieces(size: int, chunk: int) -> Sizes:
    """Returns the sizes of messages of up to `chunk` bytes that carry `size` bytes; none for no bytes.

    >>> pieces(10, 4), pieces(0, 4)
    ((4, 4, 2), ())
    """
    return (chunk,) * (size // chunk) + ((size % chunk,) if size % chunk else ())


def blocks(size: int, count: int) -> Sizes:
    """Returns the sizes of `count` blocks of `size` bytes, which differ by at most one byte.

    >>> blocks(10, 4)
    (3, 3, 2, 2)
    """
    return tuple(size // count + (number < size % count) for number in range(count))


def _in_rounds(exchanges: Iterable[tuple[int, int, int, int]], chunk: int, *, waits: bool = True) -> list[Step]:
    """Returns the steps of rounds, each a send and a receive (peer, bytes) that wait for earlier rounds, if `waits`."""
    steps: list[Step] = []
    last: tuple[int, ...] = ()
    for to, sent, source, received in exchanges:
        # with nothing to pass on, the round waits for nothing
        before = last if sent and waits else ()
        steps += [Step(True, to, size, before) for size in pieces(sent, chunk)]
        for size in pieces(received, chunk):
            steps.append(Step(False, source, size, before))
            before = last = (len(steps) - 1,)
    return steps


def _ring(member: CollectiveMember, rounds: int, first: int, sizes: Sizes) -> list[Step]:
    """Returns rounds in which each member sends the next one a block: in round k block group rank + `first` − k."""
    to, source = _neighbour(member, 1), _neighbour(member, -1)
    block = [(member.group_rank + first - number) % member.members for number in range(rounds)]
    return _in_rounds(((to, sizes[number], source, sizes[number - 1]) for number in block), member.chunk)


def _dissemination(member: CollectiveMember) -> list[Step]:
    """Sends a byte to group rank + 2^k in round k; after ⌈log2 n⌉ rounds all know that all have arrived."""
    distances = [1 << bit for bit in range((member.members - 1).bit_length())]
    return _in_rounds(((_neighbour(member, far), 1, _neighbour(member, -far), 1) for far in distances), member.chunk)


def _along_ring(member: CollectiveMember, direction: int, before: int, size: int) -> list[Step]:
    """Passes pieces along the ring, each as soon as it has arrived; `before` members pass them on before this one."""
    position = before % member.members
    source, to = _neighbour(member, -direction), _neighbour(member, direction)
    steps: list[Step] = []
    received: tuple[int, ...] = ()
    for piece in pieces(size, member.chunk):
        if position > 0:
            steps.append(Step(False, source, piece, received))
            received = (len(steps) - 1,)
        if position < member.members - 1:
            steps.append(Step(True, to, piece, received))
    return steps


def _with_root(member: CollectiveMember, sizes: Sizes, *, to_root: bool) -> list[Step]:
    """Sends the data of every member to the root, or from it."""
    if member.group_rank != member.root:
        return _one_way(to_root, {member.root: sizes[member.group_rank]}, member.chunk)
    return _one_way(not to_root, {rank: size for rank, size in enumerate(sizes) if rank != member.root}, member.chunk)


def _one_way(sends: bool, size_of: dict[int, int], chunk: int) -> list[Step]:
    """Sends to each of these peers, or receives from each, so many bytes."""
    exchanges = ((peer, size * sends, peer, size * (not sends)) for peer, size in size_of.items())
    return _in_rounds(exchanges, chunk)


def _pairwise(member: CollectiveMember) -> list[Step]:
    """Exchanges messages, the k-th with group rank + k and group rank − k; none of them waits for another's arrival."""
    own, shares = member.group_rank, member.shares
    peers = [(_neighbour(member, far), _neighbour(member, -far)) for far in range(1, member.members)]
    exchanges = ((to, shares[own][to], source, shares[source][own]) for to, source in peers)
    return _in_rounds(exchanges, member.chunk, waits=False)


def _message(member: CollectiveMember) -> list[Step]:
    """Sends from member 0 to member 1."""
    return _one_way(member.group_rank == 0, {1 - member.group_rank: member.sizes[0]}, member.chunk)


def _awaited_message(member: CollectiveMember) -> list[Step]:
    """Sends from member 0 to member 1 when that one has sent a byte, which says that it is ready."""
    ready = Step(member.group_rank == 1, 1 - member.group_rank, 1, says_ready=True)
    after = (0,) if member.group_rank == 0 else ()
    return [ready, *(step._replace(after=tuple(at + 1 for at in step.after) or after) for step in _message(member))]


def _neighbour(member: CollectiveMember, distance: int) -> int:
    return (member.group_rank + distance) % member.members


def _rounds_of_blocks(member: CollectiveMember, rounds: int) -> Cost:
    return Cost(rounds, rounds * max(member.sizes) / member.members)


def _along_ring_cost(member: CollectiveMember) -> Cost:
    """Returns the cost of a chain: the last member gets its first piece when all others have passed it on."""
    size = max(member.sizes)
    return Cost(member.members - 1, size + (member.members - 2) * min(size, member.chunk))


class Facts(NamedTuple):
    """What an algorithm has a member do, and what the whole costs the busiest one; barriers have no cost."""

    steps: Callable[[CollectiveMember], list[Step]]
    cost: Callable[[CollectiveMember], Cost | None]


ALGORITHMS = {
    # n − 1 rounds add blocks up, n − 1 rounds distribute the sums
    Algorithm.ALL_REDUCE_RING: Facts(
        lambda member: _ring(member, 2 * (member.members - 1), 0, blocks(max(member.sizes), member.members)),
        lambda member: _rounds_of_blocks(member, 2 * (member.members - 1))),
    Algorithm.ALL_GATHER_RING: Facts(
        lambda member: _ring(member, member.members - 1, 0, member.sizes),
        lambda member: Cost(member.members - 1, sum(member.sizes) - min(member.sizes))),
    # each member receives its own block last
    Algorithm.REDUCE_SCATTER_RING: Facts(
        lambda member: _ring(member, member.members - 1, -1, blocks(max(member.sizes), member.members)),
        lambda member: _rounds_of_blocks(member, member.members - 1)),
    # from the root to the member before it
    Algorithm.BROADCAST: Facts(
        lambda member: _along_ring(member, 1, member.group_rank - member.root, member.sizes[member.root]),
        _along_ring_cost),
    # a broadcast backwards, which adds up
    Algorithm.REDUCE: Facts(
        lambda member: _along_ring(member, -1, member.root - 1 - member.group_rank, max(member.sizes)),
        _along_ring_cost),
    Algorithm.GATHER: Facts(
        lambda member: _with_root(member, member.sizes, to_root=True),
        lambda member: Cost(1, max(size for rank, size in enumerate(member.sizes) if rank != member.root))),
    Algorithm.SCATTER: Facts(
        lambda member: _with_root(member, blocks(member.sizes[member.root], member.members), to_root=False),
        lambda member: Cost(1, member.sizes[member.root] * (member.members - 1) / member.members)),
    Algorithm.ALL_TO_ALL: Facts(
        _pairwise, lambda member: Cost(1, max(sum(row) - row[rank] for rank, row in enumerate(member.shares)))),
    Algorithm.BARRIER: Facts(_dissemination, lambda _: None),
    Algorithm.MESSAGE: Facts(_message, lambda member: Cost(1, member.sizes[0])),
    Algorithm.AWAITED_MESSAGE: Facts(_awaited_message, lambda member: Cost(2, member.sizes[0])),
}  # fmt: skip


@lru_cache(maxsize=256)
def steps_of(algorithm: Algorithm, member: CollectiveMember) -> tuple[list[Step], list[int]]:
    """Returns a member's steps, and the numbers of those that no other waits for: after these it is done."""
    steps = ALGORITHMS[algorithm].steps(member)
    awaited = {number for step in steps for number in step.after}
    return steps, [number for number in range(len(steps)) if number not in awaited]


def messages_sent(collectives: Iterable["Collective"], ranks: int) -> Int64:
    """Returns how many messages each rank would send, by how often each is to be cut: none of them is made."""
    sent = np.zeros(ranks, np.int64)

    @cache
    def of_members(algorithm: Algorithm, first: CollectiveMember) -> list[int]:
        members = (first._replace(group_rank=rank, chunk=1 << 62) for rank in range(first.members))
        steps = (steps_of(algorithm, member)[0] for member in members)
        return [sum(-(-step.size // first.chunk) for step in of_member if step.sends) for of_member in steps]

    for collective in collectives:
        sent[[*collective.members]] += of_members(collective.algorithm, collective.first)
    return sent


def member_cost(algorithm: Algorithm, member: CollectiveMember) -> Cost | None:
    """Returns what a member's own part of an all-to-all costs, else what the busiest one's does; None for a barrier."""
    if algorithm != Algorithm.ALL_TO_ALL:
        return ALGORITHMS[algorithm].cost(member)
    rank, shares = member.group_rank, member.shares
    return Cost(1, max(sum(shares[rank]), sum(row[rank] for row in shares)) - shares[rank][rank])


class Collective(NamedTuple):
    """A collective, or a message as one of two members, which are positions of ranks in the job. The last one arrives
    at `start_ns` on the job's clock; from then on member i takes `duration_ns[i]`, as measured, which is `excess_ns[i]`
    more than the fitted network gives it.
    """

    algorithm: Algorithm
    members: tuple[int, ...]
    first: CollectiveMember
    start_ns: int
    duration_ns: tuple[int, ...]
    link: int = 0
    excess_ns: tuple[int, ...] = ()

    @property
    def taken_ns(self) -> int:
        """How long its slowest member took."""
        return max(self.duration_ns)

    @property
    def cost(self) -> Cost | None:
        """What it costs the busiest member, None for a barrier."""
        return ALGORITHMS[self.algorithm].cost(self.first)


class MessageNetwork(msgspec.Struct, frozen=True):
    """The latency of a message and the time of a byte; the error in % is of sizes that the fit was made without."""

    latency_ns: int
    ns_per_byte: float
    transfers: int
    fit_error_pct: float | None

    def time_ns(self, cost: Cost) -> float:
        """Returns how long so many latencies and bytes take, one after the other."""
        return self.latency_ns * cost.steps + self.ns_per_byte * cost.bytes


def fitted_messages(collectives: Iterable[Collective]) -> MessageNetwork | None:
    """Returns the network with the least squares of relative errors; None if nothing was measured. O(n)."""
    costs = ((collective.cost, collective.taken_ns) for collective in collectives)
    measured = [(*cost, ns) for cost, ns in costs if cost and ns > 0]
    if not measured:
        return None
    rows = np.array(measured, np.float64)
    relative = rows[:, :2] / rows[:, 2:]
    latency, byte = fitted_factors(relative)
    size = group_ids(*np.round(rows[:, :2]).astype(np.int64).T)
    return MessageNetwork(round(latency), round(byte, 6), len(measured), held_out_pct(relative, size))


def links_of(collectives: Sequence[Collective], network: MessageNetwork | None) -> tuple[list[int], list[int]]:
    """Returns each collective's link and how many ns it waited for others there, by what describes the times better."""
    links, waits = [0] * len(collectives), [0] * len(collectives)
    if network is None:
        return links, waits
    given_ns = {
        number: network.time_ns(cost)
        for number, collective in enumerate(collectives)
        if not collective.algorithm.is_message and collective.taken_ns > 0 and (cost := collective.cost)
    }
    waited_ns = _waits_on_one_link(collectives, given_ns)
    beside = {number: collectives[number].taken_ns for number in given_ns if waited_ns[number] > 0}
    alone_error = sum(abs(taken - given_ns[number]) / taken for number, taken in beside.items())
    shared_error = sum(abs(taken - waited_ns[number] - given_ns[number]) / taken for number, taken in beside.items())
    if alone_error >= shared_error:
        for number in beside:
            waits[number] = round(waited_ns[number])
        return links, waits
    # those of a rank at the same time get links of different numbers, the smallest first
    free_ns = defaultdict[tuple[int, int], int](int)
    for number in sorted(given_ns, key=lambda number: collectives[number].start_ns):
        collective, link = collectives[number], 0
        while link < LAST_LINK and any(free_ns[rank, link] > collective.start_ns for rank in collective.members):
            link += 1
        links[number] = link
        free_ns |= dict.fromkeys(
            ((rank, link) for rank in collective.members), collective.start_ns + collective.taken_ns
        )
    return links, waits


def _waits_on_one_link(collectives: Sequence[Collective], chosen: Collection[int]) -> defaultdict[int, float]:
    """Returns for how many ns each chosen collective waited if those of a rank at once had equal parts of one link."""
    events = defaultdict[int, list[tuple[int, bool, int]]](list)
    for number in chosen:
        start_ns, taken_ns = collectives[number].start_ns, collectives[number].taken_ns
        for rank in collectives[number].members:
            events[rank] += [(start_ns, True, number), (start_ns + taken_ns, False, number)]
    waited_ns = defaultdict[int, float](float)
    for of_rank in events.values():
        running, since_ns, on_rank = set[int](), 0, defaultdict[int, float](float)
        for time_ns, begins, number in sorted(of_rank):
            for other in running:
                on_rank[other] += (time_ns - since_ns) * (1 - 1 / len(running))
            since_ns = time_ns
            (running.add if begins else running.discard)(number)
        for number, ns in on_rank.items():
            waited_ns[number] = max(waited_ns[number], ns)
    return waited_ns


def excess_times(
    collectives: Sequence[Collective], waited_ns: Sequence[int], network: MessageNetwork
) -> list[tuple[int, ...]]:
    """Returns by how many ns each member took longer than the network and the wait for its link give it."""
    excess, places = [[0] * len(collective.members) for collective in collectives], list[tuple[int, int]]()
    surplus = list[tuple[Hashable, float]]()
    for number, (collective, shared_ns) in enumerate(zip(collectives, waited_ns, strict=True)):
        for member, taken_ns in enumerate(collective.duration_ns):
            cost = member_cost(collective.algorithm, collective.first._replace(group_rank=member))
            if cost and not collective.algorithm.is_message:
                places.append((number, member))
                surplus.append(((collective.members, member), taken_ns - shared_ns - network.time_ns(cost)))
    for (number, member), excess_ns in zip(places, carried_excess(surplus), strict=True):
        excess[number][member] = excess_ns
    return [*map(tuple, excess)]
