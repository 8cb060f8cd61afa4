"""Linking a part of a trace: what belongs to it, what is cut, and that parts which follow each other make up the whole."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from builder import TraceBuilder
from execgraph.linker.device_trace import DeviceTrace, read_device_trace
from execgraph.linker.host_trace import HostTrace, read_host_trace
from execgraph.linker.link import link
from execgraph.linker.match import match_ops
from execgraph.linker.windows import Span, annotation_span, clock_span, inside, step_span, whole
from execgraph.schema.errors import DataError
from execgraph.schema.linked import LinkedTrace
from runs import broken_rules, convert_linked, read_pair

Pair = tuple[HostTrace, DeviceTrace]


def three_steps(**options: str) -> Pair:
    """Steps 3 to 5, each with two launches whose kernels outlast it, and a synchronisation in step 4."""
    t = TraceBuilder(**options)  # type: ignore[arg-type]
    with t.annotation("training"):
        for number in (3, 4, 5):
            with t.annotation(f"ProfilerStep#{number}"):
                with t.annotation("forward"), t.op("aten::mm"):
                    t.work(10)
                    t.launch(f"kernel {number}a", duration=50)
                with t.op("aten::add"):
                    t.launch(f"kernel {number}b", duration=50)
                if number == 4:
                    t.stream_synchronize(7)
    return read_pair(t)


def part(pair: Pair, span: Span) -> LinkedTrace:
    host, device = pair
    return link(*inside(host, device, match_ops(host, device), span))


def names(linked: LinkedTrace, what: str = "activities") -> list[str]:
    table = getattr(linked, what)
    return [table.name[row] for row in range(len(table))]


@pytest.mark.parametrize("torch", ["2.1", "2.13"])
def test_a_step_holds_its_ops_and_what_it_launched_whenever_that_ran(torch: str) -> None:
    pair = three_steps(torch=torch)
    linked = part(pair, step_span(pair[1], 4, 5))
    assert names(linked) == ["kernel 4a", "kernel 4b"]
    assert {name for name in names(linked, "ops") if name.startswith("ProfilerStep")} == {"ProfilerStep#4"}
    assert linked.report.matched >= linked.report.host_ops - 1 == linked.report.device_ops - 1  # by names, not the mark


def test_steps_together_are_the_whole_trace() -> None:
    pair = three_steps()
    parts = [part(pair, step_span(pair[1], number, number + 1)) for number in (3, 4, 5)]
    linked = link(*pair)
    assert [name for step in parts for name in names(step)] == names(linked)
    assert [name for step in parts for name in names(step, "calls")] == names(linked, "calls")
    assert sum(int(step.ops.exclusive.clip(0).sum()) for step in parts) == int(linked.ops.exclusive.clip(0).sum())


def test_what_is_left_out_is_counted() -> None:
    pair = three_steps()
    device = inside(*pair, match_ops(*pair), step_span(pair[1], 3, 4))[1]
    assert len(device.activities.start) + device.skipped["activities outside the window"] == 6
    assert len(device.calls.start) + device.skipped["calls outside the window"] == len(pair[1].calls.start)
    assert len(device.ops.start) + device.skipped["ops outside the window"] == len(pair[1].ops.start)
    assert device.noted["ops cut at the borders of the window"] == 1  # "training" goes on


def test_ops_around_the_window_are_cut_to_it() -> None:
    pair = three_steps()
    span = step_span(pair[1], 4, 5)
    linked = part(pair, span)
    row = names(linked, "ops").index("training")
    assert int(linked.ops.start[row]) == span.start
    assert int(linked.ops.end[row]) <= span.end


def test_a_call_that_is_running_at_the_border_belongs_to_the_part_it_starts_in() -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        t.launch("first", call_duration=10)
        t.launch("second", call_duration=10)
    _, device = read_pair(t)
    trace = whole(device)
    border = trace.start + 15_000  # in the second call
    left, right = (inside(None, device, None, span)[1] for span in (Span(trace.start, border), Span(border, trace.end)))
    assert (len(left.calls.start), len(left.activities.start)) == (2, 2)
    assert (len(right.calls.start), len(right.activities.start), len(right.ops.start)) == (0, 0, 0)
    assert left.ops.end.tolist() == [trace.start + 20_000]


@pytest.mark.parametrize("torch", ["2.1", "2.13"])
def test_a_window_of_the_clock_is_in_microseconds_from_the_start(torch: str) -> None:
    pair = three_steps(torch=torch)
    span = clock_span(pair[1], 0, 12)
    assert span.end - span.start == 12_000 and span.start == whole(pair[1]).start
    assert names(part(pair, span)) == ["kernel 3a"]


def test_an_annotation_is_the_first_of_its_name_in_what_else_is_asked_for() -> None:
    pair = three_steps()
    span = annotation_span(pair[1], "forward", step_span(pair[1], 4, 6))
    assert names(part(pair, span)) == ["kernel 4a"]


def test_the_device_trace_alone_has_windows_too() -> None:
    _, device = three_steps()
    host, cut = inside(None, device, None, step_span(device, 5, 6))
    assert host is None
    assert names(link(None, cut)) == ["kernel 5a", "kernel 5b"]


@pytest.mark.parametrize(
    ("first", "end", "missing"),
    [(2, 3, "no step 2"), (4, 9, "no step 6"), (4, 4, "no step 4"), (0, 10**18, "no step 0")],
)
def test_steps_that_the_trace_does_not_hold_are_refused(first: int, end: int, missing: str) -> None:
    with pytest.raises(DataError, match=missing + " to link; the trace holds steps 3 to 5"):
        step_span(three_steps()[1], first, end)


def test_other_windows_without_anything_in_them_are_refused() -> None:
    _, device = three_steps()
    with pytest.raises(DataError, match="nothing lies between 1000 and 2000 µs"):
        clock_span(device, 1000, 2000)
    with pytest.raises(DataError, match="no annotation named 'backward'"):
        annotation_span(device, "backward", whole(device))


CAPTURES = {"attention": (2, 3), "compiled": (2, 3), "threads": (2, 3), "ddp": (2, 3), "training": (0, 1)}


@pytest.mark.parametrize("run", CAPTURES)
def test_steps_of_real_runs_replay_as_measured(data: Path, run: str) -> None:
    host = read_host_trace(str(data / run / "host_rank0.json.gz"))
    device = read_device_trace(str(data / run / "device_rank0.json.gz"))
    for number in CAPTURES[run]:
        linked = part((host, device), step_span(device, number, number + 1))
        nodes = convert_linked(linked)
        assert broken_rules(nodes) == []
        assert nodes.replay_error() <= 0.005
        assert linked.report.matched == linked.report.host_ops


@pytest.mark.parametrize("run", CAPTURES)
def test_windows_of_any_place_add_up(data: Path, run: str) -> None:
    device = read_device_trace(str(data / run / "device_rank0.json.gz"))
    trace = whole(device)
    borders = np.linspace(trace.start, trace.end, 7).astype(np.int64).tolist()
    parts = [inside(None, device, None, Span(*span))[1] for span in pairwise(borders)]
    for table in ("calls", "activities"):
        assert sum(len(getattr(cut, table).start) for cut in parts) == len(getattr(device, table).start)
    assert sum(int(link(None, cut).ops.exclusive.sum()) for cut in parts) == int(link(None, device).ops.exclusive.sum())
