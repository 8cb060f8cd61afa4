"""Columns of byte strings, against Python's own on single ones."""

import numpy as np
from execgraph.schema.columns import Spans, join_parts
from hypothesis import given, settings, strategies as st

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
