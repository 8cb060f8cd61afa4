"""Puts findings of many processes into one line for each kind."""

import re
from collections.abc import Iterable

from ..rank_rows import ranges
from .diagnosis_findings import WRONG, Finding

NAMES_SHOWN = 4


def merge_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Equal findings of several processes as one; what is wrong comes first."""
    by_text: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        key = finding.severity, finding.what, finding.advice
        earlier = by_text.get(key, Finding(finding.severity, [], finding.what, finding.advice))
        where, counts = earlier.where + finding.where, earlier.counts + finding.counts
        by_text[key] = Finding(finding.severity, where, finding.what, finding.advice, counts)
    return sorted(by_text.values(), key=lambda finding: finding.severity != WRONG)


def in_words(finding: Finding) -> str:
    """Returns one line: where, how many, what, and what to do, where that is not part of it."""
    location = f"{process_names(finding.where)}: " if finding.where else ""
    count = f" ({amount(finding.counts)})" if finding.counts else ""
    return f"{location}{finding.what}{count}" + (f"; {finding.advice}" if finding.advice else "")


def amount(counts: list[int]) -> str:
    """Counts of several processes: how many each, or in all.

    >>> amount([64]), amount([64, 64]), amount([1, 2])
    ('64', '64 each', '3 in all')
    """
    if len(counts) == 1:
        return str(counts[0])
    return f"{counts[0]} each" if len(set(counts)) == 1 else f"{sum(counts)} in all"


def process_names(where: list[str]) -> str:
    """Returns the processes of a finding, ranks in short.

    >>> process_names(["rank 0", "rank 1", "rank 2", "other.json"])
    'ranks 0-2, other.json'
    """
    numbers = [re.fullmatch(r"rank (\d+)", name) for name in where]
    listed = sorted({int(match.group(1)) for match in numbers if match})
    ranks = [] if not listed else [f"rank {listed[0]}" if len(listed) == 1 else f"ranks {ranges(listed)}"]
    unnumbered = [name for name, match in zip(where, numbers, strict=True) if not match]
    more = [f"{len(unnumbered) - NAMES_SHOWN} more"] if len(unnumbered) > NAMES_SHOWN else []
    return ", ".join(ranks + unnumbered[:NAMES_SHOWN] + more)
