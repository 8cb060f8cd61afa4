"""Collectives with all who came to them, matched over ranks."""

from collections.abc import Sequence
from typing import NamedTuple

from ...converter.ranks import Group, match, ranks_of, ranks_text
from ..terminal import ranges
from .arrivals import Arrival, RankCollectives


class MatchedCollective(NamedTuple):
    """A collective with the arrivals of its members, in the order of the ranks."""

    group: Group
    sequence: int
    occurrence: int
    arrivals: list[Arrival]


def match_collectives(parts: Sequence[RankCollectives]) -> list[MatchedCollective]:
    """Returns the collectives of all ranks in the order of their first arrivals."""
    matches = match([part.calls for part in parts])
    by_number: dict[int, MatchedCollective] = {}
    for part, groups, numbers in zip(parts, matches.group, matches.matched, strict=True):
        ends = zip(part.calls.source.tolist(), part.calls.target.tolist(), strict=True)
        for arrival, group, number, pair in zip(part.arrivals, groups.tolist(), numbers.tolist(), ends, strict=True):
            if number not in by_number:
                matched_group = matches.groups[group] if group >= 0 else Group(ranks_text(pair), "send/recv")
                by_number[number] = MatchedCollective(
                    matched_group, int(matches.sequence[number]), int(matches.occurrence[number]), []
                )
            by_number[number].arrivals.append(arrival)
    return sorted(by_number.values(), key=lambda collective: min(arrival.start for arrival in collective.arrivals))


def group_label(group: Group) -> str:
    """Returns the group's name and its members, runs of ranks shortened.

    >>> group_label(Group("0-3,8", "tp"))
    'tp (0-3, 8)'
    """
    ranks = ranges(ranks_of(group.ranks), shortest=2)
    return f"{group.name} ({ranks})".strip() if ranks else group.name
