"""The first lanes that have room, found by heaps, beside references that look at all lanes."""

from collections.abc import Iterator

import numpy as np
from execgraph.linker.communication.messages_in_flight import FIRST_LANE, _lanes
from execgraph.linker.readers.rocpd_lanes import nesting_lanes
from execgraph.schema.columns import Int64
from hypothesis import given, strategies as st
from support.tables import OpRow, op_rows

SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 9)), max_size=12)
"""Thread, start and length."""


def nesting(start: Int64, end: Int64) -> Iterator[int]:
    lanes: list[list[int]] = [[] for _ in start]
    for begin, finish in zip(start.tolist(), end.tolist(), strict=True):
        lanes = [[until for until in lane if until > begin] for lane in lanes]
        chosen = next(number for number, lane in enumerate(lanes) if not lane or lane[-1] >= finish)
        lanes[chosen].append(finish)
        yield chosen


@given(SPANS)
def test_a_range_is_on_the_first_lane_on_which_it_nests(spans: list[tuple[int, int, int]]) -> None:
    rows = sorted((start, -start - length) for _, start, length in spans)
    start, end = np.array(rows, np.int64).reshape(-1, 2).T * [[1], [-1]]
    assert nesting_lanes(start, end).tolist() == list(nesting(start, end))


@given(SPANS)
def test_a_message_is_on_the_first_lane_of_its_thread_that_is_free(spans: list[tuple[int, int, int]]) -> None:
    rows = [OpRow(start, start + length, thread=thread) for thread, start, length in spans]
    free_from: list[tuple[int, int]] = []
    lanes = {}
    for row in sorted(range(len(rows)), key=lambda row: (rows[row].thread, rows[row].start)):
        thread, start, end = rows[row].thread, rows[row].start, rows[row].end
        free = (lane for lane, (of, until) in enumerate(free_from) if of == thread and until <= start)
        lane = next(free, len(free_from))
        free_from[lane : lane + 1] = [(thread, end)]
        lanes[row] = FIRST_LANE - lane
    found = _lanes(op_rows(*rows), np.arange(len(rows))) if rows else np.empty(0)
    assert found.tolist() == [lanes[row] for row in range(len(rows))]
