"""Arrows from launches to activities: many that start twice are of several processes, few may be chance."""

import pytest
from execgraph.linker.readers.device_events import LaunchFlows
from execgraph.schema.linked import kineto


def arrow(number: int, thread: int = 1, process: int = 1, *, phase: str = "s", category: str = "ac2g") -> kineto.Event:
    return kineto.Event(ph=phase, cat=category, id=number, pid=process, tid=thread)


def repeated(*pieces: list[kineto.Event]) -> int:
    flows = LaunchFlows()
    for piece in pieces:
        flows.add(piece)
    return flows.repeated()


def test_arrows_that_start_on_several_threads_or_processes_are_counted() -> None:
    once = [arrow(number) for number in range(5)]
    assert repeated(once, [arrow(number, thread=2) for number in range(3)]) == 3
    assert repeated(once, [arrow(number, process=2) for number in range(4)]) == 4


def test_arrows_that_a_thread_starts_again_are_not() -> None:
    assert repeated([arrow(1), arrow(2)], [arrow(1), arrow(2)]) == 0


@pytest.mark.parametrize(("again", "counted"), [(1, 0), (2, 2)])
def test_a_tenth_of_the_arrows_may_start_again_by_chance(again: int, counted: int) -> None:
    starts = [arrow(number) for number in range(9 if again == 1 else 10)]
    assert repeated([*starts, *(arrow(number, thread=2) for number in range(again))]) == counted


@pytest.mark.parametrize("other", [{"phase": "f"}, {"category": "fwdbwd"}])
def test_ends_and_arrows_of_other_kinds_are_not_counted(other: dict[str, str]) -> None:
    assert repeated([arrow(1), arrow(1, thread=2, **other)]) == 0


def test_a_file_without_arrows_repeats_none() -> None:
    assert repeated() == repeated([]) == 0
