"""The network that the measured times of a job's messages fit, which of its collectives share a link, and how much
longer than in this network they took.

Traces do not record links. If two collectives of a rank ran at the same time and each took as long as alone, they did
not share one; if they took as long as on a link that both share, they did. All such collectives of a job are judged
together.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ...schema.columns import group_ids
from ..ranks import Cost, carried_excess, fitted_factors, held_out_pct
from .algorithms import Algorithm, CollectiveMember, cost_of, member_cost

LAST_LINK = 99
"""A nic is eight bits in GOAL, and each link has two."""


class Collective(NamedTuple):
    """A collective, or a message as a collective of two members.

    `members` are positions of ranks in the job. `first` describes the first member; the others differ in their group
    rank. The last one arrives at `start_ns` on the job's clock; from then on member i takes `duration_ns[i]`, as
    measured, which is `excess_ns[i]` more than the fitted network gives it. `link` is the number of its link.
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


def fitted_messages(collectives: Iterable[Collective]) -> MessageNetwork | None:
    """Returns the network with the least squares of relative errors; None if nothing was measured. O(n)."""
    costs = ((cost_of(collective.algorithm, collective.first), collective.taken_ns) for collective in collectives)
    measured = [(*cost, ns) for cost, ns in costs if cost and ns > 0]
    if not measured:
        return None
    rows = np.array(measured, np.float64)
    relative = rows[:, :2] / rows[:, 2:]
    latency, byte = fitted_factors(relative)
    size = group_ids(*np.round(rows[:, :2]).astype(np.int64).T)
    return MessageNetwork(round(latency), round(byte, 6), len(measured), held_out_pct(relative, size))


class Links(NamedTuple):
    """The number of the link of each collective, and for how many ns it waited for others on that link."""

    number: list[int]
    waited_ns: list[int]


def links_of(collectives: Sequence[Collective], network: MessageNetwork | None) -> Links:
    """Returns one link for all collectives, or as many as a rank had collectives at the same time, by what describes
    the measured times better. Messages and barriers take the first link. O(n log n) in the members of all collectives,
    times how many of a rank run at once.
    """
    links = Links([0] * len(collectives), [0] * len(collectives))
    if network is None:
        return links
    given_ns = {
        number: network.time_ns(cost)
        for number, collective in enumerate(collectives)
        if not collective.algorithm.is_message
        and collective.taken_ns > 0
        and (cost := cost_of(collective.algorithm, collective.first))
    }
    waited_ns = _waits_on_one_link(collectives, given_ns)
    beside = {number: collectives[number].taken_ns for number in given_ns if waited_ns[number] > 0}
    alone_error = sum(abs(taken - given_ns[number]) / taken for number, taken in beside.items())
    shared_error = sum(abs(taken - waited_ns[number] - given_ns[number]) / taken for number, taken in beside.items())
    if alone_error >= shared_error:
        for number in beside:
            links.waited_ns[number] = round(waited_ns[number])
        return links
    # those of a rank at the same time get links of different numbers, the smallest first
    free_ns = defaultdict[tuple[int, int], int](int)
    for number in sorted(given_ns, key=lambda number: collectives[number].start_ns):
        collective, link = collectives[number], 0
        while link < LAST_LINK and any(free_ns[rank, link] > collective.start_ns for rank in collective.members):
            link += 1
        links.number[number] = link
        free_ns |= dict.fromkeys(
            ((rank, link) for rank in collective.members), collective.start_ns + collective.taken_ns
        )
    return links


def _waits_on_one_link(collectives: Sequence[Collective], chosen: Collection[int]) -> defaultdict[int, float]:
    """Returns for how many ns each chosen collective waited, by its number, if those of a rank at the same time shared
    a link and had an equal part of it.
    """
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
    """Returns by how many ns each member of each collective took longer than the network gives it, and than it waited
    for others on its link, see `carried_excess`. O(n). Messages between two ranks have no excess.
    """
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
