"""When nodes run, by rules and by hand, and between which times a changed run lies."""

import numpy as np
import pytest
from execgraph import what_if
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from execgraph.tools.replay import (
    MakespanRange,
    Replay,
    busy_ns,
    describe,
    gather_job,
    makespan_ns,
    parse_scale,
    replay,
    replay_job,
    replay_ranks,
    scale_nodes,
    summarise,
)
from execgraph.tools.replay.summary import answer, start_error
from hypothesis import given, strategies as st
from support.graphs import (
    EVENT_WAIT,
    HOST_SYNC,
    LAUNCH,
    PROGRAM_ORDER,
    STREAM_ORDER,
    GraphBuilder,
    rank_with_collective,
    training_step,
)
from support.runs import path_ns, scaled


def starts(replayed: Replay) -> list[int]:
    return [int(start) for start in replayed.start_ns]


def test_a_graph_with_all_its_edges_replays_as_measured() -> None:
    replayed = replay(training_step())
    assert starts(replayed) == [0, 5, 8, 28, 40, 46, 47]
    assert replayed.makespan_ns == replayed.measured_ns == 50
    assert replayed.error_pct == 0
    assert start_error(replayed).max == 0


def test_unhidden_host_delay_passes_before_an_activity_of_a_device_only_graph() -> None:
    g = GraphBuilder()
    first = g.activity("a", 0, 10)
    g.activity("b", 45, 10, gap=5, host_delay_ns=30, after=[(first, STREAM_ORDER)])
    assert starts(replay(g.build())) == [0, 45]
    assert path_ns(replay(g.build())) == {"host delay": 30, "computation": 20, "stream order": 5}
    assert starts(scaled(g.build(), "class:host=0.5")) == [0, 30]


def test_host_delay_before_the_first_activity_is_part_of_the_run() -> None:
    g = GraphBuilder()
    first = g.activity("a", 1020, 10, gap=5, host_delay_ns=20)
    g.activity("b", 1030, 10, after=[(first, STREAM_ORDER)])
    replayed = replay(g.build())
    assert (starts(replayed), replayed.makespan_ns, replayed.measured_ns) == ([25, 35], 45, 45)
    assert path_ns(replayed) == {"host delay": 20, "computation": 20, "unknown start": 5}
    assert starts(scaled(g.build(), "class:host=0.5")) == [15, 25]


def test_the_measured_run_includes_the_overlap_of_trimmed_activities_and_no_metadata_without_a_time() -> None:
    g = GraphBuilder()
    g.host("process_group:init", 0, 0, thread=0, type=NodeType.METADATA)
    g.activity("overran", 10**15, 10, overlap_ns=4)
    replayed = replay(g.build())
    assert (replayed.makespan_ns, replayed.measured_ns) == (10, 14)


def test_dependencies_on_missing_nodes_are_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    g = GraphBuilder()
    first = g.host("op", 0, 5)
    g.activity("kernel", 5, 5, after=[(first, LAUNCH), (99, STREAM_ORDER)])
    assert starts(replay(g.build())) == [0, 5]
    assert "dependencies on nodes that the graph lacks: 1" in caplog.text


def test_a_cycle_is_named_by_its_first_node() -> None:
    g = GraphBuilder()
    g.host("fine", 0, 1)
    g.host("chicken", 0, 1, after=[(3, PROGRAM_ORDER)])
    g.host("egg", 0, 1, after=[(2, PROGRAM_ORDER)])
    with pytest.raises(
        DataError, match=r"2 of 3 nodes never become ready: node 2 \(chicken\); its dependencies form a cycle"
    ):
        replay(g.build())


def test_an_empty_graph_takes_no_time() -> None:
    replayed = replay(GraphBuilder().build())
    assert (replayed.makespan_ns, replayed.error_pct, path_ns(replayed), busy_ns(replayed)) == (0, None, {}, {})


# Several ranks


