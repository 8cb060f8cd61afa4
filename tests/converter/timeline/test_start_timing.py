"""An activity's time since its release, split by hand-made rows: latency, gap, delay, and why it was late."""

from dataclasses import replace

import numpy as np
import pytest
from execgraph.converter.dependencies import RULES
from execgraph.converter.edges import Edges
from execgraph.converter.timeline import Delays, by_cause, concurrency_limit, find_delays, start_timing
from execgraph.converter.timeline.delays import release
from execgraph.schema.columns import Bool
from execgraph.schema.graph import Delay
from execgraph.schema.linked import NEVER
from support.graphs import MACHINE, run_of as recorded_run
from support.tables import Called, Ran


def run_of(ran, called, backlog_until=None):
    run = recorded_run(ran, called)
    run.linked.info.backlog_until = backlog_until
    return run, Edges.joined([rule(run) for rule in RULES])


def split(ran, called, backlog_until=None):
    run, edges = run_of(ran, called, backlog_until)
    return run, start_timing(run, edges)


def explained(ran: list[Ran], called: list[Called], backlog_until: dict[int, int] | None = None) -> Delays:
    run, time = split(ran, called, backlog_until)
    return find_delays(run, time, concurrency_limit(run, time)[1])


CALLS = [Called(0, 1_000), Called(2_000, 3_000)]
FROM = 600_000


def pair(at: int, row: int, end: int, second: int) -> tuple[list[Ran], list[Called]]:
    """Two launches at a time; the first activity starts 2 µs after its call and ends at `end`, the `second` starts
    later.
    """
    called = [Called(at, at + 1_000), Called(at + 2_000, at + 3_000)]
    return [Ran(at + 3_000, at + end, row), Ran(at + second, at + second + 2_000, row + 1)], called


def last_of_seven(end: int, second: int) -> tuple[list[Ran], list[Called]]:
    """Six pairs with a gap of 500 ns, then another one at FROM."""
    pairs = [pair(100_000 * n, 2 * n, 9_000, 9_500) for n in range(6)] + [pair(FROM, 12, end, second)]
    return [row for ran, _ in pairs for row in ran], [row for _, called in pairs for row in called]


def test_an_activity_is_released_by_its_launch_and_by_what_it_follows() -> None:
    run, edges = run_of([Ran(3_000, 9_000, 0), Ran(9_500, 12_000, 1)], CALLS)
    assert [times.tolist() for times in release(run, edges)] == [[1_000, 3_000], [NEVER, 9_000]]


def test_what_released_something_else_than_an_activity_releases_none() -> None:
    """A node of time that no call stands for comes right behind the activities."""
    ran = [Ran(3_000, 9_000, 0), Ran(9_500, 12_000), Ran(13_000, 14_000, 1)]
    run, edges = run_of(ran, CALLS)
    behind = Edges(*(np.append(column, more) for column, more in zip(edges, (2, run.unrecorded_from, 0), strict=True)))
    known, found = start_timing(run, edges), start_timing(run, behind)
    for one, other in zip(release(run, edges), release(run, behind), strict=True):
        assert one.tolist() == other.tolist()
    assert known.after.tolist() == found.after.tolist()


def test_in_a_part_of_a_trace_what_came_before_it_holds_activities_back() -> None:
    run, edges = run_of([Ran(9_500, 10_000, 0), Ran(10_500, 12_000, 1)], CALLS, {0: 9_000, 1: 8_000})
    assert [times.tolist() for times in release(run, edges)] == [[1_000, 3_000], [9_000, 10_000]]
    run, edges = run_of([Ran(9_500, 10_000, 0)], CALLS, {})
    assert release(run, edges)[1].tolist() == [NEVER]


@pytest.mark.parametrize(
    ("ended", "start", "latency", "gap", "delay"),
    [
        (9_000, 9_500, 2_000, 500, 0), (9_000, 9_300, 2_000, 300, 0), (9_000, 9_501, 2_000, 501, 0),
        (9_000, 9_800, 2_000, 500, 300), (4_000, 5_000, 2_000, 500, 0), (4_000, 4_500, 1_500, 500, 0),
        (4_000, 6_500, 2_000, 500, 1_500),
    ],
)  # fmt: skip
def test_time_beyond_the_usual_gap_or_launch_latency_is_delay(ended, start, latency, gap, delay):
    """By its launch, if the stream had been free for longer than since then."""
    _, time = split(*last_of_seven(ended, start))
    assert time.by_launch[-1] == (ended == 4_000)
    assert (time.latency[-1], time.gap[-1], time.delay[-1]) == (latency, gap, delay)
    # what both usually release at once is by launch
    assert [split(*last_of_seven(end, 5_000))[1].by_launch[-1] for end in (4_500, 4_501)] == [True, False]


def test_time_since_earlier_work_that_is_not_usual_goes_to_the_start_of_recording() -> None:
    ran, called = last_of_seven(9_000, 9_500)
    found = explained([*ran, Ran(20_000, 21_000, 14, stream=9)], [*called, Called(5_000, 5_500)], {14: 9_000})
    assert (found.cause.tolist(), found.length.tolist()) == ([Delay.START_OF_RECORDING], [19_500])


