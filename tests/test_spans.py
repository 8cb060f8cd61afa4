"""Columns of byte strings and their numbers, against Python's own on single ones."""

import numpy as np
from execgraph.schema.decimal_text import BLANK, decimal_values, digits_before
from execgraph.schema.spans import Spans, join_parts
from execgraph.schema.text_numbers import PADDING, TextNumbers
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = st.binary(max_size=3) | st.sampled_from([b"a" * 40, b"a" * 39 + b"b", b"a" * 5000, b"12345678", b"123456789"])
COLUMN = st.lists(TEXT, min_size=1, max_size=100)


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


@given(columns=st.lists(COLUMN, max_size=4))
@settings(deadline=None)
def test_equal_texts_have_equal_numbers_in_the_order_of_their_first_appearance(columns: list[list[bytes]]) -> None:
    learnt: list[bytes] = []
    numbers = TextNumbers(learnt.append)
    for texts in columns:
        padded = Spans.of([*texts, bytes(PADDING)])
        given = Spans(padded.source, padded.starts[:-1], padded.lengths[:-1])
        assert [learnt[number] for number in numbers.look_up(given)] == texts
    assert learnt == list(dict.fromkeys(text for texts in columns for text in texts))


@given(
    numbers=st.lists(st.integers(0, 10**19 - 1) | st.integers(0, 99), max_size=50), before=st.sampled_from(b":/-x\xff ")
)
@settings(deadline=None)
def test_digits_are_the_numbers_that_they_stand_for(numbers: list[int], before: int) -> None:
    texts = Spans.of([BLANK.tobytes(), *(bytes([before]) + b"%d" % number for number in numbers)])
    ends = (texts.starts + texts.lengths)[1:]
    digits = digits_before(texts.source, ends)
    assert digits.tolist() == [len(str(number)) for number in numbers]
    assert decimal_values(texts.source, ends, digits).tolist() == numbers
