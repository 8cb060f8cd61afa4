"""Aligns two sequences of op names that should be the same but for a few ops that only one side holds."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64

LARGEST_DIFFERENCE = 2_000
"""Edits after which two sequences are given up as different."""
ANCHOR = 24
"""Names in a row by which a window is found."""


class Alignment(NamedTuple):
    """Equal-length positions into both sequences, and in how many places the shorter one would have fitted."""

    left: Int64
    right: Int64
    places: int


def align_steps(left: Int64, right: Int64, marks_step: Bool) -> Alignment:
    """Aligns ops some of whose names mark the steps of a job; `marks_step` says which names do.

    Steps that both sequences mark tell iterations apart: what lies between two marks is aligned by itself, and what
    comes before the first of them from its end on.
    """
    rows = _without_single_marks(left, right, marks_step)
    marks = [np.flatnonzero(marks_step[side[kept]]) for side, kept in zip((left, right), rows, strict=True)]
    stretches = zip(*(np.split(kept, marked) for kept, marked in zip(rows, marks, strict=True)), strict=True)
    pairs: list[tuple[Int64, Int64]] = []
    for a, b in stretches:
        backwards = slice(None, None, -1 if len(marks[0]) and not pairs else 1)
        found = align(left[a][backwards], right[b][backwards])
        pairs.append((a[backwards][found.left][backwards], b[backwards][found.right][backwards]))
    left_row, right_row = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return Alignment(left_row, right_row, 1 if len(marks[0]) else found.places)


def _without_single_marks(left: Int64, right: Int64, marks_step: Bool) -> tuple[Int64, Int64]:
    """Returns the rows of both sides without the step marks that only one side has; without any marks if their order
    differs.
    """
    both = np.intersect1d(left, right)
    kept = [np.flatnonzero(~marks_step[side] | np.isin(side, both)) for side in (left, right)]
    marked = [side[rows][marks_step[side[rows]]] for side, rows in zip((left, right), kept, strict=True)]
    if not np.array_equal(marked[0], marked[1]):
        kept = [np.flatnonzero(~marks_step[side]) for side in (left, right)]
    return kept[0], kept[1]


def align(left: Int64, right: Int64) -> Alignment:
    """Returns positions at which `left` and `right` agree, in order; values are interned names.

    A shorter one that stands in the other word for word is found as a whole, at its first place. Otherwise the greedy
    shortest edit script (Myers, "An O(ND) difference algorithm", 1986), O((n + m) D), stopped at LARGEST_DIFFERENCE
    edits.
    """
    if not len(left) or not len(right):
        return Alignment(np.empty(0, np.int64), np.empty(0, np.int64), 1)
    if len(left) > len(right):
        found = align(right, left)
        return Alignment(found.right, found.left, found.places)
    places = occurrences(left, right)
    if len(places):
        positions = np.arange(len(left))
        return Alignment(positions, positions + places[0], len(places))
    first, last, count = _window(left, right)
    pairs = _common_subsequence(left.tolist(), right[first:last].tolist())
    return Alignment(pairs[:, 0], pairs[:, 1] + first, count)


def _window(left: Int64, right: Int64) -> tuple[int, int, int]:
    """Returns the stretch of a much longer `right` that `left` was taken from, found by the middle of `left`, and in
    how many it would fit.
    """
    middle = len(left) // 2
    part = left[middle : middle + ANCHOR]
    own, places = occurrences(part, left), occurrences(part, right)
    first = places - middle
    first = first[(first >= -ANCHOR) & (first <= len(right) - len(left) + ANCHOR)]
    # what stands several times in `left` stands as often in each stretch
    count = max(1, min(len(first), len(places) - len(own) + 1))
    if len(right) < 2 * len(left) or not len(first):
        return 0, len(right), count
    slack = min(len(left) // 10 + 8, LARGEST_DIFFERENCE // 4)
    return max(0, int(first[0]) - slack), int(first[0]) + len(left) + slack, count


def occurrences(part: Int64, whole: Int64) -> Int64:
    """Returns every position at which `part` stands in `whole`; none for an empty part."""
    if not 0 < len(part) <= len(whole):
        return np.empty(0, np.int64)
    candidates = np.arange(len(whole) - len(part) + 1)
    for offset in range(len(part)):
        candidates = candidates[whole[candidates + offset] == part[offset]]
        if len(candidates) <= 1:
            break
    return candidates[[bool((whole[at : at + len(part)] == part).all()) for at in candidates.tolist()]]


def _common_subsequence(left: list[int], right: list[int]) -> Int64:
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(min(len(left) + len(right), LARGEST_DIFFERENCE) + 1):
        trace.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
            )
            x = furthest.get(diagonal + 1, 0) if down else furthest.get(diagonal - 1, 0) + 1
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            furthest[diagonal] = x
            if x >= len(left) and y >= len(right):
                return _walk_back(trace, len(left), len(right))
    return np.empty((0, 2), np.int64)


def _walk_back(trace: list[dict[int, int]], x: int, y: int) -> Int64:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(trace) - 1, -1, -1):
        furthest, diagonal = trace[edits], x - y
        down = diagonal == -edits or (
            diagonal != edits and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
        )
        before = diagonal + 1 if down else diagonal - 1
        from_x = furthest.get(before, 0) if edits else 0
        from_y = from_x - before if edits else 0
        while x > from_x and y > from_y and (edits == 0 or x > from_x + (not down) or y > from_y + down):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return np.array(pairs[::-1], np.int64).reshape(-1, 2)
