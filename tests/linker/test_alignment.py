"""Aligning two sequences of names, here small numbers: as much as possible, in order, at the right iteration."""

import numpy as np
import pytest
from execgraph.linker.alignment import ANCHOR, LARGEST_DIFFERENCE, align, align_steps, occurrences
from execgraph.schema.columns import Int64
from hypothesis import given, strategies as st
from support.tables import column

MARKS = np.arange(200) >= 100
"""Numbers from 100 on mark steps."""


def aligned(left: list[int], right: list[int]) -> list[tuple[int, int]]:
    found = align(column(*left), column(*right))
    return list(zip(found.left.tolist(), found.right.tolist(), strict=True))


def steps(left: list[int], right: list[int]) -> list[tuple[int, int]]:
    found = align_steps(column(*left), column(*right), marks_step=MARKS)
    return list(zip(found.left.tolist(), found.right.tolist(), strict=True))


def names(text: str) -> Int64:
    return np.array([ord(letter) for letter in text], np.int64)


def longest_common_subsequence(left: str, right: str) -> int:
    """The textbook table, O(n m)."""
    above = [0] * (len(right) + 1)
    for letter in left:
        row = [0]
        for at, other in enumerate(right):
            row.append(above[at] + 1 if letter == other else max(above[at + 1], row[-1]))
        above = row
    return above[-1]


@given(st.text("abc", min_size=1, max_size=14), st.text("abc", max_size=14))
def test_alignment_is_as_long_as_the_longest_common_subsequence(left: str, right: str) -> None:
    # one that is much longer is searched for a window instead
    left, right = left[: max(1, 2 * len(right) - 1)], right[: 2 * len(left) - 1]
    found, other_way = align(names(left), names(right)), align(names(right), names(left))
    assert len(other_way.left) == len(found.left)
    assert "".join(left[at] for at in found.left) == "".join(right[at] for at in found.right)
    assert all(np.diff(found.left) > 0) and all(np.diff(found.right) > 0)
    assert len(found.left) == longest_common_subsequence(left, right)


@given(st.text("ab", min_size=1, max_size=6), st.text("ab", max_size=20))
def test_occurrences_are_all_places_of_a_part(part: str, whole: str) -> None:
    wanted = [at for at in range(len(whole)) if whole.startswith(part, at)]
    assert occurrences(names(part), names(whole)).tolist() == wanted


def test_a_window_with_a_few_differences_is_found_in_a_much_longer_sequence() -> None:
    rng = np.random.default_rng(7)
    whole = rng.integers(0, 40, 2000)
    part = np.delete(whole[700:1000], [10, 280])
    found = align(part.astype(np.int64), whole.astype(np.int64))
    assert len(found.left) == len(part)
    assert found.right[149] == 850


def test_a_place_is_counted_where_a_window_with_a_few_differences_would_fit() -> None:
    step = np.random.default_rng(7).integers(0, 40, 300)
    for count in (1, 2, 3):
        assert align(np.delete(step, [10, 280]), np.tile(step, count)).alignment_count == count


@pytest.mark.parametrize("lost", [slice(1, 39), slice(299, 337)], ids=["before", "behind"])
def test_a_window_may_lack_a_tenth_of_its_ops_and_some_on_one_side_of_its_middle(lost: slice) -> None:
    whole = np.concatenate((np.arange(800), step := np.arange(1000, 1338), np.arange(2000, 3000)))
    part = np.delete(step, lost)
    assert whole[align(part, whole).right].tolist() == part.tolist()


@pytest.mark.parametrize(("held", "there"), [(2, 5), (40, 90)])
def test_repeated_steps_of_a_window_are_found_together(held: int, there: int) -> None:
    step = np.random.default_rng(7).integers(0, 40, 300)
    part = np.delete(np.tile(step, held), [10, 580])
    found = align(part, np.tile(step, there))
    assert len(found.left) == len(part)
    assert found.alignment_count == there - held + 1


# a shorter one


@pytest.mark.parametrize("swapped", [False, True])
def test_a_shorter_one_is_found_as_a_whole_at_its_first_place(swapped: bool) -> None:
    part, whole = column(1, 2), column(0, 1, 2, 1, 1, 2)
    found = align(whole, part) if swapped else align(part, whole)
    assert ((found.right, found.left) if swapped else (found.left, found.right))[1].tolist() == [1, 2]
    assert found.alignment_count == 2


@pytest.mark.parametrize(("left", "right"), [([], []), ([1], []), ([], [1])])
def test_nothing_fits_everywhere(left: list[int], right: list[int]) -> None:
    found = align(column(*left), column(*right))
    assert (len(found.left), len(found.right), found.alignment_count) == (0, 0, 1)


def window(lost: int, size: int = 100) -> list[int]:
    """A stretch of names that are all different, one of which is not in the other sequence."""
    return [99_999 if place == lost else place for place in range(size)]