def test_a_collective_starts_when_the_last_member_arrives_and_lasts_the_shortest_measured_time() -> None:
    fast = rank_with_collective(0, work=10, collective=50, clock=100)
    slow = rank_with_collective(1, work=40, collective=20, clock=9000)
    both = replay_ranks([fast, slow])
    assert starts(both) == [0, 10, 60, 0, 40, 60]
    assert both.end_ns.tolist() == [10, 60, 65, 40, 60, 65]
    assert both.makespan_ns == both.measured_ns == 65
    assert busy_ns(both) == {"0/0/7": 65, "1/0/7": 65}
    # the critical path leads over the member that came last
    assert path_ns(both) == {"computation": 45, "communication": 20}
    # a slower rank delays the others
    slow.name.table[0] = "slow gemm"
    assert replay_ranks([fast, slow], [parse_scale("slow=3")]).makespan_ns == 120 + 20 + 5


def test_a_rank_that_began_to_record_later_begins_later() -> None:
    early = rank_with_collective(0, work=10, collective=50, clock=100)
    late = rank_with_collective(1, work=15, collective=20, clock=9_000_000)
    both = replay_ranks([late, early])
    assert starts(both) == [25, 40, 60, 0, 10, 60]
    assert both.makespan_ns == both.measured_ns == 65
    assert replay_ranks([late, early], [parse_scale("class:computation=3")]).makespan_ns == 25 + 45 + 20 + 15
    assert path_ns(both) == {"start offset": 25, "communication": 20, "computation": 20}


def test_the_start_of_another_thread_of_a_late_rank_is_not_part_of_its_offset() -> None:
    ranks = [GraphBuilder(rank=0), GraphBuilder(rank=1)]
    ranks[0].collective(0, 100, ranks=[0, 1])
    ranks[1].host("loader", 0, 5)
    ranks[1].collective(40, 30, ranks=[0, 1])
    both = replay_ranks([g.build() for g in ranks])
    assert path_ns(both) == {"unknown start": 40, "start offset": 30, "communication": 30}


def test_members_whose_graphs_are_not_given_are_not_waited_for() -> None:
    alone = rank_with_collective(0, work=10, collective=50, clock=100)
    other = GraphBuilder(rank=2)
    other.host("op", 0, 5)
    assert replay_ranks([alone, other.build()]).makespan_ns == 65


def test_collectives_issued_in_different_orders_are_a_deadlock_with_names() -> None:
    def rank(order: tuple[int, int]) -> ExecutionGraph:
        g = GraphBuilder()
        first = g.collective(0, 10, ranks=[0, 1], comm_seq=order[0], pg_name="1", name=f"nccl{order[0]}")
        g.collective(10, 10, ranks=[0, 1], comm_seq=order[1], pg_name="1", after=[(first, STREAM_ORDER)])
        return g.build()

    with pytest.raises(DataError) as stuck:
        replay_ranks([rank((1, 2)), rank((2, 1))])
    assert str(stuck.value).startswith(
        "4 of 4 nodes never become ready: rank 0 at node 1 (nccl1) of group 1, rank 1 at node 1 (nccl2) of group 1; "
    )


def test_a_receive_waits_for_its_send() -> None:
    sender, receiver = GraphBuilder(rank=0), GraphBuilder(rank=1)
    compute = sender.activity("gemm", 0, 70)
    sender.activity("ncclSend", 70, 5, type=NodeType.COMM_SEND, comm_dst=1, comm_tag=3, after=[(compute, STREAM_ORDER)])
    receiver.activity("ncclRecv", 0, 75, type=NodeType.COMM_RECV, comm_src=0, comm_tag=3)
    both = replay_ranks([sender.build(), receiver.build()])
    assert starts(both) == [0, 70, 0]
    assert both.end_ns.tolist() == [70, 75, 75]


# Against a reference


@st.composite
def any_graph(draw: st.DrawFn) -> ExecutionGraph:
    """A directed acyclic graph over two threads and two streams, its nodes in any order and with any ids."""
    count = draw(st.integers(1, 12))
    ids = draw(st.permutations(range(1, count + 1)))
    small = st.integers(0, 20)
    nodes = []
    for place in range(count):
        after = (
            [(source, LAUNCH) for source in draw(st.sets(st.sampled_from(ids[:place]), max_size=4))] if place else []
        )
        nodes.append(
            (ids[place], draw(st.booleans()), draw(st.booleans()), draw(small), draw(small), draw(small), after)
        )
    g = GraphBuilder()
    for node, on_device, lane, start, duration, gap, after in draw(st.permutations(nodes)):
        if on_device:
            g.activity("kernel", 1000 + start, duration, id=node, stream=int(lane), gap=gap, after=after)
        else:
            g.host("op", 1000 + start, duration, id=node, thread=int(lane), after=after)
    return g.build()


