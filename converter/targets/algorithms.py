"""Collectives as messages: the sends and receives of each member under an algorithm, what each has to follow, and what
that costs.

Members are numbered by their group ranks, 0 to n − 1. Both ends list the messages between two members in one order. A
message waits only for messages of earlier rounds, and both its ends belong to the same round, so there is no deadlock,
whether or not sends wait for their receives. The computation of a reduction takes no time of its own.

A message takes a latency and the time of its bytes; a nic sends one message at a time. So a ring of n members takes
2(n - 1) latencies for an all-reduce, an all-to-all one, and the time of all bytes that the busiest member sends, as
ATLAHS' LogGOPSim takes it. That is not the network of ASTRA-sim, in which the messages of a member do not share a link.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from ..ranks import Cost

Sizes = tuple[int, ...]


class Algorithm(StrEnum):
    """How a collective or message is done, in the words of the report."""

    ALL_REDUCE_RING = "all-reduce by ring"
    ALL_REDUCE_DOUBLING = "all-reduce by recursive doubling"
    ALL_GATHER_RING = "all-gather by ring"
    ALL_GATHER_DOUBLING = "all-gather by recursive doubling"
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
    """A message of `size` bytes that a member sends to, or receives from, its `peer` after the member's
    steps `after`. With `says_ready` it is only a sign that the receiver of another message is ready.
    """

    sends: bool
    peer: int
    size: int
    after: tuple[int, ...] = ()
    says_ready: bool = False


class CollectiveMember(NamedTuple):
    """A member of a collective of so many `members`.

    `sizes` are the bytes that each member puts in, `shares` those that each sends to each in an all-to-all, `root` is a
    group rank, and `chunk` the largest message in bytes.
    """

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


def all_reduce_ring(member: CollectiveMember) -> list[Step]:
    """Sends blocks round the ring: n − 1 rounds add them up, n − 1 rounds distribute the sums."""
    return _ring(member, 2 * (member.members - 1), 0, blocks(max(member.sizes), member.members))


def reduce_scatter_ring(member: CollectiveMember) -> list[Step]:
    """Sends blocks round the ring in n − 1 rounds that add them up; each member receives its own block last."""
    return _ring(member, member.members - 1, -1, blocks(max(member.sizes), member.members))


def all_gather_ring(member: CollectiveMember) -> list[Step]:
    """Sends the data of each member round the ring in n − 1 rounds."""
    return _ring(member, member.members - 1, 0, member.sizes)


def broadcast_ring(member: CollectiveMember) -> list[Step]:
    """Sends pieces along the ring from the root to the member before it; each is forwarded as soon as it
    has arrived.
    """
    distance = (member.group_rank - member.root) % member.members
    source = _neighbour(member, -1) if distance else None
    return _forwarded(
        member, source, _neighbour(member, 1) if distance < member.members - 1 else None, member.sizes[member.root]
    )


def reduce_ring(member: CollectiveMember) -> list[Step]:
    """Adds up pieces along the ring to the root: a broadcast backwards."""
    distance = (member.group_rank - member.root) % member.members
    source = _neighbour(member, 1) if distance < member.members - 1 else None
    return _forwarded(member, source, _neighbour(member, -1) if distance else None, max(member.sizes))


def gather_direct(member: CollectiveMember) -> list[Step]:
    """Sends the data of every member to the root."""
    if member.group_rank != member.root:
        return _message_steps([(True, member.root, member.sizes[member.group_rank])], member.chunk)
    return _message_steps([(False, peer, member.sizes[peer]) for peer in _peers(member)], member.chunk)


def scatter_direct(member: CollectiveMember) -> list[Step]:
    """Sends every member its block of the root's data."""
    block = blocks(member.sizes[member.root], member.members)
    if member.group_rank != member.root:
        return _message_steps([(False, member.root, block[member.group_rank])], member.chunk)
    return _message_steps([(True, peer, block[peer]) for peer in _peers(member)], member.chunk)


def all_to_all_pairwise(member: CollectiveMember) -> list[Step]:
    """Exchanges messages, the k-th with group rank + k and group rank − k; none of them waits for another's arrival."""
    messages = []
    for distance in range(1, member.members):
        to, source = _neighbour(member, distance), _neighbour(member, -distance)
        messages.append((True, to, member.shares[member.group_rank][to]))
        messages.append((False, source, member.shares[source][member.group_rank]))
    return _message_steps(messages, member.chunk)


