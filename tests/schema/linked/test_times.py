"""Time stamps become exact nanoseconds, and back."""

import json
from decimal import Decimal

import msgspec
import numpy as np
import pytest
from execgraph.schema.columns import ABSENT
from execgraph.schema.linked import (
    InexactTime,
    exact_microseconds,
    exact_times,
    lacks_padding,
    nanoseconds,
    with_padding,
)
from execgraph.schema.linked.numbers import EXACT_MICROSECONDS
from execgraph.schema.linked.writer import microsecond_numbers
from hypothesis import given, strategies as st

EPOCH_US = 1_694_128_201_427_784
TIMES = st.integers(-(1 << 60), 1 << 60)


@given(TIMES)
def test_a_time_survives_being_written_and_read(time: int) -> None:
    assert nanoseconds([Decimal(exact_microseconds(time))]).tolist() == [time]
    assert nanoseconds([exact_microseconds(time)]).tolist() == [time]


@given(st.integers(0, int(EXACT_MICROSECONDS) - 1), st.integers(0, 999))
def test_doubles_below_2_to_the_43_are_exact(whole: int, fraction: int) -> None:
    assert nanoseconds([whole + fraction / 1000, 0.5]).tolist() == [whole * 1000 + fraction, 500]


def test_whole_epoch_microseconds_are_exact() -> None:
    assert nanoseconds([EPOCH_US, EPOCH_US + 1]).tolist() == [EPOCH_US * 1000, EPOCH_US * 1000 + 1000]


def test_whole_epoch_microseconds_that_are_doubles_are_exact() -> None:
    assert nanoseconds([float(EPOCH_US)]).tolist() == [EPOCH_US * 1000]


@pytest.mark.parametrize("beside", [[], [1], [1.5], [None]])
def test_a_double_that_has_lost_nanoseconds_is_refused(beside: list[float | None]) -> None:
    with pytest.raises(InexactTime):
        nanoseconds([EPOCH_US + 0.25, *beside])


def test_decimal_epoch_fractions_are_exact() -> None:
    assert nanoseconds([Decimal(f"{EPOCH_US}.789")]).tolist() == [EPOCH_US * 1000 + 789]


def test_fractions_of_nanoseconds_are_rounded() -> None:
    assert nanoseconds([2.0004, 2.0006]).tolist() == [2000, 2001]
    assert nanoseconds([Decimal("2.0004"), Decimal("2.0006")]).tolist() == [2000, 2001]


def test_numbers_may_be_text_or_missing() -> None:
    assert nanoseconds(["1.5", None, "soon", 2]).tolist() == [1500, ABSENT, ABSENT, 2000]


@pytest.mark.parametrize(
    "stamp",
    [
        float("nan"),
        float("inf"),
        1e300,
        1 << 80,
        "1e400",
        "1e999999999",
    ],
)
def test_what_is_no_time_is_absent(stamp: float | str) -> None:
    assert nanoseconds([stamp, 1]).tolist() == [ABSENT, 1000]


def test_no_stamps_are_no_times() -> None:
    assert nanoseconds([]).tolist() == []


@pytest.mark.parametrize(
    ("time", "text"), [(0, "0"), (1, "0.001"), (-1, "-0.001"), (1500, "1.5"), (EPOCH_US * 1000, str(EPOCH_US))]
)
def test_microseconds_are_written_without_needless_zeros(time: int, text: str) -> None:
    assert exact_microseconds(time) == text


def test_exact_times_know_how_many_digits_they_had() -> None:
    times = exact_times([b"12.5", b'"-3.045"', b"7", b"1e3", b"null", b"soon"])
    assert times.ns.tolist() == [12_500, -3045, 7000, 1_000_000, ABSENT, ABSENT]
    assert times.digits.tolist() == [1, 3, 0, -1, -1, -1]


@pytest.mark.parametrize(
    ("texts", "lacks"),
    [
        ([b"10.7", b"11.120"], True),
        ([b"10.7", b"11.012"], False),  # a padded fraction
        ([b"10.5", b"11.25", b"12.75"], False),  # what a double holds near a time since 1970
        ([b"10.120", b"11.386"], False),
        ([b"10", b"11"], False),
    ],
)
def test_a_lack_of_padding_is_told_by_the_digits(texts: list[bytes], lacks: bool) -> None:
    assert lacks_padding([exact_times(texts)]) is lacks


def test_padding_is_added_to_fractions() -> None:
    assert with_padding(exact_times([b"10.7", b"11.12", b"12.345", b"13"])).tolist() == [10_007, 11_012, 12_345, 13_000]


def test_texts_of_times_beyond_any_clock_are_absent() -> None:
    assert exact_times([b"4611686018427387.903", b"4611686018427387.904", b"-9000000000000000"]).ns.tolist() == [
        (1 << 62) - 1,
        ABSENT,
        ABSENT,
    ]


@given(st.lists(st.integers(-(1 << 60), 1 << 60) | st.integers(-(10**15), 10**15), min_size=1))
def test_times_are_written_as_exact_microseconds_without_needless_zeros(times: list[int]) -> None:
    written = msgspec.json.encode(microsecond_numbers(np.array(times, np.int64)))
    stamps = json.loads(written, parse_float=Decimal)
    assert nanoseconds([Decimal(stamp) for stamp in stamps]).tolist() == times
    assert all(not str(stamp).endswith("0") for stamp in stamps if "." in str(stamp))