def earliest_starts(graph: ExecutionGraph) -> dict[int, int]:
    """The rule, spelled out: asks each node when the nodes before it end."""
    ids: list[int] = graph.id.tolist()
    begin: list[int] = graph.start_ns.tolist()
    length: list[int] = graph.duration_ns.tolist()
    gap: list[int] = graph.integers("gap_ns", 0).tolist()
    thread, stream = graph.integers("tid", 0).tolist(), graph.integers("stream", 0).tolist()
    lanes = [
        ("stream", s) if device else ("thread", t)
        for device, s, t in zip(graph.is_activity, stream, thread, strict=True)
    ]
    first = {lane: min((start, row) for row, start in enumerate(begin) if lanes[row] == lane)[1] for lane in set(lanes)}

    def start(row: int) -> int:
        before = [ids.index(source) for source in graph.data_deps[row].tolist()]
        if before:
            return max(start(source) + length[source] for source in before) + gap[row]
        return begin[row] - min(begin) if first[lanes[row]] == row else 0

    return {row: start(row) for row in range(len(ids))}


@given(any_graph())
def test_starts_follow_the_rule(graph: ExecutionGraph) -> None:
    """After the last dependency and the gap, or as measured for the first node of a thread or stream, else at once."""
    replayed = replay(graph)
    assert dict(enumerate(starts(replayed))) == earliest_starts(graph)
    assert replayed.end_ns.tolist() == (replayed.start_ns + graph.duration_ns).tolist()
    assert sum(path_ns(replayed).values()) == replayed.makespan_ns


@given(st.lists(any_graph(), min_size=2, max_size=3))
def test_the_critical_path_of_several_ranks_sums_up_to_the_makespan(graphs: list[ExecutionGraph]) -> None:
    for graph in graphs:
        graph.type[graph.id == 1] = NodeType.COMM_COLL
    replayed = replay_ranks(graphs)
    assert sum(path_ns(replayed).values()) == replayed.makespan_ns
    rows = np.flatnonzero(np.concatenate([graph.id == 1 for graph in graphs]))
    # on hosts each member ends for itself
    assert len(set(replayed.end_ns[rows])) == 1 or not replayed.work.is_activity[rows].any()


def test_a_job_is_gathered_once_and_replayed_with_any_duration_of_any_node() -> None:
    job = gather_job([training_step()])
    assert replay_job(job).makespan_ns == makespan_ns(job) == 50
    factor = np.ones(len(job))
    factor[2] = 0.5  # the gemm, which all else waits for
    assert makespan_ns(scale_nodes(job, factor)) == 40


ALL_REDUCE, BROADCAST = int(CollectiveType.ALL_REDUCE), int(CollectiveType.BROADCAST)


def rank_of(rank: int, work: int, transfers: list[tuple[int, int]], kind: int) -> ExecutionGraph:
    """Work, then transfers of given (begin, end), each followed by nothing but the next one."""
    g = GraphBuilder(rank=rank)
    before = g.host("aten::mm", 1000, work)
    for begin, end in transfers:
        before = g.host(
            "gloo", 1000 + begin, end - begin, type=NodeType.COMM_COLL, pg_ranks=[0, 1], comm_type=kind,
            after=[(before, PROGRAM_ORDER)],
        )  # fmt: skip
    return g.build()


def ends(graphs: list[ExecutionGraph], *scale: str) -> list[int]:
    replayed = replay_ranks(graphs, [parse_scale(spec) for spec in scale])
    names = np.array([graph.name[row] == "gloo" for graph in graphs for row in range(len(graph))])
    return [int(end) for end in replayed.end_ns[names]]