def test_what_is_usual_is_measured_where_it_is_certain_what_held_an_activity() -> None:
    """Latencies of 1 µs on a free stream, gaps of 600 ns behind what still ran long after the launch."""
    called = [Called(at, at + 1_000) for n in range(7) for at in (100_000 * n, 100_000 * n + 2_000)]
    ran = [
        row
        for n in range(7)
        for row in (
            Ran(100_000 * n + 2_000, 100_000 * n + 9_000, 2 * n),
            Ran(100_000 * n + 9_600, 100_000 * n + 12_000, 2 * n + 1),
        )
    ]
    run, time = split(ran, called)
    assert time.latency.tolist() == [1_000] * 14
    assert time.gap.tolist() == [0] + [600] * 13
    assert run.end[time.after].tolist() == [100_000 * n + ended for n in range(7) for ended in (1_000, 9_000)]


def test_what_started_before_its_call_by_the_clocks_had_neither_latency_nor_gap() -> None:
    _, time = split([Ran(500, 900, 0)], [Called(1_000, 2_000)])
    assert (time.latency.tolist(), time.gap.tolist(), time.delay.tolist()) == ([0], [0], [0])


def test_what_work_from_before_a_part_held_is_a_delay_of_the_start_of_recording() -> None:
    """It follows no node."""
    held = [Ran(9_500, 10_000, 0)], CALLS, {0: 9_000}
    found = explained(*held)
    assert found.cause.tolist() == [Delay.START_OF_RECORDING]
    assert (found.start.tolist(), found.length.tolist(), found.after.tolist()) == ([0], [9_000], [-1])
    assert split(*held)[1].after.tolist() == [-1]
    assert by_cause(found) == ({"start of recording": 1}, {"start of recording": 9.0})
    assert by_cause(found.none()) == ({}, {})


@pytest.mark.parametrize(("end", "due", "by_launch"), [(9_000, 9_500, False), (4_000, 5_000, True)])
def test_a_late_activity_is_delayed_from_when_its_release_usually_had_passed(end, due, by_launch):
    """A delay follows what released it, and begins as that ends."""
    ran, called = last_of_seven(end, 59_000)
    run, time = split(ran, called)
    found = find_delays(run, time, concurrency_limit(run, time)[1])
    released = 3_000 if by_launch else end
    assert found.cause.tolist() == [Delay.UNEXPLAINED]
    assert (found.activity.tolist(), found.by_launch.tolist()) == ([13], [by_launch])
    assert (found.start.tolist(), found.length.tolist()) == ([FROM + released], [59_000 - due])
    assert run.end[found.after].tolist() == [FROM + released]


def test_a_placed_activity_waited_for_room_whatever_is_usual() -> None:
    ran = [Ran(3_000, 9_000, 0), Ran(9_650, 12_000, 1)]
    run, edges = run_of(ran, CALLS)
    waited_for_slot = np.array([False, True])
    time = start_timing(run, edges, waited_for_slot)
    assert (time.gap[1], time.delay[1]) == (500, 150)
    assert find_delays(run, time, waited_for_slot).cause.tolist() == [Delay.CONTENTION]


@pytest.mark.parametrize(("ended", "gap", "delay"), [(8_900, 600, 3_000), (8_800, 700, 3_000), (8_799, 500, 3_201)])
def test_what_waited_for_room_behind_another_was_ready_no_earlier_than_that(ended: int, gap: int, delay: int) -> None:
    """Within what is usual: the second, ready up to 200 ns before the first by its gap, was behind it in turn."""
    called = [*CALLS, Called(4_000, 5_000), Called(5_000, 6_000)]
    ran = [
        Ran(3_000, 9_000, 0),
        Ran(3_100, ended, 1, stream=8),
        Ran(12_000, 13_000, 2),
        Ran(12_500, 14_000, 3, stream=8),
    ]
    run, edges = run_of(ran, called)
    time = start_timing(run, edges, np.array([False, False, True, True]))
    assert time.delay.tolist() == [0, 0, 2_500, delay]
    assert time.gap.tolist()[2:] == [500, gap]


def test_gaps_of_activities_whose_launch_is_unknown_say_nothing_of_the_machine() -> None:
    chain = [Ran(600 + 1_600 * n, 1_600 + 1_600 * n) for n in range(9)]
    _, time = split([*chain, Ran(95_000, 96_000, 0)], [Called(90_000, 93_000)])
    assert (time.latency[-1], time.gap[-1]) == (2_000, 500)


def test_lost_launches_are_those_of_calls_that_nearly_always_launch() -> None:
    called = [*(Called(1_000 * n, 1_000 * n + 500) for n in range(20)), Called(60_000, 60_500)]
    ran = [Ran(1_000 * n + 900, 1_000 * n + 950, n) for n in range(19)]
    late = Ran(90_000, 91_000, 20)
    assert explained([*ran, late], called).cause.tolist() == [Delay.LOST_RECORDS]
    after_it = Ran(50_900, 50_950, 21)
    assert explained([*ran, after_it, late], [*called, Called(50_000, 50_500)]).cause.tolist() == [Delay.UNEXPLAINED]
    whole = [*ran, Ran(19_900, 19_950, 19), late]
    assert explained(whole, called).cause.tolist() == [Delay.UNEXPLAINED]
    seldom = [*called[:19], Called(59_000, 59_500, "cudaMalloc"), *called[20:]]
    assert explained([*ran, late], seldom).cause.tolist() == [Delay.UNEXPLAINED]


