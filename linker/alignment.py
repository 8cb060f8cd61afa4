"""Aligns two sequences of op names that are the same except for a few ops that only one of them holds."""

from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, Int64

LARGEST_DIFFERENCE = 2_000
"""Edits from which on two sequences count as different."""
ANCHOR = 24
"""Consecutive names by which the position of a sequence in a longer one is found."""


class Alignment(NamedTuple):
    """Pairs of positions in both sequences, and at how many positions of the longer one the shorter one would fit."""

    left: Int64
    right: Int64
    alignment_count: int


def align_steps(left: Int64, right: Int64, *, marks_step: Bool) -> Alignment:
    """Aligns sequences in which some names mark the steps of a job; `marks_step` tells which names do.

    Steps that both sequences mark distinguish iterations: ops between two marks are aligned by themselves, and ops
    before the first mark from the last one backwards.
    """
    rows = _without_single_marks(left, right, marks_step=marks_step)
    by_side = (
        np.split(kept_rows, np.flatnonzero(marks_step[side[kept_rows]]))
        for side, kept_rows in zip((left, right), rows, strict=True)
    )
    steps = [*zip(*by_side, strict=True)]
    pairs: list[tuple[Int64, Int64]] = []
    for left_step, right_step in steps:
        direction = slice(None, None, -1 if len(steps) > 1 and not pairs else 1)
        a, b = left_step[direction], right_step[direction]
        alignment = align(left[a], right[b])
        pairs.append((a[alignment.left][direction], b[alignment.right][direction]))
    left_row, right_row = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return Alignment(left_row, right_row, 1 if len(steps) > 1 else alignment.alignment_count)


def _without_single_marks(left: Int64, right: Int64, *, marks_step: Bool) -> tuple[Int64, Int64]:
    """Returns the rows of both sides without step marks that only one side has, without any if their order differs."""
    shared = np.intersect1d(left, right)
    kept_rows = [np.flatnonzero(~marks_step[side] | np.isin(side, shared)) for side in (left, right)]
    marked = [side[rows][marks_step[side[rows]]] for side, rows in zip((left, right), kept_rows, strict=True)]
    if not np.array_equal(marked[0], marked[1]):
        kept_rows = [np.flatnonzero(~marks_step[side]) for side in (left, right)]
    return kept_rows[0], kept_rows[1]


def align(left: Int64, right: Int64) -> Alignment:
    """Returns the positions at which `left` and `right` agree, in order; values are interned names.

    A shorter sequence that the other one contains as it is matches as a whole, at its first position. Otherwise this is
    the greedy shortest edit script (Myers, "An O(ND) difference algorithm", 1986) of at most LARGEST_DIFFERENCE edits,
    in O((n + m) D).
    """
    if len(left) > len(right):
        swapped = align(right, left)
        return Alignment(swapped.right, swapped.left, swapped.alignment_count)
    if not len(left):
        return Alignment(np.empty(0, np.int64), np.empty(0, np.int64), 1)
    first_positions = occurrences(left, right)
    if len(first_positions):
        positions = np.arange(len(left))
        return Alignment(positions, positions + first_positions[0], len(first_positions))
    first, last, count = _window(left, right)
    pairs = _common_subsequence(left.tolist(), right[first:last].tolist())
    return Alignment(pairs[:, 0], pairs[:, 1] + first, count)


def _window(left: Int64, right: Int64) -> tuple[int, int, int]:
    """Returns the range of a much longer `right` that `left` was taken from, and in how many ranges it would fit.

    They are those that hold the middle of `left`.
    """
    middle = len(left) // 2
    anchor = left[middle : middle + ANCHOR]
    in_left, in_right = occurrences(anchor, left), occurrences(anchor, right)
    first = in_right - middle
    first = first[(first >= -ANCHOR) & (first <= len(right) - len(left) + ANCHOR)]
    # an anchor that occurs several times in `left` does so in each range
    count = max(1, min(len(first), len(in_right) - len(in_left) + 1))
    if len(right) < 2 * len(left) or not len(first):
        return 0, len(right), count
    slack = min(len(left) // 10 + 8, LARGEST_DIFFERENCE // 4)
    return max(0, int(first[0]) - slack), int(first[0]) + len(left) + slack, count


def occurrences(part: Int64, whole: Int64) -> Int64:
    """Returns every position at which `whole` contains `part`, which is not empty."""
    candidates = np.arange(len(whole) - len(part) + 1)
    for offset in range(len(part)):
        candidates = candidates[whole[candidates + offset] == part[offset]]
        if len(candidates) <= 1:
            break
    return candidates[[bool((whole[at : at + len(part)] == part).all()) for at in candidates.tolist()]]


def _common_subsequence(left: list[int], right: list[int]) -> Int64:
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(LARGEST_DIFFERENCE + 1):
        trace.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            down = _goes_down(furthest, diagonal)
            x = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            furthest[diagonal] = x
            if x >= len(left) and y >= len(right):
                return _walk_back(trace, len(left), len(right))
    return np.empty((0, 2), np.int64)


def _goes_down(furthest: dict[int, int], diagonal: int) -> bool:
    """Returns whether the furthest path on a diagonal comes from the next diagonal, not from the previous one."""
    return furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)


def _walk_back(trace: list[dict[int, int]], x: int, y: int) -> Int64:
    pairs: list[tuple[int, int]] = []
    for furthest in reversed(trace):
        diagonal = x - y
        down = _goes_down(furthest, diagonal)
        before = diagonal + 1 if down else diagonal - 1
        while x > furthest[before] + (not down):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = furthest[before], furthest[before] - before
    return np.array(pairs[::-1], np.int64).reshape(-1, 2)