def barrier_dissemination(member: CollectiveMember) -> list[Step]:
    """Sends a byte to group rank + 2^k in round k; after ⌈log2 n⌉ rounds all know that all have arrived."""
    steps: list[Step] = []
    after: tuple[int, ...] = ()
    distance = 1
    while distance < member.members:
        steps.append(Step(True, _neighbour(member, distance), 1, after))
        steps.append(Step(False, _neighbour(member, -distance), 1, after))
        after = (len(steps) - 1,)
        distance *= 2
    return steps


def all_reduce_doubling(member: CollectiveMember) -> list[Step]:
    """Swaps all data, in round k, between the members of 2^m whose group ranks differ in bit k."""
    steps: list[Step] = []
    available: list[int] = []
    whole = pieces(max(member.sizes), member.chunk)
    for bit in _bits(member.members):
        peer = member.group_rank ^ bit
        available = _add_round(steps, _Round(peer, whole, peer, whole), available)
    return steps


def all_gather_doubling(member: CollectiveMember) -> list[Step]:
    """Swaps as `all_reduce_doubling` does; the data doubles in each round."""
    steps: list[Step] = []
    last: list[int] = []
    for bit in _bits(member.members):
        peer = member.group_rank ^ bit
        sent, received = (
            pieces(sum(member.sizes[rank & -bit : (rank & -bit) + bit]), member.chunk)
            for rank in (member.group_rank, peer)
        )
        last = _add_round(steps, _Round(peer, sent, peer, received), last[-1:] * len(sent))
        last = last or [number for number, step in enumerate(steps) if not step.sends]
    return steps


def message(member: CollectiveMember) -> list[Step]:
    """Sends from member 0 to member 1."""
    return _message_steps([(member.group_rank == 0, 1 - member.group_rank, member.sizes[0])], member.chunk)


def awaited_message(member: CollectiveMember) -> list[Step]:
    """Sends from member 0 to member 1 when that one has sent a byte, which says that it is ready."""
    ready = Step(member.group_rank == 1, 1 - member.group_rank, 1, says_ready=True)
    after = (0,) if member.group_rank == 0 else ()
    return [ready, *(step._replace(after=tuple(at + 1 for at in step.after) or after) for step in message(member))]


def _ring(member: CollectiveMember, rounds: int, first: int, sizes: Sizes) -> list[Step]:
    """Returns rounds in which each member sends a block to the next member and receives the block before it.

    In round k the member sends block group rank + `first` − k.
    """
    cut = [pieces(size, member.chunk) for size in sizes]
    steps: list[Step] = []
    available: list[int] = []
    for number in range(rounds):
        block = (member.group_rank + first - number) % member.members
        exchange = _Round(_neighbour(member, 1), cut[block], _neighbour(member, -1), cut[block - 1])
        available = _add_round(steps, exchange, available)
    return steps


class _Round(NamedTuple):
    """A round of a member: the pieces that it sends to one peer and receives from another."""

    to: int
    sent: Sizes
    source: int
    received: Sizes


def _add_round(steps: list[Step], exchange: _Round, available: Sequence[int]) -> list[int]:
    """Adds the steps of a round and returns the numbers of its receives.

    All pieces are sent after the last receive in `available`: measured rings take a latency for each round, which would
    be hidden if pieces were passed on one by one. Pieces are received one after the other.
    """
    before = tuple(available[-1:])
    for size in exchange.sent:
        steps.append(Step(True, exchange.to, size, before))
    received: list[int] = []
    for size in exchange.received:
        received.append(len(steps))
        steps.append(Step(False, exchange.source, size, before))
        before = (received[-1],)
    return received


def _forwarded(member: CollectiveMember, source: int | None, to: int | None, size: int) -> list[Step]:
    steps: list[Step] = []
    received: tuple[int, ...] = ()
    for piece in pieces(size, member.chunk):
        if source is not None:
            steps.append(Step(False, source, piece, received))
            received = (len(steps) - 1,)
        if to is not None:
            steps.append(Step(True, to, piece, received))
    return steps


def _message_steps(messages: Sequence[tuple[bool, int, int]], chunk: int) -> list[Step]:
    """Returns the pieces of each message, (sends, peer, bytes), received one after the other; different messages at
    once.
    """
    steps: list[Step] = []
    for sends, peer, size in messages:
        after: tuple[int, ...] = ()
        for piece in pieces(size, chunk):
            steps.append(Step(sends, peer, piece, after))
            after = () if sends else (len(steps) - 1,)
    return steps


def _neighbour(member: CollectiveMember, distance: int) -> int:
    return (member.group_rank + distance) % member.members


