"""Events are numbered in the order in which they are made; a wait that names its event's number is for no other one."""

import pytest
from execgraph.linker.waits.event_ids import Anchor, EventIds
from support.builder import TraceBuilder
from support.runs import WITHOUT_EVENT, device_waits, link_run


def possible(pairs: list[tuple[int, int]], event: int, *, is_first_wait: bool = True, records: int = 10) -> list[int]:
    ids = EventIds([Anchor(*pair) for pair in pairs])
    return [record for record in range(records) if ids.is_possible(record, event, is_first_wait=is_first_wait)]


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


def test_the_last_number_before_it_counts() -> None:
    """Event records in between were of events that had been made before."""
    assert possible([(1, 50), (4, 53), (9, 55)], 57, records=13) == [11, 12]


def test_later_waits_may_be_for_an_event_that_was_recorded_again() -> None:
    assert possible(IN_ORDER, 51, is_first_wait=False) == [2, 3, 5, 7, 8, 9]


def test_an_event_made_long_before_does_not_spoil_the_order() -> None:
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


def test_an_event_recorded_on_two_streams_in_turn_is_on_the_stream_in_use_each_time() -> None:
    """As gloo does: the stream of the transfer waits for the gradients, then theirs for the transfer."""
    t = TraceBuilder(**WITHOUT_EVENT)
    t.launch("before", 20, 5)
    event = t.event()
    for name, stream, other in (("gradients", 7, 28), ("transfer", 28, 7)):
        t.launch(name, stream, 5)
        t.record_event(event, stream=stream)
        t.wait_event(event, stream=other)
    t.launch("optimizer", 7, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("gradients", "transfer"), ("transfer", "optimizer")}
