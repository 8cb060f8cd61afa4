"""What waits are for by the order of calls alone, where records tell no more of an event than its number."""

from builder import TraceBuilder
from runs import link_run
from test_synchronisation import WITHOUT_EVENT, device_waits


def test_a_wait_for_a_known_event_is_for_its_recording_though_another_one_comes_right_before() -> None:
    t = TraceBuilder(**WITHOUT_EVENT)
    t.launch("marked", 7, 5)
    event = t.record_event(stream=7)
    t.wait_event(event, stream=20)
    t.launch("first", 20, 5)
    t.idle(100)
    t.launch("other", 24, 5)
    t.record_event(stream=24)
    t.wait_event(event, stream=28)
    t.launch("second", 28, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("marked", "first"), ("marked", "second")}


def test_a_recording_of_another_event_is_not_awaited_twice() -> None:
    t = TraceBuilder(**WITHOUT_EVENT)
    t.launch("first", 7, 5)
    early = t.record_event(stream=7)
    t.launch("second", 24, 5)
    late = t.record_event(stream=24)
    t.wait_event(late, stream=20)
    t.launch("waits for second", 20, 5)
    t.wait_event(early, stream=28)
    t.launch("waits for first", 28, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("second", "waits for second"), ("first", "waits for first")}
