"""What bounds the device's clock against the host's, and what calls certainly awaited, by hand-made rows.

What is usual on a machine follows from most of the times in a trace, whatever lengthened the others.
"""

from dataclasses import replace

import numpy as np
import pytest
from execgraph.linker.machine import awaited_ends, clock_of, machine_of
from execgraph.linker.overruns import Awaited
from execgraph.schema.linked import Activities, Calls
from execgraph.schema.machine import (
    ANY_MACHINE,
    ENOUGH,
    LONGEST,
    SLOWEST,
    LatencyStats,
    MachineCalibration,
    latency_stats,
    of_name,
)  # fmt: skip
from hypothesis import given, strategies as st
from support.tables import FIRST, Called, Ran, Synced, activities, calls, column, syncs


def launched(*shown: tuple[int, int]) -> tuple[Activities, Calls]:
    """Activities of 100 ns that start at a time, so long before their launch calls by the device's clock."""
    ran = [Ran(start, start + 100, call) for call, (start, _) in enumerate(shown)]
    return activities(*ran), calls(*(Called(start + early, start + early + 10) for start, early in shown))


def awaiting(start: int, returned: int, length: int = 10) -> tuple[Called, int]:
    """A call that returned so long after what it awaited had ended, which was at `start`."""
    return Called(start + returned - length, start + returned, "cudaDeviceSynchronize"), start


def clock_from(launches: list[tuple[int, int]], *waits: tuple[Called, int]) -> MachineCalibration:
    ran, called = launched(*launches)
    rows = [Called(start, end) for start, end in zip(called.start.tolist(), called.end.tolist(), strict=True)]
    every = calls(*rows, *(call for call, _ in waits))
    awaited = Awaited(len(rows) + np.arange(len(waits)), column(*(end for _, end in waits)))
    return clock_of(ran, every, awaited)


def clock_line(offset: int, drift: int, since: int, until: int, error: int, resolution: int) -> MachineCalibration:
    return MachineCalibration(resolution, offset, drift, since, until, error)


LATER = [(1_001, -50), (2_001, -50), (3_001, -50)]
"""Launches that agree with any clock that is up to 50 ns less."""


def test_the_latest_of_impossible_starts_tells_the_least_shift() -> None:
    clock = clock_from([(1_001, 501), (2_001, 701), (3_001, 601)])
    assert clock == clock_line(offset=701, drift=0, since=1_001, until=3_101, error=0, resolution=1)


@pytest.mark.parametrize("possible", [0, -40])
def test_two_impossible_starts_are_damage_whatever_else_the_clock_is_held_to(possible: int) -> None:
    launches = [(1_001, 501), (2_001, 701), (3_001, possible), (4_001, possible)]
    assert clock_from(launches) == clock_line(0, 0, 1_001, 4_101, 0, 1)
    clock = clock_from(launches, awaiting(3_501, -30))
    assert (clock.clock_offset_ns + clock.clock_drift_ns, clock.clock_error_ns) == ((-30, 0) if possible else (-15, 15))


def test_a_shift_of_one_nanosecond_is_measured_and_without_rows_there_is_none() -> None:
    assert clock_from([(1_001, 1), (2_001, 1), (3_001, 1)]).clock_offset_ns == 1
    assert clock_from([], awaiting(2_501, -1)).clock_offset_ns == -1
    assert clock_from([]) == clock_line(0, 0, 0, 0, 0, 1)


def test_whole_microseconds_let_calls_return_that_much_early() -> None:
    ran, _ = whole(0)
    for early, offset in ((2_000, 0), (3_000, -1_000)):
        called = calls(*(Called(start, start + 1_000 - early, "cudaDeviceSynchronize") for start in (1_000, 11_000)))
        without_calls = replace(ran, call_row=0 * ran.call_row - 1)
        clock = clock_of(without_calls, called, Awaited(column(0, 1), column(2_000, 12_000)))
        assert (clock.clock_offset_ns, clock.clock_error_ns) == (offset, 2_000)