def test_each_member_ends_as_long_after_the_last_arrived_as_it_did_unless_it_was_not_held_by_it() -> None:
    graphs = [rank_of(0, 100, [(100, 520)], ALL_REDUCE), rank_of(1, 500, [(500, 520)], ALL_REDUCE)]
    assert ends(graphs) == [520, 520]
    assert ends(graphs, "aten::mm=0.5") == [270, 270]
    first = [(100, 520), (600, 640)]
    graphs = [rank_of(0, 100, first, BROADCAST), rank_of(1, 500, [(500, 520), (700, 740)], BROADCAST)]
    clocks = gather_job(graphs)
    assert clocks.measured_end_ns.max() == 740
    assert ends(graphs)[1] == ends(graphs, "aten::mm=1.0")[1]


@pytest.mark.parametrize("noise", [0, 300])
def test_clocks_are_such_that_nobody_ends_before_all_have_come(noise: int) -> None:
    """Two of three meetings end late on one rank, which the median alone would take for its clock."""
    arrivals = [(500, 510), (600, 610 + noise), (1000, 1010 + noise)]
    graphs = [
        rank_of(0, 500, [(500, 510), (600, 610), (1000, 1010)], ALL_REDUCE),
        rank_of(1, 500, arrivals, ALL_REDUCE),
    ]
    work = gather_job(graphs)
    starts = work.measured_start_ns[np.concatenate([graph.type for graph in graphs]) == NodeType.COMM_COLL].reshape(
        2, 3
    )
    assert np.abs(starts[0] - starts[1]).max() <= 10


CALL_ORDER, INFERRED = DependencyKind.CALL_ORDER, DependencyKind.INFERRED
BY_ORDER = EVENT_WAIT | CALL_ORDER


def two_streams(kind: DependencyKind) -> ExecutionGraph:
    """A copy of 40 µs and a kernel of 50 on two streams, and behind the kernel one of 20 that waits for both."""
    g = GraphBuilder()
    op = g.host("op", 0, 10_000)
    copy = g.activity("Memcpy", 10_000, 40_000, stream=9, cat="gpu_memcpy", after=[(op, LAUNCH)])
    first = g.activity("gemm", 10_000, 50_000, after=[(op, LAUNCH)])
    g.activity("gemm", 60_000, 20_000, after=[(first, STREAM_ORDER), (copy, kind)])
    return g.build()


@pytest.mark.parametrize(("factor", "low_ns", "high_ns"), [(2, 90_000, 110_000), (0, 80_000, 80_000)])
def test_without_the_wait_the_two_streams_run_side_by_side(factor: int, low_ns: int, high_ns: int) -> None:
    """It changes no answer where what it waits for is over anyway."""
    makespan = scaled(two_streams(BY_ORDER), f"class:memory={factor}").range
    assert makespan == MakespanRange(low_ns, high_ns, waits=1, known_by="order")
    assert makespan.is_clear == (factor == 0)


@pytest.mark.parametrize(
    "kind", [EVENT_WAIT, BY_ORDER | DependencyKind.TENSOR_FLOW, STREAM_ORDER, DependencyKind.HANDOFF | INFERRED]
)
def test_what_another_rule_or_a_record_confirms_is_certain(kind: DependencyKind) -> None:
    assert scaled(two_streams(kind), "class:memory=2").range == MakespanRange(110_000, 110_000, 0, "")


def test_a_wait_that_held_its_work_up_in_the_measured_run_is_certain() -> None:
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    copy = g.activity("Memcpy", 10, 40, stream=9, cat="gpu_memcpy", after=[(op, LAUNCH)])
    early = g.activity("Memcpy", 10, 30, stream=11, cat="gpu_memcpy", after=[(op, LAUNCH)])
    g.activity("gemm", 50, 20, after=[(op, LAUNCH), (copy, BY_ORDER), (early, BY_ORDER)])
    for factor, ns in ((1, 70), (0, 30), (2, 110)):
        assert scaled(g.build(), f"class:memory={factor}").range == MakespanRange(ns, ns, 1, "order")


