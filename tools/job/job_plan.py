"""The plan that the ranks' graphs keep so that a simulator can run them together.

Groups get their numbers when those of all ranks are known. For a simulator with one communication at a time, sizes and
the order of communication are made the same on all members too, and what lacks a partner becomes computation. What
collectives and messages took from the last arrival on gives the network, and the time that no network gives them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...converter.ranks import (
    AWAITED_MESSAGE,
    MESSAGE,
    Calls,
    CommunicationEntry,
    CommunicationSummary,
    Network,
    SimulatedOrder,
    Transfer,
    common_order,
    common_positions,
    common_sizes,
    communication_summary,
    fitted_network,
    match_entries,
    network_time_ns,
    on_job_clock,
    recorded_groups,
    simulated_orders,
    start_offsets,
    unmatched,
    with_deferred_ends,
)
from ...converter.targets import LEAST_BYTES, simulated_as
from ...schema.arguments import ASTRA_SIM, Target
from ...schema.comm_groups import RankList, number_groups
from ...schema.graph import ExecutionGraph

Issued = Sequence[Sequence[CommunicationEntry]]
"""The communication entries of every rank on the job's clock, with the numbers of their matches."""


class Match(NamedTuple):
    """A collective or message in which all members took part: how long it took, and the entry of each."""

    transfer: Transfer
    members: tuple[CommunicationEntry, ...]

    @property
    def on_hosts(self) -> bool:
        """Whether host threads do it, on all members."""
        return all(entry.on_host for entry in self.members)

    def taken_ns(self, member: CommunicationEntry) -> int:
        """Returns how long a member took from the last arrival on.

        The last one to come took the shortest, and all end together; but host threads end each by itself.
        """
        if not self.on_hosts:
            return self.transfer.ns
        arrivals = (entry.start_ns for entry in self.members)
        return member.end_ns - max(start for start in arrivals if start <= member.end_ns)


class ExcessTime(NamedTuple):
    """By how many ns a rank's collectives took longer than a network gives them, by node id, and how long all took;
    the bytes of those that ran beside others for which the network would take longer than they took alone; and the
    nodes of those for which the latency alone would take longer.
    """

    of_node: dict[int, int]
    collectives_ns: int
    sizes: dict[int, int]
    hidden: tuple[int, ...] = ()


def complete_matches(issued: Issued, awaited: Set[int]) -> dict[int, Match]:
    """Returns what all members took part in, by its number; the sends with numbers in `awaited` wait for receivers."""
    members_of = defaultdict[int, list[tuple[int, CommunicationEntry]]](list)
    for rank, entries in enumerate(issued):
        for entry in entries:
            members_of[entry.matched].append((rank, entry))
    complete = dict[int, Match]()
    for matched, pairs in members_of.items():
        ranks, members = zip(*pairs, strict=True)
        kind, count = members[0].collective, members[0].members or len(issued)
        if len(members) == count:
            size, length = max(entry.size for entry in members), min(entry.transfer_ns for entry in members)
            if kind < 0:
                kind = AWAITED_MESSAGE if matched in awaited else MESSAGE
            complete[matched] = Match(Transfer(kind, count, size, length, ranks), members)
    return complete


def excess_times(
    issued: Issued, positions: Sequence[Sequence[int]], matches: dict[int, Match], network: Network
) -> list[ExcessTime]:
    """Returns for each rank what its collectives took beyond what the network gives them. O(n log n) in all entries.

    `positions` are those of the entries in the order that all ranks share.
    """
    collectives = {number: match for number, match in matches.items() if match.transfer.kind >= 0}
    alone_ns = [_alone_ns(entries, of_rank, collectives) for entries, of_rank in zip(issued, positions, strict=True)]
    least_ns = dict[int, int]()
    for number, duration_ns in (item for of_rank in alone_ns for item in of_rank.items()):
        least_ns[number] = min(least_ns.get(number, duration_ns), duration_ns)
    sizes = {
        number: _size_for(network, collectives[number].transfer, ns)
        for number, ns in least_ns.items()
        if not collectives[number].on_hosts and ns < collectives[number].transfer.ns
    }
    # the simulator numbers the collectives of a rank, so what one rank leaves out all have to
    hidden = {
        number
        for number in sizes
        if len(collectives[number].members) == len(issued)
        and (network_time_ns(network, _simulated(collectives[number].transfer, 0)) or 0.0) > least_ns[number]
    }
    smaller = {
        number: size
        for number, size in sizes.items()
        if number not in hidden and size < collectives[number].transfer.size
    }
    return [
        _excess_time(
            [entry for entry in entries if entry.matched in collectives and entry.matched not in hidden],
            collectives,
            {number: ns if collectives[number].on_hosts else least_ns[number] for number, ns in of_rank.items()},
            smaller,
            network,
        )._replace(hidden=tuple(entry.node for entry in entries if entry.matched in hidden))
        for entries, of_rank in zip(issued, alone_ns, strict=True)
    ]


def _alone_ns(
    entries: Sequence[CommunicationEntry], positions: Sequence[int], collectives: dict[int, Match]
) -> dict[int, int]:
    """Returns how long a rank's collectives took, by number, after those before them in the common order had ended: the
    simulator runs one at a time.
    """
    in_order = sorted(zip(positions, entries, strict=True), key=itemgetter(0))
    ordered = [entry for _, entry in in_order if entry.matched in collectives]
    end = np.array([entry.end_ns for entry in ordered], np.int64)
    start = end - np.array([collectives[entry.matched].taken_ns(entry) for entry in ordered], np.int64)
    ended = np.maximum.accumulate(np.append(start[:1], end[:-1]))
    durations_ns = np.maximum(end - np.maximum(start, ended), 0).tolist()
    return {entry.matched: ns for entry, ns in zip(ordered, durations_ns, strict=True)}


