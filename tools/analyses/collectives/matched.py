"""Collectives with all who came to them, matched over ranks."""

from collections.abc import Sequence
from typing import NamedTuple

from ....converter.ranks import Group, match, ranks_of, ranks_text
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
    runs: list[list[int]] = []
    for rank in ranks_of(group.ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    listing = ", ".join("-".join(map(str, run)) for run in runs)
    return f"{group.name} ({listing})".strip() if listing else group.name