@pytest.mark.parametrize("before", [0, 1, 500, 900])
@pytest.mark.parametrize("lost", [0, 3, 99])
def test_a_window_of_a_much_longer_one_is_found_by_its_middle(before: int, lost: int) -> None:
    longer = [*range(10_000, 10_000 + before), *range(100), *range(20_000, 20_900 - before)]
    expected = [(place, before + place) for place in range(100) if place != lost]
    assert aligned(window(lost), longer) == expected
    found = align(column(*longer), column(*window(lost)))
    assert list(zip(found.right.tolist(), found.left.tolist(), strict=True)) == expected
    assert found.alignment_count == 1


def test_what_is_not_much_longer_is_aligned_as_a_whole_however_far_its_ops_lie_apart() -> None:
    longer = [*range(50), *range(1_000, 1_060), *range(50, 100)]
    assert aligned([*range(100)], longer) == [(number, number + 60 * (number >= 50)) for number in range(100)]


def test_a_sequence_whose_middle_is_nowhere_in_a_much_longer_one_is_aligned_with_all_of_it() -> None:
    left, right = column(1, 9, 2), column(*[7] * 50, 1, *[7] * 50, 2, 7)
    found = align(left, right)
    assert (found.right.tolist(), found.alignment_count) == ([50, 101], 1)


@pytest.mark.parametrize("lost", [0, 99])
def test_of_repeated_iterations_the_first_one_is_taken_and_the_others_are_counted(lost: int) -> None:
    found = align(column(*window(lost)), column(*[*range(100)] * 5))
    assert found.right.tolist() == [place for place in range(100) if place != lost]
    assert found.alignment_count == 5


def test_iterations_within_a_window_are_not_counted_as_places_of_their_own() -> None:
    twice = [*range(100), *range(100)]
    found = align(column(99_999, *twice[1:]), column(*twice, *twice))
    assert found.alignment_count == 3
    assert found.right.tolist() == list(range(1, 200))


def test_iterations_shorter_than_an_anchor_are_counted_where_all_of_a_window_fits() -> None:
    iteration = [*range(10)]
    assert align(column(*iteration * 10, 99_999), column(*iteration * 20)).alignment_count == 11


def test_an_anchor_too_far_out_says_nothing_of_a_window() -> None:
    """Where the middle stands first, the rest of it would have begun before the other sequence."""
    middle = [*range(50, 50 + ANCHOR)]
    longer = [*middle, *range(10_000, 10_300), *range(100), *range(20_000, 20_100)]
    assert aligned(window(0), longer) == [(place, ANCHOR + 300 + place) for place in range(1, 100)]


def test_what_differs_too_much_is_not_aligned() -> None:
    half = LARGEST_DIFFERENCE // 2
    same = [*range(10)]
    for more, found in ((0, 10), (1, 0)):
        right = [*range(20_000, 20_000 + half + more), *same]
        assert len(aligned([*range(10_000, 10_000 + half), *same], right)) == found


# steps


def test_between_steps_that_both_mark_iterations_are_told_apart() -> None:
    """By names alone the shorter one would fit the first iteration as well."""
    assert steps([101, 1, 2], [100, 1, 2, 101, 1, 2]) == [(0, 3), (1, 4), (2, 5)]
    assert steps([100, 1, 2, 101, 1], [100, 1, 101, 1, 2]) == [(0, 0), (1, 1), (3, 2), (4, 3)]


def test_what_comes_before_the_first_step_is_aligned_from_its_end_on() -> None:
    assert steps([1, 2, 101, 3], [1, 2, 1, 2, 101, 3]) == [(0, 2), (1, 3), (2, 4), (3, 5)]
    assert steps([1, 2, 1, 2, 101, 3], [1, 2, 101, 3]) == [(2, 0), (3, 1), (4, 2), (5, 3)]


def test_what_a_step_begins_with_is_aligned_from_its_mark_on() -> None:
    assert steps([101, 1], [101, 1, 1]) == [(0, 0), (1, 1)]
    assert steps([100, 101, 1], [100, 101, 1, 1]) == [(0, 0), (1, 1), (2, 2)]


def test_without_steps_the_first_position_is_taken() -> None:
    assert steps([1], [1, 1]) == [(0, 0)]


def test_steps_are_left_out_if_both_mark_others_or_in_another_order() -> None:
    assert steps([100, 1, 2], [1, 2]) == [(1, 0), (2, 1)]
    assert steps([100, 1, 2, 101, 3], [101, 1, 100, 2, 3]) == [(1, 1), (2, 3), (4, 4)]


def test_how_often_the_shorter_one_would_fit_is_told_unless_steps_say_where() -> None:
    assert align_steps(column(1), column(1, 1, 1), marks_step=MARKS).alignment_count == 3
    assert align_steps(column(101, 1), column(101, 2, 1, 1), marks_step=MARKS).alignment_count == 1
