"""How much longer collectives took than the fitted network gives their messages."""

from collections import defaultdict
from collections.abc import Sequence

from .collective import Collective
from .message_costs import MessageNetwork, is_message, member_cost


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
