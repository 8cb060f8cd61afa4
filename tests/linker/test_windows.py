"""Which period of a trace steps, annotations and the clock give, and which one both files cover: to the nanosecond."""

import numpy as np
import pytest
from execgraph.linker.match import Match
from execgraph.linker.readers import DeviceTrace
from execgraph.linker.windows import (
    Period,
    Window,
    annotation_period,
    clock_span,
    common,
    host_period,
    period_of,
    step_span,
    trace_start,
    whole,
)
from execgraph.schema.errors import DataError
from support.tables import ActivityRow, CallRow, OpRow, device_trace


def marked(*spans: tuple[int, int, int]) -> DeviceTrace:
    """A trace with steps of (number, start, end)."""
    return device_trace([OpRow(start, end, f"ProfilerStep#{number}") for number, start, end in spans])


STEPS = marked((3, 1_000, 2_000), (4, 2_500, 3_000), (5, 3_000, 4_000))


# the whole


def test_a_trace_lasts_from_its_first_start_to_its_last_end_of_any_row() -> None:
    rows = {"ops": OpRow(5, 20), "calls": CallRow(3, 9), "activities": ActivityRow(30, 40)}
    assert whole(device_trace(**{name: [row] for name, row in rows.items()})) == (3, 41)
    assert whole(device_trace(ops=[rows["ops"]], calls=[rows["calls"]])) == (3, 21)
    assert whole(device_trace(activities=[rows["activities"]])) == (30, 41)


def test_zero_is_where_recording_began_or_the_first_start_if_that_is_earlier() -> None:
    assert [trace_start(device_trace([OpRow(5, 9)], recording_start=time)) for time in (None, 3, 7)] == [5, 3, 5]


def test_a_period_is_told_in_microseconds_from_zero() -> None:
    assert Period(1_500, 2_001).in_words(500) == "1.000 to 1.501 µs"


def test_what_two_periods_have_in_common() -> None:
    assert common(Period(1, 5), Period(3, 9)) == common(Period(3, 9), Period(1, 5)) == (3, 5)


# the clock


def test_times_of_the_clock_count_from_the_start_of_the_trace() -> None:
    assert clock_span(STEPS, 0.5, 2.0006) == (1_500, 3_001)


@pytest.mark.parametrize(
    ("begin", "end", "holds"), [(3, 9, True), (3.001, 9, False), (-5, 0, False), (-5, 0.001, True)]
)
def test_a_period_that_holds_no_nanosecond_of_the_trace_is_refused(begin: float, end: float, holds: bool) -> None:
    if holds:
        assert clock_span(STEPS, begin, end).start == 1_000 + round(begin * 1_000)
    else:
        complaint = f"nothing lies between {begin:g} and {end:g} µs; the trace's events are from 0 to 3 µs"
        with pytest.raises(DataError, match=complaint):
            clock_span(STEPS, begin, end)


# steps


def test_a_step_lasts_until_the_next_begins_and_the_last_until_its_end() -> None:
    assert step_span(STEPS, 3, 4) == (1_000, 2_500)
    assert step_span(STEPS, 3, 5) == (1_000, 3_000)
    assert step_span(STEPS, 4, 6) == (2_500, 4_000)


def test_of_a_step_that_several_threads_mark_the_first_mark_counts() -> None:
    assert step_span(marked((3, 900, 950), (3, 100, 200), (3, 500, 800)), 3, 4) == (100, 200)


def test_a_later_step_with_a_gap_in_the_numbers_ends_the_one_before() -> None:
    assert step_span(marked((3, 100, 200), (7, 300, 400)), 3, 4) == (100, 300)


def test_a_step_that_begins_with_the_last_one_does_not_end_it() -> None:
    assert step_span(marked((3, 100, 200), (4, 100, 300)), 3, 4) == (100, 200)


