"""Waits whose event no record names: the same call at the same call site of every step waits for the same, whatever the
clocks and the machine.

Events are numbered in the order in which they are made; a wait that names its event's number is for no other one.
"""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.linker.waits.candidates import Anchor, EventIds
from execgraph.schema.linked import LinkedTrace
from execgraph.tools.generate import DEFAULT, simulate, write_traces
from execgraph.tools.generate.machine import Clock
from support.builder.records import Event
from support.builder.timeline import TraceBuilder
from support.runs import UNRECORDED, WITHOUT_EVENT, device_waits, host_waits, link_run, scripted

from benchmarks.accuracy.dependencies import dependency_accuracy
from benchmarks.programs import build_job

STEPS = 3


def waits_of_steps(linked: LinkedTrace) -> list[tuple[str, str]]:
    """(awaited activity, activity that waited) in the order of time."""
    waits, name = linked.device_waits, linked.activities.name
    pairs = zip(waits.source_row.tolist(), waits.target_row.tolist(), strict=True)
    return [(name[source], name[target]) for source, target in sorted(pairs)]


# what times tell


@pytest.mark.parametrize("latency_us", [2, 16])
def test_where_no_event_record_is_traced_the_work_that_had_just_ended_was_awaited(latency_us: float) -> None:
    """As DDP waits on AMD's machines: in all steps, also in the last one, where nothing was blocked."""
    t = TraceBuilder(**UNRECORDED)
    for step in range(STEPS):
        with t.annotation(f"ProfilerStep#{step}"):
            t.launch("early", 24, 5)
            t.launch("reduce", 20, 300 if step < STEPS - 1 else 5)
            t.launch("compute", 7, 50)
            done = Event(step)
            done.time, done.stream = t.ready[20] + latency_us * 1000 * (step < STEPS - 1), 20
            with t.op("aten::copy_"):
                t.wait_event(done, stream=7)
                t.launch("copy", 7, 5)
            t.device_synchronize()
    assert waits_of_steps(link_run(t)) == [("reduce", "copy")] * STEPS


def test_an_event_record_whose_work_ended_later_in_one_step_is_out_of_the_question_in_all() -> None:
    t = TraceBuilder(**UNRECORDED)
    for step in range(STEPS):
        with t.annotation(f"ProfilerStep#{step}"):
            t.launch("awaited", 20, 50)
            awaited = t.record_event(stream=20)
            with t.op("aten::other"):
                t.launch("unrelated", 24, 500 if step == 1 else 5)
                t.record_event(stream=24)
            with t.op("aten::mm"):
                t.wait_event(awaited, stream=7)
                t.launch("waits", 7, 5)
            t.device_synchronize()
    assert waits_of_steps(link_run(t)) == [("awaited", "waits")] * STEPS


def test_a_long_call_waited_for_what_ended_before_it_returned() -> None:
    """Not for an event that had long been over, though that is the likelier one by the order of calls."""
    t = TraceBuilder(**UNRECORDED)
    t.launch("awaited", 7, 1000)
    event = t.record_event(stream=7)
    t.launch("short", 20, 5)
    t.record_event(stream=20)
    t.event_synchronize(event)
    t.leaf("aten::add", 5)
    assert host_waits(link_run(t)) == {("awaited", "cudaEventSynchronize")}


def test_a_step_that_did_otherwise_is_judged_by_itself() -> None:
    t = TraceBuilder(**UNRECORDED)
    longer = ["gather", "reduce", "reduce", "reduce"]
    for step, awaited in enumerate(longer):
        with t.annotation(f"ProfilerStep#{step}"):
            events = {}
            for name, stream in (("gather", 24), ("reduce", 20)):
                # in one step neither can have been waited for in all
                outlasts = name != awaited and step < 2
                t.launch(name, stream, 900 if outlasts else 300 if name == awaited else 5)
                events[name] = t.record_event(stream=stream)
            with t.op("aten::copy_"):
                t.wait_event(events[awaited], stream=7)
                t.launch("copy", 7, 5)
            t.device_synchronize()
    assert waits_of_steps(link_run(t)) == [(awaited, "copy") for awaited in longer]


