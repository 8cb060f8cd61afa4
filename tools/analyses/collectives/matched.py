"""Collectives with all who came to them, matched over ranks."""

from collections.abc import Sequence
from typing import NamedTuple

from ....converter.ranks import Group, match, ranks_of, ranks_text
from ...rank_rows import ranges
from .arrivals import Arrival, RankCollectives


class MatchedCollective(NamedTuple):
    """Who came to what, in the order of the ranks given."""

    group: Group
    sequence: int
    repetition: int
    arrivals: list[Arrival]


def matched(parts: Sequence[RankCollectives]) -> list[MatchedCollective]:
    """Returns by when the first of their members came."""
    met = match([part.calls for part in parts])
    found: dict[int, MatchedCollective] = {}
    for part, groups, numbers in zip(parts, met.group, met.matched, strict=True):
        ends = zip(part.calls.source.tolist(), part.calls.target.tolist(), strict=True)
        for arrival, group, number, pair in zip(part.arrivals, groups.tolist(), numbers.tolist(), ends, strict=True):
            if number not in found:
                of = met.groups[group] if group >= 0 else Group(ranks_text(pair), "send/recv")
                found[number] = MatchedCollective(of, int(met.sequence[number]), int(met.repetition[number]), [])
            found[number].arrivals.append(arrival)
    return sorted(found.values(), key=lambda collective: min(arrival.start for arrival in collective.arrivals))


def group_label(group: Group) -> str:
    """Returns the group's name and its members, runs of ranks shortened.

    >>> group_label(Group("0-3,8", "tp"))
    'tp (0-3, 8)'
    """
    ranks = ranges(ranks_of(group.ranks), shortest=2)
    return f"{group.name} ({ranks})".strip() if ranks else group.name
