"""Waits that the order of calls or timing alone tells make the answer to a what-if question a range."""

import pytest
from execgraph.schema.graph import DependencyKind, ExecutionGraph
from execgraph.tools.replay import MakespanRange, Replay, describe, parse_scale, replay, summarise
from execgraph.tools.replay.answer import answer
from support.graphs import EVENT_WAIT, HOST_SYNC, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder

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


def changed(graph: ExecutionGraph, spec: str) -> Replay:
    return replay(graph, [parse_scale(spec)])


def test_without_the_wait_the_two_streams_run_side_by_side() -> None:
    makespan = changed(two_streams(BY_ORDER), "class:memory=2").range
    assert makespan == MakespanRange(low_ns=90_000, high_ns=110_000, waits=1, known_by="order")
    assert not makespan.is_clear


def test_a_wait_for_what_is_over_anyway_changes_no_answer() -> None:
    makespan = changed(two_streams(BY_ORDER), "class:memory=0").range
    assert makespan == MakespanRange(low_ns=80_000, high_ns=80_000, waits=1, known_by="order")
    assert makespan.is_clear


@pytest.mark.parametrize(
    "kind", [EVENT_WAIT, BY_ORDER | DependencyKind.TENSOR_FLOW, STREAM_ORDER, DependencyKind.HANDOFF | INFERRED]
)
def test_what_another_rule_or_a_record_confirms_is_certain(kind: DependencyKind) -> None:
    assert changed(two_streams(kind), "class:memory=2").range == MakespanRange(110_000, 110_000, 0, "")


def test_the_run_as_measured_has_no_range() -> None:
    replayed = replay(two_streams(BY_ORDER))
    assert replayed.range is None
    assert "range" not in describe(replayed, summarise(replayed))


def test_a_wait_that_held_its_work_up_in_the_measured_run_is_certain() -> None:
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    copy = g.activity("Memcpy", 10, 40, stream=9, cat="gpu_memcpy", after=[(op, LAUNCH)])
    early = g.activity("Memcpy", 10, 30, stream=11, cat="gpu_memcpy", after=[(op, LAUNCH)])
    g.activity("gemm", 50, 20, after=[(op, LAUNCH), (copy, BY_ORDER), (early, BY_ORDER)])
    graph = g.build()
    assert changed(graph, "class:memory=1").range == MakespanRange(70, 70, 1, "order")
    assert changed(graph, "class:memory=0").range == MakespanRange(30, 30, 1, "order")
    assert changed(graph, "class:memory=2").range == MakespanRange(110, 110, 1, "order")


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
    makespan = changed(g.build(), "gemm=2").range
    assert makespan is not None
    end = "and delayed nothing when measured"
    assert makespan.reason == f"2 waits are known only from the order of calls or timing {end}"
    assert makespan._replace(waits=1, known_by="timing").reason == f"1 wait is known only from timing {end}"


def test_text_and_figures_give_the_range_beside_the_answer() -> None:
    scale = [parse_scale("class:memory=2")]
    replayed = replay(two_streams(BY_ORDER), scale)
    summary = summarise(replayed)
    lines = describe(replayed, summary, scale).splitlines()
    assert lines[3:5] == [
        "replayed                110.0 µs  +37.50 %",
        "range                    90.0 µs  to 110.0 µs; 1 wait is known only from the order of calls and delayed nothing when "
        "measured",
    ]
    assert lines[-1] == answer(replayed, scale)
    assert lines[-1] == (
        "If all memory copies took twice as long, the run would take 110.0 µs instead of 80.0 µs, 38 % more. "
        "1 wait is known only from the order of calls and delayed nothing when measured: without it, it would take 90.0 µs."
    )
    assert (summary.makespan_us, summary.makespan_low_us, summary.makespan_high_us) == (110, 90, 110)


def test_a_range_within_one_percent_is_one_figure() -> None:
    scale = [parse_scale("class:memory=0")]
    replayed = replay(two_streams(BY_ORDER), scale)
    text = describe(replayed, summarise(replayed), scale)
    assert "range" not in text and "order of calls" not in text
    assert MakespanRange(99, 100, 1, "order").is_clear
    assert not MakespanRange(98, 100, 1, "order").is_clear