def _peers(member: CollectiveMember) -> list[int]:
    return [peer for peer in range(member.members) if peer != member.group_rank]


def _bits(count: int) -> list[int]:
    return [1 << bit for bit in range(count.bit_length() - 1)]


def _of_ring(rounds: int) -> Callable[[CollectiveMember], Cost]:
    """Returns the cost of going round the ring so many times with a block each."""
    return lambda member: Cost(
        rounds * (member.members - 1), rounds * (member.members - 1) * max(member.sizes) / member.members
    )


def _all_gather(member: CollectiveMember) -> Cost:
    return Cost(member.members - 1, sum(member.sizes) - min(member.sizes))


def _along_the_ring(member: CollectiveMember) -> Cost:
    """Returns the cost of a chain: the last member gets its first piece when all others have passed it on."""
    size = max(member.sizes)
    return Cost(member.members - 1, size + (member.members - 2) * min(size, member.chunk))


def _to_the_root(member: CollectiveMember) -> Cost:
    return Cost(1, max(size for rank, size in enumerate(member.sizes) if rank != member.root))


def _scatter(member: CollectiveMember) -> Cost:
    return Cost(1, member.sizes[member.root] * (member.members - 1) / member.members)


def _all_to_all(member: CollectiveMember) -> Cost:
    return Cost(1, max(sum(row) - row[rank] for rank, row in enumerate(member.shares)))


def _own_all_to_all(member: CollectiveMember) -> Cost:
    sent = sum(member.shares[member.group_rank])
    received = sum(row[member.group_rank] for row in member.shares)
    return Cost(1, max(sent, received) - member.shares[member.group_rank][member.group_rank])


def _doubling(member: CollectiveMember) -> Cost:
    rounds = member.members.bit_length() - 1
    return Cost(rounds, rounds * max(member.sizes))


class Facts(NamedTuple):
    """What an algorithm has a member do, and what the whole costs: latencies and bytes one after the other. Barriers,
    without a cost, tell nothing of a network.
    """

    steps: Callable[[CollectiveMember], list[Step]]
    cost: Callable[[CollectiveMember], Cost] | None


ALGORITHMS = {
    Algorithm.ALL_REDUCE_RING: Facts(all_reduce_ring, _of_ring(2)),
    Algorithm.ALL_REDUCE_DOUBLING: Facts(all_reduce_doubling, _doubling),
    Algorithm.ALL_GATHER_RING: Facts(all_gather_ring, _all_gather),
    Algorithm.ALL_GATHER_DOUBLING: Facts(
        all_gather_doubling, lambda member: _all_gather(member)._replace(steps=member.members.bit_length() - 1)
    ),
    Algorithm.REDUCE_SCATTER_RING: Facts(reduce_scatter_ring, _of_ring(1)),
    Algorithm.BROADCAST: Facts(broadcast_ring, _along_the_ring),
    Algorithm.REDUCE: Facts(reduce_ring, _along_the_ring),
    Algorithm.GATHER: Facts(gather_direct, _to_the_root),
    Algorithm.SCATTER: Facts(scatter_direct, _scatter),
    Algorithm.ALL_TO_ALL: Facts(all_to_all_pairwise, _all_to_all),
    Algorithm.BARRIER: Facts(barrier_dissemination, None),
    Algorithm.MESSAGE: Facts(message, lambda member: Cost(1, member.sizes[0])),
    Algorithm.AWAITED_MESSAGE: Facts(awaited_message, lambda member: Cost(2, member.sizes[0])),
}


@lru_cache(maxsize=256)
def steps_of(algorithm: Algorithm, member: CollectiveMember) -> tuple[list[Step], list[int]]:
    """Returns a member's steps, and the numbers of those for which no other step waits. When these are over, so is the
    collective for the member.
    """
    steps = ALGORITHMS[algorithm].steps(member)
    awaited = {number for step in steps for number in step.after}
    return steps, [number for number in range(len(steps)) if number not in awaited]


def cost_of(algorithm: Algorithm, member: CollectiveMember) -> Cost | None:
    """Returns what a collective costs the busiest member, None for a barrier."""
    cost = ALGORITHMS[algorithm].cost
    return cost(member) if cost else None


def member_cost(algorithm: Algorithm, member: CollectiveMember) -> Cost | None:
    """Returns what a member's own part of a collective costs, None for a barrier.

    In an all-to-all that is what the member itself exchanges, for any other collective what the busiest member does.
    """
    return _own_all_to_all(member) if algorithm == Algorithm.ALL_TO_ALL else cost_of(algorithm, member)
