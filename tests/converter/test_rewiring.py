"""Graph edits and lanes keep dependencies and times, by references that walk every path and every nanosecond.

A graph without its host keeps the order and the time that passed through the host.
"""

import dataclasses
from collections import defaultdict
from itertools import accumulate

import numpy as np
import pytest
from execgraph.converter import rewiring
from execgraph.converter.edges import Edges, joined, known_after
from execgraph.converter.rewiring import HOST_TIME_AFTER, data_edges, edited_graph, rows_of_graph, without_host
from execgraph.converter.targets.astra_sim import count_ready_nodes, implied
from execgraph.converter.targets.times import uncovered
from execgraph.schema.columns import (
    ABSENT,
    BytesColumn,
    Categorical,
    Int64,
    Intervals,
    Ragged,
    group_ids,
    previous_in_group,
)
from execgraph.schema.errors import DataError
from execgraph.schema.graph import Change, ConvertReport, DependencyKind, ExecutionGraph, NodeType, TensorText
from execgraph.tools.replay import replay
from hypothesis import given, strategies as st
from support.for_simulator import passed
from support.generated import ALONE, graphs_of
from support.graphs import EVENT_WAIT, HOST_SYNC, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder
from support.runs import Nodes

from benchmarks.programs import JOBS

LANES = st.lists(st.integers(0, 2), min_size=1, max_size=8)
SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda span: (span[0], sum(span))), max_size=6)
Pairs = list[tuple[int, int]]


def integers(values: object) -> Int64:
    return np.array(values, np.int64)