def test_the_order_of_a_files_rows_tells_nothing() -> None:
    t = TraceBuilder(**UNRECORDED)
    for stream in (20, 24):
        t.launch(f"awaited on {stream}", stream, 300)
        done = t.record_event(stream=stream)
        t.wait_event(done, stream=stream + 1)
        t.launch(f"after {stream}", stream + 1, 5)
        t.event_synchronize(done)
    t.leaf("aten::add", 5)
    expected = link_run(t)
    t.calls.reverse()
    t.activities.reverse()
    linked = link_run(t)
    assert device_waits(linked) == {(f"awaited on {stream}", f"after {stream}") for stream in (20, 24)}
    assert (device_waits(linked), host_waits(linked)) == (device_waits(expected), host_waits(expected))


# what the order of calls tells


def test_a_query_right_after_a_synchronisation_asks_about_the_same_event() -> None:
    t = scripted("first@7; record a 7; second@7:50; record b 7; sync b; query b", **UNRECORDED)
    assert host_waits(link_run(t)) == {("second", "cudaEventSynchronize"), ("second", "cudaEventQuery")}


# clocks


@pytest.mark.parametrize(
    ("name", "clock_us"), [("simple", -5), ("pageable", 1), ("polling", -5), ("event_sync", 1), ("prefetch", -5)]
)
def test_clocks_that_are_off_change_no_dependency(tmp_path: Path, name: str, clock_us: int) -> None:
    job = build_job(name, seed=1, steps=4, machine=replace(DEFAULT, clocks=(Clock(1000 * clock_us),)))
    run = simulate(job)
    for records in (True, False):
        (files,) = write_traces(run, tmp_path / str(records), sync_records=records)
        graph = convert(link(read_host_trace(str(files.host)), read_device_trace(str(files.device))))
        tallies = dependency_accuracy(job, run.ranks[0], graph)
        wrong = {kind: tally for kind, tally in tallies.items() if tally.false or tally.missing}
        assert not wrong.keys() - {"between threads, no wait"}


@pytest.mark.parametrize(("late_us", "awaited"), [(0.5, "awaited"), (50, "long over")])
def test_a_wait_that_one_steps_clock_contradicts_is_for_what_it_is_for_in_all_other_steps(late_us, awaited):
    """Unless that ended later than clocks differ: then the step did something else."""
    t, steps = TraceBuilder(**UNRECORDED), 12
    for step in range(steps):
        t.launch("measures how soon calls return", 7, 300)
        t.device_synchronize()
        with t.annotation(f"ProfilerStep#{step}"), t.op("aten::item"):
            if step == 1:
                t.launch("long over", 20, 5)
                t.record_event(stream=20)
            t.launch("awaited", 7, 300)
            t.event_synchronize(t.record_event(stream=7))
        if step == 1:
            t.activities[-1] = replace(t.activities[-1], end=t.calls[-1].end + round(1000 * late_us))
    linked = link_run(t)
    waits, name = linked.host_waits, linked.activities.name
    of_event = linked.calls.name.take(waits.call_row).where(lambda call: call == "cudaEventSynchronize")
    sources = [name[row] for row in waits.source_row[of_event].tolist()]
    assert sources == ["awaited", awaited, *["awaited"] * (steps - 2)]


# what data tells


@pytest.mark.parametrize(("read", "awaited"), [(0, "writes first"), (1, "writes second")])
def test_a_stream_waits_for_the_one_whose_data_it_uses_next(read: int, awaited: str) -> None:
    """Not for the one that its thread worked on last, though the event is recorded right after that."""
    t = TraceBuilder(**UNRECORDED)
    buffers = [t.tensor((8, 8)), t.tensor((8, 8))]
    for stream, buffer, name in zip((20, 24), buffers, ("writes first", "writes second"), strict=True):
        with t.op("aten::mm", outputs=[buffer]):
            t.launch(name, stream, 5)
    t.idle(50)
    with t.op("aten::sum", inputs=[buffers[read]]):
        t.wait_event(t.record_event(stream=(20, 24)[read]), stream=7)
        t.launch("reads", 7, 5)
    assert device_waits(link_run(t)) == {(awaited, "reads")}


# real runs


