"""Delays: device time that neither a dependency nor the machine explains, by cause, and how users learn of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from execgraph.schema.graph import Delay, DependencyKind, ExecutionGraph
from execgraph.tools.commands.trace_convert import main, summary
from execgraph.tools.commands.trace_link import main as link_main
from execgraph.tools.replay import parse_scale, replay, summarise
from hypothesis import given
from support.builder import TraceBuilder
from support.builder.timeline import CALL_US
from support.programs import Step, play, with_delays
from support.runs import Nodes, broken_rules, convert_run


def started_late(*, busy: bool = False, lost: bool = False, late: str = "late") -> TraceBuilder:
    """The last kernel starts 200 µs after the rest of its stream; `lost`: a call's kernel is missing."""
    t = TraceBuilder()
    with t.op("aten::mm"):
        for number in range(6):
            t.launch(f"kernel {number}", 7, 10.2, latency=CALL_US + 2.3)
        if busy:
            t.launch("long", 20, 400, latency=CALL_US + 2.3)
        if lost:
            t.call("cudaLaunchKernel")
        t.launch(late, 7, 10.2, start=t.ready[7] / 1000 + 200)
        t.work(500)
    return t


def causes(nodes: Nodes) -> dict[str, Delay]:
    return {label: cause for label, (cause, _) in nodes.delays().items()}


def test_a_delay_is_unexplained_where_the_device_was_free() -> None:
    assert causes(convert_run(started_late())) == {"late": Delay.UNEXPLAINED}


def test_a_delay_while_the_device_was_busy_throughout_is_contention() -> None:
    assert causes(convert_run(started_late(busy=True))) == {"late": Delay.CONTENTION}


def test_a_delay_behind_a_launch_whose_activity_is_missing_is_for_lost_records() -> None:
    assert causes(convert_run(started_late(lost=True))) == {"late": Delay.LOST_RECORDS}


def test_calls_that_seldom_launch_have_lost_nothing() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("first", 7, 10.2)
        t.call("cudaFuncGetAttributes")
        t.launch("late", 7, 10.2, start=300)
    assert causes(convert_run(t)) == {"late": Delay.UNEXPLAINED}


def test_a_streams_first_activity_that_was_launched_early_was_held_by_what_ran_before_recording() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("held", 7, 10.2, start=300)
        t.launch("next", 7, 10.2)
    nodes = convert_run(t)
    assert nodes.delays() == {"held": (Delay.START_OF_RECORDING, 300)}


def test_a_streams_first_activity_that_was_launched_late_was_not() -> None:
    t = TraceBuilder()
    t.leaf("aten::add", 1_000)
    with t.op("aten::mm"):
        t.launch("late", 7, 10.2, latency=300)
    assert causes(convert_run(t)) == {"late": Delay.UNEXPLAINED}


def test_a_delayed_activity_keeps_its_own_dependencies() -> None:
    nodes = convert_run(started_late())
    sources = nodes.follows("late")
    assert sources["kernel 5"] == sources["delay: unexplained"] == DependencyKind.STREAM_ORDER
    assert DependencyKind.LAUNCH in sources.values()
    assert nodes.follows("delay: unexplained") == {"kernel 5": DependencyKind.STREAM_ORDER}


# What replays make of them


def test_delays_take_their_time_unless_asked_otherwise() -> None:
    graph = convert_run(started_late()).graph
    assert summarise(replay(graph)).critical_path_us.get("delay", 0) == 0  # the host takes longer
    fast = [parse_scale("class:host=0")]
    assert summarise(replay(graph, fast)).explained_pct < 40
    assert summarise(replay(graph, [*fast, parse_scale("class:delay=0")])).explained_pct == 100


def test_a_graph_without_its_host_keeps_the_time_of_delays_before_their_activities() -> None:
    nodes = convert_run(started_late(), host=False)
    assert not nodes.graph.is_delay.any()
    assert nodes.follows("late") == {"kernel 5": DependencyKind.STREAM_ORDER}
    waited = nodes.graph.integers("host_delay_ns", 0) + nodes.graph.integers("gap_ns", 0)
    assert waited[nodes.row("late")] == 200_000
    assert replay(nodes.graph).error_pct == 0


@pytest.mark.parametrize("options", [{}, {"promote": "all"}, {"host": False}], ids=["sync", "all", "no host"])
@given(with_delays)
def test_any_run_with_delays_is_sound_and_replays_as_measured(options: dict[str, str], program: list[Step]) -> None:
    t = play([*program, Step("launch", 7, 1, 5)])
    nodes = convert_run(t, **options)
    assert broken_rules(nodes) == []
    if "promote" not in options:
        assert abs(replay(nodes.graph).error_pct or 0) <= 0.5


@given(with_delays)
def test_without_delays_no_run_gets_longer(program: list[Step]) -> None:
    t = play(program)
    kept, left_out = (convert_run(t, delays=delays) for delays in (True, False))
    assert not left_out.graph.is_delay.any()
    assert left_out.report.delays == {}
    assert replay(left_out.graph).makespan_ns <= replay(kept.graph).makespan_ns


# What people are told


def lines_about_delays(t: TraceBuilder) -> list[str]:
    return [line for line in summary(convert_run(t).report).splitlines() if line.startswith("delays")]


def test_the_summary_tells_cause_time_share_and_what_to_do() -> None:
    (line,) = lines_about_delays(started_late(lost=True))
    assert line.startswith("delays      1 lost records, ")
    assert " % of the run; record fewer steps" in line
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("held", 7, 10.2, start=300)
    (line,) = lines_about_delays(t)
    assert line.startswith("delays      1 start of recording, 300.0 µs in all, ")
    assert "; synchronise before recording" in line


def test_the_summary_is_silent_without_delays() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("kernel")
    assert lines_about_delays(t) == []


def test_a_small_share_of_the_run_is_not_told() -> None:
    t = started_late()
    t.leaf("aten::long", 100_000)
    (line,) = lines_about_delays(t)
    assert "unexplained" in line and "%" not in line


def test_delays_can_be_left_out_on_the_command_line(tmp_path: Path) -> None:
    host, device = started_late().write(tmp_path)
    linked, graph = str(tmp_path / "linked.json"), str(tmp_path / "graph.et")
    command(link_main, "--host-trace", str(host), "--device-trace", str(device), "--output", linked)
    for option, delays in (((), 1), (("--no-delays",), 0)):
        command(main, "--input", linked, "--output", graph, *option)
        assert ExecutionGraph.read(graph).is_delay.sum() == delays


def command(entry: Callable[[Sequence[str]], NoReturn], *arguments: str) -> None:
    with pytest.raises(SystemExit) as end:
        entry(arguments)
    assert not end.value.code