def test_starts_with_their_calls_and_returns_at_the_end_are_possible_and_earlier_returns_tell_the_most() -> None:
    assert clock_from([(1_001, 0), (2_001, 0), (3_001, 0)]) == clock_line(0, 0, 1_001, 3_101, 0, 1)
    assert clock_from(LATER, awaiting(2_501, 0), awaiting(2_901, 0)) == clock_line(0, 0, 1_001, 3_101, 0, 1)
    assert clock_from(LATER, awaiting(2_501, -30), awaiting(2_901, -20)).clock_offset_ns == -30


def test_bounds_that_contradict_each_other_are_missed_by_the_same_and_by_the_exact_error() -> None:
    # half of what they are apart is left as the clock's error
    clock = clock_from([(1_001, 600), (2_001, 600), (3_001, 600)], awaiting(2_001, -200))
    assert (clock.clock_offset_ns, clock.clock_drift_ns, clock.clock_error_ns) == (200, 0, 400)
    since_1970 = 1_700_000_000_000_000_000
    clock = clock_from([(1_001, since_1970 + 100), (2_001, since_1970 + 90), (3_001, since_1970 + 80)])
    assert clock.clock_offset_ns + clock.clock_error_ns == since_1970 + 100


def test_a_clock_drifts_no_more_than_the_bounds_demand_wherever_they_lie() -> None:
    clock = clock_from([(1, 1_000), (101, 500), (201, 500), (9_901, -9_000)], awaiting(10_001, -1_000))
    assert clock == clock_line(offset=1_000, drift=-2_000, since=1, until=10_001, error=0, resolution=1)
    # 1,000 ns at least at a quarter of the time, 1,000 less than nothing at most at three quarters of it
    launches = [(1, -9_000), (2_301, 500), (2_401, 500), (2_501, 1_000), (9_901, -9_000)]
    clock = clock_from(launches, awaiting(7_501, -1_000))
    assert clock == clock_line(offset=2_000, drift=-4_000, since=1, until=10_001, error=0, resolution=1)


@pytest.mark.parametrize("tightest", [0, 77, 199])
def test_of_many_bounds_the_tightest_counts_wherever_it_is(tightest: int) -> None:
    early = [900 if number == tightest else 100 + number % 7 for number in range(200)]
    assert clock_from([(1_001 + 1_000 * number, ns) for number, ns in enumerate(early)]).clock_offset_ns == 900
    late = (awaiting(1_001 + 1_000 * number, -ns) for number, ns in enumerate(early))
    assert clock_from([], *late).clock_offset_ns == -900


def test_whole_microseconds_give_the_bounds_slack() -> None:
    clock = clock_from([(1_000, 5_000), (11_000, 5_000), (21_900, 5_000)])
    assert (clock.clock_offset_ns, clock.clock_error_ns, clock.resolution_ns) == (5_000, 0, 1)
    clock = clock_of(*whole(5_000), Awaited(column(), column()))
    assert (clock.clock_offset_ns, clock.clock_error_ns, clock.resolution_ns) == (3_000, 2_000, 1_000)
    clock = clock_of(*whole(2_000), Awaited(column(), column()))
    assert (clock.clock_offset_ns, clock.clock_error_ns, clock.resolution_ns) == (0, 2_000, 1_000)


def whole(early: int) -> tuple[Activities, Calls]:
    rows = [(1_000 * number, early) for number in (1, 11, 21)]
    _, called = launched(*rows)
    return activities(*(Ran(start, start + 1_000, call) for call, (start, _) in enumerate(rows))), called


# How late calls usually return


def idle(after: int, length: int, end: int = 10_001) -> tuple[Called, int]:
    """A call that began so long after what it awaited had ended."""
    return Called(end + after, end + after + length, "cudaDeviceSynchronize"), end


def offset_by(*free: tuple[Called, int]) -> int:
    """Of a device's clock 50 ns ahead, where what calls waited for ended 20 to 30 ns after they returned."""
    return clock_from(
        [], *(awaiting(1_001 + 1_000 * n, -30 + 5 * (n % 3), 100) for n in range(3)), *free
    ).clock_offset_ns


