"""Launches that most activities contradict, by tables made by hand; times are in ns."""

from pathlib import Path

from execgraph.linker.contradiction import Contradiction
from execgraph.linker.launch_order import against_numbers, other_launches, other_order
from execgraph.linker.readers import read_device_trace
from execgraph.schema.columns import CallRows
from execgraph.schema.machine import AGREEING
from support.builder import TraceBuilder
from support.device_rows import ActivityRow, CallRow, device_trace
from support.tables import column

LONG_NAME = "gemm" * 12


def what(said: Contradiction | None) -> str:
    assert said is not None
    return said.what


# which call launched an activity


def with_ids(*ids: tuple[int, int]) -> Contradiction | None:
    """External ids of activities and of their calls. The last activity has no call."""
    ran = [ActivityRow(correlation=20 + row, external_id=own, name=LONG_NAME) for row, (own, _) in enumerate(ids)]
    calls = [CallRow(external_id=of_call) for _, of_call in ids]
    return other_launches(
        device_trace(calls=calls, activities=[*ran, ActivityRow(external_id=99)]),
        CallRows(column(*range(len(ids)), -1)),
    )


def test_launches_are_wrong_if_most_activities_have_another_external_id_than_their_call() -> None:
    assert with_ids((1, 1), (6, 7)) is None
    assert what(with_ids((1, 1), (6, 7), (8, 9))) == (
        "2 of 3 activities have an External id that is not that of the call with their correlation "
        f"(the first: correlation 21, {LONG_NAME[:40]})"
    )


def test_an_external_id_of_0_is_none() -> None:
    assert with_ids((0, 9), (0, 8), (1, 1), (9, 0), (8, 0)) is None


def copied(*call_names: str) -> Contradiction | None:
    """Copies and sets of these calls, after a kernel."""
    copies = [
        ActivityRow(0, 10, 21 + row, "copy", ("gpu_memcpy", "gpu_memset")[row % 2]) for row in range(len(call_names))
    ]
    calls = [CallRow(), *(CallRow(name=name) for name in call_names)]
    return other_launches(
        device_trace(calls=calls, activities=[ActivityRow(), *copies]), CallRows(column(*range(len(calls))))
    )


def test_launches_are_wrong_if_kernel_launches_made_most_copies() -> None:
    assert copied("cudaMemcpyAsync", "cuLaunchKernel") is None
    assert what(copied("cudaMemcpyAsync", "cuLaunchKernel", "hipExtLaunchKernel")) == (
        "2 of 3 copies and sets have the correlation of a kernel launch (the first: correlation 22, copy)"
    )


# the order on a stream


def started(*rows: tuple[int, int]) -> Contradiction | None:
    """Activities that start one after the other, each by its stream and the number of its call, -1 for none."""
    ran = [
        ActivityRow(100 * row, 100 * row + 9, 20 + row, LONG_NAME, device=3, stream=stream)
        for row, (stream, _) in enumerate(rows)
    ]
    calls = [*(CallRow(10 * number) for number in range(9)), CallRow(-1)]
    return other_order(device_trace(calls=calls, activities=ran), CallRows(column(*(call for _, call in rows))))


OTHERS = [(7, 1), (7, 0), (9, 0), (9, 1)]
REVERSED = [(0, 3), (0, 4), (0, 4), (0, 2), (0, 1), (0, 0)]


def test_launches_are_wrong_if_most_activities_of_a_stream_start_against_their_order() -> None:
    """Two activities of one call are in no order."""
    assert what(started(*OTHERS, *REVERSED, (0, 5))) == (
        "activities of 1 of 3 streams start against the order of their launches (the first: 3 times on stream 0, "
        f"correlation 27, {LONG_NAME[:40]})"
    )
    assert started(*REVERSED, (0, 5), (0, 6)) is None


def test_few_activities_against_the_order_say_nothing() -> None:
    assert started(*REVERSED[:-1]) is None


def test_activities_without_a_call_or_a_stream_are_in_no_order() -> None:
    assert started(*((-1, call) for _, call in REVERSED)) is None
    assert started((0, 1), (0, -1), (0, 2), (0, -1), (0, 3), (0, -1)) is None


# the numbers of collectives


def numbered(folder: Path, *numbers: int) -> Contradiction | None:
    """Collectives of a group by their sequence numbers, as they start."""
    t = TraceBuilder(rank=0, world_size=2)
    group = t.group([0, 1])
    for number in numbers:
        t.collective(group=group, seq=number)
    return against_numbers(read_device_trace(t.write(folder)[1]))


def test_sequence_numbers_that_go_down_more_often_than_up_are_wrong(tmp_path: Path) -> None:
    """A number that is used twice goes neither way."""
    assert what(numbered(tmp_path, 5, 6, 6, 4, 5, 5, 2, 1)).endswith("go down in time, 3 times (from 6 to 1)")
    assert AGREEING == 3


def test_sequence_numbers_that_go_up_as_often_are_no_contradiction(tmp_path: Path) -> None:
    assert numbered(tmp_path, 4, 5, 3, 4, 2, 3, 1) is None
