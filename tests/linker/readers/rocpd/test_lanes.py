"""Ranges of unknown threads on the first of the lanes on which they nest, next to a search through all lanes."""

import numpy as np
from execgraph.linker.readers.rocpd_rows import nesting_lanes
from hypothesis import given, strategies as st

Span = tuple[int, int]


def first_lanes(spans: list[Span]) -> list[int]:
    """The lane of each range: the first one whose open ranges all last at least as long."""
    lanes: list[list[Span]] = []
    found = []
    for begin, end in spans:
        nesting = (at for at, lane in enumerate(lanes) if all(until <= begin or until >= end for _, until in lane))
        lane = next(nesting, len(lanes))
        lanes[lane : lane + 1] = [[*(lanes[lane] if lane < len(lanes) else []), (begin, end)]]
        found.append(lane)
    return found


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=25))
def test_each_range_is_on_the_first_lane_on_which_it_nests(drawn: list[Span]) -> None:
    spans = sorted(((begin, begin + length) for begin, length in drawn), key=lambda span: (span[0], -span[1]))
    start, end = np.array(spans, np.int64).reshape(-1, 2).T
    assert nesting_lanes(start, end).tolist() == first_lanes(spans)


def test_ranges_of_which_each_outlasts_the_one_before_have_a_lane_each() -> None:
    start = np.arange(6)
    assert nesting_lanes(start, start + 10).tolist() == [0, 1, 2, 3, 4, 5]
