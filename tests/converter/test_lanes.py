"""Lanes of a graph, and what is counted along them, against references that look at every nanosecond and every path."""

from collections import defaultdict
from itertools import accumulate

import numpy as np
from execgraph.converter.context import Edges
from execgraph.converter.lane_clocks import joined, known_after
from execgraph.converter.lanes import lanes_of, whole_microseconds
from execgraph.converter.targets.limits import implied, widest_ready_set
from execgraph.converter.uncovered_time import uncovered
from execgraph.schema.columns import Int64, Intervals, group_ids, previous_in_group
from hypothesis import given, strategies as st
from support.graphs import STREAM_ORDER, GraphBuilder

LANES = st.lists(st.integers(0, 2), min_size=1, max_size=8)
SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda span: (span[0], sum(span))), max_size=6)


def integers(values: object) -> Int64:
    return np.array(values, np.int64)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Lanes of some rows (-1: none), and edges that point forward."""
    lane = draw(st.lists(st.integers(-1, 2), min_size=2, max_size=8))
    pairs = st.tuples(st.integers(0, len(lane) - 1), st.integers(0, len(lane) - 1)).filter(
        lambda pair: pair[0] < pair[1]
    )
    return lane, sorted(draw(st.sets(pairs)), key=lambda pair: pair[::-1])


def edges_of(pairs: list[tuple[int, int]]) -> Edges:
    source, target = (integers([pair[end] for pair in pairs]) for end in (0, 1))
    return Edges(source, target, np.ones(len(pairs), np.int64))


def before(row: int, pairs: list[tuple[int, int]]) -> set[int]:
    """A row and all that it depends on, however far."""
    return {row}.union(*(before(source, pairs) for source, target in pairs if target == row))


# Lanes


def test_threads_and_streams_are_lanes_whatever_their_numbers() -> None:
    g = GraphBuilder()
    for thread in (7, 8, 7):
        g.host("op", 0, 1, thread=thread)
    for device, stream in ((0, 7), (0, 8), (1, 7), (0, 7), (7, 0)):
        g.activity("kernel", 0, 1, device=device, stream=stream)
    lanes = lanes_of(g.build()).tolist()
    assert sorted(set(lanes)) == list(range(6))
    assert lanes[0] == lanes[2] and lanes[3] == lanes[6]
    assert len(set(lanes)) == 6


NEAR_OR_FAR = st.integers(-2, 2) | st.sampled_from([-(2**63), 2**63 - 1])


@given(st.lists(st.tuples(NEAR_OR_FAR, NEAR_OR_FAR)))
def test_rows_are_numbered_as_they_are_sorted(rows: list[tuple[int, int]]) -> None:
    found = group_ids(*(integers([row[column] for row in rows]) for column in (0, 1)))
    assert found.tolist() == [sorted(set(rows)).index(row) for row in rows]


@given(LANES)
def test_the_row_before_on_the_lane(lane: list[int]) -> None:
    earlier = [[at for at in range(row) if lane[at] == lane[row]] for row in range(len(lane))]
    assert previous_in_group(np.argsort(lane, kind="stable"), integers(lane)).tolist() == [
        found[-1] if found else -1 for found in earlier
    ]


# Time along lanes


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3000)), min_size=1))
def test_whole_microseconds_keep_the_total_of_each_lane_at_every_row(rows: list[tuple[int, int]]) -> None:
    lane, duration = (integers([row[column] for row in rows]) for column in (0, 1))
    whole = whole_microseconds(duration, lane)
    exact, rounded = defaultdict[int, int](int), defaultdict[int, int](int)
    for row, (number, ns) in enumerate(rows):
        exact[number] += ns
        rounded[number] += int(whole[row])
        assert abs(1000 * rounded[number] - exact[number]) <= 1000
    assert (whole >= 0).all()
    first = whole_microseconds(duration[lane == lane.min()], lane[lane == lane.min()])
    assert np.cumsum(first).tolist() == [(ns + 500) // 1000 for ns in accumulate(duration[lane == lane.min()].tolist())]


@given(SPANS, SPANS)
def test_a_span_alone_is_the_time_without_others_and_without_own_ones_that_ended_sooner(
    spans: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    found = uncovered(
        *(Intervals(*(integers([span[end] for span in some]) for end in (0, 1))) for some in (spans, others))
    )
    taken = {time for other in others for time in range(*other)}
    for row in sorted(range(len(spans)), key=lambda row: (spans[row][1], -spans[row][0])):
        free = set(range(*spans[row])) - taken
        assert found[row] == len(free)
        taken |= free


@given(graphs(), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=8, max_size=8))
def test_nodes_are_ready_from_the_end_of_what_they_follow_to_their_own(
    graph: tuple[list[int], list[tuple[int, int]]], times: list[tuple[int, int]]
) -> None:
    lane, pairs = graph
    g = GraphBuilder()
    for row, (start, duration) in enumerate(times[: len(lane)]):
        after = [(source + 1, STREAM_ORDER) for source, target in pairs if target == row]
        g.activity("kernel", start, duration, after=after)
    times = times[: len(lane)]
    zero = min(start for start, _ in times)
    released = [max([zero, *(sum(times[a]) for a, b in pairs if b == row)]) for row in range(len(lane))]
    spans = [(begin, max(sum(times[row]), begin + 1)) for row, begin in enumerate(released)]
    widest = max(sum(begin <= moment < end for begin, end in spans) for moment in range(20))
    assert widest_ready_set(g.build(), edges_of(pairs)) == widest


def test_in_no_graph_nothing_is_ready() -> None:
    assert widest_ready_set(GraphBuilder().build(), edges_of([])) == 0


# Order along lanes


@given(graphs())
def test_a_row_knows_how_far_every_lane_has_come(graph: tuple[list[int], list[tuple[int, int]]]) -> None:
    lane, pairs = graph
    found = known_after(edges_of(pairs), integers(lane), 3)
    for row, clock in enumerate(found):
        known = before(row, pairs)
        assert clock == tuple(max((at for at in known if lane[at] == number), default=-1) for number in range(3))


def test_a_clock_that_adds_nothing_is_shared() -> None:
    first, second = (3, -1), (2, -1)
    assert joined(first, second) is joined(second, first) is first
    assert joined((3, 1), (2, 5)) == (3, 5)


@given(graphs(), st.data())
def test_control_dependencies_that_are_kept_follow_from_data_dependencies(
    graph: tuple[list[int], list[tuple[int, int]]], data: st.DataObject
) -> None:
    lane, pairs = graph
    rows = st.integers(0, len(lane) - 1)
    control = [(a, b) for a, b in data.draw(st.lists(st.tuples(rows, rows).map(sorted))) if a < b]
    kept = implied(edges_of(control), edges_of(pairs), integers(lane))
    for (source, target), keeps in zip(control, kept.tolist(), strict=True):
        assert not keeps or source in before(target, pairs)
        assert keeps or (source, target) not in pairs


def test_control_dependencies_along_a_chain_are_kept() -> None:
    """Rows 0, 1, 2 and 4 are a thread, 3 another one between them; 5 begins anew."""
    lane, pairs = [0, 0, 0, 1, 0, 0], [(0, 1), (1, 2), (2, 3), (3, 4)]
    control = [(0, 2), (0, 4), (2, 4), (1, 3), (0, 5), (4, 5)]
    assert implied(edges_of(control), edges_of(pairs), integers(lane)).tolist() == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
