"""Columns of byte strings that are gathered, joined and copied all at once, without one Python step per string."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..columns import Bytes, BytesColumn, Int64

LONG = 1 << 12
FEW = 32


class Spans(NamedTuple):
    """A column of byte strings: row i is `source[starts[i] : starts[i] + lengths[i]]`."""

    source: Bytes
    starts: Int64
    lengths: Int64

    def take(self, rows: npt.NDArray[np.integer] | slice) -> "Spans":
        """Returns the given rows; the bytes are shared."""
        return Spans(self.source, self.starts[rows], self.lengths[rows])

    @staticmethod
    def of(strings: Sequence[bytes]) -> "Spans":
        """Returns a column of byte strings, which are copied together."""
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        return Spans(np.frombuffer(b"".join(strings), np.uint8), np.cumsum(lengths) - lengths, lengths)


Part = tuple[Int64 | slice, Spans]
"""What some rows have, and these rows, each of them once."""


def spans_of(column: BytesColumn, rows: slice) -> Spans:
    """Returns rows of a column, which are copied only where they stand in several buffers."""
    part = column.part[rows]
    if len(part) and (part == part[0]).all():
        buffer = np.frombuffer(column.parts[int(part[0])], np.uint8)
        return Spans(buffer, column.start[rows], column.length[rows].astype(np.int64))
    return Spans.of(column[rows])


def first_not_utf8(strings: Spans) -> int | None:
    """Returns the row of the first text that is not UTF-8, None if all are."""
    count = len(strings.starts)
    # a character cannot go on across a line end, so the joined text is valid only if each text is
    ends = Spans(np.frombuffer(b"\n", np.uint8), np.zeros(count, np.int64), np.ones(count, np.int64))
    lines = join([(slice(None), strings), (slice(None), ends)], count)
    try:
        str(lines.source.data, "utf-8")
    except UnicodeDecodeError as error:
        return int(np.searchsorted(lines.starts, error.start, side="right")) - 1
    return None


def copy_spans(spans: Spans, target: Bytes, positions: Int64) -> None:
    """Copies each row of `spans` to its position in `target`, rows of one length at once; linear in bytes and rows."""
    lengths = np.minimum(spans.lengths, LONG)
    counts = np.bincount(lengths)
    seldom = counts < FEW
    seldom[LONG:] = True
    common = np.flatnonzero(~seldom[1:]) + 1
    if counts.sum() == counts[common].sum() and len(common) == 1:
        _copy_items(spans, target, positions, int(common[0]), slice(None))
        return
    # sorting two-byte keys takes numpy's radix sort
    order = np.argsort(lengths.astype(np.uint16), kind="stable")
    limits = np.cumsum(counts)
    for length in common.tolist():
        _copy_items(spans, target, positions, length, order[limits[length - 1] : limits[length]])
    seldom[:1] = False
    # for lengths that few rows have, a step per row takes less time than the steps per length
    singly = np.flatnonzero(seldom[lengths])
    source, copies = spans.source.data, target.data
    columns = (column[singly].tolist() for column in (spans.starts, spans.lengths, positions))
    for start, length, position in zip(*columns, strict=True):
        copies[position : position + length] = source[start : start + length]


def _copy_items(spans: Spans, target: Bytes, positions: Int64, length: int, rows: Int64 | slice) -> None:
    _windows(target, length)[positions[rows]] = _windows(spans.source, length)[spans.starts[rows]]


def _windows(buffer: Bytes, length: int) -> npt.NDArray[np.void]:
    """Returns the items of `length` bytes that begin at each byte of `buffer`; they overlap."""
    return np.ndarray((len(buffer) - length + 1,), f"V{length}", buffer, 0, (1,))


def join(parts: Sequence[Part], count: int) -> Spans:
    """Returns `count` rows that join what the parts have for them; a part names the rows that it has."""
    lengths = np.zeros(count, np.int64)
    # those from one source are copied together
    sources: dict[int, list[tuple[Int64 | slice, Spans, Int64]]] = {}
    for rows, part in parts:
        before = lengths[rows].copy()
        lengths[rows] = before + part.lengths
        sources.setdefault(id(part.source), []).append((rows, part, before))
    starts = np.cumsum(lengths) - lengths
    buffer = np.empty(int(lengths.sum()), np.uint8)
    for copied in sources.values():
        first, size = (np.concatenate(column) for column in zip(*(part[1:] for _, part, _ in copied), strict=True))
        positions = np.concatenate([starts[rows] + before for rows, _, before in copied])
        copy_spans(Spans(copied[0][1].source, first, size), buffer, positions)
    return Spans(buffer, starts, lengths)


def total_lengths(parts: Iterable[Part], count: int) -> Int64:
    """Returns the length of each of `count` rows over all parts."""
    lengths = np.zeros(count, np.int64)
    for rows, part in parts:
        lengths[rows] += part.lengths
    return lengths