def edges_of(pairs: Pairs, kinds: list[int] | None = None) -> Edges:
    source, target = (integers([pair[end] for pair in pairs]) for end in (0, 1))
    return Edges(source, target, integers(kinds if kinds is not None else [1] * len(pairs)))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Lanes of some rows (-1: none), and edges that point forward."""
    lane = draw(st.lists(st.integers(-1, 2), min_size=2, max_size=8))
    pairs = st.tuples(st.integers(0, len(lane) - 1), st.integers(0, len(lane) - 1)).filter(
        lambda pair: pair[0] < pair[1]
    )
    return lane, sorted(draw(st.sets(pairs)), key=lambda pair: pair[::-1])


def before(row: int, pairs: list[tuple[int, int]]) -> set[int]:
    """A row and all that it depends on, however far."""
    return {row}.union(*(before(source, pairs) for source, target in pairs if target == row))


def test_threads_and_streams_are_lanes_whatever_their_numbers() -> None:
    g = GraphBuilder()
    for thread in (7, 8, 7):
        g.host("op", 0, 1, thread=thread)
    for device, stream in ((0, 7), (0, 8), (1, 7), (0, 7), (7, 0)):
        g.activity("kernel", 0, 1, device=device, stream=stream)
    lanes = rewiring.lanes_of(g.build()).tolist()
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


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3000)), min_size=1))
def test_whole_microseconds_keep_the_total_of_each_lane_at_every_row(rows: list[tuple[int, int]]) -> None:
    lane, duration = (integers([row[column] for row in rows]) for column in (0, 1))
    whole = rewiring.whole_microseconds(duration, lane)
    exact, rounded = defaultdict[int, int](int), defaultdict[int, int](int)
    for row, (number, ns) in enumerate(rows):
        exact[number] += ns
        rounded[number] += int(whole[row])
        assert abs(1000 * rounded[number] - exact[number]) <= 1000
    assert (whole >= 0).all()
    first = rewiring.whole_microseconds(duration[lane == lane.min()], lane[lane == lane.min()])
    assert np.cumsum(first).tolist() == [(ns + 500) // 1000 for ns in accumulate(duration[lane == lane.min()].tolist())]


@given(SPANS, SPANS)
def test_a_span_alone_is_the_time_without_others_and_without_own_ones_that_ended_sooner(spans, others):
    found = uncovered(
        *(Intervals(*(integers([span[end] for span in some]) for end in (0, 1))) for some in (spans, others))
    )
    taken = {time for other in others for time in range(*other)}
    for row in sorted(range(len(spans)), key=lambda row: (spans[row][1], -spans[row][0])):
        free = set(range(*spans[row])) - taken
        assert found[row] == len(free)
        taken |= free


@given(graphs(), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=8, max_size=8))
def test_nodes_are_ready_from_the_end_of_what_they_follow_to_their_own(graph, times):
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
    assert passed(count_ready_nodes, g.build())[1][Change.MOST_READY] == widest


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
def test_control_dependencies_that_are_kept_follow_from_data_dependencies(graph, data):
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
    along, apart = [(0, 2), (0, 4), (2, 4)], [(1, 3), (0, 5), (4, 5)]
    assert implied(edges_of(along), edges_of(pairs), integers(lane)).all()
    assert not implied(edges_of(apart), edges_of(pairs), integers(lane)).any()


def as_dict(edges: Edges) -> dict[tuple[int, int], int]:
    columns = (column.tolist() for column in edges)
    return {(source, target): kind for source, target, kind in zip(*columns, strict=True)}


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] < pair[1])), st.data())
def test_who_followed_a_removed_row_follows_what_that_followed(pairs, data):
    kinds = {pair: data.draw(st.sampled_from([1, 2, 4, 8])) for pair in sorted(pairs, key=lambda pair: pair[::-1])}
    removed = data.draw(st.sets(st.integers(0, 7)))
    wanted: dict[tuple[int, int], int] = {}

    def walk(target: int, row: int, kind: int) -> None:
        for (source, after), own in kinds.items():
            if after == row and source in removed:
                walk(target, source, kind | own)
            elif after == row:
                wanted[source, target] = wanted.get((source, target), 0) | kind | own

    for row in set(range(8)) - removed:
        walk(row, row, 0)
    found = rewiring.spliced(edges_of(list(kinds), list(kinds.values())), np.isin(np.arange(8), list(removed)))
    assert as_dict(found) == wanted
    assert len(found.source) == len(wanted)


@given(st.lists(st.lists(st.integers(0, 9)), min_size=1, max_size=5), st.data())
def test_rows_of_lists_are_taken_in_any_order_and_any_number(lists: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1)))
    taken = Ragged.of(lists).take(integers(rows))
    assert [taken[row].tolist() for row in range(len(rows))] == [lists[row] for row in rows]


def chain() -> ExecutionGraph:
    g = GraphBuilder()
    first = g.host("first", 0, 5, op_id=1)
    second = g.host("second", 5, 5, after=[(first, PROGRAM_ORDER), (first, LAUNCH)])
    g.activity("third", 10, 5, comm_size=8, after=[(first, LAUNCH), (second, STREAM_ORDER)])
    return g.build()


def test_edges_of_one_pair_are_one_with_all_their_kinds_or_none_where_the_graph_lacks_kinds() -> None:
    assert as_dict(data_edges(chain())) == {(0, 1): PROGRAM_ORDER | LAUNCH, (0, 2): LAUNCH, (1, 2): STREAM_ORDER}
    graph = chain()
    graph.attributes["data_dep_kinds"] = Ragged.of([[], [1], []])
    assert set(as_dict(data_edges(graph)).values()) == {0}
    del graph.attributes["data_dep_kinds"]
    assert set(as_dict(data_edges(graph)).values()) == {0}


@pytest.mark.parametrize("side", ["data_deps", "ctrl_deps"])
def test_an_edge_to_no_node_is_refused_by_both_ids(side: str) -> None:
    graph = chain()
    setattr(graph, side, Ragged.of([[], [77], [78]]))
    with pytest.raises(DataError, match="node 2 depends on node 77, which the graph does not have"):
        data_edges(graph) if side == "data_deps" else rewiring.control_edges(graph)


def test_kept_rows_keep_their_order_where_edges_point_forward_else_follow_their_start() -> None:
    graph, every = chain(), np.arange(3)
    forward = edited_graph(graph, edges_of([(1, 2)], [4]), kept_rows=every[1:])
    assert [forward.name[row] for row in range(2)] == ["second", "third"]
    assert (forward.id.tolist(), forward.data_deps[1].tolist()) == ([1, 2], [1])
    backward = edited_graph(graph, edges_of([(2, 0)], [4]), edges_of([(2, 1)]))
    place = {backward.name[row]: row for row in range(3)}
    assert place["third"] < place["first"] and place["third"] < place["second"]
    assert backward.data_deps[place["first"]].tolist() == [place["third"] + 1]
    assert backward.ctrl_deps[place["second"]].tolist() == [place["third"] + 1]
    assert backward.attributes["data_dep_kinds"][place["first"]].tolist() == [4]
    with pytest.raises(DataError, match=r"cycle: .*first"):
        edited_graph(graph, edges_of([(0, 1), (1, 0)]))


def test_attributes_of_no_row_are_left_out() -> None:
    graph = chain()
    assert "comm_size" not in rows_of_graph(graph, integers([0, 1])).attributes
    assert rows_of_graph(graph, integers([2, 0])).attributes["comm_size"].tolist() == [8, ABSENT]
    columns = {"lists": Ragged.of([[], []]), "texts": Categorical(np.array([-1, -1], np.int32), ["a"])}
    assert rewiring.used([*columns.items(), ("numbers", integers([ABSENT, ABSENT]))]) == {}


def test_tensors_stay_with_the_first_row_that_is_taken_of_a_node() -> None:
    graph = chain()
    texts = [BytesColumn.of([b"of first", b"of third"])] * 6
    graph.tensors = TensorText(integers([0, 2]), *texts)
    taken = rows_of_graph(graph, integers([2, 1, 2, 0])).tensors
    assert (taken.rows.tolist(), taken.input_values) == ([0, 3], [b"of third", b"of first"])
    nothing = rows_of_graph(graph, integers([1])).tensors
    assert nothing is not None and len(nothing.rows) == len(nothing.output_types) == 0


def follows(graph: ExecutionGraph, name: str) -> dict[str, DependencyKind]:
    return Nodes(graph, ConvertReport()).follows(name)


def ancestors(graph: ExecutionGraph) -> dict[str, set[str]]:
    """For each activity the names of the activities that have to end before it starts."""
    before: list[set[int]] = []
    for row in range(len(graph)):
        sources = graph.rows_of(graph.data_deps[row]).tolist()
        before.append(set(sources).union(*(before[source] for source in sources)))
    names = list(graph.name)
    device = graph.is_activity.tolist()
    return {names[row]: {names[one] for one in before[row] if device[one]} for row in range(len(graph)) if device[row]}


def activities_only(device: ExecutionGraph) -> dict[str, set[str]]:
    """The same of a graph without host, without the node at its end."""
    return {name: before for name, before in ancestors(device).items() if name != HOST_TIME_AFTER}


def waited_for_by_the_host() -> GraphBuilder:
    """A copy on one stream, which the host awaits before it launches a kernel on another one."""
    g = GraphBuilder(rank=0)
    first = g.host("copy_", 0, 5_000)
    copy = g.activity("copy", 6_000, 10_000, stream=8, gap=1_000, after=[(first, LAUNCH)])
    wait = g.host("synchronize", 16_000, 2_000, after=[(first, PROGRAM_ORDER), (copy, HOST_SYNC)])
    second = g.host("mm", 18_000, 4_000, after=[(wait, PROGRAM_ORDER)])
    g.activity("gemm", 25_000, 20_000, stream=7, gap=3_000, after=[(second, LAUNCH)])
    return g


def test_an_activity_launched_after_a_wait_follows_the_awaited_one_by_the_host_time_between() -> None:
    """There is no node at the end of a run that ends with an activity."""
    device = without_host(waited_for_by_the_host().build())
    assert list(device.name) == ["copy", "gemm"]
    assert follows(device, "gemm") == {"copy": HOST_SYNC}
    assert device.integers("host_delay_ns").tolist() == [5_000, 25_000 - 3_000 - 16_000]
    assert device.duration_ns.tolist() == [10_000, 20_000]
    assert device.duration_micros.tolist() == [5 + 1 + 10, 6 + 3 + 20]


def test_an_awaited_activity_is_not_named_twice_where_the_stream_or_an_event_implies_it() -> None:
    g = waited_for_by_the_host()
    g.activity("relu", 45_000, 5_000, stream=7, after=[(4, LAUNCH), (5, STREAM_ORDER)])
    between = g.activity("event", 17_000, 1_000, stream=9, after=[(1, LAUNCH), (2, EVENT_WAIT)])
    g.activity("after both", 50_000, 5_000, stream=10, after=[(4, LAUNCH), (between, EVENT_WAIT)])
    device = without_host(g.build())
    assert follows(device, "relu") == {"gemm": STREAM_ORDER}
    assert follows(device, "after both") == {"event": EVENT_WAIT}


@pytest.mark.parametrize("offset_us", [None, 1])
def test_host_time_after_the_last_activity_is_a_node_at_the_end(offset_us: int | None) -> None:
    """The device's clock is 1 µs behind the host's, or the same."""
    g = GraphBuilder(rank=0, **({} if offset_us is None else {"clock_offset_ns": 1_000 * offset_us}))
    op = g.host("mm", 0, 5_000)
    gemm = g.activity("gemm", 5_000, 10_000, stream=7, after=[(op, LAUNCH)])
    copy = g.activity("copy", 5_000, 12_000, stream=8, after=[(op, LAUNCH)])
    wait = g.host("synchronize", 18_000, 1_000, after=[(op, PROGRAM_ORDER), (gemm, HOST_SYNC), (copy, HOST_SYNC)])
    g.host("save", 19_000, 31_000, after=[(wait, PROGRAM_ORDER)])
    device = without_host(g.build())
    assert follows(device, HOST_TIME_AFTER) == {"gemm": HOST_SYNC, "copy": HOST_SYNC}
    last = list(device.name).index(HOST_TIME_AFTER)
    behind = offset_us or 0
    assert device.start_ns[last] == 1_000 * device.start_time_micros[last] == 50_000 - 1_000 * behind
    assert device.integers("host_delay_ns")[last] == 50_000 - 1_000 * (17 + behind)
    assert (device.duration_micros[last], device.duration_ns[last], device.is_activity[last]) == (33 - behind, 0, True)
    replayed = replay(device)
    assert replayed.makespan_ns == replayed.measured_ns == 50_000


def test_communication_that_only_the_host_recorded_stays(g: GraphBuilder) -> None:
    before = g.host("aten::mm", 0, 5_000)
    meet = g.host("gloo:all_reduce", 5_000, 9_000, type=NodeType.COMM_COLL, after=[(before, PROGRAM_ORDER)])
    after = g.host("aten::add", 14_000, 2_000, after=[(meet, PROGRAM_ORDER)])
    g.host("gloo:broadcast", 16_000, 1_000, type=NodeType.COMM_COLL, after=[(after, PROGRAM_ORDER)])
    device = without_host(g.build())
    assert follows(device, "gloo:broadcast") == {"gloo:all_reduce": HOST_SYNC}
    assert device.integers("host_delay_ns").tolist() == [5_000, 2_000]


def test_a_graph_without_activities_is_refused(g: GraphBuilder) -> None:
    g.host("aten::add", 0, 5)
    with pytest.raises(DataError, match="no device activity"):
        without_host(g.build())


@pytest.mark.parametrize("job", [*JOBS][::3])
def test_nothing_of_the_host_is_left_and_a_replay_ends_when_the_measured_run_did(job: str) -> None:
    for graph in graphs_of(job, 1 if job in ALONE else 2):
        device = without_host(graph)
        assert device.is_activity.all()
        assert len(device) == graph.is_activity.sum() + device.name.equal(HOST_TIME_AFTER).sum()
        assert (len(device.ctrl_deps.values), device.tensors) == (0, None)
        assert "tid" not in device.attributes
        replayed = replay(device)
        assert replayed.error_pct is not None and abs(replayed.error_pct) < 0.5
        assert np.abs(replayed.start_ns - replayed.work.measured_start_ns).max() <= 10_000


@pytest.mark.parametrize("promote", ["sync", "all"])
@pytest.mark.parametrize("job", ["critical_path", "graph", "prefetch"])
def test_the_order_of_activities_is_that_of_the_whole_graph(job: str, promote: str) -> None:
    graph = graphs_of(job, promote=promote)[0]
    graph = dataclasses.replace(graph, name=Categorical.of([str(number) for number in graph.id.tolist()]))
    assert activities_only(without_host(graph)) == ancestors(graph)


@given(
    st.lists(st.tuples(st.sampled_from(["launch", "wait", "hand"]), st.integers(0, 2), st.integers(0, 5)), max_size=30)
)
def test_the_order_of_activities_is_that_of_any_graph(steps: list[tuple[str, int, int]]) -> None:
    """Two host threads launch on three streams, wait for what was launched, and hand off to each other."""
    g, thread, last, streams = GraphBuilder(rank=0), 0, {0: 0, 1: 0}, dict[int, list[int]]()
    for clock, (what, stream, back) in enumerate([("launch", 0, 0), *steps]):
        before = [(last[thread], PROGRAM_ORDER)] if last[thread] else []
        launched = streams.setdefault(stream, [])
        if what == "wait" and launched:
            before.append((launched[-1 - back % len(launched)], HOST_SYNC))
        if what == "hand" and last[thread]:
            before = [(last[thread], PROGRAM_ORDER)] + ([(last[1 - thread], PROGRAM_ORDER)] if last[1 - thread] else [])
            thread = 1 - thread
        last[thread] = g.host(f"host {clock}", 10 * clock, 10, thread=thread, after=before)
        if what == "launch":
            chain = [(launched[-1], STREAM_ORDER)] if launched else []
            launched.append(
                g.activity(f"kernel {clock}", 10 * clock, 10, stream=stream, after=[(last[thread], LAUNCH), *chain])
            )
    graph = g.build()
    assert activities_only(without_host(graph)) == ancestors(graph)
