"""Puts findings of many processes into one line for each kind."""

import re
from collections.abc import Iterable

from ..rank_rows import ranges
from .findings import WRONG, Finding

PLACES_SHOWN = 4


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """Equal findings of several processes as one; what is wrong comes first."""
    together: dict[tuple[str, str, str], Finding] = {}
    for found in findings:
        key = found.severity, found.what, found.advice
        known = together.get(key, Finding(found.severity, [], found.what, found.advice))
        where, counts = known.where + found.where, known.counts + found.counts
        together[key] = Finding(found.severity, where, found.what, found.advice, counts)
    return sorted(together.values(), key=lambda found: found.severity != WRONG)


def in_words(found: Finding) -> str:
    """Returns one line: where, how many, what, and what to do, where that is not part of it."""
    place = f"{places(found.where)}: " if found.where else ""
    count = f" ({amount(found.counts)})" if found.counts else ""
    return f"{place}{found.what}{count}" + (f"; {found.advice}" if found.advice else "")


def amount(counts: list[int]) -> str:
    """Counts of several processes: how many each, or in all.

    >>> amount([64]), amount([64, 64]), amount([1, 2])
    ('64', '64 each', '3 in all')
    """
    if len(counts) == 1:
        return str(counts[0])
    return f"{counts[0]} each" if len(set(counts)) == 1 else f"{sum(counts)} in all"


def places(where: list[str]) -> str:
    """Returns the processes of a finding, ranks in short.

    >>> places(["rank 0", "rank 1", "rank 2", "other.json"])
    'ranks 0-2, other.json'
    """
    numbers = [re.fullmatch(r"rank (\d+)", place) for place in where]
    known = sorted({int(found.group(1)) for found in numbers if found})
    ranks = [] if not known else [f"rank {known[0]}" if len(known) == 1 else f"ranks {ranges(known)}"]
    others = [place for place, found in zip(where, numbers, strict=True) if not found]
    more = [f"{len(others) - PLACES_SHOWN} more"] if len(others) > PLACES_SHOWN else []
    return ", ".join(ranks + others[:PLACES_SHOWN] + more)
