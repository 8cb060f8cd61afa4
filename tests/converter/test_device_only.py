"""A graph without its host keeps the order and the time that passed through the host."""

import dataclasses
from itertools import groupby

import numpy as np
import pytest
from execgraph.converter.rewiring import HOST_TIME_AFTER, without_host
from execgraph.schema.columns import Categorical, Ragged
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind, ExecutionGraph, NodeType
from execgraph.tools.replay import replay
from hypothesis import given, strategies as st
from support.generated import graphs_of
from support.graphs import EVENT_WAIT, HOST_SYNC, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder

from benchmarks.programs import JOBS


def follows(graph: ExecutionGraph, name: str) -> dict[str, DependencyKind]:
    """What a node depends on, by name, and why."""
    names = [graph.name[row] for row in range(len(graph))]
    row, kinds = names.index(name), graph.attributes["data_dep_kinds"]
    assert isinstance(kinds, Ragged)
    sources = graph.rows_of(graph.data_deps[row]).tolist()
    return {names[source]: DependencyKind(kind) for source, kind in zip(sources, kinds[row].tolist(), strict=True)}


def ancestors(graph: ExecutionGraph) -> dict[str, set[str]]:
    """For each activity the names of the activities that have to end before it starts."""
    before: list[set[int]] = []
    for row in range(len(graph)):
        sources = graph.rows_of(graph.data_deps[row]).tolist()
        before.append(set(sources).union(*(before[source] for source in sources)))
    names = [graph.name[row] for row in range(len(graph))]
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


def test_an_activity_launched_after_a_wait_follows_the_awaited_one() -> None:
    device = without_host(waited_for_by_the_host().build())
    assert [device.name[row] for row in range(len(device))] == ["copy", "gemm"]
    assert follows(device, "gemm") == {"copy": HOST_SYNC}


def test_host_time_between_the_two_delays_the_later_one() -> None:
    device = without_host(waited_for_by_the_host().build())
    assert device.integers("host_delay_ns").tolist() == [5_000, 25_000 - 3_000 - 16_000]
    assert device.duration_ns.tolist() == [10_000, 20_000]
    assert device.duration_micros.tolist() == [5 + 1 + 10, 6 + 3 + 20]


def test_an_awaited_activity_is_not_named_twice_where_the_stream_implies_it() -> None:
    g = waited_for_by_the_host()
    g.activity("relu", 45_000, 5_000, stream=7, after=[(4, LAUNCH), (5, STREAM_ORDER)])
    assert follows(without_host(g.build()), "relu") == {"gemm": STREAM_ORDER}


def test_an_order_by_events_implies_the_one_through_the_host() -> None:
    g = waited_for_by_the_host()
    between = g.activity("event", 17_000, 1_000, stream=9, after=[(1, LAUNCH), (2, EVENT_WAIT)])
    g.activity("after both", 50_000, 5_000, stream=10, after=[(4, LAUNCH), (between, EVENT_WAIT)])
    assert follows(without_host(g.build()), "after both") == {"event": EVENT_WAIT}


def test_a_wait_on_another_thread_counts_after_its_handoff() -> None:
    g = GraphBuilder(rank=0)
    first = g.host("copy_", 0, 5_000)
    copy = g.activity("copy", 5_000, 10_000, stream=8, after=[(first, LAUNCH)])
    wait = g.host("synchronize", 15_000, 1_000, after=[(first, PROGRAM_ORDER), (copy, HOST_SYNC)])
    untold = g.host("other thread", 0, 20_000, thread=2)
    told = g.host("backward", 20_000, 1_000, thread=2, after=[(untold, PROGRAM_ORDER), (wait, DependencyKind.HANDOFF)])
    g.activity("before", 20_000, 500, stream=9, after=[(untold, LAUNCH)])
    g.activity("after", 21_000, 500, stream=10, after=[(told, LAUNCH)])
    device = without_host(g.build())
    assert follows(device, "before") == {}
    assert follows(device, "after") == {"copy": HOST_SYNC}


