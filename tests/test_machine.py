"""What is usual on a machine is told by most of the times that a trace holds, whatever else added to the others."""

from random import Random

import numpy as np
import pytest
from execgraph.schema.machine import ANY_MACHINE, ENOUGH, LONGEST, Machine, Usual, of_name, usual
from hypothesis import given
from hypothesis import strategies as st


def ns(*us: float) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.rint(np.array(us, np.float64) * 1000).astype(np.int64)


def test_of_nothing_nothing_is_usual() -> None:
    assert usual(ns()) == Usual()
    assert usual(ns(-3, 200)) == Usual()


def test_times_that_something_else_added_to_are_not_usual() -> None:
    clean = usual(ns(2.0, 2.1, 2.2, 2.3, 2.4, 2.5))
    for wait in (30, 90, 1_000):
        assert usual(ns(2.0, 2.1, 2.2, 2.3, 2.4, 2.5, wait, wait)) == clean
    assert clean.most < 30_000


@given(st.integers(1_000, 25_000), st.integers(ENOUGH, 60), st.integers(0, 40), st.randoms())
def test_up_to_two_thirds_of_waits_do_not_change_what_is_usual(
    latency: int, count: int, share: int, random: Random
) -> None:
    own = [latency + random.randint(0, 300) for _ in range(count)]
    waits = [random.randint(4 * latency + 20_000, 10**7) for _ in range(count * share // 20)]
    found = usual(np.array(own + waits, np.int64))
    assert latency <= found.median <= latency + 300
    assert found.most <= latency + 300 + 3 * 300


def test_what_is_usual_is_known_no_better_than_times_are_written() -> None:
    assert usual(ns(2, 2, 2, 2, 2), 1000).most == 3_000
    assert usual(ns(2, 2, 2, 2, 2)).most == 2_001


FEW, MANY = Usual(3_000, 3_500, ENOUGH - 1), Usual(5_000, 5_500, ENOUGH)


def test_few_times_of_a_name_give_way_to_those_of_all_names() -> None:
    assert of_name({"": MANY, "cudaLaunchKernel": FEW}, "cudaLaunchKernel") == MANY
    assert of_name({"": MANY}, "unheard of") == MANY
    assert of_name({"": FEW, "cudaLaunchKernel": MANY}, "cudaLaunchKernel") == MANY


def test_few_times_in_all_are_not_taken_as_narrower_than_on_any_machine() -> None:
    assert of_name({"": FEW}, "cudaLaunchKernel") == Usual(FEW.median, ANY_MACHINE.most, FEW.count)


@pytest.mark.parametrize("table", [{}, {"": Usual()}, {"": Usual(LONGEST - 1, LONGEST, 1)}])
def test_without_times_or_with_few_that_no_machine_takes_it_is_as_on_any_machine(table: dict[str, Usual]) -> None:
    found = of_name(table, "cudaLaunchKernel")
    assert (found.median, found.most) == (ANY_MACHINE.median, ANY_MACHINE.most)


def test_a_clock_that_drifts_is_shifted_by_more_and_more() -> None:
    machine = Machine(clock_offset_ns=1_000, clock_drift_ns=-500, clock_from_ns=10_000, clock_until_ns=20_000)
    assert machine.clock_shift(np.array([10_000, 15_000, 20_000])).tolist() == [1_000, 750, 500]
