"""Columns of texts and of lists are indexed as numpy arrays are."""

import numpy as np
import pytest
from execgraph.schema.columns import Categorical, Ragged

NAMES = Categorical.of(["mm", "add", "mm"])
LISTS = Ragged.of([[1, 2], [], [3]])


@pytest.mark.parametrize(
    "rows", [slice(2), slice(None, None, -1), [2, 0], [], np.array([1, 1]), np.array([True, False, True]), [-1]]
)
def test_several_rows_are_a_list_of_what_each_row_is(rows: slice | list[int]) -> None:
    chosen = np.arange(3)[rows].tolist()
    assert NAMES[rows] == [NAMES[row] for row in chosen]
    assert [values.tolist() for values in LISTS[rows]] == [LISTS[row].tolist() for row in chosen]


def test_a_row_without_a_text_is_an_empty_one_and_all_are_a_list() -> None:
    assert Categorical.nulls(2)[:] == ["", ""] == [Categorical.nulls(2)[0]] * 2
    assert NAMES.tolist() == [*NAMES] == ["mm", "add", "mm"]


def test_rows_beyond_the_end_are_refused_and_negative_ones_count_from_there() -> None:
    assert (NAMES[-1], LISTS[-1].tolist()) == ("mm", [3])
    for column in (NAMES, LISTS):
        for row in (3, -4):
            with pytest.raises(IndexError):
                _ = column[row]
