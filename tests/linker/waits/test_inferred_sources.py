"""What waits are for by the order of calls alone: nothing was blocked, and records give at most an event's number.

What times say of the waits of a call site: which ends are too late, and which explain when the blocked work went on.
Times are in ns.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execgraph.linker.waits.inferred_sources import TimingScorer
from execgraph.linker.waits.process import TimingModel
from execgraph.linker.waits.submissions import MOST_STREAMS, StreamKey, StreamTails
from execgraph.linker.waits.unresolved_waits import HOST, UnresolvedWait
from execgraph.schema.columns import Bool
from execgraph.schema.linked import NEVER
from execgraph.schema.machine import ENOUGH, LatencyStats, MachineCalibration
from execgraph.schema.reasons import Reason
from support.builder.records import Collective
from support.builder.timeline import TraceBuilder
from support.runs import UNRECORDED, WITHOUT_EVENT, device_waits, host_waits, link_run, scripted
from support.tables import Called, Ran, activities, calls, growth, process

LONG = 500
"""µs after which all that was launched before is over."""


@pytest.mark.parametrize(
    ("script", "known", "waits"),
    [
        pytest.param(
            "marked@7; record e 7; wait e 20; first@20; idle 100; other@24; record o 24; wait e 28; second@28",
            WITHOUT_EVENT,
            {("marked", "first"), ("marked", "second")},
            id="a known event is that of its record though another one comes right before",
        ),
        pytest.param(
            "first@7; record early 7; second@24; record late 24; wait late 20; two@20; wait early 28; one@28",
            WITHOUT_EVENT,
            {("second", "two"), ("first", "one")},
            id="an event record of another event is not awaited twice",
        ),
        # no stream waits for itself though it is the one that its thread used last
        ("other@20; own@7; idle 500; 20>7; after@7", UNRECORDED, {("other", "after")}),
        # a stream whose work ended after the blocked work began is not awaited
        ("awaited@20; last@24:500; 20>7; after@7", UNRECORDED, {("awaited", "after")}),
        # the order of calls tells of one wait for each event record
        ("first@20; record e 20; idle 500; wait e 7; one@7; wait e 24; two@24", UNRECORDED, {("first", "one")}),
        pytest.param("one@7; 7>7; two@7", UNRECORDED, set(), id="an only stream waits for itself"),
        # a stream is not told twice to wait for the same work
        ("one@20; two@24; idle 100; 24>7; 20>7; joined@7", UNRECORDED, {("one", "joined"), ("two", "joined")}),
        pytest.param(
            "before@20; gradients@7; record e 7; wait e 28; transfer@28; record e 28; wait e 7; optimizer@7",
            WITHOUT_EVENT,
            {("gradients", "transfer"), ("transfer", "optimizer")},
            id="an event recorded on two streams in turn, as gloo does, is on the one in use each time",
        ),
    ],
)
def test_what_stream_waits_are_for(script: str, known: dict[str, Any], waits: set[tuple[str, str]]) -> None:
    assert device_waits(link_run(scripted(script, **known))) == waits


def begun(**known: Any) -> TraceBuilder:
    """A run that has an op."""
    t = TraceBuilder(**known)
    t.leaf("aten::empty", 1)
    return t


# waits of a program


def test_waits_are_nested_like_the_event_records_that_nothing_waited_for_yet() -> None:
    t = begun(**UNRECORDED)
    events = []
    for number in range(3):
        t.launch(f"work {number}", 20 + number, 5)
        events.append(t.record_event(stream=20 + number))
    t.idle(LONG)
    for number in (2, 1, 0):
        t.wait_event(events[number], stream=number)
        t.launch(f"after {number}", number, 5)
    assert device_waits(link_run(t)) == {(f"work {number}", f"after {number}") for number in range(3)}


@pytest.mark.parametrize("known", [WITHOUT_EVENT, UNRECORDED], ids=["number", "calls"])
def test_an_event_that_is_recorded_anew_is_awaited_anew(known: dict[str, Any]) -> None:
    t = begun(**known)
    event = t.event()
    for number in range(3):
        t.launch("work", 20, 5)
        t.record_event(event, stream=20)
        t.idle(LONG)
        t.wait_event(event, stream=number)
        t.launch("after", number, 5)
    waits = link_run(t).device_waits
    assert (waits.source_row.tolist(), waits.target_row.tolist()) == ([0, 2, 4], [1, 3, 5])


def test_of_event_records_of_one_kind_the_one_right_before_is_awaited() -> None:
    """Those in between may have been for streams that wait for themselves, which leaves no trace."""
    t = begun(**WITHOUT_EVENT)
    event, other = t.event(), t.event()
    for recorded in (event, other, event):
        t.launch("work", 20, 5)
        t.record_event(recorded, stream=20)
        t.idle(LONG)
        if recorded is event:
            t.wait_event(event, stream=7)
            t.launch("after", 7, 5)
    waits = link_run(t).device_waits
    assert (waits.source_row.tolist(), waits.target_row.tolist()) == ([0, 3], [1, 4])


def test_each_wait_is_for_the_data_that_is_used_before_the_next_one() -> None:
    t = begun(**UNRECORDED)
    buffers = {stream: t.tensor((8, 8)) for stream in (20, 24)}
    for stream, buffer in buffers.items():
        with t.op("aten::mm", outputs=[buffer]):
            t.launch(f"writes on {stream}", stream, 5)
    t.idle(LONG)
    for stream, buffer in buffers.items():
        with t.op("aten::sum", inputs=[buffer]):
            t.wait_event(t.record_event(stream=stream), stream=7)
            t.launch(f"reads from {stream}", 7, 5)
    assert device_waits(link_run(t)) == {(f"writes on {stream}", f"reads from {stream}") for stream in buffers}


def test_waits_with_nothing_in_between_hold_the_same_work_up() -> None:
    t = begun(**UNRECORDED)
    buffers = {stream: t.tensor((8, 8)) for stream in (20, 24)}
    for stream, buffer in buffers.items():
        with t.op("aten::mm", outputs=[buffer]):
            t.launch(f"on {stream}", stream, 5)
    t.launch("unrelated", 28, 5)
    t.idle(LONG)
    with t.op("aten::add", inputs=list(buffers.values())):
        for stream in buffers:
            t.wait_event(t.record_event(stream=stream), stream=7)
        t.launch("reads both", 7, 5)
    assert device_waits(link_run(t)) == {("on 20", "reads both"), ("on 24", "reads both")}


def test_a_wait_for_what_another_record_names_is_told_by_times_alone() -> None:
    """Nothing but the wait right after it says that an event record is awaited once more."""
    t = begun()
    t.launch("long", 20, LONG)
    event = t.record_event(stream=20)
    t.wait_event(event, stream=24)
    t.launch("told", 24, 5)
    t.wait_event(event, stream=7)
    t.launch("not told", 7, 5)
    t.syncs[-1].event = replace(event, correlation=-1)
    assert device_waits(link_run(t)) == {("long", "told"), ("long", "not told")}


# waits for and of collectives


def collective(t: TraceBuilder, number: int, after: int | None = None) -> Collective:
    group = t.groups[0] if t.groups else t.group(range(2))
    return t.collective(group=group, stream=20 + number, duration=5, kernel=f"ncclKernel {number}", after=after)


def test_what_only_collectives_recorded_is_awaited_in_their_order() -> None:
    t = begun(**UNRECORDED)
    done = [collective(t, number).done for number in range(3)]
    t.idle(LONG)
    for stream, event in enumerate(done):
        t.wait_event(event, stream=stream)
        t.launch(f"after {stream}", stream, 5)
    assert device_waits(link_run(t)) == {(f"ncclKernel {number}", f"after {number}") for number in range(3)}


def test_a_program_waits_for_what_it_recorded_itself_rather_than_for_what_a_collective_did() -> None:
    t = begun(**UNRECORDED)
    t.launch("own", 24, 5)
    own = t.record_event(stream=24)
    collective(t, 0)
    t.idle(LONG)
    t.wait_event(own, stream=7)
    t.launch("after", 7, 5)
    assert device_waits(link_run(t)) == {("own", "after")}


def test_a_collective_waits_for_what_its_stream_is_to_follow() -> None:
    """Not for what the program recorded before, though nothing has waited for that yet."""
    t = begun(**UNRECORDED)
    t.launch("other", 24, 5)
    t.record_event(stream=24)
    t.launch("gradient", 7, 5)
    collective(t, 0, after=7)
    assert device_waits(link_run(t)) == {("gradient", "ncclKernel 0")}


def test_a_collective_waits_for_what_it_records_itself_though_its_event_has_been_awaited_before() -> None:
    t = begun(**WITHOUT_EVENT)
    t.launch("earlier", 24, 5)
    pooled = t.record_event(t.event(), stream=24)
    t.wait_event(pooled, stream=28)
    t.launch("after", 28, 5)
    t.launch("gradient", 7, 5)
    t.event = lambda: pooled  # type: ignore[method-assign]
    collective(t, 0, after=7)
    assert device_waits(link_run(t)) == {("earlier", "after"), ("gradient", "ncclKernel 0")}


def test_where_nothing_was_recorded_a_collective_waits_for_the_stream_in_use() -> None:
    t = begun(**UNRECORDED)
    t.launch("gradient", 7, 5)
    t.idle(LONG)
    collective(t, 0, after=7)
    t.calls = [call for call in t.calls if call.name != "cudaEventRecord"]
    linked = link_run(t)
    assert device_waits(linked) == {("gradient", "ncclKernel 0")}
    assert linked.report.guessed == {Reason.STREAM_BEFORE_COLLECTIVE: 1}


# waits of the host


def test_a_synchronisation_that_returned_at_once_says_nothing_by_its_time() -> None:
    """Something else may just have ended."""
    t = begun(**UNRECORDED)
    t.launch("other", 20, 40)
    t.record_event(stream=20)
    t.launch("asked for", 7, 5)
    event = t.record_event(stream=7)
    t.wait_until(t.ready[20] / 1000 + 0.1)
    t.event_synchronize(event)
    assert host_waits(link_run(t)) == {("asked for", "cudaEventSynchronize")}


def test_a_query_that_was_answered_before_the_likeliest_work_had_ended_is_for_nothing_known() -> None:
    t = begun(**UNRECORDED)
    t.launch("long", 7, LONG)
    t.event_query(t.record_event(stream=7))
    assert host_waits(link_run(t)) == set()


def test_the_effort_for_a_wait_does_not_grow_with_the_number_of_waits() -> None:
    def link_waits(count: int) -> Callable[[], object]:
        t = TraceBuilder(**UNRECORDED)
        t.launch("recorded", 7, 1)
        event = t.event()
        for _ in range(count):
            t.record_event(event, stream=7)
            t.wait_event(event, stream=100)
        t.leaf("aten::add", 5)
        t.launch("kernel", 100, 1)
        return lambda: link_run(t)

    assert growth(link_waits, 40) < 2.6


@pytest.mark.parametrize(("streams", "noted"), [(MOST_STREAMS - 1, 0), (MOST_STREAMS + 1, MOST_STREAMS + 1)])
def test_waits_that_are_looked_for_on_some_streams_alone_are_counted(streams: int, noted: int) -> None:
    t = TraceBuilder(**UNRECORDED)
    for stream in range(100, 100 + streams):
        t.launch("recorded", stream, 1)
        event = t.record_event(stream=stream)
        t.launch("between", 7, 1)
        t.event_synchronize(event)
    t.leaf("aten::add", 5)
    assert link_run(t).report.oddities.get(Reason.BEYOND_BUSIEST_STREAMS.of(MOST_STREAMS), 0) == noted


def passing_on(t: TraceBuilder) -> None:
    """The host waits for a stream that waits for a kernel, while more work runs behind that kernel."""
    t.launch("awaited", 7, LONG)
    t.wait_event(t.record_event(stream=7), stream=20)
    t.launch("behind", 7, 3 * LONG)
    t.stream_synchronize(20)


def test_a_stream_that_waits_passes_that_on_to_who_waits_for_it() -> None:
    t = begun(**UNRECORDED)
    t.launch("on the other stream", 20, 5)
    for _ in range(3):
        passing_on(t)
        t.idle(4 * LONG)
    assert host_waits(link_run(t)) == {("awaited", "cudaStreamSynchronize")}


MACHINE = MachineCalibration(
    clock_error_ns=300,
    launch={"": LatencyStats(2_000, 3_000, ENOUGH)},
    gap={"": LatencyStats(500, 700, ENOUGH)},
    sync_return={"": LatencyStats(1_000, 1_500, ENOUGH)},
)
LAUNCHED, WAITS, RETURNED = Called(0, 100), Called(200, 300, "cudaStreamWaitEvent"), 30_000
"""What runs on stream 7 at first, then a wait and a launch that it may hold up."""
FIRST, DUE = Ran(5_000, 20_000, 0), 20_700
STREAM = StreamKey(0, 7)


def scorer_of(ran: list[Ran], called: list[Called], waits: list[UnresolvedWait]) -> TimingScorer:
    made = process(ran, called, calibration=MACHINE)
    return TimingScorer(made, StreamTails(made.queues), waits)


def scored(scorer, waits, waiting, *of_each):
    """Scores ends, by wait and stream: whether each is too late, and how many waits each stream explains."""
    ends = np.array([of_each], np.int64)
    latest_ns, explained_count = (of_one[0] for of_one in scorer.score(waits, ends, [waiting]))
    too_late: Bool = ends[0] > latest_ns[:, None]
    return too_late, explained_count[0]


# streams


def of_stream(*starts: int, ends: list[list[int]]) -> tuple[list[list[bool]], list[int]]:
    """Scores waits that may block what started at these times on stream 7, where work usually follows within 700."""
    ran, called, waits = [FIRST], [LAUNCHED], []
    for start in starts:
        called += [WAITS, LAUNCHED._replace(start=400, end=500)]
        ran.append(Ran(start, start + 10, len(called) - 1))
        waits.append(UnresolvedWait(len(called) - 2, -1, {STREAM: len(ran) - 1}))
    too_late, explained = scored(scorer_of(ran, called, waits), waits, STREAM, *ends)
    return too_late.tolist(), explained.tolist()


LATE = DUE + 9_300
"""When something started that its stream and its launch would have let start sooner."""


@pytest.mark.parametrize(
    ("end", "is_over", "explains"),
    [
        (LATE + 3, True, False), (LATE + 2, False, True), (LATE, False, True), (LATE - 702, False, True),
        (LATE - 703, False, False), (NEVER, False, False),
    ],
)  # fmt: skip
def test_what_started_late_waited_for_what_ended_right_before(end: int, is_over: bool, explains: bool) -> None:
    """Times of one clock may be misstated by 2; it usually takes up to 700 from an end to the next start."""
    assert of_stream(LATE, ends=[[end]]) == ([[is_over]], [int(explains)])


@pytest.mark.parametrize(("start", "explained"), [(DUE, 0), (DUE + 1, 1)])
def test_what_started_when_it_was_due_waited_for_nothing(start: int, explained: int) -> None:
    assert of_stream(start, ends=[[start - 1]]) == ([[False]], [explained])


@pytest.mark.parametrize(("end", "explained"), [(20_000, 0), (20_001, 1)])
def test_what_ended_before_its_own_stream_was_free_held_nothing_up(end: int, explained: int) -> None:
    assert of_stream(DUE + 1, ends=[[end]]) == ([[False]], [explained])


def test_ends_speak_for_a_call_site_if_they_explain_half_of_the_waits_that_were_held_up() -> None:
    met, missed = LATE - 5, LATE - 5_000
    assert of_stream(LATE, ends=[[met, missed]])[1] == [1, 0]
    after = LATE + 10_000
    one_of_two = [[met, missed, met], [after - 5, after - 5, missed]]
    assert of_stream(LATE, after, ends=one_of_two)[1] == [2, 1, 1]
    last = after + 10_000
    one_of_three = [*one_of_two, [last - 5, last - 5_000, last - 5_000]]
    assert of_stream(LATE, after, last, ends=one_of_three)[1] == [3, 0, 0]


def test_a_wait_that_no_work_followed_says_nothing_and_one_may_hold_up_the_first_row() -> None:
    waits = [UnresolvedWait(1, -1, {STREAM: -1})]
    too_late, explained = scored(scorer_of([FIRST], [LAUNCHED, WAITS], waits), waits, STREAM, [1 << 40])
    assert (too_late.tolist(), explained.tolist()) == ([[False]], [0])
    waits = [UnresolvedWait(1, -1, {STREAM: 0})]
    too_late, explained = scored(scorer_of([Ran(9_000, 9_100)], [LAUNCHED, WAITS], waits), waits, STREAM, [8_999])
    assert (too_late.tolist(), explained.tolist()) == ([[False]], [1])


def max_reaction(start: int, other_end: int, launch: int = 400) -> int:
    """What starts in the first row after a wait, on a stream that is free at 20000, when another stream's work has
    ended.
    """
    ran = [Ran(start, start + 10, 3), FIRST, Ran(5_000, other_end, 1, stream=8)]
    called = [LAUNCHED, Called(100, 150), WAITS, Called(launch, launch + 100)]
    return scorer_of(ran, called, [UnresolvedWait(2, -1, {STREAM: 0})]).max_reaction_ns


def test_a_stream_reacts_to_another_as_late_as_late_work_that_waited_for_one_does() -> None:
    assert max_reaction(29_900, 29_000) == 901
    assert max_reaction(29_900, 29_300) == 700
    assert max_reaction(29_900, 20_001) == 9_900
    assert max_reaction(29_900, 20_000) == 700
    assert max_reaction(29_900, 29_901) == 700
    assert max_reaction(31_100, 29_000, launch=28_000) == 700
    assert max_reaction(31_101, 29_000, launch=28_000) == 2_102


# the host


def of_host(end: int, returned: int = RETURNED, reach: int = 1_500, is_query: bool = False) -> tuple[bool, bool]:
    """Whether an end is too late for, and explains, a call that waited from 10000 on."""
    called = [LAUNCHED, Called(10_000, returned, "cudaEventSynchronize")]
    timing = TimingModel(activities(FIRST), calls(*called), MACHINE)
    error, lead = timing.clock_uncertainty_ns, timing.max_clock_lead_ns
    waits = [UnresolvedWait(1, -1, HOST, 10_000 + reach, reach + error, lead, is_query=is_query)]
    too_late, explained = scored(scorer_of([FIRST], called, waits), waits, None, [end])
    return bool(too_late[0, 0]), bool(explained[0])


DOUBT = 300 + 2 + 1_000
"""How far host and device may disagree: by the clock's error, the resolution, and what calls take to return."""
AHEAD = DOUBT + 5_000
"""The device's clock may besides be ahead by as much as the soonest activity started after its launch call had."""