def test_calls_that_waited_returned_as_late_as_those_that_had_nothing_to_await_take() -> None:
    assert offset_by() == -30
    assert offset_by(idle(1_000, 20), idle(2_000, 22), idle(3_000, 90)) == -25 - 22


@pytest.mark.parametrize(("after", "offset"), [(80, -30), (81, -25 - 20)])
def test_a_call_that_began_soon_after_an_end_may_have_waited(after: int, offset: int) -> None:
    """By twice as much as calls returned too early, and by its own length."""
    assert offset_by(idle(after, 20)) == offset


def test_a_call_of_another_name_does_not_tell() -> None:
    call, end = idle(1_000, 20)
    assert offset_by((call._replace(name="cudaStreamSynchronize"), end)) == -30


# What calls certainly awaited

DEVICE, STREAM, EVENT = "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"
TWO = [Ran(20, 130, 0, stream=7), Ran(50, 260, 1, stream=20)]
LAUNCHES = [Called(0, 10), Called(20, 40)]
COPIED = "Memcpy DtoH (Device -> Pageable)"


def awaited(ran: list[Ran], called: list[Called], *records: Synced) -> list[tuple[int, int]]:
    """(call, what it awaited ended) by row."""
    rows = awaited_ends(activities(*ran), calls(*called), syncs(*records))
    return list(zip(rows.call_row.tolist(), rows.end.tolist(), strict=True))


def test_a_device_synchronisation_awaits_all_that_had_been_launched_to_the_only_device() -> None:
    assert awaited(TWO, [*LAUNCHES, Called(40, 99, DEVICE)]) == [(2, 260)]
    assert awaited(TWO, [*LAUNCHES, Called(39, 99, DEVICE)]) == [(2, 130)]
    assert awaited(TWO, [*LAUNCHES, Called(9, 99, DEVICE)]) == []
    assert awaited([TWO[0], TWO[1]._replace(device=1)], [*LAUNCHES, Called(50, 99, DEVICE)]) == []
    for second in (Ran(30, 90, 1), Ran(140, 300, -1)):  # one without a call may have been launched later
        assert awaited([Ran(20, 130, 0), second], [*LAUNCHES, Called(50, 99, DEVICE)]) == [(2, 130)]


def test_a_stream_synchronisation_awaits_the_recorded_stream_unless_two_devices_have_it() -> None:
    called = [*LAUNCHES, Called(50, 99, STREAM)]
    assert awaited(TWO, called) == []
    assert awaited(TWO, called, Synced("Stream Sync", 2, stream=20)) == [(2, 260)]
    assert awaited(TWO, called, Synced("Stream Sync", 2, stream=7)) == [(2, 130)]
    assert awaited(TWO, called, Synced("Stream Sync", 2, stream=24)) == []
    both = awaited(TWO, called, Synced("Stream Sync", 2, stream=20), Synced("Stream Sync", 2, stream=7))
    assert both == [(2, 130), (2, 260)]
    ran = [TWO[0], TWO[1]._replace(device=1, stream=7)]
    assert awaited(ran, [*LAUNCHES, Called(50, 99, STREAM)], Synced("Stream Sync", 2, stream=7)) == []
    # only of what ran before it is it known that what has no launch call had been submitted
    orphans = [Ran(10, 15), TWO[0], Ran(140, 400)]
    assert awaited(orphans, [*LAUNCHES, Called(50, 99, DEVICE)]) == [(2, 130)] and not awaited(orphans[2:], [*called])


@pytest.mark.parametrize(("correlation", "known"), [(0, []), (1, [260])])
def test_a_record_without_a_correlation_is_of_no_call(correlation: int, known: list[int]) -> None:
    called = calls(*LAUNCHES, Called(50, 99, STREAM))
    called.correlation[2] = correlation
    record = Synced("Stream Sync", correlation - FIRST, stream=20)
    assert awaited_ends(activities(*TWO), called, syncs(record)).end.tolist() == known


