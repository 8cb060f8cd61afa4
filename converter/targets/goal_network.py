"""A collective of a job: who takes part, by which algorithm, and how long it took.

Which collectives of a rank share a link, judged by how long those took that ran beside others.

Traces do not record links. If two collectives of a rank ran at the same time and each took as long as alone, they did
not share one; if they took as long as on a link that both share, they did. All such collectives of a job are judged
together.

How much longer collectives took than the fitted network gives their messages.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from .algorithms import COSTS, CollectiveMember, MessageNetwork, is_message, member_cost


class Collective(NamedTuple):
    """A collective, or a message as a collective of two members.

    `members` are positions of ranks in the job. `first` describes the first member; the others differ in their group
    rank. The last one arrives at `start_ns` on the job's clock; from then on member i takes `duration_ns[i]`, as
    measured.
    """

    algorithm: str
    members: tuple[int, ...]
    first: CollectiveMember
    start_ns: int
    duration_ns: tuple[int, ...]

    def member(self, rank: int) -> CollectiveMember:
        """Returns the member that is the rank at this position of the job."""
        return self.first._replace(group_rank=self.members.index(rank))


LAST_LINK = 99
"""A nic is eight bits in GOAL, and each link has two."""


class Links(NamedTuple):
    """The number of the link of each collective, and for how many ns it waited for others on that link."""

    number: list[int]
    waited_ns: list[int]


class _Transfer(NamedTuple):
    """The number of a collective, when it went over the network, and how long the network takes for it alone."""

    number: int
    members: tuple[int, ...]
    start_ns: int
    taken_ns: int
    given_ns: float

    @property
    def end_ns(self) -> int:
        """Returns when it ended."""
        return self.start_ns + self.taken_ns


def links_of(collectives: Sequence[Collective], network: MessageNetwork | None) -> Links:
    """Returns one link for all collectives, or as many as a rank had collectives at the same time, by what describes
    the measured times better. Messages and barriers take the first link. O(n log n) in the members of all collectives,
    times how many of a rank run at once.
    """
    links = Links([0] * len(collectives), [0] * len(collectives))
    if network is None:
        return links
    transfers = [
        _Transfer(
            number,
            collective.members,
            collective.start_ns,
            max(collective.duration_ns),
            network.time_ns(COSTS[collective.algorithm](collective.first)),
        )
        for number, collective in enumerate(collectives)
        if collective.algorithm in COSTS and not is_message(collective.algorithm) and max(collective.duration_ns) > 0
    ]
    waited_ns = _waits_on_one_link(transfers)
    beside = [transfer for transfer in transfers if waited_ns[transfer.number] > 0]
    alone_error = sum(abs(transfer.taken_ns - transfer.given_ns) / transfer.taken_ns for transfer in beside)
    shared_error = sum(
        abs(transfer.taken_ns - waited_ns[transfer.number] - transfer.given_ns) / transfer.taken_ns
        for transfer in beside
    )
    if alone_error < shared_error:
        _separate(transfers, links.number)
    else:
        for transfer in beside:
            links.waited_ns[transfer.number] = round(waited_ns[transfer.number])
    return links


def _waits_on_one_link(transfers: Sequence[_Transfer]) -> defaultdict[int, float]:
    """Returns for how many ns each transfer waited, by its number, if those of a rank at the same time shared a link
    and had an equal part of it.
    """
    events = defaultdict[int, list[tuple[int, bool, int]]](list)
    for transfer in transfers:
        for rank in transfer.members:
            events[rank] += [(transfer.start_ns, True, transfer.number), (transfer.end_ns, False, transfer.number)]
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


def _separate(transfers: Sequence[_Transfer], links: list[int]) -> None:
    """Gives transfers of a rank at the same time links of different numbers, the smallest first."""
    free_ns = defaultdict[tuple[int, int], int](int)
    for transfer in sorted(transfers, key=lambda transfer: transfer.start_ns):
        link = 0
        while link < LAST_LINK and any(free_ns[rank, link] > transfer.start_ns for rank in transfer.members):
            link += 1
        links[transfer.number] = link
        for rank in transfer.members:
            free_ns[rank, link] = transfer.end_ns


def excess_times(
    collectives: Sequence[Collective], waited_ns: Sequence[int], network: MessageNetwork
) -> list[tuple[int, ...]]:
    """Returns by how many ns each member of each collective took longer than the network gives it, and than it waited
    for others on its link. O(n).

    What the network gives a member too much is taken off the next collectives of the same members, so that all of them
    together take the measured time. Messages between two ranks have no excess.
    """
    balance_ns = defaultdict[tuple[tuple[int, ...], int], float](float)
    excess = list[tuple[int, ...]]()
    for collective, shared_ns in zip(collectives, waited_ns, strict=True):
        of_members = [0] * len(collective.members)
        for member, taken_ns in enumerate(collective.duration_ns):
            cost = member_cost(collective.algorithm, collective.first._replace(group_rank=member))
            if cost is None or is_message(collective.algorithm):
                continue
            key = collective.members, member
            balance_ns[key] += taken_ns - shared_ns - network.time_ns(cost)
            if balance_ns[key] > 0:
                of_members[member] = round(balance_ns.pop(key))
        excess.append(tuple(of_members))
    return excess
