"""What is usual on a machine follows from most of the times in a trace, whatever lengthened the others."""

from random import Random

import numpy as np
import pytest
from execgraph.linker.measured_machine import machine_of
from execgraph.schema.machine import (
    ANY_MACHINE,
    ENOUGH,
    LONGEST,
    LatencyStats,
    MachineCalibration,
    latency_stats,
    of_name,
)
from hypothesis import given, strategies as st
from support.tables import Called, Ran, Synced, activities, calls, syncs


def ns(*us: float) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.rint(np.array(us, np.float64) * 1000).astype(np.int64)


def test_of_nothing_nothing_is_usual() -> None:
    assert latency_stats(ns()) == LatencyStats()
    assert latency_stats(ns(-3, 200)) == LatencyStats()


def test_times_that_something_else_added_to_are_not_usual() -> None:
    clean = latency_stats(ns(2.0, 2.1, 2.2, 2.3, 2.4, 2.5))
    for wait in (30, 90, 1_000):
        assert latency_stats(ns(2.0, 2.1, 2.2, 2.3, 2.4, 2.5, wait, wait)) == clean
    assert clean.upper < 30_000


@given(st.integers(1_000, 25_000), st.integers(ENOUGH, 60), st.integers(0, 40), st.randoms())
def test_up_to_two_thirds_of_waits_do_not_change_what_is_usual(
    latency: int, count: int, share: int, random: Random
) -> None:
    clean = [latency + random.randint(0, 300) for _ in range(count)]
    waits = [random.randint(4 * latency + 20_000, 10**7) for _ in range(count * share // 20)]
    stats = latency_stats(np.array(clean + waits, np.int64))
    assert latency <= stats.median <= latency + 300
    assert stats.upper <= latency + 300 + 3 * 300


def test_what_is_usual_is_known_no_better_than_times_are_written() -> None:
    assert latency_stats(ns(2, 2, 2, 2, 2), 1000).upper == 3_000
    assert latency_stats(ns(2, 2, 2, 2, 2)).upper == 2_001


FEW, MANY = LatencyStats(3_000, 3_500, ENOUGH - 1), LatencyStats(5_000, 5_500, ENOUGH)


def test_few_times_of_a_name_give_way_to_those_of_all_names() -> None:
    assert of_name({"": MANY, "cudaLaunchKernel": FEW}, "cudaLaunchKernel") == MANY
    assert of_name({"": MANY}, "unheard of") == MANY
    assert of_name({"": FEW, "cudaLaunchKernel": MANY}, "cudaLaunchKernel") == MANY


def test_few_times_in_all_are_not_taken_as_narrower_than_on_any_machine() -> None:
    assert of_name({"": FEW}, "cudaLaunchKernel") == LatencyStats(FEW.median, ANY_MACHINE.upper, FEW.count)


@pytest.mark.parametrize("table", [{}, {"": LatencyStats()}, {"": LatencyStats(LONGEST - 1, LONGEST, 1)}])
def test_without_times_or_with_few_that_no_machine_takes_it_is_as_on_any_machine(
    table: dict[str, LatencyStats],
) -> None:
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
    return machine_of(activities(*ran), calls(*called), syncs(*records))


def counts_and_medians(table: dict[str, LatencyStats]) -> dict[str, tuple[int, int]]:
    """How often, and how long in the middle, by name."""
    return {name: (stats.count, stats.median) for name, stats in table.items()}


def test_a_launch_takes_from_its_call_to_the_start_on_a_free_stream() -> None:
    ran = [Ran(3_001, 9_000, 0), Ran(13_003, 19_000, 1), Ran(17_005, 19_000, 2, stream=20)]
    called = [Called(0, 1_000), Called(10_000, 11_000), Called(12_000, 15_000, "cuLaunchKernel")]
    assert counts_and_medians(machine(ran, called).launch) == {
        "": (3, 2_003),
        "cudaLaunchKernel": (2, 2_002),
        "cuLaunchKernel": (1, 2_005),
    }


@pytest.mark.parametrize(
    ("end", "start", "free"),
    [(10_000, 13_001, True), (10_001, 13_001, False), (9_000, 11_000, True), (9_000, 10_999, False)],
)
def test_a_launch_that_something_else_may_have_held_or_that_began_within_its_call_does_not_count(
    end: int, start: int, free: bool
) -> None:
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
