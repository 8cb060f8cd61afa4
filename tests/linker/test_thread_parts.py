"""Where the borders of a period lie on each thread: no call is cut."""

from dataclasses import replace

import pytest
from execgraph.linker.thread_parts import ThreadParts
from execgraph.linker.windows import Period
from execgraph.schema.columns import ABSENT
from support.tables import Called, calls, column


def parts(*rows: tuple[int, int, int]) -> ThreadParts:
    """Of the period from 100 to 200 with calls of (thread, start, end)."""
    made = calls(*(Called(start, end) for _, start, end in rows))
    return ThreadParts(replace(made, thread=column(*(thread for thread, *_ in rows))), Period(100, 200))


def borders(found: ThreadParts, thread: int) -> tuple[int, int]:
    return int(found.first(column(thread))[0]), int(found.last(column(thread))[0])


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ((90, 120), (120, 200)),
        ((190, 215), (100, 215)),
        ((50, 300), (300, 300)),
        ((100, 120), (100, 200)),
        ((80, 100), (100, 200)),
        ((99, 101), (101, 200)),
        ((200, 220), (100, 200)),
        ((180, 200), (100, 200)),
    ],
)
def test_a_thread_that_is_in_a_call_has_its_border_when_that_returns(
    call: tuple[int, int], found: tuple[int, int]
) -> None:
    assert borders(parts((1, *call)), 1) == found


def test_of_calls_inside_each_other_the_longest_counts() -> None:
    assert borders(parts((1, 90, 130), (1, 95, 120)), 1) == (130, 200)


def test_each_thread_has_borders_of_its_own_and_those_without_calls_the_periods() -> None:
    found = parts((3, 90, 120), (5, 190, 215))
    assert [borders(found, thread) for thread in (1, 3, 4, 5, 9)] == [
        (100, 200), (120, 200), (100, 200), (100, 215), (100, 200)
    ]  # fmt: skip
    assert borders(parts(), 0) == (100, 200)


def test_what_begins_at_the_first_moment_is_in_the_part_and_what_begins_at_the_end_is_not() -> None:
    times = column(99, 100, 199, 200)
    assert parts().starts(0 * times, times).tolist() == [False, True, True, False]


def test_what_ends_at_the_first_moment_is_before_the_part_and_what_ends_at_the_end_is_in_it() -> None:
    times = column(100, 101, 200, 201)
    assert parts().ends(0 * times, times).tolist() == [False, True, True, False]


def test_what_lasts_into_the_part_begins_with_it() -> None:
    times = column(50, 150, ABSENT)
    assert parts().since(0 * times, times).tolist() == [100, 150, ABSENT]
