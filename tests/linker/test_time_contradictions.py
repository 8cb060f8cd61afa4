"""Device times that cannot be right, by tables made by hand; times are in ns."""

import pytest
from execgraph.linker.contradiction import Contradiction
from execgraph.linker.time_contradictions import clock_apart, other_units, overlapping_activities
from execgraph.schema.columns import CallRows
from execgraph.schema.machine import AGREEING, MachineCalibration
from support.device_rows import ActivityRow, CallRow, OpRow, device_trace
from support.tables import column

MACHINE = MachineCalibration()
LONG_NAME = "gemm" * 12


def what(said: Contradiction | None) -> str:
    assert said is not None
    return said.what


# the unit, by copies


def copied(*copies: tuple[int, int, int]) -> Contradiction | None:
    """Copies by length in ns, bytes and bytes per second."""
    ran = [ActivityRow(0, length, size=size, bandwidth=bandwidth) for length, size, bandwidth in copies]
    return other_units(device_trace(activities=ran), CallRows(column(*(-1 for _ in ran))), MACHINE)


@pytest.mark.parametrize(
    ("copy", "factor"),
    [
        ((1, 1, 1), "1,000,000,000 times too short"),
        ((2, 2_000, 1_000_000_000), "1,000 times too short"),
        ((2_000, 2, 1_000_000_000), "1,000 times too long"),
        ((5_000_000, 5, 1_000_000_000), "1,000,000 times too long"),
    ],
)
def test_copies_show_the_unit_of_device_times(copy: tuple[int, int, int], factor: str) -> None:
    assert what(copied(copy)) == f"device times are {factor}, by the bytes and bandwidth recorded of copies"
    assert copied((2, 2, 1_000_000_000)) is None


@pytest.mark.parametrize("incomplete", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, -1, -1)])
def test_a_copy_without_a_length_a_size_or_a_bandwidth_shows_nothing(incomplete: tuple[int, int, int]) -> None:
    assert copied(incomplete, incomplete) is None
    assert what(copied((1, 1, 1), incomplete)).startswith("device times are 1,000,000,000 times too short")


# the unit, by the order of launches


def started(*rows: tuple[int, int], clock_error_ns: int = 0) -> Contradiction | None:
    """Activities by their starts and those of their calls, after one without a call."""
    ran = [ActivityRow(10**12), *(ActivityRow(start) for start, _ in rows)]
    calls = [CallRow(launch) for _, launch in rows]
    machine = MachineCalibration(clock_error_ns=clock_error_ns)
    return other_units(device_trace(calls=calls, activities=ran), CallRows(column(-1, *range(len(rows)))), machine)


def test_times_are_too_short_if_most_activities_start_before_their_launch() -> None:
    begun, early = (0, 0), [(1_000, 1_000_000), (2_000, 2_000_000), (3_000, 3_000_000)]
    said = what(started(begun, *early))
    assert said == "device times are 1,000 times too short, by the order of launches and waits"
    assert started(begun, begun, *early[1:]) is None


def test_times_are_too_long_if_the_clocks_error_is_longer_than_all_launches() -> None:
    rows = [(1_000 * launch, launch) for launch in (10, 20, 30, 50)]
    said = what(started(*rows, clock_error_ns=41))
    assert said == "device times are 1,000 times too long, by the order of launches and waits"
    assert started(*rows, clock_error_ns=40) is None


def test_few_activities_or_launches_at_one_time_show_no_unit() -> None:
    rows = [(1_000 * launch, launch) for launch in (10, 20, 30, 50)]
    assert started(*rows[1:], clock_error_ns=1_000) is None
    assert started(*((start, 10) for start, _ in rows), clock_error_ns=1_000) is None
    assert started(*((10, launch) for _, launch in rows), clock_error_ns=1_000) is None


# the clock


def apart(offset_ns: int, *calls: CallRow, ops: tuple[OpRow, ...] = ()) -> Contradiction | None:
    return clock_apart(device_trace(ops, calls), MachineCalibration(clock_offset_ns=offset_ns))


@pytest.mark.parametrize(("sign", "way"), [(1, "behind"), (-1, "ahead of")])
def test_a_clock_is_wrong_if_it_is_off_by_more_than_the_recording_is_long(sign: int, way: str) -> None:
    calls, ops = (CallRow(2_000, 3_000), CallRow(5_000, 9_000)), (OpRow(4_000, 7_000),)
    assert apart(7_000 * sign, *calls, ops=ops) is None
    said = what(apart(7_001 * sign, *calls, ops=ops))
    assert said == f"the device's clock is 7.0 µs {way} the host's, in a recording of 7.0 µs"
    assert f" {way} the host's" in what(apart(sign, CallRow(5, 5)))


def test_a_clock_that_is_not_off_is_right_however_short_the_recording() -> None:
    assert apart(0) is None


# activities at once


def overlapping(*ran: ActivityRow, launched: tuple[int, ...] = ()) -> Contradiction | None:
    """Activities without calls, unless they are given."""
    return overlapping_activities(device_trace(activities=ran), CallRows(column(*(launched or [-1] * len(ran)))))


def run(*times: tuple[int, int], **other: int) -> list[ActivityRow]:
    """Activities of stream 0 by start and end."""
    return [
        ActivityRow(start, end, 20 + row, LONG_NAME, **{"stream": 0} | other) for row, (start, end) in enumerate(times)
    ]


TWO_FOR_MOST = [(0, 10), (0, 10), (10, 15), (15, 18)]
"""Two run for 10 ns, one for 8 ns."""


def test_several_activities_of_a_stream_do_not_run_for_longer_than_one() -> None:
    """An activity that begins as another one ends does not overlap it, and one without a length overlaps none."""
    ran = [*run(*TWO_FOR_MOST), *run((19, 19), (12, 12)), *run((0, 1), stream=5)]
    assert what(overlapping(*ran)) == (
        "1 of 5 activities still run when the next of their stream begins (the first: correlation 20, "
        f"{LONG_NAME[:40]}), and such overlaps are more than half of the busy time, though a stream runs one at a time"
    )
    assert overlapping(*run(*TWO_FOR_MOST[:-1], (15, 20))) is None


@pytest.mark.parametrize(("node", "is_wrong"), [(-1, True), (0, True), (1, False), (2, False)])
def test_activities_of_a_graph_may_run_at_once(node: int, is_wrong: bool) -> None:
    assert (overlapping(*run(*TWO_FOR_MOST, graph_node=node)) is not None) == is_wrong


def test_activities_of_one_call_may_run_at_once() -> None:
    assert overlapping(*run(*TWO_FOR_MOST), launched=(0, 0, 1, 2)) is None
    assert overlapping(*run(*TWO_FOR_MOST), launched=(0, 3, 1, 2)) is not None


def test_few_activities_or_those_of_no_stream_say_nothing() -> None:
    assert overlapping(*run(*TWO_FOR_MOST[:AGREEING])) is None
    assert overlapping(*run(*TWO_FOR_MOST, stream=-1)) is None
