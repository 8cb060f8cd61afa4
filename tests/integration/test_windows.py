"""Linking a part of a trace: what belongs to it, what is cut, and that consecutive parts make up the whole."""

import contextlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace
from execgraph.linker.windows import Window, whole
from execgraph.schema.errors import DataError
from execgraph.schema.linked import LinkedTrace, on_host_clock
from execgraph.tools.generate import simulate, write_traces
from hypothesis import example, given, strategies as st
from support.builder.timeline import TraceBuilder
from support.runs import VERSIONS, Step, broken_rules, convert_linked, play, read_pair, two_threads

from benchmarks.programs import build_job

Pair = tuple[HostTrace | None, DeviceTrace]


def three_steps(**options: str) -> Pair:
    """Steps 3 to 5 of annotation `training`, each with two launches whose kernels outlast it; step 4 synchronises."""
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


def part(pair: Pair, **window: Any) -> LinkedTrace:
    return link(*pair, window=Window(**window))


def names(linked: LinkedTrace, what: str = "activities") -> list[str]:
    table = getattr(linked, what)
    return [table.name[row] for row in range(len(table))]


# What crosses the borders


def test_marks_on_the_device_begin_no_step(t: TraceBuilder) -> None:
    with t.annotation("ProfilerStep#1"), t.op("aten::mm"):
        t.launch("k", duration=90)
    mark = {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#2", "pid": 0, "tid": 7, "dur": 5, "args": {}}
    t.add_device_event(mark | {"ts": t.layout.origin_us + 20})
    with pytest.raises(DataError, match=r"no step 2 to link; the trace holds steps 1$"):
        part(read_pair(t), steps=(2, 3))


def test_an_annotation_that_is_not_there_often_enough_is_refused_with_those_that_are() -> None:
    with pytest.raises(DataError, match=r"3 annotations are named 'forward' .* forward:0 to forward:2"):
        part(three_steps(), annotation="forward:3")


def test_a_name_that_ends_like_a_place_is_meant_as_it_stands(t: TraceBuilder) -> None:
    for number in range(2):
        with t.annotation("layer:1"), t.op("aten::mm"):
            t.launch(f"kernel {number}", duration=2)
    assert names(part(read_pair(t), annotation="layer:1")) == ["kernel 0"]
    assert names(part(read_pair(t), annotation="layer:1:1")) == ["kernel 1"]


# Parts add up, and each is a run of its own


BORDERS = st.lists(st.integers(1, 99), min_size=1, max_size=3, unique=True).map(sorted)
AWAITS_WHAT_ENDS_LATER = [
    Step("stream synchronize", 7, 1, 1), Step("record", 7, 1, 1), Step("set", 20, 1, 17), Step("record", 7, 1, 1),
    Step("work", 7, 1, 17), Step("work", 7, 1, 1), Step("launch", 7, 1, 1), Step("event synchronize", 7, 1, 1),
    Step("launch in op", 7, 1, 1),
]  # fmt: skip
"""By the order of the calls the event is recorded on stream 20, whose work ends 10 µs after the host went on."""


def later_by_clocks_ns(linked: LinkedTrace) -> int:
    """Returns by how much the sources of waits ended after what waited for them, as far as the clocks may be off.

    A graph puts cause before effect, so that its replay ends later than the trace by up to this.
    """
    activities = on_host_clock(linked.activities, linked.info.machine)
    host, device = linked.host_waits, linked.device_waits
    waits = (
        (host.source_row, linked.calls.end, host.call_row),
        (device.source_row, activities.start, device.target_row),
    )
    late = [activities.end[source[source >= 0]] - time[blocked[source >= 0]] for source, time, blocked in waits]
    return int(np.concatenate(late).clip(0).sum())


@given(two_threads, VERSIONS, st.booleans(), BORDERS)
@example(steps=AWAITS_WHAT_ENDS_LATER, torch="2.1", sync_records=False, percent=[1])
def test_parts_of_any_run_add_up_and_replay_as_measured(steps, torch, sync_records, percent):
    _, device = read_pair(play(steps, threads=2, torch=torch, sync_records=sync_records))
    linked, trace = link(None, device), whole(device)
    times = [(trace.end - trace.start) * share / 100_000 for share in (0, *percent, 100)]
    parts = []
    for clock in pairwise(times):
        with contextlib.suppress(DataError):  # nothing ran in it
            parts.append(part((None, device), clock=clock))
    for table in ("calls", "activities"):
        assert sum(len(getattr(cut, table)) for cut in parts) == len(getattr(linked, table))
    assert sum(int(cut.ops.exclusive.sum()) for cut in parts) == int(linked.ops.exclusive.sum())
    for cut in parts:
        nodes = convert_linked(cut)
        assert broken_rules(nodes) == []
        measured, replayed = nodes.makespan_ns(), nodes.earliest_start_makespan_ns()
        tolerance = max(0.005 * measured, 2_000)
        assert measured - tolerance <= replayed <= measured + later_by_clocks_ns(cut) + tolerance


@pytest.mark.parametrize(
    ("job", "sync_records"), [("ddp", False), ("prefetch", True), ("loader", False), ("graph", True)]
)
def test_steps_of_a_job_replay_as_measured_and_are_alike(tmp_path: Path, job: str, sync_records: bool) -> None:
    run = simulate(build_job(job, steps=4, layers=2, seed=1))
    host, device = write_traces(run, tmp_path, sync_records=sync_records)[0]
    pair = read_host_trace(str(host)), read_device_trace(str(device))
    graphs = [convert_linked(part(pair, steps=(number, number + 1))) for number in range(4)]
    assert all(graph.replay_error() <= 0.005 for graph in graphs)
    activities = [graph.report.activities for graph in graphs]
    assert sum(activities) == len(pair[1].activities.start)
    assert max(activities) - min(activities) <= 0.1 * max(activities)


CAPTURES = {"attention": (2,), "compiled": (3,), "threads": (2,), "ddp": (3,), "training": (0, 1)}


@pytest.mark.parametrize("run", CAPTURES)
def test_steps_of_real_runs_replay_as_measured(data: Path, run: str) -> None:
    host = read_host_trace(str(data / run / "host_rank0.json.gz"))
    device = read_device_trace(str(data / run / "device_rank0.json.gz"))
    for number in CAPTURES[run]:
        linked = part((host, device), steps=(number, number + 1))
        nodes = convert_linked(linked)
        assert broken_rules(nodes) == []
        assert nodes.replay_error() <= 0.005
        assert linked.report.matched == linked.report.host_ops