@pytest.mark.parametrize(
    ("first", "end", "complaint"),
    [
        (2, 4, "no step 2 to link; the trace holds steps 3 to 5$"),
        (3, 8, "no step 6 to link"),
        (3, 10**15, "no step 6 to link"),
        (4, 4, "no step 4 to link"),
        (5, 4, "no step 5 to link"),
    ],
)
def test_steps_that_are_not_there_are_refused(first: int, end: int, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        step_span(STEPS, first, end)


def test_single_steps_and_ranges_are_listed_up_to_eight() -> None:
    for count, listed in ((8, "1, 3, 5, 7, 9, 11, 13, 15"), (9, "1, 3, 5, 7, 9, 11, 13, 15, …")):
        numbers = range(1, 2 * count, 2)
        with pytest.raises(DataError, match=f"the trace holds steps {listed}$"):
            step_span(marked(*((number, 10 * number, 10 * number + 5) for number in numbers)), 0, 1)
    with pytest.raises(DataError, match=r"the trace holds steps 3, 5 to 6$"):
        step_span(marked((5, 1, 2), (6, 3, 4), (3, 5, 6)), 0, 1)


@pytest.mark.parametrize("name", ["ProfilerStep#", "ProfilerStep#x", "My ProfilerStep#1", f"ProfilerStep#{'1' * 19}"])
def test_other_names_mark_no_step(name: str) -> None:
    with pytest.raises(DataError, match="the trace holds no ProfilerStep#N annotation"):
        step_span(device_trace([OpRow(name=name)]), 1, 2)


# annotations


def noted(*spans: tuple[int, int], annotation: int = 1) -> DeviceTrace:
    return device_trace([OpRow(start, end, "forward", annotation=annotation) for start, end in spans])


def test_the_first_annotation_of_a_name_that_begins_in_a_period_is_taken() -> None:
    trace = noted((300, 400), (100, 200), (50, 90))
    assert annotation_period(trace, "forward", Period(0, 1_000)) == (50, 90)
    assert annotation_period(trace, "forward", Period(100, 1_000)) == (100, 200)
    assert annotation_period(trace, "forward", Period(101, 350)) == (300, 350)


@pytest.mark.parametrize(
    ("trace", "name", "period"),
    [
        (noted((50, 90)), "forward", Period(51, 100)),
        (noted((50, 90)), "forward", Period(0, 50)),
        (noted((50, 90)), "backward", Period(0, 100)),
        (noted((50, 90), annotation=0), "forward", Period(0, 100)),
    ],
)
def test_an_annotation_that_is_not_in_the_period_is_refused(trace: DeviceTrace, name: str, period: Period) -> None:
    with pytest.raises(DataError, match=f"no annotation named '{name}' in that part of the trace"):
        annotation_period(trace, name, period)


def test_what_is_given_together_narrows_the_period() -> None:
    trace = device_trace(
        [OpRow(1_000, 5_000, "ProfilerStep#1"), OpRow(5_000, 9_000, "ProfilerStep#2")]
        + [OpRow(start, start + 2_000, "forward", annotation=1) for start in (1_500, 6_000)]
    )
    within = Period(0, 8_500)
    assert period_of(trace, Window(), within) == within
    assert period_of(trace, Window(steps=(2, 3)), within) == (5_000, 8_500)
    assert period_of(trace, Window(clock=(1, 2)), within) == (2_000, 3_000)
    assert period_of(trace, Window(steps=(2, 3), annotation="forward", clock=(0, 6.5)), within) == (6_000, 7_500)


# what the host trace covers


def covered(matched: slice, count: int = 60) -> Period | None:
    """Ops of 10 ns with 10 ns between them."""
    rows = np.arange(count)[matched]
    return host_period(
        device_trace([OpRow(20 * number, 20 * number + 10) for number in range(count)]),
        Match(rows, rows, "order of names", 1.0, 0, 1),
    )


def test_a_host_trace_covers_from_its_first_op_to_the_first_one_that_it_lacks() -> None:
    assert covered(slice(10, 50)) == (200, 1_000)
    assert covered(slice(0, 50)) == (0, 1_000)
    assert covered(slice(10, 60)) == (200, 1_191)


def test_up_to_a_twentieth_of_the_ops_may_be_missing_at_the_ends() -> None:
    assert covered(slice(3, 60)) is None
    assert covered(slice(2, 59)) is None
    assert covered(slice(4, 60)) == (80, 1_191)
    assert covered(slice(2, 58)) == (40, 1_160)


def test_ops_missing_in_the_midst_and_ops_around_the_rest_cut_nothing() -> None:
    ops = [OpRow(0, 900), OpRow(0, 100), OpRow(200, 300), OpRow(400, 500)]
    rows = np.array([1, 3])
    assert host_period(device_trace(ops), Match(rows, rows, "", 1.0, 0, 1)) is None


def test_an_op_that_ends_or_begins_right_at_the_border_lies_outside() -> None:
    ops = [OpRow(0, 100), OpRow(100, 200), OpRow(200, 300)]
    rows = np.array([1])
    assert host_period(device_trace(ops), Match(rows, rows, "", 1.0, 0, 1)) == (100, 200)


def test_without_a_match_nothing_is_known() -> None:
    assert covered(slice(0, 0)) is None