def test_a_launch_lost_before_that_of_the_previous_activity_of_the_stream_delays_nothing_after_it() -> None:
    called = [*(Called(1_000 * n, 1_000 * n + 500) for n in range(20)), Called(60_000, 60_500)]
    first = Ran(2_000, 2_050, 1, stream=9)
    others = [Ran(1_000 * n + 900, 1_000 * n + 950, n) for n in range(2, 20)]
    found = explained([first, *others, Ran(90_000, 91_000, 20, stream=9)], called)
    assert found.cause[found.activity.tolist().index(19)] == Delay.UNEXPLAINED


@pytest.mark.parametrize(
    ("until", "device", "cause"),
    [(58_998, 0, Delay.CONTENTION), (58_400, 0, Delay.UNEXPLAINED), (58_998, 1, Delay.UNEXPLAINED)],
    ids=["nearly until then", "not until then", "another device"],
)
def test_a_delay_in_which_the_device_was_busy_but_for_the_usual_gap_is_contention(until, device, cause):
    ran, called = last_of_seven(9_000, 59_000)
    busy = Ran(FROM + 9_500, FROM + until, 14, stream=8, device=device)
    found = explained([*ran, busy], [*called, Called(FROM + 8_000, FROM + 8_500)])
    assert found.cause[found.activity.tolist().index(13)] == cause


@pytest.mark.parametrize(("start", "cause"), [(14_000, Delay.START_OF_RECORDING), (13_999, Delay.UNEXPLAINED)])
def test_a_first_activity_as_late_as_the_trace_had_lasted_was_held_from_before(start: int, cause: Delay) -> None:
    """Its launch was over 6 µs after the start, and usually it would have started 2 µs later."""
    pairs = [pair(100_000 * n, 2 * n - 2, 9_000, 9_500) for n in range(1, 7)]
    ran, called = ([row for part in column for row in part] for column in zip(*pairs, strict=True))
    called += [Called(5_000, 6_000), Called(0, 1_000, "cudaMalloc")]
    found = explained([*ran, Ran(start, 30_000, 12, stream=9)], called)
    assert found.cause.tolist() == [cause]
    held = cause == Delay.START_OF_RECORDING
    assert (found.start.tolist(), found.length.tolist()) == (([0], [start]) if held else ([6_000], [start - 8_000]))


def in_turn(count: int, streams: int, late: int, gap: int = 0) -> tuple[dict[int, int], Bool]:
    """Activities of 1 µs, one after the other on streams in turn, the last ones `late`, each ready 500 ns before it
    started.
    """
    ran = [Ran((1_000 + gap) * n, (1_000 + gap) * n + 1_000, stream=n % streams) for n in range(count)]
    run, edges = run_of(ran, [])
    delay = np.array([500 if n >= count - late else 0 for n in range(count)], np.int64)
    return concurrency_limit(run, replace(start_timing(run, edges), delay=delay))


@pytest.mark.parametrize("gap", [-2, 0, 2])
def test_a_device_on_which_late_activities_start_as_others_end_is_full(gap: int) -> None:
    """As far as times in whole ns tell: start and length are rounded, each by up to one."""
    slot_counts, waited_for_slot = in_turn(9, 2, 5, gap)
    assert slot_counts == {0: 1}
    assert waited_for_slot[1:].all()


@pytest.mark.parametrize(
    ("streams", "late", "gap"), [(1, 5, 0), (2, 1, 0), (2, 0, 0), (2, 5, 3)], ids=["one stream", "one", "none", "gaps"]
)
def test_no_device_is_full_of_which_less_is_known(streams: int, late: int, gap: int) -> None:
    slot_counts, waited_for_slot = in_turn(9, streams, late, gap)
    assert (slot_counts, waited_for_slot.any()) == ({}, False)


def test_starts_as_others_end_prove_nothing_where_most_of_the_time_is_as_others_end(monkeypatch):
    monkeypatch.setattr(MACHINE, "resolution_ns", 200)
    assert in_turn(9, 2, 5)[0] == {}


def test_what_delays_an_activity_after_earlier_work_had_ended_is_kept_beside_the_carry_in() -> None:
    """It was launched when the stream was free again, after a launch that left no record, and still did not start."""
    found = explained([Ran(60_000, 70_000, 1)], [Called(0, 1_000), Called(20_000, 21_000)], {0: 15_000})
    assert found.cause.tolist() == [Delay.LOST_RECORDS, Delay.START_OF_RECORDING]
    assert found.by_launch.tolist() == [True, False]
    assert found.start[0] + found.length[0] + MACHINE.launch[""].median == 60_000
    assert (found.start[1], found.length[1]) == (0, 15_000)
