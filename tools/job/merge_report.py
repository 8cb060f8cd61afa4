"""The report of a merge: for each rank where it comes from, how much of it is there, and how its clock was moved."""

import msgspec

from ...schema.columns import Summary, SummaryRepr


class RankReport(msgspec.Struct):
    """A rank of a merged trace. `clock_correction_ns`: how far the rank's clock is behind by shared collectives;
    `activities` are per device.
    """

    rank: int
    file: str
    rows: int
    activities: int
    clock_correction_ns: int = 0


class MergeReport(SummaryRepr, msgspec.Struct):
    """Ranks in order, files that were left out by kind, and notes.

    >>> import execgraph as eg, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     merged = eg.merge("tests/data/training", f"{folder}/merged.json")
    >>> [rank.activities for rank in merged.ranks], merged.notes
    ([63, 63], [])
    """

    output: str
    ranks: list[RankReport] = []
    skipped: dict[str, int] = {}
    notes: list[str] = []

    def summary(self) -> Summary:
        """Returns how many ranks were merged into which file, and how many rows and notes there are."""
        lines = {
            "file": self.output,
            "rows": f"{sum(rank.rows for rank in self.ranks):,}",
            "activities": f"{sum(rank.activities for rank in self.ranks):,}",
            "notes": f"{len(self.notes)}, in notes" if self.notes else "0",
        }
        return Summary(f"MergeReport: {len(self.ranks)} ranks", lines)
