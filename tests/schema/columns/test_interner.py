"""Values are numbered as they come, and ids found again in the rows that have them."""

import numpy as np
from execgraph.schema.columns import Interner, rows_of


def test_equal_values_have_one_number_in_the_order_of_their_first_appearance() -> None:
    numbering = Interner[str]()
    assert numbering.codes(["b", "a", "b"], 3).tolist() == [0, 1, 0]
    assert numbering.codes(["c", "a"], 2).tolist() == [2, 1]
    assert list(numbering) == ["b", "a", "c"]


def test_ids_are_found_in_the_last_row_that_has_them() -> None:
    ids = np.array([7, 3, 7, -5], np.int64)
    assert rows_of(ids, np.array([3, 7, -5, 4, 100, -6], np.int64)).tolist() == [1, 2, 3, -1, -1, -1]


def test_nothing_is_found_among_no_ids() -> None:
    none = np.empty(0, np.int64)
    assert rows_of(none, np.array([1], np.int64)).tolist() == [-1]
    assert rows_of(none, none).tolist() == []
