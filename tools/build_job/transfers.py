"""How long a job's collectives and messages took from the last arrival on, and what of that no network gives them."""

from collections import defaultdict
from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np

from ...converter.edit import uncovered
from ...converter.network import AWAITED_MESSAGE, MESSAGE, Network, Transfer, network_time_ns
from ...converter.ranks import CommunicationEntry
from ...converter.targets import simulated_as
from ...schema.columns import Intervals

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
    """By how many ns a rank's collectives took longer than a network gives them, by node id, and how long all took."""

    of_node: dict[int, int]
    collectives_ns: int


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


def excess_times(issued: Issued, matches: dict[int, Match], network: Network) -> list[ExcessTime]:
    """Returns for each rank what its collectives took beyond what the network gives them. O(n log n) in all entries."""
    collectives = {number: match for number, match in matches.items() if match.transfer.kind >= 0}
    serial_ns = [_serial_ns(entries, collectives) for entries in issued]
    least_ns = dict[int, int]()
    for number, taken in (item for of_rank in serial_ns for item in of_rank.items()):
        least_ns[number] = min(least_ns.get(number, taken), taken)
    return [
        _excess_time(
            [entry for entry in entries if entry.matched in collectives],
            collectives,
            {number: ns if collectives[number].on_hosts else least_ns[number] for number, ns in of_rank.items()},
            network,
        )
        for entries, of_rank in zip(issued, serial_ns, strict=True)
    ]


def _serial_ns(entries: Sequence[CommunicationEntry], collectives: dict[int, Match]) -> dict[int, int]:
    """Returns how long a rank's collectives took, by number, if each moment counts once, for the one that ended first:
    the simulator runs one at a time.
    """
    played = [entry for entry in entries if entry.matched in collectives]
    end = np.array([entry.end_ns for entry in played], np.int64)
    start = end - np.array([collectives[entry.matched].taken_ns(entry) for entry in played], np.int64)
    serial = uncovered(Intervals(start, end), Intervals(end[:0], end[:0])).tolist()
    return {entry.matched: ns for entry, ns in zip(played, serial, strict=True)}


def _excess_time(
    played: list[CommunicationEntry], collectives: dict[int, Match], taken_ns: dict[int, int], network: Network
) -> ExcessTime:
    """Returns the excess of a rank's collectives, which took so long by number.

    What the network gives a collective too much is taken off the excess of the group's next ones, so that all of them
    together take the measured time.
    """
    balance_ns, excess, total = defaultdict[tuple[int, ...], int](int), dict[int, int](), 0
    for entry in played:
        transfer = collectives[entry.matched].transfer
        given_ns = network_time_ns(network, transfer._replace(kind=simulated_as(transfer.kind)))
        if given_ns is None:
            continue
        total += taken_ns[entry.matched]
        balance_ns[transfer.ranks] += taken_ns[entry.matched] - round(given_ns)
        if balance_ns[transfer.ranks] > 0:
            excess[entry.node] = balance_ns.pop(transfer.ranks)
    return ExcessTime(excess, total)