def test_the_evidence_is_named_and_a_node_counts_once() -> None:
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    first = g.activity("gemm", 10, 40, after=[(op, LAUNCH)])
    second = g.activity("gemm", 10, 50, stream=9, after=[(op, LAUNCH)])
    work = g.host("aten::add", 10, 60, after=[(op, PROGRAM_ORDER)])
    wait = g.host(
        "cudaStreamSynchronize", 70, 1,
        after=[(work, PROGRAM_ORDER), (first, HOST_SYNC | CALL_ORDER), (second, HOST_SYNC | CALL_ORDER)],
    )  # fmt: skip
    g.activity("gemm", 71, 5, stream=11, after=[(wait, LAUNCH), (second, EVENT_WAIT | INFERRED)])
    makespan = scaled(g.build(), "gemm=2").range
    assert makespan is not None
    end = "and delayed nothing when measured"
    assert makespan.reason == f"2 waits are known only from the order of calls or timing {end}"
    assert makespan._replace(waits=1, known_by="timing").reason == f"1 wait is known only from timing {end}"


def test_text_and_figures_give_the_range_beside_the_answer() -> None:
    scale = [parse_scale("class:memory=2")]
    replayed = replay(two_streams(BY_ORDER), scale)
    summary = summarise(replayed)
    lines = describe(replayed, summary, scale).splitlines()
    said = [
        "If all memory copies took twice as long, the run would take 110.0 µs instead of 80.0 µs, +38 % (+12 to +38 %).",
        "1 wait is known only from the order of calls and delayed nothing when measured.",
    ]
    assert lines[:2] == answer(replayed, scale).splitlines() == said
    assert (summary.makespan_us, summary.makespan_low_us, summary.makespan_high_us) == (110, 90, 110)


def test_a_range_within_one_percent_is_one_figure_and_the_run_as_measured_has_none() -> None:
    for scale in ([parse_scale("class:memory=0")], []):
        replayed = replay(two_streams(BY_ORDER), scale)
        text = describe(replayed, summarise(replayed), scale)
        assert " to " not in text and "order of calls" not in text
    assert replayed.range is None
    assert MakespanRange(99, 100, 1, "order").is_clear
    assert not MakespanRange(98, 100, 1, "order").is_clear


@pytest.mark.parametrize(("goes_on_ns", "left_ns"), [(8_000, 39_000), (900_000, 481_000)])
def test_a_call_that_goes_on_long_after_what_it_waited_for_works_and_a_short_return_is_latency(goes_on_ns, left_ns):
    g = GraphBuilder(rank=0)
    launch = g.host("cudaLaunchKernel", 0, 5_000)
    kernel = g.activity("gemm", 5_000, 15_000, after=[(launch, LAUNCH)])
    waits = [(launch, PROGRAM_ORDER), (kernel, HOST_SYNC)]
    free = g.host("hipFree", 20_000 + goes_on_ns, 2_000, gap_ns=goes_on_ns, after=waits)
    g.host("aten::add", 22_000 + goes_on_ns, 10_000, after=[(free, PROGRAM_ORDER)])
    found = [what_if(g.build(), {"hipFree": to}).after for to in (0, 0.5, f"{goes_on_ns + 2_000}ns")]
    # what is left out does not wait for the kernel either, nor does it in the graph of the changed run
    assert replay_ranks(found[0].changed_graphs()).makespan_ns == 20_000
    assert [after.makespan_ns for after in found] == [20_000, left_ns, 32_000 + goes_on_ns]


def test_a_start_that_nothing_explains_bounds_the_answer_and_is_named() -> None:
    """At half the time for the op the callback starts when it did, or after the op."""
    g = GraphBuilder()
    g.host("op", 0, 80_000)
    g.host("callback", 80_000, 1_000, thread=2)
    changed, named = scaled(g.build(), "op=0.5"), "nothing shows what callback waited for"
    assert changed.range is not None and (changed.range.low_ns, changed.range.high_ns) == (41_000, 81_000)
    said = answer(changed, [parse_scale("op=0.5")])
    assert "the run would still take 81.0 µs, +0.0 % (\u221249.4 to +0.0 %)" in said and named[1:] in said
    assert not scaled(g.build(), "callback=0.5").range.starts_fixed