@pytest.mark.parametrize(
    ("end", "is_over", "explains"),
    [
        (RETURNED + AHEAD + 1, True, False), (RETURNED + AHEAD, False, True), (RETURNED - 1_500 - DOUBT, False, True),
        (RETURNED - 1_500 - DOUBT - 1, False, False),
    ],
)  # fmt: skip
def test_a_call_that_returned_late_waited_for_what_had_just_ended(end: int, is_over: bool, explains: bool) -> None:
    assert of_host(end) == (is_over, explains)


@pytest.mark.parametrize(("returned", "explains"), [(11_500, False), (11_501, True)])
def test_a_call_that_returned_as_soon_as_such_calls_do_says_nothing(returned: int, explains: bool) -> None:
    assert of_host(returned - 10, returned) == (False, explains)


def test_a_call_that_asks_is_answered_at_once() -> None:
    assert of_host(9_950, 10_000, reach=0) == (False, False)
    assert of_host(9_950, 10_000, reach=0, is_query=True) == (False, True)


# how soon streams go on


def reach_of(*gaps: int, stream: int = 20) -> int:
    """Returns the longest usual reaction of waits that blocked what started so long after an end on another stream."""
    ran, called, waits = [FIRST], [LAUNCHED], []
    for number, gap in enumerate(gaps):
        at = 100_000 * (number + 1)
        called += [Called(at, at + 100), Called(at + 200, at + 300, "cudaStreamWaitEvent"), Called(at + 400, at + 500)]
        ran += [
            Ran(at + 5_000, at + 20_000, len(called) - 3, stream=stream),
            Ran(at + 20_000 + gap, at + 30_000, len(called) - 1),
        ]
        waits.append(UnresolvedWait(len(called) - 2, -1, {STREAM: len(ran) - 1}))
    return scorer_of(ran, called, waits).max_reaction_ns


def test_streams_go_on_after_others_within_what_is_usual_of_the_trace() -> None:
    assert reach_of() == 700
    assert reach_of(1_000, 1_000, 1_000) == 1_001
    assert reach_of(600, 600, 600) == 700
    assert reach_of(5_000, 5_000, 5_000) == 5_001
    assert reach_of(1_000, 1_000, 1_000, stream=7) == 700


def test_what_was_known_to_hold_an_activity_up_no_longer_has_to_be_explained() -> None:
    ran, called = [FIRST, Ran(LATE, LATE + 10, 2), Ran(5_000, LATE - 5, stream=20)], [LAUNCHED, WAITS, LAUNCHED]
    waits = [UnresolvedWait(1, -1, {STREAM: 1})]
    made = process(ran, called, calibration=MACHINE)
    scorer = TimingScorer(made, StreamTails(made.queues), waits)
    assert scored(scorer, waits, STREAM, [LATE - 5])[1].tolist() == [1]
    made.timing.add_dependency(1, LATE - 5, scorer.max_reaction_ns)
    assert scored(scorer, waits, STREAM, [LATE - 5])[1].tolist() == [0]
