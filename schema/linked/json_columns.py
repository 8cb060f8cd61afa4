"""Writes rows of columns as JSON objects, all rows at once."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import orjson

from ..columns import Int64, Spans, join_parts, repeated

SEPARATOR = b",\n"
COMMA = ord(",")
SIGNS = Spans.of([b"", b"-"])
FRACTIONS = Spans.of([f".{fraction:03d}".rstrip("0").rstrip(".").encode() for fraction in range(1000)])


class Member(NamedTuple):
    """The values of a key, in all rows or in these (ascending). Each value is the concatenation of all `parts`."""

    key: str
    parts: Sequence[Spans]
    rows: Int64 | slice = slice(None)


class SparseMember(NamedTuple):
    """A member that only some rows have, of a table that is written in blocks."""

    key: str
    parts: Sequence[Spans]
    rows: Int64

    def within(self, block: slice) -> Member:
        """Returns the member for a block of the rows."""
        chosen = np.arange(*np.searchsorted(self.rows, (block.start, block.stop)))
        return Member(self.key, [part.take(chosen) for part in self.parts], self.rows[chosen] - block.start)


def objects(members: Iterable[Member], count: int) -> bytes:
    """Returns the texts of `count` objects, separated by commas. All objects must have the first member."""
    parts: list[tuple[Int64 | slice, Spans]] = []
    before = b"{"
    for member in members:
        size = len(member.parts[0].lengths)
        parts.append((member.rows, repeated(before + msgspec.json.encode(member.key) + b":", size)))
        parts += [(member.rows, part) for part in member.parts]
        before = b","
    parts.append((slice(None), repeated(b"}" + SEPARATOR, count)))
    return join_parts(parts, count).source[: -len(SEPARATOR)].tobytes()


def integers(column: Int64) -> Spans:
    """Returns each integer in decimal digits."""
    text = np.frombuffer(orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY), np.uint8)
    commas = np.flatnonzero(text == COMMA)
    starts, ends = np.append(1, commas + 1)[: len(column)], np.append(commas, len(text) - 1)[: len(column)]
    return Spans(text, starts, ends - starts)


def strings(table: Iterable[str]) -> Spans:
    """Returns each text as JSON."""
    return Spans.of([msgspec.json.encode(text) for text in table])


def microsecond_spans(time: Int64) -> tuple[Spans, Spans, Spans]:
    """Returns times in ns as µs: sign, whole and fraction, exact and without trailing zeros."""
    whole, fraction = np.divmod(np.abs(time), 1000)
    return SIGNS.take((time < 0).astype(np.int64)), integers(whole), FRACTIONS.take(fraction)


def lists(key: str, row: Int64, value: Int64) -> SparseMember:
    """Returns a list for each row in `row`, of its values in their order."""
    order = np.argsort(row, kind="stable")
    rows, first, count = np.unique(row[order], return_index=True, return_counts=True)
    values, last = integers(value[order]), first + count - 1
    # the values of a row are contiguous, with commas between them
    inner = Spans(
        values.source, values.starts[first], values.starts[last] + values.lengths[last] - values.starts[first]
    )
    return SparseMember(key, (repeated(b"[", len(rows)), inner, repeated(b"]", len(rows))), rows)