def test_work_that_the_host_did_not_wait_for_stays_free() -> None:
    g = GraphBuilder(rank=0)
    first = g.host("mm", 0, 1_000)
    g.activity("gemm", 1_000, 90_000, stream=7, after=[(first, LAUNCH)])
    second = g.host("copy_", 1_000, 1_000, after=[(first, PROGRAM_ORDER)])
    g.activity("copy", 2_000, 5_000, stream=8, after=[(second, LAUNCH)])
    device = without_host(g.build())
    assert follows(device, "copy") == {}
    assert device.integers("host_delay_ns").tolist() == [1_000, 2_000]


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
    last = [device.name[row] for row in range(len(device))].index(HOST_TIME_AFTER)
    behind = offset_us or 0
    assert device.start_ns[last] == 1_000 * device.start_time_micros[last] == 50_000 - 1_000 * behind
    assert device.integers("host_delay_ns")[last] == 50_000 - 1_000 * (17 + behind)
    assert (device.duration_micros[last], device.duration_ns[last], device.is_activity[last]) == (33 - behind, 0, True)
    replayed = replay(device)
    assert replayed.makespan_ns == replayed.measured_ns == 50_000


def test_a_run_that_ends_with_an_activity_has_no_node_after_it() -> None:
    device = without_host(waited_for_by_the_host().build())
    assert HOST_TIME_AFTER not in [device.name[row] for row in range(len(device))]


def test_communication_that_only_the_host_recorded_stays() -> None:
    g = GraphBuilder(rank=0)
    before = g.host("aten::mm", 0, 5_000)
    meet = g.host("gloo:all_reduce", 5_000, 9_000, type=NodeType.COMM_COLL, after=[(before, PROGRAM_ORDER)])
    after = g.host("aten::add", 14_000, 2_000, after=[(meet, PROGRAM_ORDER)])
    g.host("gloo:broadcast", 16_000, 1_000, type=NodeType.COMM_COLL, after=[(after, PROGRAM_ORDER)])
    device = without_host(g.build())
    assert follows(device, "gloo:broadcast") == {"gloo:all_reduce": HOST_SYNC}
    assert device.integers("host_delay_ns").tolist() == [5_000, 2_000]


def test_nothing_of_the_host_is_left() -> None:
    for graph in graphs_of("moe"):
        device = without_host(graph)
        assert device.is_activity.all()
        assert len(device) == graph.is_activity.sum() + device.name.equal(HOST_TIME_AFTER).sum()
        assert not len(device.ctrl_deps.values)
        assert device.tensors is None
        assert "tid" not in device.attributes


def test_a_graph_without_activities_is_refused() -> None:
    g = GraphBuilder(rank=0)
    g.host("aten::add", 0, 5)
    with pytest.raises(DataError, match="no device activity"):
        without_host(g.build())


@pytest.mark.parametrize("job", JOBS)
def test_a_replay_ends_when_the_measured_run_did(job: str) -> None:
    for graph in graphs_of(job):
        device = without_host(graph)
        replayed = replay(device)
        assert replayed.error_pct is not None
        assert abs(replayed.error_pct) < 0.5
        assert np.abs(replayed.start_ns - replayed.work.measured_start_ns).max() <= 10_000


@pytest.mark.parametrize("job", JOBS)
def test_whole_microseconds_keep_the_total_of_every_stream(job: str) -> None:
    device = without_host(graphs_of(job)[0])
    exact = device.duration_ns + device.integers("gap_ns", 0) + device.integers("host_delay_ns", 0)
    rows = sorted(zip(device.integers("stream").tolist(), exact.tolist(), device.duration_micros.tolist(), strict=True))
    for _, stream in groupby(rows, key=lambda row: row[0]):
        _, ns, us = zip(*stream, strict=True)
        assert abs(sum(ns) - 1000 * sum(us)) <= 1000


@pytest.mark.parametrize("promote", ["sync", "all"])
@pytest.mark.parametrize("job", ["critical_path", "graph", "prefetch", "moe"])
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
