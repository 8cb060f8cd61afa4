"""Columns come together from pieces, and are as the lists, dicts and byte strings that they stand for."""

from itertools import chain

import numpy as np
from execgraph.schema.columns import (
    BytesColumn,
    BytesColumnBuilder,
    IntegerBuilder,
    JsonRecords,
    Lookup,
    Spans,
    join_parts,
)
from hypothesis import given, settings, strategies as st

TEXTS = st.lists(st.sampled_from([b"", b"a", b"bc", b"[1,2]"]), max_size=12)
TEXT = st.binary(max_size=3) | st.sampled_from([b"a" * 40, b"a" * 39 + b"b", b"a" * 5000, b"12345678", b"123456789"])
COLUMN = st.lists(TEXT, min_size=1, max_size=100)


@given(TEXTS, TEXTS)
def test_a_column_of_texts_is_like_a_list(some: list[bytes], more: list[bytes]) -> None:
    column, both = BytesColumn.of(some), BytesColumn.joined([BytesColumn.of(some), BytesColumn.of(more)])
    assert column == some and both == some + more and both[:] == some + more
    assert [both[row] for row in range(len(both))] == some + more
    backwards = np.arange(len(both))[::-1]
    assert both.at(backwards) == both.take(backwards) == (some + more)[::-1]
    assert both.differ(b"a").tolist() == [text != b"a" for text in some + more]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 9)), max_size=8))
def test_numbers_are_looked_up_as_in_a_dict(pairs: list[tuple[int, int]]) -> None:
    keys, values = np.array(pairs, np.int64).reshape(-1, 2).T
    found, asked = dict(pairs), range(-4, 5)
    numbers = Lookup(keys, values)
    assert numbers.of(np.array(asked)).tolist() == [numbers.get(key) for key in asked]
    assert {key: numbers.get(key) for key in asked if key in numbers} == found


@given(st.lists(TEXTS, max_size=4))
def test_texts_come_together_from_pieces(pieces: list[list[bytes]]) -> None:
    builder = BytesColumnBuilder()
    for piece in pieces:
        builder.add(piece)
    assert builder.column() == [*chain.from_iterable(pieces)]


def test_records_of_some_rows_are_like_a_dict() -> None:
    records = JsonRecords.of({3: 7, 5: 8}, int)
    assert {**records} == {3: 7, 5: 8} and 4 not in records
    assert {**records.take(np.arange(6) != 3)} == {4: 8}


@given(st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=5), max_size=5))
def test_numbers_come_together_from_pieces(pieces: list[list[int]]) -> None:
    builder = IntegerBuilder()
    for piece in pieces:
        builder.add(np.array(piece, np.int64))
    column = builder.column()
    assert column.tolist() == [*chain.from_iterable(pieces)]
    column[:] = 0  # a column may be changed


@given(first=COLUMN, data=st.data())
@settings(deadline=None)
def test_rows_are_joined_in_the_order_of_the_parts(first: list[bytes], data: st.DataObject) -> None:
    count = len(first)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1)))), np.int64)
    column = Spans.of(first)
    parts = [(np.arange(count), column), (rows, column.take(rows)), (rows, column.take(rows[::-1]))]
    expected = list(first)
    for row, other in zip(rows.tolist(), rows[::-1].tolist(), strict=True):
        expected[row] += first[row] + first[other]
    assert join_parts(parts, count).tolist() == expected
