"""The report of a merge: for each rank where it comes from, how much of it is there, and how its clock was moved."""

import msgspec


class RankReport(msgspec.Struct):
    """`clock_correction_ns`: how far the rank's clock is behind by shared collectives; `activities` are per device."""

    rank: int
    file: str
    rows: int
    activities: int
    clock_correction_ns: int = 0


class MergeReport(msgspec.Struct):
    """Ranks in order, files that were left out by kind, and notes.

    >>> MergeReport("merged.json", [RankReport(0, "device_rank0.json", 90, 63)]).ranks[0].activities
    63
    """

    output: str
    ranks: list[RankReport] = []
    skipped: dict[str, int] = {}
    notes: list[str] = []