@pytest.mark.parametrize("name", ["event_sync", "event_sync_multi_stream"])
def test_a_real_run_without_its_records_has_the_same_waits(real_traces: Path, tmp_path: Path, name: str) -> None:
    path = real_traces / "critical_path" / f"{name}.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") != "cuda_sync"]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(trace))
    recorded, guessed = (link(None, read_device_trace(str(one))) for one in (path, bare))
    assert _host_rows(guessed) == _host_rows(recorded)
    assert _device_rows(guessed) == _device_rows(recorded)


def _device_rows(linked: LinkedTrace) -> set[tuple[int, int]]:
    waits = linked.device_waits
    return set(zip(waits.source_row.tolist(), waits.target_row.tolist(), strict=True))


def _host_rows(linked: LinkedTrace) -> set[tuple[int, int]]:
    waits = linked.host_waits
    return {
        (call, source)
        for call, source in zip(waits.call_row.tolist(), waits.source_row.tolist(), strict=True)
        if source >= 0
    }


def possible(pairs: list[tuple[int, int]], event: int, *, is_first_wait: bool = True, records: int = 10) -> list[int]:
    ids = EventIds([Anchor(*pair) for pair in pairs])
    return np.flatnonzero(ids.are_possible(np.arange(records), event, is_first_wait=is_first_wait)).tolist()


IN_ORDER = [(1, 50), (4, 53), (6, 55)]


@pytest.mark.parametrize(
    ("event", "records"),
    [
        (51, [2]),
        (52, [3]),
        (54, [5]),
        (56, [7, 8, 9]),
        (57, [8, 9]),
        # made right before the first known one
        (49, [0]),
        # made long before
        (48, [0, 2, 3, 5, 7, 8, 9]),
        (7, [0, 2, 3, 5, 7, 8, 9]),
        (0, [0, 2, 3, 5, 7, 8, 9]),
        # its own event record, or a later one
        (53, [4, 5, 7, 8, 9]),
    ],
)
def test_a_number_between_two_others_was_recorded_between_them(event: int, records: list[int]) -> None:
    assert possible(IN_ORDER, event) == records


def test_the_last_number_before_it_counts_unless_the_event_is_recorded_again_or_was_made_long_before() -> None:
    # event records in between were of events that had been made before
    assert possible([(1, 50), (4, 53), (9, 55)], 57, records=13) == [11, 12]
    assert possible(IN_ORDER, 51, is_first_wait=False) == [2, 3, 5, 7, 8, 9]
    assert possible([*IN_ORDER, (5, 3)], 54) == [5]
    assert possible([(1, 50), (6, 53), (7, 3), (9, 55)], 54) == [7, 8]


@pytest.mark.parametrize("pairs", [[(0, 50), (1, 51)], [(0, 53), (1, 54), (2, 50), (3, 51), (4, 52)], []])
def test_of_few_numbers_or_those_in_no_order_nothing_follows(pairs: list[tuple[int, int]]) -> None:
    assert possible(pairs, 52, records=4) == [0, 1, 2, 3]


def test_an_unknown_event_may_be_any() -> None:
    assert possible(IN_ORDER, -1) == list(range(10))


def test_a_batch_copied_ahead_is_awaited_though_another_event_record_comes_right_before() -> None:
    t = TraceBuilder(**WITHOUT_EVENT)
    t.memcpy("HtoD", stream=13, duration=5)
    copied = t.record_event(stream=13)
    for _ in range(4):
        t.launch("left", 7, 5)
        t.wait_event(t.record_event(stream=7), stream=17)
        t.launch("right", 17, 5)
    t.record_event(stream=17)
    t.wait_event(copied, stream=7)
    t.launch("compute", 7, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("left", "right"), ("Memcpy HtoD (Pageable -> Device)", "compute")}


def test_the_first_event_record_of_a_trace_is_one_of_the_three_that_show_the_order() -> None:
    t = TraceBuilder(**WITHOUT_EVENT)
    for number in range(3):
        t.launch("left", 7, 5)
        t.wait_event(t.record_event(stream=7), stream=17)
        t.launch("right", 17, 5)
        if not number:
            t.memcpy("HtoD", stream=13, duration=5)
            copied = t.record_event(stream=13)
    t.record_event(stream=17)
    t.wait_event(copied, stream=7)
    t.launch("compute", 7, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("left", "right"), ("Memcpy HtoD (Pageable -> Device)", "compute")}
