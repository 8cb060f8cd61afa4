"""A replay with scaled durations: which nodes a factor names, and what their latencies, gaps and delays then are."""

import re

import pytest
from execgraph.schema.errors import DataError, RequestError
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import FOREVER
from execgraph.tools.replay import describe, parse_scale, replay, start_error, summarise
from support.builder.timeline import TraceBuilder
from support.graphs import LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder, training_step
from support.runs import convert_run, delayed, scaled


@pytest.mark.parametrize(
    ("specs", "makespan"),
    [
        (["class:host=2"], 10 + 3 + 20 + 10 + 2 + 6 + 2 + 6),
        (["class:computation=0.5"], 5 + 3 + 10 + 5 + 2 + 6 + 1 + 3),
        (["class:memory=10"], 50 + 54),
        (["gemm=2"], 50 + 20),
        (["^vector_=2", "add$=2"], 50 + 30),
        (["host idle=0"], 50 - 3),
    ],
)
def test_scaling_changes_the_durations_of_what_it_names(specs: list[str], makespan: int) -> None:
    assert scaled(training_step(), *specs).makespan_ns == makespan


def test_time_of_unrecorded_work_is_not_host_time() -> None:
    g = GraphBuilder()
    released = g.host("unrecorded host", 0, 100, thread=-1)
    g.activity("kernel", 100, 5, after=[(released, LAUNCH)])
    assert scaled(g.build(), "class:host=0.1").makespan_ns == 105
    assert scaled(g.build(), "unrecorded=0.1").makespan_ns == 15


def test_a_stream_of_years_of_overlapping_work_is_replayed() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        for _ in range(200):
            t.launch("kernel", start=t.now, duration=3e13)
    nodes = convert_run(t)
    assert nodes.graph.integers("overlap_ns", 0).astype(float).sum() > FOREVER
    assert replay(nodes.graph).error_pct == pytest.approx(0, abs=0.5)


def test_times_that_add_up_to_more_than_64_bits_are_refused() -> None:
    g = GraphBuilder()
    last = g.host("op", 0, 1)
    for thread in range(2, 12):
        last = g.host("op", 0, FOREVER // 2, thread=thread, after=[(last, DependencyKind.HANDOFF)])
    with pytest.raises(DataError, match="add up to more than any clock shows"):
        replay(g.build())


def test_delays_are_a_class_of_their_own() -> None:
    assert scaled(delayed()).makespan_ns == 120
    assert scaled(delayed(), "class:delay=0").makespan_ns == 10 + 20 + 2 + 20
    assert scaled(delayed(), "class:host=0", "class:computation=0").makespan_ns == 68 + 2


def test_an_activity_waits_its_latency_after_the_launch_and_its_gap_after_what_it_follows() -> None:
    """Both began 5 ns after their last dependency; which of the two that is changes with what is made slower."""
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    first = g.activity("first", 15, 20, gap=5, after=[(op, LAUNCH)])
    later = g.host("later", 10, 40, after=[(op, PROGRAM_ORDER)])
    # launch-bound as it ran: the gap after the first one is only known from others
    g.activity("second", 55, 20, gap=5, chain_gap_ns=1, after=[(later, LAUNCH), (first, STREAM_ORDER)])
    graph = g.build()
    assert replay(graph).makespan_ns == 75
    assert scaled(graph, "first=10").makespan_ns == 15 + 200 + 1 + 20
    assert scaled(graph, "later=0").makespan_ns == 35 + 1 + 20


def test_a_queued_activity_made_launch_bound_waits_its_latency() -> None:
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    first = g.activity("first", 15, 100, gap=5, after=[(op, LAUNCH)])
    later = g.host("later", 10, 40, after=[(op, PROGRAM_ORDER)])
    g.activity("second", 116, 20, gap=1, latency_ns=5, after=[(later, LAUNCH), (first, STREAM_ORDER)])
    assert replay(g.build()).makespan_ns == 136
    assert scaled(g.build(), "first=0.1").makespan_ns == 50 + 5 + 20
    assert scaled(g.build(), "first=0").makespan_ns == 50 + 5 + 20


def test_a_devices_clock_is_shifted_onto_the_hosts() -> None:
    """As recorded the kernel starts before its launch; 7 ns later it does not."""
    g = GraphBuilder(clock_offset_ns=7)
    op = g.host("op", 1000, 10)
    g.activity("kernel", 1003, 20, after=[(op, LAUNCH)])
    replayed = replay(g.build())
    assert (replayed.makespan_ns, replayed.measured_ns) == (30, 30)
    assert start_error(replayed).max == 0


def test_what_whole_microseconds_cut_off_is_scaled_with_the_duration() -> None:
    """Of durations in whole µs half a µs is missing on average, which is in the gap behind instead."""
    g = GraphBuilder(resolution_ns=1000)
    op = g.host("op", 0, 10_000)
    g.activity("kernel", 10_000, 3_000, after=[(op, LAUNCH)])
    assert replay(g.build()).makespan_ns == 13_000
    assert scaled(g.build(), "kernel=4").makespan_ns == 10_000 + 4 * 3_500 - 500
    assert scaled(g.build(), "kernel=0").makespan_ns == 10_000
    assert scaled(g.build(), "op=4").makespan_ns == 43_000


def test_scaled_durations_are_rounded_to_ns() -> None:
    g = GraphBuilder()
    g.host("op", 0, 3)
    assert scaled(g.build(), "op=0.5").makespan_ns == 2


def test_an_expression_is_split_at_its_last_equals_sign() -> None:
    g = GraphBuilder()
    g.host("tile=64", 0, 10)
    assert scaled(g.build(), "tile=64=3").makespan_ns == 30


@pytest.mark.parametrize(
    "spec", ["gemm", "=2", "gemm=", "gemm=fast", "gemm=-1", "gemm=nan", "gemm=inf", "class:gpu=2", "(=2"]
)
def test_a_malformed_factor_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=r"no class|expression|FACTOR|0 or more"):
        parse_scale(spec)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            "flash_attention=0.5",
            "no node has 'flash_attention' in its name: the table `nodes` of a graph has the names",
        ),
        ("memory=0.5", "no node has 'memory' in its name: write class:memory=0.5"),
        ("bound:compute=0.5", "the peaks of the devices are not known by their names: give them with peaks=…"),
    ],
)
def test_a_factor_that_matches_nothing_is_refused(spec: str, why: str) -> None:
    with pytest.raises(RequestError, match=re.escape(f"scale {spec}: {why}")):
        scaled(training_step(), "gemm=1", spec)


def test_a_class_that_is_absent_changes_nothing_and_each_change_says_what_it_applies_to() -> None:
    scale = [parse_scale(spec) for spec in ("class:communication=0", "gemm=2")]
    replayed = replay(training_step(), scale)
    assert replayed.makespan_ns == 50 + 20
    summary = summarise(replayed, scale=scale)
    assert [(change.nodes, change.time_us) for change in summary.matched] == [(0, 0), (1, 0.02)]
    lines = [line for line in describe(replayed, summary, scale).splitlines() if line.startswith("changed ")]
    assert [line.split() for line in lines] == [
        ["changed", "0", "nodes", "by", "class:communication=0,", "which", "took", "0.0", "µs"],
        ["changed", "1", "node", "by", "gemm=2,", "which", "took", "0.0", "µs"],
    ]
