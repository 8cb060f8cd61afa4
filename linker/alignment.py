"""Aligns two sequences of op names that should be the same but for a few ops that only one side holds."""

from typing import NamedTuple

import numpy as np

from ..schema.columns import Int64

LARGEST_DIFFERENCE = 2_000
ANCHOR = 24


class Alignment(NamedTuple):
    """Equal-length positions into both sequences, and in how many places the shorter one would have fitted."""

    left: Int64
    right: Int64
    places: int


def align(left: Int64, right: Int64) -> Alignment:
    """Positions at which `left` and `right` agree, in order; values are interned names.

    A `left` that stands in `right` word for word is found as a whole, at its first place. Otherwise the greedy shortest edit
    script (Myers, "An O(ND) difference algorithm", 1986), O((n + m) D), stopped at LARGEST_DIFFERENCE edits.
    """
    places = occurrences(left, right)
    if len(places):
        positions = np.arange(len(left))
        return Alignment(positions, positions + places[0], len(places))
    first, last, count = _window(left, right)
    pairs = _common_subsequence(left.tolist(), right[first:last].tolist())
    return Alignment(pairs[:, 0], pairs[:, 1] + first, count)


def _window(left: Int64, right: Int64) -> tuple[int, int, int]:
    """The stretch of a much longer `right` that `left` was taken from, found by the middle of `left`, and how many there are."""
    if len(right) < 2 * len(left):
        return 0, len(right), 1
    middle = len(left) // 2
    places = occurrences(left[middle : middle + ANCHOR], right)
    if not len(places):
        return 0, len(right), 1
    slack = len(left) // 10 + 8
    return max(0, int(places[0]) - middle - slack), int(places[0]) - middle + len(left) + slack, len(places)


def occurrences(part: Int64, whole: Int64) -> Int64:
    """Every position at which `part` stands in `whole`; none for an empty part."""
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
