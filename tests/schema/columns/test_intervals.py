"""Nesting of intervals, beside a reference that looks at every pair."""

from typing import NamedTuple

import numpy as np
import pytest
from execgraph.schema.columns import TOLERANCE, NestedIntervals, Nesting, ThreadIntervals, intervals as nesting, nest
from hypothesis import given, strategies as st


class Span(NamedTuple):
    thread: int
    start: int
    end: int


def columns(spans: list[Span]) -> ThreadIntervals:
    return ThreadIntervals(*(np.array([span[field] for span in spans], np.int64) for field in range(3)))


def nested(spans: list[Span], tie: list[int] | None = None) -> Nesting:
    return nest(columns(spans), np.array(tie, np.int64) if tie else None)


def innermost(asked: list[Span], spans: list[Span], rounding: int = 0, tolerance: int = 0) -> list[int]:
    table = NestedIntervals(columns(spans), nested(spans).parent)
    return table.innermost(columns(asked), rounding=rounding, tolerance=tolerance).tolist()


SPANS = st.lists(
    st.builds(lambda thread, start, length: Span(thread, start, start + length),
              st.integers(1, 2), st.integers(0, 25), st.integers(0, 15)),
    max_size=14,
)  # fmt: skip


def encloses(outer: Span, inner: Span) -> bool:
    return outer.thread == inner.thread and outer.start <= inner.start and inner.end <= outer.end


def crosses(one: Span, two: Span) -> bool:
    return one.thread == two.thread and one.start < two.start < one.end < two.end


def proper(spans: list[Span]) -> list[Span]:
    """Without repetitions, crossings and empty spans, so that there is one right nesting."""
    kept: list[Span] = []
    for span in spans:
        if span.start < span.end and span not in kept and not any(crosses(a, span) or crosses(span, a) for a in kept):
            kept.append(span)
    return kept


def reference_parent(spans: list[Span], row: int) -> int:
    around = [other for other, span in enumerate(spans) if other != row and encloses(span, spans[row])]
    return min(around, key=lambda other: spans[other].end - spans[other].start, default=-1)


def nested_by_hand(spans: list[Span]) -> tuple[list[int], list[int]]:
    """Parents and cut ends by the rule: the last earlier one that has not ended, cut as it is itself."""
    parents, ends = [-1] * len(spans), [span.end for span in spans]
    order = sorted(range(len(spans)), key=lambda row: (spans[row].thread, spans[row].start, -spans[row].end, row))
    for place, row in enumerate(order):
        start = spans[row].start
        for earlier in order[:place]:
            same = spans[earlier].start == start == spans[row].end == ends[earlier]
            if spans[earlier].thread == spans[row].thread and (ends[earlier] > start or same):
                parents[row] = earlier
        if parents[row] >= 0:
            ends[row] = min(ends[row], ends[parents[row]])
    return parents, ends


@given(SPANS, st.sampled_from([1, 3, 1 << 16]))
def test_the_parent_is_the_last_earlier_interval_that_has_not_ended(spans: list[Span], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "ROWS_AT_ONCE", at_once)
        found = nested(spans)
    parents, ends = nested_by_hand(spans)
    assert (found.parent.tolist(), found.end.tolist()) == (parents, ends)
    inside = [
        sum(ends[row] - spans[row].start for row, p in enumerate(parents) if p == outer) for outer in range(len(spans))
    ]
    assert found.exclusive.tolist() == [ends[row] - spans[row].start - inside[row] for row in range(len(spans))]


def test_what_outlasts_an_interval_that_was_cut_is_not_cut_with_it() -> None:
    spans = [Span(1, 0, 30_000), Span(1, 10_000, 50_000), Span(1, 40_000, 90_000)]
    found = nested(spans)
    assert (found.parent.tolist(), found.end.tolist(), found.clipped) == ([-1, 0, -1], [30_000, 30_000, 90_000], 1)


@given(SPANS)
def test_the_parent_is_the_smallest_interval_around(spans: list[Span]) -> None:
    spans = proper(spans)
    found = nested(spans)
    parents = [reference_parent(spans, row) for row in range(len(spans))]
    assert found.parent.tolist() == parents
    inside = [
        sum(s.end - s.start for s, p in zip(spans, parents, strict=True) if p == row) for row in range(len(spans))
    ]
    assert found.exclusive.tolist() == [s.end - s.start - taken for s, taken in zip(spans, inside, strict=True)]
    assert (found.end.tolist(), found.clipped) == ([span.end for span in spans], 0)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=8))