def test_an_event_synchronisation_awaits_what_was_launched_before_the_event_was_recorded() -> None:
    called = [*LAUNCHES, Called(12, 14, "cudaEventRecord"), Called(50, 99, EVENT)]
    ran = [TWO[0], TWO[1]._replace(stream=7, start=130)]
    assert awaited(ran, called, Synced("Event Sync", 3, awaited=7, recorded=2)) == [(3, 130)]
    assert awaited(ran, called, Synced("Event Sync", 3, awaited=7)) == []
    assert awaited(ran, called, Synced("Event Sync", 77, awaited=7, recorded=2)) == []
    assert awaited(ran, called, Synced("Stream Wait Event", 3, stream=7, awaited=7, recorded=2)) == []


@pytest.mark.parametrize(("wait_at", "is_known"), [(15, True), (42, False), (51, True)])
def test_what_a_stream_ends_with_is_not_known_while_it_waits_for_another_one(wait_at: int, is_known: bool) -> None:
    """Unless more has been launched on it since, or it was told so only after the call had begun."""
    ran = [TWO[0], TWO[1]._replace(stream=7, start=130)]
    called = [*LAUNCHES, Called(wait_at, wait_at + 1, "cudaStreamWaitEvent"), Called(50, 99, STREAM)]
    told, awaits = Synced("Stream Wait Event", 2, stream=7, awaited=20), Synced("Stream Sync", 3, stream=7)
    assert awaited(ran, called, told, awaits) == [(3, 260)] * is_known
    assert awaited(ran, called, told._replace(stream=20), awaits) == [(3, 260)]


def test_an_event_that_a_waiting_stream_records_is_not_known_either() -> None:
    called = [
        LAUNCHES[0],
        Called(11, 12, "cudaStreamWaitEvent"),
        Called(13, 14, "cudaEventRecord"),
        Called(50, 99, EVENT),
    ]
    told, awaits = Synced("Stream Wait Event", 1, stream=7, awaited=20), Synced("Event Sync", 3, awaited=7, recorded=2)
    assert awaited(TWO[:1], called, told, awaits) == []
    assert awaited(TWO[:1], called, awaits) == [(3, 130)]


def test_calls_that_only_ask_await_nothing() -> None:
    called = [*LAUNCHES, Called(12, 14, "cudaEventRecord"), Called(50, 99, "cudaEventQuery")]
    assert awaited(TWO, called, Synced("Event Sync", 3, awaited=7, recorded=2)) == []
    called[-1] = Called(50, 99, "cudaStreamQuery")
    assert awaited(TWO, called, Synced("Stream Sync", 3, stream=7)) == []


@pytest.mark.parametrize("name", ["Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)", "kernel"])
def test_only_copies_to_pageable_memory_return_when_they_are_done(name: str) -> None:
    assert awaited([Ran(20, 90, 0, name=COPIED)], [Called(0, 99)]) == [(0, 90)]
    assert awaited([Ran(20, 90, 0, name=name)], [Called(0, 99)]) == []


def test_a_copy_that_began_long_after_its_call_did_not_block_it() -> None:
    assert awaited([Ran(299, 400, 0, name=COPIED)], [Called(100, 200)]) == [(0, 400)]
    assert awaited([Ran(300, 400, 0, name=COPIED)], [Called(100, 200)]) == []
    assert awaited([Ran(20, 90, -1, name=COPIED)], [Called(0, 99)]) == []


# synchronisations of streams that no record names


def common(*returned: int, ends: list[list[int]]) -> list[tuple[int, int]]:
    """The calls and ends that are found where calls of 50 µs return at these times, by the ends on each stream, ns."""
    ran = [Ran(end - 1_000, end, 0, stream=stream) for stream, of_stream in enumerate(ends) for end in of_stream]
    waits = [Called(time - 50_000, time, "cudaStreamSynchronize") for time in returned]
    launches = [Called(ran_at.start - 60_000, ran_at.start - 59_000) for ran_at in ran]
    table = activities(*(one._replace(call=len(waits) + row) for row, one in enumerate(ran)))
    awaited = awaited_ends(table, calls(*waits, *launches), syncs())
    return sorted(zip(awaited.call_row.tolist(), awaited.end.tolist(), strict=True))


