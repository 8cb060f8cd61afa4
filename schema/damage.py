"""The damage of one file: rows that were lost, rows that were mended, and where the first of each was."""

from collections import Counter
from dataclasses import dataclass, field

from .errors import DataError

UNREADABLE = "that cannot be read"
CUT_OFF = "cut off by the end of the file"
ENDS_EARLY = "ends early"
"""How the note on a file begins whose end is missing."""


@dataclass(slots=True)
class DamageCount:
    """One kind of damage: rows, bytes, and the position (byte of the decompressed file) and error of the first one."""

    rows: int
    bytes: int
    at: int
    error: str


@dataclass(slots=True)
class Damage:
    """The damage of one file, whose elements are called `rows` ("device events"); any raises DataError if `strict`."""

    path: str
    rows: str
    strict: bool = False
    lost: dict[str, DamageCount] = field(default_factory=dict)
    mended: dict[str, DamageCount] = field(default_factory=dict)
    file_notes: list[str] = field(default_factory=list)

    def lose(self, what: str, at: int, size: int, error: str = "") -> None:
        """One row, or a stretch in which no rows can be distinguished, was left out."""
        self._add(self.lost, what, at, size, error)

    def mend(self, what: str, at: int, size: int) -> None:
        """One row was read after a repair."""
        self._add(self.mended, what, at, size, "")

    def note(self, what: str) -> None:
        """Something about the file as a whole; how many rows it cost cannot be known."""
        self._refuse(what)
        self.file_notes.append(f"{self.path}: {what}")

    @property
    def dropped(self) -> Counter[str]:
        """How many rows were left out, by what was wrong with them."""
        return Counter({f"{self.rows} {what}": count.rows for what, count in self.lost.items()})

    @property
    def oddities(self) -> Counter[str]:
        """How many rows were read after a repair, by what was repaired."""
        return Counter({f"{self.rows} {what}, mended": count.rows for what, count in self.mended.items()})

    @property
    def notes(self) -> list[str]:
        """A line for each kind of damage: the file, what, and where it was met first."""
        lost = (
            f"{self.path}: {count.rows} {self.rows} {what} ({count.bytes} bytes), the first at byte {count.at}"
            + (f": {count.error}" if count.error else "")
            for what, count in self.lost.items()
        )
        mended = (
            f"{self.path}: {count.rows} {self.rows} {what}, mended, the first at byte {count.at}"
            for what, count in self.mended.items()
        )
        return [*lost, *mended, *self.file_notes]

    def _add(self, kinds: dict[str, DamageCount], what: str, at: int, size: int, error: str) -> None:
        self._refuse(f"{self.rows} {what} at byte {at}" + (f" ({error})" if error else ""))
        count = kinds.setdefault(what, DamageCount(0, 0, at, error))
        count.rows += 1
        count.bytes += size

    def _refuse(self, what: str) -> None:
        if self.strict:
            raise DataError(f"{self.path}: {what}; leave --strict out to use what can be read")
