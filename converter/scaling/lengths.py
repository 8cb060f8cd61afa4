"""How much longer collectives take when their group changes its size.

The time that members share, from the last arrival to the end, scales with the fitted line, or becomes that of the given
network. The time for which a member waited for the others stays.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.graph import NodeType
from ..ranks import RING, Matching, Transfer
from .fits import Fit, Fits, GroupTransfer, cost_of
from .group_roles import GroupRole
from .rank_facts import RankFacts
from .sizes import shard


class Grown(NamedTuple):
    """Collectives of a type in a group: their number, members before and after, and the fit, None if nothing determines
    one.
    """

    kind: int
    group: str
    collectives: int
    members: int
    scaled_members: int
    fit: Fit | None


def measured(facts: Sequence[RankFacts], matching: Matching, roles: Sequence[GroupRole]) -> dict[int, GroupTransfer]:
    """Returns each collective by the number of its match. Its length is that of the member that came last, as all end
    together. If that one may be missing, the length is the shortest of those that are alike.
    """
    transfers: dict[int, GroupTransfer] = {}
    for rank, groups, matched in zip(facts, matching.group, matching.matched, strict=True):
        calls = rank.calls
        rows = np.flatnonzero((calls.type == NodeType.COMM_COLL) & (groups >= 0))
        columns = (matched, groups, calls.kind, calls.size, rank.length_ns)
        for number, group, kind, size, ns in zip(*(column[rows].tolist() for column in columns), strict=True):
            transfer = transfers[number].transfer if number in transfers else Transfer(kind, 0, size, ns)
            members = len(roles[group].use.members)
            transfers[number] = GroupTransfer(
                Transfer(kind, members, max(size, transfer.size), min(ns, transfer.ns)), group
            )
    traced = {rank.rank for rank in facts if rank.source == rank.rank}
    is_partial = [not traced.issuperset(role.use.members) for role in roles]
    shortest = dict[tuple[int, int, int], int]()
    for transfer, group in transfers.values():
        alike = group, transfer.kind, transfer.size
        shortest[alike] = min(transfer.ns, shortest.get(alike, transfer.ns))
    return {
        number: GroupTransfer(transfer._replace(ns=shortest[group, transfer.kind, transfer.size]), group)
        if is_partial[group]
        else GroupTransfer(transfer, group)
        for number, (transfer, group) in transfers.items()
    }


def longer(
    transfers: Mapping[int, GroupTransfer], roles: Sequence[GroupRole], new_members: Sequence[int], fits: Fits
) -> tuple[dict[int, int], list[Grown]]:
    """Returns how many ns longer each collective takes, by the number of its match, if its group has `new_members`; and
    the fits. A group that keeps no member has neither.
    """
    counts = Counter(
        (transfer.kind, group)
        for transfer, group in transfers.values()
        if transfer.kind in RING and new_members[group] not in (0, transfer.members)
    )
    fit_of = {key: fits.of(*key) for key in counts}
    added: dict[int, int] = {}
    for number, (transfer, group) in transfers.items():
        if fit := fit_of.get((transfer.kind, group)):
            size = shard(transfer.size, roles[group], transfer.kind, new_members[group])
            added[number] = _longer(transfer, size, new_members[group], fit, fits.is_given)
    grown = [
        Grown(kind, use.group.text, count, len(use.members), new_members[group], fit_of[kind, group])
        for (kind, group), count in sorted(counts.items())
        for use in (roles[group].use,)
    ]
    return added, grown


def _longer(transfer: Transfer, size: int, members: int, fit: Fit, is_given: bool) -> int:
    before, after = fit.line.ns(cost_of(transfer)), fit.line.ns(RING[transfer.kind](members, size))
    # nothing was measured in a group of one
    return round((after if is_given or not before else transfer.ns * after / before) - transfer.ns)