def test_calls_that_return_at_one_distance_from_an_end_awaited_it_even_if_that_seems_to_be_later() -> None:
    ends = [[97_500, 360_000, 497_800], [85_000, 297_900, 470_000]]
    assert common(100_000, 300_000, 500_000, ends=ends) == [(0, 97_500), (1, 297_900), (2, 497_800)]
    later = [101_000, 301_200, 500_800]
    assert common(100_000, 300_000, 500_000, ends=[later]) == [*enumerate(later)]


def test_ends_after_the_return_are_no_sign_if_something_would_then_start_before_its_launch() -> None:
    """These ends are 16 µs after the return. An activity without a launch call is no sign of either."""
    calls_of_step = [Called(time - 50_000, time, "cudaStreamSynchronize") for time in (100_000, 300_000, 500_000)]
    launches = [Called(start, start + 1_000) for start in (600_000, 10_000, 210_000, 410_000)]
    for soonest, known in ((16_000, 3), (15_999, 0)):
        ran = [Ran(launches[row].start + 80_000, launches[row].start + 106_000, row) for row in (1, 2, 3)]
        ran += [Ran(600_000 + soonest, 640_000, 0), Ran(451_000, 452_000, stream=9)]
        assert len(awaited_ends(activities(*ran), calls(*launches, *calls_of_step), syncs()).end) == known


@pytest.mark.parametrize(("distance", "is_known"), [(SLOWEST, True), (SLOWEST + 1, False)])
def test_no_call_returns_later_than_the_slowest_machine_lets_it(distance: int, is_known: bool) -> None:
    returned = 100_000, 300_000, 500_000
    assert bool(common(*returned, ends=[[time - distance for time in returned]])) == is_known


@pytest.mark.parametrize(("others", "is_known"), [(2, True), (3, False)])
def test_another_distance_that_is_more_than_half_as_common_makes_it_chance(others: int, is_known: bool) -> None:
    returned = [200_000 * number for number in range(1, 5)]
    ends = [[time - 2_500 for time in returned], [time - 15_000 for time in returned[:others]]]
    assert bool(common(*returned, ends=ends)) == is_known


@pytest.mark.parametrize(
    ("returned", "ends"),
    [
        ((100_000, 300_000), [[97_500, 297_900]]),
        ((100_000, 300_000, 500_000), [[97_500, 285_000, 478_000]]),
        ((100_000, 300_000, 500_000), [[97_500, 297_900, 497_800], [82_500, 282_900, 482_800]]),
    ],
    ids=["two calls", "no distance in common", "two distances that are as common"],
)
def test_what_may_be_chance_tells_nothing(returned: tuple[int, ...], ends: list[list[int]]) -> None:
    assert common(*returned, ends=ends) == []


@pytest.mark.parametrize(
    ("call_count", "alike", "is_known"), [(8, 3, False), (8, 4, True), (4, 2, False), (4, 3, True), (3, 3, True)]
)
def test_half_of_the_calls_and_three_must_return_at_one_distance(call_count: int, alike: int, is_known: bool) -> None:
    """The others return long after any end."""
    returned = [200_000 * number for number in range(1, call_count + 1)]
    ends = [time - (2_500 if number < alike else 45_000) for number, time in enumerate(returned)]
    assert common(*returned, ends=[ends]) == [(number, ends[number]) for number in range(alike)] * is_known


def ns(*us: float) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.rint(np.array(us, np.float64) * 1000).astype(np.int64)


def test_times_that_something_else_added_to_are_not_usual_and_of_nothing_nothing_is() -> None:
    assert latency_stats(ns()) == LatencyStats()
    assert latency_stats(ns(-3, 200)) == LatencyStats()
    clean = latency_stats(ns(2.0, 2.1, 2.2, 2.3, 2.4, 2.5))
    for wait in (30, 90, 1_000):
        assert latency_stats(ns(2.0, 2.1, 2.2, 2.3, 2.4, 2.5, wait, wait)) == clean
    assert clean.upper < 30_000


