"""What collectives cost as messages, and the latency and bandwidth that their measured times fit.

A message takes a latency and the time of its bytes; a nic sends one message at a time. So a ring of n members takes
2(n - 1) latencies for an all-reduce, an all-to-all one, and the time of all bytes that the busiest member sends, as
ATLAHS' LogGOPSim takes it. That is not the network of ASTRA-sim, in which the messages of a member do not share a link.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from ...schema.columns import group_ids
from ..ranks import Cost, fitted_factors, held_out_pct
from .algorithms import CollectiveMember

MESSAGE, AWAITED = "message", "message when its receiver is ready"
ALL_TO_ALL = "all-to-all pairwise"


class MessageNetwork(msgspec.Struct, frozen=True):
    """The latency of a message and the time of a byte that fit so many collectives and messages.

    `fit_error_pct` is the median error in % of transfers of sizes that the fit was made without; None with too few
    sizes to leave any out.
    """

    latency_ns: int
    ns_per_byte: float
    transfers: int
    fit_error_pct: float | None

    def time_ns(self, cost: Cost) -> float:
        """Returns how long so many latencies and bytes take, one after the other."""
        return self.latency_ns * cost.steps + self.ns_per_byte * cost.bytes


class Timed(NamedTuple):
    """A collective by its algorithm and its first member, and how long it took from the last arrival to the end."""

    algorithm: str
    member: CollectiveMember
    ns: int


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


COSTS: dict[str, Callable[[CollectiveMember], Cost]] = {
    "all-reduce by ring": _of_ring(2),
    "all-reduce by recursive doubling": _doubling,
    "all-gather by ring": _all_gather,
    "all-gather by recursive doubling": lambda member: _all_gather(member)._replace(
        steps=member.members.bit_length() - 1
    ),
    "reduce-scatter by ring": _of_ring(1),
    "broadcast along the ring": _along_the_ring,
    "reduce along the ring": _along_the_ring,
    "gather, each to the root": _to_the_root,
    "scatter, from the root to each": _scatter,
    ALL_TO_ALL: _all_to_all,
    MESSAGE: lambda member: Cost(1, member.sizes[0]),
    AWAITED: lambda member: Cost(2, member.sizes[0]),
}
"""Latencies and bytes one after the other, by algorithm; barriers tell nothing."""


def member_cost(algorithm: str, member: CollectiveMember) -> Cost | None:
    """Returns what a member's own part of a collective costs, None for a barrier.

    In an all-to-all that is what the member itself exchanges, for any other collective what the busiest member does.
    """
    if algorithm == ALL_TO_ALL:
        return _own_all_to_all(member)
    return COSTS[algorithm](member) if algorithm in COSTS else None


def is_message(algorithm: str) -> bool:
    """Returns whether it is a message between two ranks, not a collective."""
    return algorithm in {MESSAGE, AWAITED}


def fitted_messages(timed: Iterable[Timed]) -> MessageNetwork | None:
    """Returns the network with the least squares of relative errors; None if nothing was measured. O(n)."""
    costs = [(*COSTS[algorithm](member), ns) for algorithm, member, ns in timed if algorithm in COSTS and ns > 0]
    if not costs:
        return None
    rows = np.array(costs, np.float64)
    relative = rows[:, :2] / rows[:, 2:]
    latency, byte = fitted_factors(relative)
    size = group_ids(*np.round(rows[:, :2]).astype(np.int64).T)
    return MessageNetwork(round(latency), round(byte, 6), len(costs), held_out_pct(relative, size))