def _size_for(network: Network, transfer: Transfer, taken_ns: int) -> int:
    """Returns the bytes for which the network takes so long, but not more than the transfer has."""
    given_ns, latency_ns = (network_time_ns(network, _simulated(transfer, size)) for size in (transfer.size, 0))
    if given_ns is None or latency_ns is None or given_ns <= taken_ns:
        return transfer.size
    share = max(taken_ns - latency_ns, 0) / (given_ns - latency_ns) if given_ns > latency_ns else 1.0
    return max(round(transfer.size * share), min(LEAST_BYTES, transfer.size))


def _simulated(transfer: Transfer, size: int) -> Transfer:
    """Returns the transfer of so many bytes as the type that the simulator runs."""
    return transfer._replace(kind=simulated_as(transfer.kind), size=size)


def _excess_time(
    played: list[CommunicationEntry],
    collectives: dict[int, Match],
    taken_ns: dict[int, int],
    sizes: dict[int, int],
    network: Network,
) -> ExcessTime:
    """Returns the excess of a rank's collectives, which took so long by number.

    What the network gives a collective too much is taken off the excess of the group's next ones, so that all of them
    together take the measured time.
    """
    balance_ns, excess, total = defaultdict[tuple[int, ...], int](int), dict[int, int](), 0
    for entry in played:
        transfer = collectives[entry.matched].transfer
        size = sizes.get(entry.matched, transfer.size)
        given_ns = network_time_ns(network, _simulated(transfer, size))
        if given_ns is None:
            continue
        total += taken_ns[entry.matched]
        balance_ns[transfer.ranks] += taken_ns[entry.matched] - round(given_ns)
        if balance_ns[transfer.ranks] > 0:
            excess[entry.node] = balance_ns.pop(transfer.ranks)
    return ExcessTime(excess, total, {entry.node: sizes[entry.matched] for entry in played if entry.matched in sizes})


class RankCommunication(NamedTuple):
    """What the second step needs of a rank's graph: rank lists of its groups, for simulators its communication."""

    groups: list[RankList]
    summary: CommunicationSummary


class RankPlan(NamedTuple):
    """What one rank's graph has to keep: ids of communication without partners, sizes by id, ids in the common order,
    for replay mode and for modelled communication; how much later than the first rank it began, in ns; and what
    collectives took beyond the fitted network.
    """

    numbers: dict[RankList, int]
    unpartnered: list[int]
    sizes: dict[int, int]
    order: list[int]
    simulated_order: SimulatedOrder
    start_offset_ns: int
    excess: ExcessTime


def look_up(graph: ExecutionGraph, target: Target) -> RankCommunication:
    """Returns what other ranks need to know of a graph; for simulators the graph is already one of the job's ranks."""
    summary = communication_summary(graph) if target == ASTRA_SIM else CommunicationSummary(Calls.of([]), [])
    return RankCommunication(recorded_groups(graph).lists, summary)


class JobPlan(NamedTuple):
    """What each rank has to keep, the numbers of all groups, and the network that what was measured fits."""

    ranks: dict[int, RankPlan]
    numbers: dict[RankList, int]
    network: Network


def plan_job(communication_of: Mapping[int, RankCommunication]) -> JobPlan:
    """Returns what the ranks' communication needs. Raises DataError where it contradicts itself."""
    numbers = number_groups(group for rank in communication_of.values() for group in rank.groups)
    present = sorted(communication_of)
    issued = match_entries([communication_of[rank].summary for rank in present])
    unmatched_nodes, offsets = unmatched(issued), start_offsets(issued).tolist()
    timed = on_job_clock(issued, offsets)
    remaining = [_remove_nodes(entries, set(nodes)) for entries, nodes in zip(timed, unmatched_nodes, strict=True)]
    positions = common_positions(with_deferred_ends(remaining))
    orders = simulated_orders(remaining, positions)
    matches = complete_matches(remaining, frozenset[int]().union(*(order.awaited for order in orders)))
    network = fitted_network([match.transfer for match in matches.values()], len(present))
    columns = zip(
        unmatched_nodes,
        common_sizes(remaining),
        common_order(remaining),
        orders,
        offsets,
        excess_times(remaining, positions, matches if network.transfers else {}, network),
        strict=True,
    )
    plans = {rank: RankPlan(numbers, *kept) for rank, kept in zip(present, columns, strict=True)}
    return JobPlan(plans, numbers, network)


def _remove_nodes(issued: Sequence[CommunicationEntry], nodes: set[int]) -> list[CommunicationEntry]:
    """Returns a rank's entries without those of some nodes; successors of a removed one follow its predecessor."""
    kept, new_row, followed_by = list[CommunicationEntry](), dict[int, int](), dict[int, set[int]]()
    for number, entry in enumerate(issued):
        follows = set[int]()
        for before in entry.follows:
            follows |= {new_row[before]} if before in new_row else followed_by[before]
        if entry.node in nodes:
            followed_by[number] = follows
        else:
            new_row[number] = len(kept)
            kept.append(entry._replace(follows=tuple(sorted(follows))))
    return kept