@given(st.integers(1_000, 25_000), st.integers(ENOUGH, 60), st.integers(0, 40), st.randoms())
def test_up_to_two_thirds_of_waits_do_not_change_what_is_usual(latency, count, share, random):
    clean = [latency + random.randint(0, 300) for _ in range(count)]
    waits = [random.randint(4 * latency + 20_000, 10**7) for _ in range(count * share // 20)]
    stats = latency_stats(np.array(clean + waits, np.int64))
    assert latency <= stats.median <= latency + 300
    assert stats.upper <= latency + 300 + 3 * 300


def test_what_is_usual_is_known_no_better_than_times_are_written() -> None:
    assert latency_stats(ns(2, 2, 2, 2, 2), 1000).upper == 3_000
    assert latency_stats(ns(2, 2, 2, 2, 2)).upper == 2_001


FEW, MANY = LatencyStats(3_000, 3_500, ENOUGH - 1), LatencyStats(5_000, 5_500, ENOUGH)


def test_few_times_of_a_name_give_way_to_those_of_all_names_or_of_any_machine() -> None:
    assert of_name({"": MANY, "cudaLaunchKernel": FEW}, "cudaLaunchKernel") == MANY
    assert of_name({"": MANY}, "unheard of") == MANY
    assert of_name({"": FEW, "cudaLaunchKernel": MANY}, "cudaLaunchKernel") == MANY
    assert of_name({"": FEW}, "cudaLaunchKernel") == LatencyStats(FEW.median, ANY_MACHINE.upper, FEW.count)


@pytest.mark.parametrize("table", [{}, {"": LatencyStats()}, {"": LatencyStats(LONGEST - 1, LONGEST, 1)}])
def test_without_times_or_with_few_that_no_machine_takes_it_is_as_on_any_machine(table):
    stats = of_name(table, "cudaLaunchKernel")
    assert (stats.median, stats.upper) == (ANY_MACHINE.median, ANY_MACHINE.upper)


def test_a_clock_that_drifts_is_shifted_by_more_and_more() -> None:
    machine = MachineCalibration(
        clock_offset_ns=1_000, clock_drift_ns=-500, clock_from_ns=10_000, clock_until_ns=20_000
    )
    assert machine.clock_shift(np.array([10_000, 15_000, 20_000])).tolist() == [1_000, 750, 500]


# What a trace tells, by hand

COPY, DONE = "gpu_memcpy", "cudaStreamSynchronize"


def machine(ran: list[Ran], called: list[Called], *records: Synced) -> MachineCalibration:
    tables = activities(*ran), calls(*called)
    return machine_of(*tables, awaited_ends(*tables, syncs(*records)))


def counts_and_medians(table: dict[str, LatencyStats]) -> dict[str, tuple[int, int]]:
    """How often, and how long in the middle, by name."""
    return {name: (stats.count, stats.median) for name, stats in table.items()}


def test_a_launch_takes_from_its_call_to_the_start_on_a_free_stream() -> None:
    ran = [Ran(3_001, 9_000, 0), Ran(13_003, 19_000, 1), Ran(17_005, 19_000, 2, stream=20)]
    called = [Called(0, 1_000), Called(10_000, 11_000), Called(12_000, 15_000, "cuLaunchKernel")]
    found = counts_and_medians(machine(ran, called).launch)
    assert found == {"": (3, 2_003), "cudaLaunchKernel": (2, 2_002), "cuLaunchKernel": (1, 2_005)}


@pytest.mark.parametrize(
    ("end", "start", "free"),
    [(10_000, 13_001, True), (10_001, 13_001, False), (9_000, 11_000, True), (9_000, 10_999, False)],
)
def test_a_launch_that_something_else_may_have_held_or_that_began_within_its_call_does_not_count(end, start, free):
    """The stream is free from when the call began; an activity begins after its call."""
    ran = [Ran(3_001, end, 0), Ran(start, 19_000, 1)]
    launch = machine(ran, [Called(0, 1_000), Called(10_000, 11_000)]).launch
    assert launch[""].count == 1 + free


@pytest.mark.parametrize(("end", "counted"), [(2_999, 1), (2_998, 2), (3_003, 1), (3_004, 2)])
def test_a_launch_that_started_as_another_stream_went_idle_does_not_count(end: int, counted: int) -> None:
    """It may have waited for room; two times that are one may differ by 2 ns."""
    ran = [Ran(3_001, 9_000, 0), Ran(2_001, end, 1, stream=20)]
    launch = machine(ran, [Called(0, 1_000), Called(500, 1_500)]).launch
    assert launch[""].count == counted


def queued(**changed: int) -> MachineCalibration:
    """Two launches of 2 µs on a free stream, then one launched at 9 µs behind an activity that ends at 12 µs."""
    at = {"returned": 9_000, "end": 12_000, "start": 12_701, "other": 300, "call": 2} | changed
    ran = [Ran(3_001, 4_000, 0, stream=20), Ran(6_001, at["end"], 1), Ran(at["start"], 19_000, at["call"])]
    ran += [Ran(100, at["other"], stream=24)]
    return machine(ran, [Called(0, 1_000), Called(3_000, 4_000), Called(5_000, at["returned"])])


def test_a_gap_is_what_passes_between_activities_that_queue() -> None:
    assert counts_and_medians(queued().gap) == {"": (1, 701), "kernel": (1, 701)}
    assert counts_and_medians(queued(start=12_000).gap) == {"": (1, 0), "kernel": (1, 0)}


@pytest.mark.parametrize(
    "changed",
    [{"start": 11_999}, {"other": 12_700}, {"call": -1}, {"returned": 9_998}],
    ids=["overlapping", "without room", "not launched", "launched late"],
)
def test_what_was_blocked_by_something_else_shows_no_gap(changed: dict[str, int]) -> None:
    """Launched early is what the usual launch latency had passed for when the one before ended."""
    assert queued(**changed).gap == {}


def test_an_activity_of_the_first_call_may_show_a_gap() -> None:
    ran = [Ran(100, 80_000), Ran(80_701, 90_000, 0)]
    assert counts_and_medians(machine(ran, [Called(0, 1_000)]).gap) == {"": (1, 701), "kernel": (1, 701)}


def test_a_blocking_call_wakes_after_what_it_awaited_has_ended() -> None:
    ran = [Ran(3_001, 9_000, 0)]
    called = [Called(0, 1_000), Called(2_000, 10_234, DONE), Called(20_000, 21_000, DONE)]
    records = [Synced("Stream Sync", 1, stream=7), Synced("Stream Sync", 2, stream=7)]
    assert counts_and_medians(machine(ran, called, *records).sync_return) == {"": (1, 1_234), DONE: (1, 1_234)}


@pytest.mark.parametrize(("start", "end", "waited"), [(8_999, 9_500, 1), (9_000, 9_500, 0), (8_000, 9_000, 1)])
def test_a_call_that_began_after_the_end_did_not_wait(start: int, end: int, waited: int) -> None:
    called = [Called(0, 1_000), Called(start, end, DONE)]
    wake = machine([Ran(3_001, 9_000, 0)], called, Synced("Stream Sync", 1, stream=7)).sync_return
    assert sum(one.count for name, one in wake.items() if not name) == waited


def test_a_trace_is_measured_on_the_hosts_clock() -> None:
    """The device is 5 µs behind, by what starts 3 µs before its call, and usually 2 µs after."""
    ran = [Ran(10_000 * n - 3_000 + 7, 10_000 * n + 1, n) for n in range(4)]
    called = [Called(10_000 * n, 10_000 * n + 1_000) for n in range(4)]
    shown = machine(ran, called)
    assert shown.clock_offset_ns == 2_993
    assert (shown.clock_from_ns, shown.clock_until_ns, shown.clock_error_ns) == (-2_993, 30_001, 0)
    assert shown.launch == {}
