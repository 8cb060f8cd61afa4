"""No wait is lost silently: what blocked nothing, or could not be resolved, is counted by reason."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from execgraph.schema.columns import ABSENT
from support.builder import Event, TraceBuilder
from support.runs import link_run
from support.waits import UNRECORDED, WITHOUT_EVENT, device_waits, host_waits

ELSEWHERE = Event(9, stream=24, correlation=9_999)
"""Recorded before the trace began."""


def begun(**known: bool) -> TraceBuilder:
    """A run that has an op and a kernel."""
    t = TraceBuilder(**known)  # type: ignore[arg-type]
    t.leaf("aten::empty", 1)
    t.launch("kernel", 7, 5)
    t.idle(50)
    return t


def wait_of_own_stream(t: TraceBuilder) -> None:
    t.wait_event(t.record_event(stream=7), stream=7)
    t.launch("next", 7, 5)


def wait_that_no_work_follows(t: TraceBuilder) -> None:
    t.launch("other", 20, 5)
    t.wait_event(t.record_event(stream=7), stream=20)


def wait_for_nothing(t: TraceBuilder) -> None:
    t.wait_event(t.record_event(stream=20), stream=7)
    t.launch("next", 7, 5)


@pytest.mark.parametrize("play", [wait_of_own_stream, wait_that_no_work_follows, wait_for_nothing])
def test_a_stream_wait_that_held_nothing_back_is_noted(play: Callable[[TraceBuilder], None]) -> None:
    t = begun()
    play(t)
    linked = link_run(t)
    assert linked.report.oddities["stream waits that blocked nothing"] == 1
    assert (device_waits(linked), linked.report.waits, linked.report.dropped) == (set(), {}, {})


def test_a_stream_wait_that_is_not_recorded_and_that_no_work_follows_is_lost() -> None:
    t = begun(**UNRECORDED)
    t.wait_event(t.record_event(stream=7), stream=20)
    assert link_run(t).report.dropped == {"stream waits for which no work followed": 1}


def test_waits_for_what_was_recorded_before_the_trace_are_lost() -> None:
    t = begun()
    t.record_event(stream=7)
    t.wait_event(ELSEWHERE, stream=20)
    t.launch("next", 20, 5)
    t.event_synchronize(ELSEWHERE)
    t.event_query(ELSEWHERE)
    linked = link_run(t)
    assert linked.report.dropped == {
        "stream waits whose event was not found": 1,
        "event synchronisations whose event was not found": 1,
        "event queries whose event was not found": 1,
    }
    assert (device_waits(linked), linked.report.guessed) == (set(), {})
    assert host_waits(linked) == {("", "cudaEventSynchronize")}


@pytest.mark.parametrize("known", [WITHOUT_EVENT, UNRECORDED], ids=["number", "calls"])
def test_waits_where_nothing_was_recorded_are_lost(known: dict[str, bool]) -> None:
    t = begun(**known)
    t.event_synchronize(Event(9))
    t.event_query(Event(9))
    assert link_run(t).report.dropped == {
        "event synchronisations whose event was not found": 1,
        "event queries whose event was not found": 1,
    }


@pytest.mark.parametrize("wait", ["stream_synchronize", "device_synchronize"])
def test_a_synchronisation_that_nothing_recorded_was_pending_for_is_noted(wait: str) -> None:
    t = TraceBuilder()
    t.leaf("aten::empty", 1)
    getattr(t, wait)()
    linked = link_run(t)
    assert linked.report.oddities["host waits for which nothing recorded was pending"] == 1
    assert linked.report.waits == {}


def test_queries_for_different_events_are_no_loop() -> None:
    t = begun()
    t.launch("long", 7, 500)
    pending = t.record_event(stream=7)
    t.launch("short", 20, 5)
    done = t.record_event(stream=20)
    t.idle(50)
    assert not t.event_query(pending)
    assert t.event_query(done)
    linked = link_run(t)
    assert host_waits(linked) == {("short", "cudaEventQuery")}
    assert linked.host_waits.since.tolist() == [ABSENT]
    assert linked.report.waits == {
        "host waits for device, by record": 1,
        "event queries that found the event pending": 1,
    }


def test_an_event_that_had_happened_is_not_asked_for_in_a_loop() -> None:
    t = begun()
    done = t.record_event(stream=7)
    t.idle(50)
    assert all(t.event_query(done) for _ in range(3))
    linked = link_run(t)
    assert linked.host_waits.since.tolist() == [ABSENT] * 3


def test_a_loop_of_queries_waits_from_its_first_one_on() -> None:
    t = begun()
    t.launch("long", 7, 100)
    event = t.record_event(stream=7)
    began, pending = t.now, 0
    while not t.event_query(event):
        t.work(20)
        pending += 1
    linked = link_run(t)
    assert [since - t.origin_ns for since in linked.host_waits.since.tolist()] == [1_000 * began]
    assert linked.report.waits["event queries that found the event pending"] == pending > 1


def test_waits_that_contradict_the_clock_are_lost() -> None:
    t = begun()
    for number in range(3):
        t.launch("early", 20 + number, 5, start=t.now + 4)
    t.launch("long", 7, 500)
    event = t.record_event(stream=7)
    t.syncs.clear()
    t.call("cudaStreamSynchronize", 5)
    t.stream_synchronize(7)
    t.syncs = [replace(t.syncs[-1], correlation=t.calls[-2].correlation)]
    t.wait_event(event, stream=24)
    t.launch("impossible", 24, 5, start=t.ready[7] / 1000 - 100)
    linked = link_run(t)
    assert linked.report.dropped["event waits that contradict the clock"] == 1
    assert linked.report.dropped["host waits that contradict the clock"] == 1
    assert device_waits(linked) == set()


def test_the_first_call_of_a_trace_may_record_an_event() -> None:
    t = TraceBuilder()
    t.activity("before the trace", 7, 0, 50)
    t.wait_event(t.record_event(stream=7), stream=20)
    t.launch("waits", 20, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("before the trace", "waits")}


@pytest.mark.parametrize("second", [False, True])
def test_freeing_memory_waits_for_the_devices_whose_work_had_ended(second: bool) -> None:
    t = begun(**UNRECORDED)
    t.launch("here", 7, 100)
    t.launch("there", 20, 1_000 if second else 50)
    t.activities[-1].device = 1
    t.call("cudaFree", 200)
    awaited = {("here", "cudaFree")} if second else {("here", "cudaFree"), ("there", "cudaFree")}
    assert host_waits(link_run(t)) == awaited


@pytest.mark.parametrize(("event_records", "further_back"), [(64, 0), (65, 1)])
def test_a_wait_that_may_be_for_an_event_record_further_back_than_is_tried_is_noted(
    event_records: int, further_back: int
) -> None:
    """All are on the stream that waits, none of which it can be for."""
    t = TraceBuilder(**UNRECORDED)
    for _ in range(event_records):
        t.launch("work", 7, 1)
        event = t.record_event(stream=7)
    t.wait_event(event, stream=7)
    t.launch("after", 7, 1)
    t.launch("other", 20, 1)
    t.leaf("aten::add", 5)
    noted = link_run(t).report.oddities
    assert noted.get("waits that may be for an event record before the last 64", 0) == further_back
