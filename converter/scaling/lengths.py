"""How much longer the collectives of a group take that has other members.

What members had in common of a collective, from the arrival of the last one to the end, changes in the proportion of
the fitted line, or to what the given network takes. The time for which a member waited for the others stays.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.graph import NodeType
from ..ranks import Matching
from ..targets import RING, Transfer
from .fits import Fit, Fits, Seen, cost_of
from .group_roles import GroupRole
from .rank_facts import RankFacts
from .sizes import shard


class Grown(NamedTuple):
    """Collectives of a type in a group: how many, of how many members before and then, and by which fit; None where
    nothing tells.
    """

    kind: int
    group: str
    collectives: int
    members: int
    members_then: int
    fit: Fit | None


def measured(facts: Sequence[RankFacts], matching: Matching, roles: Sequence[GroupRole]) -> dict[int, Seen]:
    """Returns each collective by the number of its match. Its length is that of the member that came last, as all end
    together.
    """
    found: dict[int, Seen] = {}
    for own, groups, matched in zip(facts, matching.group, matching.matched, strict=True):
        calls = own.calls
        rows = np.flatnonzero((calls.type == NodeType.COMM_COLL) & (groups >= 0))
        columns = (matched, groups, calls.kind, calls.size, own.length_ns)
        for number, group, kind, size, ns in zip(*(column[rows].tolist() for column in columns), strict=True):
            known = found[number].transfer if number in found else Transfer(kind, 0, size, ns)
            members = len(roles[group].use.members)
            found[number] = Seen(Transfer(kind, members, max(size, known.size), min(ns, known.ns)), group)
    return found


def longer(
    seen: Mapping[int, Seen], roles: Sequence[GroupRole], then: Sequence[int], fits: Fits
) -> tuple[dict[int, int], list[Grown]]:
    """Returns by how many ns each collective, by the number of its match, takes longer if its group has other members
    then; by which fits.
    """
    counts = Counter(
        (one.kind, group) for one, group in seen.values() if one.kind in RING and then[group] != one.members
    )
    fit_of = {key: fits.of(*key) for key in counts}
    added = {
        number: _longer(one, shard(one.size, roles[group], one.kind, then[group]), then[group], fit, fits.is_given)
        for number, (one, group) in seen.items()
        if (fit := fit_of.get((one.kind, group)))
    }
    grown = [
        Grown(kind, roles[group].use.group.text, count, len(roles[group].use.members), then[group], fit_of[kind, group])
        for (kind, group), count in sorted(counts.items())
    ]
    return added, grown


def _longer(one: Transfer, size: int, members: int, fit: Fit, is_given: bool) -> int:
    before, after = fit.line.ns(cost_of(one)), fit.line.ns(RING[one.kind](members, size))
    # of a group of one nothing was measured
    return round((after if is_given or not before else one.ns * after / before) - one.ns)