def test_crossing_intervals_are_cut_and_no_time_is_anybodys_twice(pairs: list[tuple[int, int]]) -> None:
    spans = [Span(1, start, start + length) for start, length in pairs]
    found = nested(spans)
    covered = {time for span, end in zip(spans, found.end.tolist(), strict=True) for time in range(span.start, end)}
    assert found.exclusive.sum() == len(covered)
    for row, parent in enumerate(found.parent.tolist()):
        assert parent < 0 or (spans[parent].start <= spans[row].start and found.end[row] <= found.end[parent])


def test_equal_starts_follow_the_recorded_order_and_nothing_nests_in_another_thread_or_in_nothing() -> None:
    spans = [Span(1, 0, 5), Span(1, 0, 5), Span(1, 0, 3)]
    assert nested(spans, tie=[0, 1, 2]).parent.tolist() == [-1, 0, 1]
    assert nested(spans, tie=[1, 0, 2]).parent.tolist() == [1, -1, 0]
    assert nested([Span(1, 0, 100), Span(2, 10, 20)]).parent.tolist() == [-1, -1]
    assert len(nested([]).parent) == 0


def test_only_overlaps_beyond_the_tolerance_are_counted() -> None:
    outer = Span(1, 0, 10_000)
    assert nested([outer, Span(1, 5_000, 10_000 + TOLERANCE)]).clipped == 0
    crossing = nested([outer, Span(1, 5_000, 10_001 + TOLERANCE)])
    assert (crossing.clipped, crossing.end.tolist()) == (1, [10_000, 10_000])


@given(SPANS, SPANS)
def test_the_innermost_interval_is_the_smallest_around_a_span(spans: list[Span], asked: list[Span]) -> None:
    spans, asked = proper(spans), [span for span in asked if span.start < span.end]
    found = innermost(asked, spans)
    around = [[row for row, other in enumerate(spans) if encloses(other, span)] for span in asked]
    smallest = [min(rows, key=lambda row: spans[row].end - spans[row].start, default=-1) for rows in around]
    assert found == smallest


def test_a_span_may_outlast_its_interval_by_the_tolerance() -> None:
    outer, inner = Span(1, 0, 10_000), Span(1, 2_000, 5_000)
    late = [Span(1, 4_000, 5_500), Span(1, 8_000, 10_500), Span(1, 8_000, 12_000)]
    assert innermost(late, [outer, inner]) == [0, -1, -1]
    assert innermost(late, [outer, inner], rounding=500) == [1, 0, -1]
    assert innermost(late, [outer, inner], tolerance=1_000) == [0, 0, -1]


@given(SPANS, SPANS, st.integers(0, 3), st.integers(0, 3))
def test_climbing_far_finds_what_climbing_step_by_step_does(spans, asked, rounding, tolerance):
    step_by_step = innermost(asked, spans, rounding, tolerance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "STEPS", 0)
        assert innermost(asked, spans, rounding, tolerance) == step_by_step


# Shapes for which time must not grow with the square of the size: at a hundred thousand that would take minutes

MANY = 100_000


def test_intervals_nested_in_each_other_beside_as_many_that_overlap() -> None:
    row = np.arange(MANY)
    start = np.concatenate((row, 3 * MANY + row))
    end = np.concatenate((3 * MANY - row, 5 * MANY + row))
    found = nest(ThreadIntervals(np.ones(2 * MANY, np.int64), start, end))
    assert found.parent.tolist() == [*range(-1, MANY - 1), -1, *range(MANY, 2 * MANY - 1)]
    assert (found.end[MANY:] == 5 * MANY).all()


def test_spans_deep_in_intervals_that_they_outlast() -> None:
    row, threads = np.arange(MANY), np.ones(MANY, np.int64)
    start, end = row, 3 * MANY - row
    table = NestedIntervals(ThreadIntervals(threads, start, end), np.arange(-1, MANY - 1))
    asked = table.innermost(ThreadIntervals(threads, np.full(MANY, MANY), end))
    assert asked.tolist() == row.tolist()


def test_a_thread_for_each_interval() -> None:
    row = np.arange(MANY)
    intervals = ThreadIntervals(row, row, row + 10)
    parent = nest(intervals).parent
    assert (parent == -1).all()
    inside = ThreadIntervals(row, row + 1, row + 2)
    assert NestedIntervals(intervals, parent).innermost(inside).tolist() == row.tolist()
