"""When nodes run, by rules and by hand, and what recording cost."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from execgraph import build, link, report, what_if
from execgraph.schema.errors import DataError, RequestError
from execgraph.schema.graph import CollectiveType, DependencyKind, ExecutionGraph, NodeType
from execgraph.schema.linked import USER_SCOPE
from execgraph.tools.analyses.finding_words import Found
from execgraph.tools.replay import (
    Cause,
    MakespanRange,
    Recording,
    Replay,
    busy_ns,
    describe,
    gather_job,
    makespan_ns,
    parse_scale,
    recording,
    replay,
    replay_job,
    replay_ranks,
    run_of,
    scale_nodes,
    summarise,
)
from execgraph.tools.replay.data_loading import waits_for_data, waits_of, with_measured_waits
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
    assert [lines[3], lines[5]] == [
        "replayed                110.0 µs  +37.50 %",
        "range                    90.0 µs  to 110.0 µs",
    ]
    assert (
        lines[-1]
        == answer(replayed, scale)
        == (
            "If all memory copies took twice as long, the run would take 110.0 µs instead of 80.0 µs, +38 % (+12 to +38 %). "
            "1 wait is known only from the order of calls and delayed nothing when measured."
        )
    )
    assert (summary.makespan_us, summary.makespan_low_us, summary.makespan_high_us) == (110, 90, 110)


def test_a_range_within_one_percent_is_one_figure_and_the_run_as_measured_has_none() -> None:
    for scale in ([parse_scale("class:memory=0")], []):
        replayed = replay(two_streams(BY_ORDER), scale)
        text = describe(replayed, summarise(replayed), scale)
        assert "range" not in text and "order of calls" not in text
    assert replayed.range is None
    assert MakespanRange(99, 100, 1, "order").is_clear
    assert not MakespanRange(98, 100, 1, "order").is_clear


HOST_NS, KERNEL_NS = 80_000, 20_000


def steps(without_profiler_ns: int | None, *, count: int = 2) -> ExecutionGraph:
    """Steps in which the host works for 80 µs, then launches a kernel of 20 µs that it does not wait for."""
    g = GraphBuilder(rank=0, steps=count)
    before: list[tuple[int, DependencyKind]] = []
    for step in range(count):
        op = g.host("aten::mm", HOST_NS * step, HOST_NS, after=before)
        before, clock = [(op, PROGRAM_ORDER)], HOST_NS * (step + 1)
        g.activity("gemm", clock, KERNEL_NS, stream=op, after=[(op, LAUNCH)])
    graph = g.build()
    known = {} if without_profiler_ns is None else {"step_without_profiler_ns": without_profiler_ns}
    return replace(graph, metadata={**graph.metadata, **known})


def known(graph: ExecutionGraph) -> Recording:
    found = recording(graph)
    assert found is not None
    return found


def test_the_factor_replays_the_step_as_it_is_without_a_profiler() -> None:
    graph = steps(30_000)
    found = known(graph)
    assert (found.step_us, found.step_without_profiler_us, found.cause) == (90, 30, Cause.HOST_SLOWED)
    model = found.models[0]
    assert (model.cost_us, model.slowed_us) == (0, 1_600)
    changed = what_if(graph, {"class:host": model.host_factor}, as_recorded=True).after
    assert changed.makespan_ns / 2 == pytest.approx(30_000, rel=0.01)
    assert found.text == "a step took 90.0 µs recorded, 30.0 µs unprofiled; recording slowed the host"


def test_a_measured_cost_is_taken_off_each_op_and_no_sleep() -> None:
    # 50 ops of 1 µs and a sleep of 50; a begin or end costs 0.1 µs, which is 5 of the 10 µs that recording took
    g, after = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=90_000), list[tuple[int, DependencyKind]]()
    g.metadata |= {"recorded_alone": 1, "recorded_op_ns": 200}
    for start, length in [*((1_000 * op, 1_000) for op in range(50)), (50_000, 50_000)]:
        after = [(g.host("op", start, length, after=after), PROGRAM_ORDER)]
    found = known(g.build())
    assert found.models[0].cost_us == pytest.approx(0.2, abs=0.01) and found.models[1].cost_us == 0.1
    durations = found.without_profiler(gather_job([g.build()])).duration_ns
    assert durations.sum() == pytest.approx(90_000, rel=0.01) and durations.max() == pytest.approx(49_800, abs=20)
    answer = what_if(g.build(), {"op": 0.5}).after
    assert answer.work.unprofiled is not None and answer.range is not None
    assert answer.range.models == 1 and answer.range.is_clear and "typical" not in found.text
    del g.metadata["recorded_op_ns"]
    assert known(g.build()).text.endswith("how much was not measured, so a typical cost of an op stands in")


def test_python_in_an_annotation_keeps_its_time_by_every_model_unless_its_functions_are_recorded() -> None:
    for function, least in ({}, 490_000), ({"python_function": "sleep"}, 473_000):
        g, after = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=520_000), list[tuple[int, DependencyKind]]()
        for op in range(50):
            after = [(g.host("op", 1_000 * op, 1_000, after=after), PROGRAM_ORDER)]
        g.host("augment", 50_000, 500_000, after=after, scope=USER_SCOPE, **function)
        run = known(g.build()).without_profiler(gather_job([g.build()]))
        times = [int(model.duration_ns.max()) for model in (run, *run.others)]
        assert min(times) == pytest.approx(least, abs=2_000) and len(times) > 1


def test_models_that_agree_but_not_with_the_likeliest_one_are_a_reason(data: Path) -> None:
    host, device = (str(data / "gpu" / "small" / f"{of}_rank0.json.gz") for of in ("host", "device"))
    said = what_if(link(host, device).to_graph(), {"class:host": 0.5}).after.describe()
    assert said.endswith("(−50 to −49 %). How much recording slowed each op is not known exactly.")


@pytest.mark.parametrize(("step_ns", "cause"), [(60_000, Cause.HELD_UP), (130_000, Cause.SLOWER_BEFORE)])
def test_where_no_cost_explains_a_step_of_a_cpu_the_machine_was_slower_or_faster(step_ns: int, cause: Cause) -> None:
    # 60 ops of 0.1 µs, a product of 44 and a sleep of 50, of which recording slows 2 at most
    g, after = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=step_ns), list[tuple[int, DependencyKind]]()
    g.metadata |= {"recorded_alone": 1, "recorded_op_ns": 20}
    work = [*(("op", 100 * op, 100) for op in range(60)), ("product", 6_000, 44_000), ("sleep", 50_000, 50_000)]
    for name, start, length in work:
        after = [(g.host(name, start, length, after=after), PROGRAM_ORDER)]
    found = known(g.build())
    assert found.cause is cause and found.models[0].machine_factor == pytest.approx(step_ns / 100_000, rel=0.12)
    # steps that recording made no longer may differ by as much again
    assert found.noise_pct == pytest.approx(23.1, abs=0.1) or cause is Cause.HELD_UP
    answer = what_if(g.build(), {"sleep": 0})
    assert answer.before.makespan_ns == pytest.approx(step_ns, rel=0.002)
    assert answer.after.makespan_ns == pytest.approx(step_ns / 2, rel=0.12)


def test_a_range_holds_all_models_and_the_spread_of_steps_and_less_is_noise() -> None:
    graph = steps(30_000)
    graph.metadata.update({"steps_measured": 9, "step_p10_ns": 27_000, "step_p90_ns": 33_000})
    changed = what_if(graph, {"class:computation": 0.5}).after
    # no model takes more of the last kernel than its half
    assert changed.range is not None and changed.range.noise_pct == pytest.approx(10)
    assert changed.range.low_ns == pytest.approx(45_000, rel=0.01) and changed.range.high_ns > 54_900
    found = changed.results.without_profiler
    assert found is not None and (found.measured_us, found.steps) == (60, 2)
    assert (found.changed_us, found.low_us, found.high_us) == pytest.approx((50, 45, 55), rel=0.01)
    assert "a step would take 25.0 µs instead of 30.0 µs, −17 % (−25 to −8 %)" in changed.describe()
    noise = what_if(graph, {"class:computation": 0.9}).after.describe()
    assert "−3.3 % (−13.0 to +6.3 %), within the noise of its steps" in noise


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


def test_recording_slows_what_is_short_and_no_sleep() -> None:
    # of 100 µs the last 50 are a sleep; without a profiler 60 are left
    g, after = GraphBuilder(rank=0, steps=1, step_without_profiler_ns=60_000), list[tuple[int, DependencyKind]]()
    for start, length in [*((1_000 * op, 1_000) for op in range(50)), (50_000, 50_000)]:
        after = [(g.host("op", start, length, after=after), PROGRAM_ORDER)]
    graph = g.build()
    found = known(graph)
    assert found.models[0].host_factor == pytest.approx(1 - 40 / 70, abs=0.01) and found.models[0].slowed_us == 20
    durations = found.without_profiler(gather_job([graph])).duration_ns
    assert durations.sum() == pytest.approx(60_000, rel=0.01) and durations.max() == pytest.approx(38_600, rel=0.01)


@pytest.mark.parametrize(("without_profiler_ns", "cause", "factor"), [
    (10_050, Cause.DEVICES_LIMIT, 0.002), (5_000, Cause.NOT_THE_HOST, None), (89_000, Cause.NOT_SLOWED, 1.0),
    (95_000, Cause.SLOWER_BEFORE, None),
])  # fmt: skip
def test_it_says_when_no_factor_for_the_host_tells(without_profiler_ns, cause, factor):
    found = known(steps(without_profiler_ns))
    assert found.cause is cause
    assert found.is_known == (factor is not None)
    assert factor is None or found.models[0].host_factor == pytest.approx(factor, abs=0.002)


@pytest.mark.parametrize(("name", "most_pct"), [("convolutions_fp32", 0.1), ("loader_pinned", 0.1), ("small_graph", 3)])
def test_a_run_without_a_profiler_replays_as_measured_though_the_host_holds_up_devices_from_one_point_on(
    data: Path, name: str, most_pct: float
) -> None:
    host, device = (str(data / "gpu" / name / f"{of}_rank0.json.gz") for of in ("host", "device"))
    run = run_of([link(host, device).to_graph()])
    assert run.job.recording is not None and abs(run.job.recording.error_pct) < most_pct
    assert run.job.recording.error_pct == pytest.approx(replay_job(run.job).error_pct)


@pytest.mark.parametrize(("name", "asked"), [("loader_pinned", r"enumerate\(DataLoader\)"), ("streams", None)])
def test_the_gain_of_a_finding_is_what_its_question_answers(data: Path, name: str, asked: str | None) -> None:
    """Without waits for its loader loader_pinned really takes 74 % less time."""
    folder = data / "gpu" / name
    found = next(each for each in report(folder).findings if each.what in (Found.DATA_LOADER, Found.HOST_WAITS))
    answer = build(folder).what_if({asked or re.findall("--scale '(.*)=0'", found.evidence)[0]: 0})
    assert found.gain is not None and found.gain.pct == pytest.approx(100 - 100 / answer.speedup, abs=1.0)


def test_a_slower_loader_is_refused_where_the_loop_never_waited_for_it(data: Path) -> None:
    job = build(data / "gpu" / "loader_fast")
    with pytest.raises(RequestError, match="the loop did not wait for its data loader"):
        job.what_if({r"enumerate\(DataLoader\)": 2})
    assert job.what_if({r"enumerate\(DataLoader\)": 0.5, "class:host": 2}).speedup < 1


def test_how_far_a_replay_is_off_the_measured_steps_is_in_its_answers() -> None:
    # even without host work a step takes 10 µs
    graph = steps(9_800)
    assert known(graph).text.endswith("; a replay is +3.06 % off the unprofiled steps")
    said = what_if(graph, {"class:computation": 0.5}).after.describe()
    assert "a step would take 4.9 µs instead of 9.8 µs, −50 % (−50 to −47 %)" in said
    assert said.endswith("without changes the replay is +3.06 % off the measured steps.")


def test_a_step_of_several_ranks_takes_as_long_as_that_of_the_slowest() -> None:
    found = recording([steps(30_000), steps(60_000)])
    assert found is not None and found.step_without_profiler_us == 60
    # nothing is said of other numbers of steps, and of a run that was not measured
    assert recording([steps(30_000), steps(30_000, count=3)]) is None
    assert recording(steps(None)) is None


NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
HANDOFF = DependencyKind.HANDOFF


def loop(*, step_ns: int, wait_ns: int | None, pinning_ns: int = 0) -> ExecutionGraph:
    """Two steps of 100 ns: a slice of the loader, an op in it, another slice of it, 30 ns in all, and 70 ns of work.

    With `pinning_ns` a thread pins each batch, which the loader's last slice waits for.
    """
    g = GraphBuilder(rank=0, steps=2, step_without_profiler_ns=step_ns)
    before: list[tuple[int, DependencyKind]] = []
    for step in range(2):
        clock, op = 100 * step, 10 * step
        first = g.host(NEXT, clock, 10, after=before, op_id=op + 1)
        stack = g.host("aten::stack", clock + 10, 15, after=[(first, PROGRAM_ORDER)], op_id=op + 2)
        pinned = g.host("aten::pin_memory", clock, pinning_ns, thread=2, op_id=op + 3) if pinning_ns else None
        handed = [(pinned, HANDOFF)] if pinned else []
        last = g.host(NEXT, clock + 25, 5, after=[(stack, PROGRAM_ORDER), *handed], op_id=op + 1)
        before = [(g.host("aten::mm", clock + 30, 70, after=[(last, PROGRAM_ORDER)], op_id=op + 4), PROGRAM_ORDER)]
    graph = g.build()
    known = {} if wait_ns is None else {"data_wait_without_profiler_ns": wait_ns}
    return replace(graph, metadata={**graph.metadata, **known})


def test_they_are_the_calls_of_the_loader_and_what_their_thread_does_in_them() -> None:
    graph = loop(step_ns=100, wait_ns=60, pinning_ns=20)
    names = [graph.name.table[code] for code in graph.name.codes[waits_for_data(graph)].tolist()]
    assert names == [NEXT, "aten::stack", NEXT] * 2


def test_a_thread_that_pins_memory_is_part_of_the_wait() -> None:
    job = gather_job([loop(step_ns=100, wait_ns=60, pinning_ns=25)])
    work, _ = with_measured_waits(job)
    assert np.count_nonzero(job.kind & HANDOFF) == 2
    assert not np.count_nonzero(work.kind & HANDOFF)
    assert makespan_ns(work) == 2 * (60 + 70)


@pytest.mark.parametrize(("wait_ns", "slices"), [(60, [40, 15, 5]), (None, [10, 15, 5]), (0, [10, 15, 5])])
def test_they_take_as_long_as_was_measured_if_it_was(wait_ns: int | None, slices: list[int]) -> None:
    job = gather_job([loop(step_ns=100, wait_ns=wait_ns)])
    work, is_data = with_measured_waits(job)
    assert work.duration_ns.tolist() == [*slices, 70] * 2
    assert is_data.tolist() == [*[bool(wait_ns)] * 3, False] * 2
    assert (work is job) == (not wait_ns)


def batches(waits: list[int]) -> ExecutionGraph:
    """A loop that waits so long for batches, and works for 30 µs on each."""
    g, clock, before = GraphBuilder(rank=0), 0, list[tuple[int, DependencyKind]]()
    for op, wait in enumerate(waits):
        taken = g.host(NEXT, clock, wait, after=before, op_id=2 * op + 1)
        work = g.host("aten::mm", clock + wait, 30_000, after=[(taken, PROGRAM_ORDER)], op_id=2 * op + 2)
        before, clock = [(work, PROGRAM_ORDER)], clock + wait + 30_000
    return g.build()


def test_a_batch_of_another_process_is_there_when_it_is_there() -> None:
    # the first batch is there, the next four come every 100 µs
    graph, waits = batches([1_000] + [70_000] * 4), re.escape(NEXT)
    assert replay(graph).makespan_ns == 431_000
    changes = "aten::mm=2", "aten::mm=0", "aten::mm=4", f"{waits}=0", f"{waits}=2", f"{waits}=0.5", f"{waits}=0.1ms"
    found = [replay(graph, [change]).makespan_ns for change in changes]
    assert found == [461_000, 401_000, 605_000, 150_000, 832_000, 230_500, 650_000]
    said = [answer(replay(graph, [change]), [parse_scale(change)]) for change in changes]
    assert ["This assumes that the factor applies to all of the time" in text for text in said] == [False] * 4 + [
        True,
        True,
        False,
    ]
    # where all calls wait, the shortest one is no time of taking a batch
    assert waits_of(gather_job([batches([85_000_000, 40_000_000, 85_000_000])]))[3].all()
    # of 30 µs that each step has less to do it waits 29 longer
    assert "The loop then waits longer for its data" in answer(
        replay(graph, ["aten::mm=0"]), [parse_scale("aten::mm=0")]
    )


def test_the_factor_is_for_the_rest_of_the_host() -> None:
    # of 95 ns the loop waits for 60, so that its 70 ns of other work take 35
    found = recording(loop(step_ns=95, wait_ns=60))
    assert found is not None
    assert (found.cause, found.data_wait_us, found.steps) == (Cause.HOST_SLOWED, 0.06, 2)
    assert found.models[0].host_factor == pytest.approx(0.5, abs=0.02)


def test_what_processes_of_a_loader_leave_of_the_cores_widens_the_range() -> None:
    """A step of 100 ns keeps 2 cores busy for 110 ns by its loop and for 80 ns by others, which may take half of it."""
    graph = loop(step_ns=100, wait_ns=None)
    assert "cores" not in what_if(graph, {"DataLoader": 0}).after.describe()
    graph.metadata.update({"cores": 2, "own_cpu_ns": 110, "others_cpu_ns": 80})
    found, faster = (what_if(graph, {name: factor}).after for name, factor in (("DataLoader", 0.2), ("aten::mm", 0.5)))
    assert found.range is not None and found.range.low_ns == pytest.approx(2 * (50 + 10), abs=1)
    assert "; other processes, also those of a loader, kept 0.8 of 2 cores busy" in found.describe()
    assert "he loader's processes share 2 cores with the loop" in found.describe()
    # what other processes take stays as it is: only the loop's own half is halved
    assert faster.range is not None and faster.range.high_ns == pytest.approx(2 * (25 + 50), abs=1)
    graph.metadata["others_cpu_ns"] = 30
    assert "cores" not in what_if(graph, {"DataLoader": 0.25}).after.describe()


def test_a_slower_machine_leaves_waits_for_data_as_they_were_measured() -> None:
    graph = loop(step_ns=150, wait_ns=60)
    graph = replace(graph, metadata={**graph.metadata, "recorded_alone": 1, "recorded_op_ns": 2})
    job, found = gather_job([graph]), recording(graph)
    assert found is not None and found.models[0].machine_factor == pytest.approx(90 / 70, abs=0.02)
    work = found.without_profiler(job)
    assert work.duration_ns[with_measured_waits(job)[1]].sum() == 2 * 60
    assert makespan_ns(work) == 2 * 150


def test_a_step_may_take_longer_without_a_profiler_as_nobody_loads_ahead_of_it() -> None:
    job = gather_job([loop(step_ns=130, wait_ns=60)])
    found = recording(loop(step_ns=130, wait_ns=60))
    assert found is not None
    assert (found.cause, found.models[0].host_factor) == (Cause.NOT_SLOWED, 1)
    assert makespan_ns(found.without_profiler(job)) == 2 * 130


def test_a_start_that_nothing_explains_bounds_the_answer_and_is_named() -> None:
    """At half the time for the op the callback starts when it did, or after the op."""
    g = GraphBuilder()
    g.host("op", 0, 80_000)
    g.host("callback", 80_000, 1_000, thread=2)
    changed, named = scaled(g.build(), "op=0.5"), "nothing shows what callback waited for"
    assert changed.range is not None and (changed.range.low_ns, changed.range.high_ns) == (41_000, 81_000)
    said = answer(changed, [parse_scale("op=0.5")])
    assert "the run would take 81.0 µs instead of 81.0 µs, +0.0 % (\u221249.4 to +0.0 %)" in said and named[1:] in said
    assert not scaled(g.build(), "callback=0.5").range.starts_fixed
