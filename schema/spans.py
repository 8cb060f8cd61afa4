"""Columns of byte strings: gathering, joining and copying them all at once, without one Python step per string."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import Int64

Bytes = npt.NDArray[np.uint8]


class Spans(NamedTuple):
    """A column of byte strings: row i is `source[starts[i] : starts[i] + lengths[i]]`."""

    source: Bytes
    starts: Int64
    lengths: Int64

    def take(self, rows: npt.NDArray[np.integer]) -> "Spans":
        return Spans(self.source, self.starts[rows], self.lengths[rows])

    def placed(self, rows: Int64 | slice, count: int) -> "Spans":
        """`count` rows that are empty but for these."""
        starts, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
        starts[rows], lengths[rows] = self.starts, self.lengths
        return Spans(self.source, starts, lengths)

    @staticmethod
    def of(texts: Sequence[bytes]) -> "Spans":
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return Spans(np.frombuffer(b"".join(texts), np.uint8), np.cumsum(lengths) - lengths, lengths)


def first_not_utf8(texts: Sequence[bytes]) -> int | None:
    """The place of the first text that is not UTF-8, None if all are."""
    try:
        # a character cannot go on across a line end, so the joined text is valid only if each text is
        b"\n".join(texts).decode()
    except UnicodeDecodeError as error:
        starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
        return int(np.searchsorted(starts, error.start, side="right")) - 1
    return None


def copy_spans(spans: Spans, target: Bytes, positions: Int64) -> None:
    """Copies each row of `spans` to its position in `target`; linear in the bytes and rows.

    Rows of one length go together: a view of the buffer as overlapping items of that length makes them one gather and scatter.
    """
    for length, rows in _by_length(spans.lengths):
        _windows(target, length)[positions[rows]] = _windows(spans.source, length)[spans.starts[rows]]


def _by_length(lengths: Int64) -> Iterator[tuple[int, Int64 | slice]]:
    """Each length above zero with the rows that have it."""
    longest = int(lengths.max(initial=0))
    if longest == int(lengths.min(initial=longest)):
        if longest:
            yield longest, slice(None)
        return
    # sorting two-byte keys takes numpy's radix sort
    order = np.argsort(lengths.astype(np.uint16) if longest < 1 << 16 else lengths, kind="stable")
    ranked = lengths[order]
    bounds = np.flatnonzero(np.diff(ranked)) + 1
    for rows in np.split(order, bounds):
        if length := int(lengths[rows[0]]):
            yield length, rows


def _windows(buffer: Bytes, length: int) -> npt.NDArray[np.void]:
    """The items of `length` bytes that begin at each byte of `buffer`; they overlap."""
    return np.ndarray((len(buffer) - length + 1,), f"V{length}", buffer, 0, (1,))


def join(columns: Iterable[Spans], count: int) -> Spans:
    """The columns side by side: row i of the result is the concatenation of row i of each column."""
    return join_parts([(slice(None), column) for column in columns], count)


def join_parts(parts: Sequence[tuple[Int64 | slice, Spans]], count: int) -> Spans:
    """`count` rows, each the concatenation of what the parts have for it; a part says which rows it has something for."""
    lengths = np.zeros(count, np.int64)
    for rows, part in parts:
        lengths[rows] += part.lengths
    starts = np.cumsum(lengths) - lengths
    buffer = np.empty(int(lengths.sum()), np.uint8)
    position = starts.copy()
    for rows, part in parts:
        copy_spans(part, buffer, position[rows])
        position[rows] += part.lengths
    return Spans(buffer, starts, lengths)


def total_lengths(columns: Iterable[Spans], count: int) -> Int64:
    """The length of each row over all columns."""
    lengths = np.zeros(count, np.int64)
    for column in columns:
        lengths += column.lengths
    return lengths
