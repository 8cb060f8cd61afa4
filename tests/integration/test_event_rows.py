"""Events known by their ids alone, as CUDA from 12.9 on records them: cuda_event rows say what an id marked when."""

import pytest
from execgraph.schema.graph import DependencyKind
from support.runs import convert_run, device_waits, host_waits, link_run

from support.builder import Event, TraceBuilder


def group_ids() -> TraceBuilder:
    return TraceBuilder(event_rows=True)


def test_a_stream_waits_for_what_the_id_marked() -> None:
    t = group_ids()
    t.launch("marked", 7, 50)
    event = t.record_event(stream=7)
    t.launch("later", 7, 50)
    t.launch("elsewhere", 24, 5)
    t.record_event(stream=24)
    t.wait_event(event, stream=20)
    t.launch("waits", 20, 5)
    t.leaf("aten::add", 5)
    linked = link_run(t)
    assert device_waits(linked) == {("marked", "waits")}
    assert linked.report.waits == {"waits of streams for other streams, by record": 1}
    assert linked.report.guessed == {}
    assert convert_run(t).follows("waits")["marked"] == DependencyKind.EVENT_WAIT


def test_the_host_waits_for_what_the_id_marked() -> None:
    t = group_ids()
    t.launch("marked", 7, 50)
    event = t.record_event(stream=7)
    t.launch("elsewhere", 24, 40)
    t.record_event(stream=24)
    t.event_synchronize(event)
    t.leaf("aten::add", 5)
    linked = link_run(t)
    assert host_waits(linked) == {("marked", "cudaEventSynchronize")}
    assert linked.report.waits == {"waits of the host for the device, by record": 1}
    nodes = convert_run(t)
    assert nodes.follows("cudaEventSynchronize")["marked"] == DependencyKind.HOST_SYNC
    assert nodes.replay_error() == 0


def test_the_host_asks_for_what_the_id_marked() -> None:
    t = group_ids()
    t.launch("marked", 7, 50)
    event = t.record_event(stream=7)
    t.launch("long", 24, 500)
    t.idle(100)
    assert t.event_query(event)
    t.leaf("aten::add", 5)
    assert host_waits(link_run(t)) == {("marked", "cudaEventQuery")}


def test_an_id_that_is_recorded_again_means_its_latest_recording_before_the_wait() -> None:
    t, event = group_ids(), Event(9)
    for number, stream in enumerate((7, 24, 7)):
        t.launch(f"work {number}", stream, 50)
        t.record_event(event, stream=stream)
        t.wait_event(event, stream=20 + number)
        t.launch(f"wait {number}", 20 + number, 5)
    t.event_synchronize(event)
    t.leaf("aten::add", 5)
    linked = link_run(t)
    assert device_waits(linked) == {(f"work {number}", f"wait {number}") for number in range(3)}
    assert host_waits(linked) == {("work 2", "cudaEventSynchronize")}


def test_waits_by_two_streams_for_one_recording_both_follow_it() -> None:
    t = group_ids()
    t.launch("marked", 7, 50)
    event = t.record_event(stream=7)
    for stream in (20, 24):
        t.wait_event(event, stream=stream)
        t.launch(f"on {stream}", stream, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("marked", "on 20"), ("marked", "on 24")}


def test_the_stream_that_was_recorded_counts_not_the_one_in_use() -> None:
    t = group_ids()
    t.launch("marked", 7, 50)
    t.launch("in use", 24, 50)
    t.wait_event(t.record_event(stream=7), stream=20)
    t.launch("waits", 20, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("marked", "waits")}


@pytest.mark.parametrize("wait", ["wait_event", "event_synchronize"])
def test_an_id_recorded_only_after_the_wait_is_not_what_was_waited_for(wait: str) -> None:
    """The recording that the wait was for came before the trace began."""
    t, event = group_ids(), Event(9)
    t.launch("first", 7, 5)
    if wait == "wait_event":
        t.wait_event(event, stream=20)
        t.launch("waits", 20, 5)
    else:
        t.event_synchronize(event)
    t.launch("second", 7, 5)
    t.record_event(event, stream=7)
    t.leaf("aten::add", 50)
    linked = link_run(t)
    assert device_waits(linked) == set()
    assert host_waits(linked) <= {("", "cudaEventSynchronize")}
    assert sum(linked.report.dropped.values()) == 1
