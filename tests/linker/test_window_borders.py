"""What lies across the borders of a window: by row numbers that begin with 0, and to the nanosecond."""

from execgraph.linker.link import link
from execgraph.linker.windows import Window
from execgraph.schema.linked import LinkedTrace
from support.builder import TraceBuilder
from support.runs import read_pair

HOST = "host waits across the borders of the window"
DEVICE = "device waits across the borders of the window"


def second_step(t: TraceBuilder) -> LinkedTrace:
    return link(*read_pair(t), window=Window(steps=(2, 3)))


def test_the_first_activity_may_be_awaited_from_the_other_side() -> None:
    t = TraceBuilder()
    with t.annotation("ProfilerStep#1"):
        t.launch("first", 7, 200)
        done = t.record_event(stream=7)
    with t.annotation("ProfilerStep#2"):
        t.wait_event(done, stream=20)
        t.launch("waits", 20, 5)
        t.event_synchronize(done)
    dropped = second_step(t).report.dropped
    assert (dropped[HOST], dropped[DEVICE]) == (1, 1)


def test_a_synchronisation_that_nothing_was_pending_for_waits_across_no_border() -> None:
    t = TraceBuilder()
    with t.annotation("ProfilerStep#1"):
        t.stream_synchronize(7)
    with t.annotation("ProfilerStep#2"):
        t.launch("kernel", 7, 5)
        t.stream_synchronize(20)
    linked = second_step(t)
    assert HOST not in linked.report.dropped
    assert linked.host_waits.source_row.tolist() == [-1]


def test_waits_inside_the_window_are_not_counted() -> None:
    t = TraceBuilder()
    with t.annotation("ProfilerStep#1"):
        t.launch("before", 24, 5)
        t.stream_synchronize(24)
    with t.annotation("ProfilerStep#2"):
        t.launch("awaited", 7, 50)
        t.wait_event(t.record_event(stream=7), stream=20)
        t.launch("waits", 20, 5)
        t.stream_synchronize(20)
    linked = second_step(t)
    assert linked.device_waits.source_row.tolist() == [0]
    assert not {HOST, DEVICE} & linked.report.dropped.keys()


def test_what_ran_before_on_the_stream_is_carried_in_with_its_end() -> None:
    t = TraceBuilder()
    with t.annotation("ProfilerStep#1"):
        before = t.launch("before", 7, 500)
    with t.annotation("ProfilerStep#2"):
        t.launch("follows", 7, 5)
        t.launch("elsewhere", 20, 5)
    linked = second_step(t)
    follows = dict(zip(linked.activities.name, linked.activities.id.tolist(), strict=True))["follows"]
    assert linked.info.backlog_until == {follows: before.end + t.origin_ns}
