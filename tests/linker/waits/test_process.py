"""When each activity could and should have started by its known dependencies, and how exact the clocks are.

Which streams the data of launches comes from: by hand-made ops with their tensors.
"""

from dataclasses import replace
from itertools import count

import pytest
from execgraph.linker.waits.process import DataOrigins, TimingModel
from execgraph.linker.waits.submissions import StreamKey
from execgraph.schema.columns import ROUNDING
from execgraph.schema.linked import NEVER
from execgraph.schema.machine import LatencyStats, MachineCalibration
from support.tables import Called, Op, Ran, activities, calls, column, ops

MACHINE = MachineCalibration(
    clock_error_ns=300,
    launch={"": LatencyStats(2_000, 3_000, 9), "cuLaunchKernel": LatencyStats(4_000, 5_000, 9)},
    gap={"": LatencyStats(500, 700, 9), "gpu_memcpy": LatencyStats(800, 900, 9)},
    sync_return={"": LatencyStats(1_000, 1_500, 9), "cudaEventSynchronize": LatencyStats(1_000, 1_700, 9)},
)
CALLS = [Called(0, 4_000), Called(6_000, 10_000, "cuLaunchKernel"), Called(20_000, 24_000, "cudaEventSynchronize")]
RAN = [Ran(6_000, 30_000, 0), Ran(31_000, 40_000, 1), Ran(41_000, 50_000, category="gpu_memcpy"), Ran(70, 80, stream=9)]


def model(ran: list[Ran] = RAN, called: list[Called] = CALLS, machine: MachineCalibration = MACHINE) -> TimingModel:
    return TimingModel(activities(*ran), calls(*called), machine)


def test_an_activity_is_due_when_its_stream_is_free_and_its_launch_and_the_gap_usually_have_passed() -> None:
    assert model().ready_ns.tolist() == [0, 30_000, 40_000, NEVER]
    late = [RAN[0]._replace(end=5_000), *RAN[1:]]
    assert model(late).ready_ns.tolist() == [0, 6_000, 40_000, NEVER]
    assert model().expected_start_ns.tolist() == [7_000, 30_700, 40_900, NEVER]
    late = [RAN[0]._replace(end=14_000), *RAN[1:]]
    assert model(late).expected_start_ns.tolist() == [7_000, 15_000, 40_900, NEVER]
    assert (model().max_gap_ns, model().max_sync_return_ns[0], model().max_sync_return_ns[2]) == (700, 1_500, 1_700)


def test_what_an_activity_is_known_to_follow_makes_it_due_later() -> None:
    timing = model()
    timing.add_dependency(1, 32_000, 600)
    assert (timing.ready_ns[1], timing.expected_start_ns[1]) == (32_000, 32_600)
    timing.add_dependency(1, 31_000, 700)
    assert (timing.ready_ns[1], timing.expected_start_ns[1]) == (32_000, 32_600)


def test_clocks_are_in_doubt_by_their_error_their_digits_and_by_what_calls_take_to_return() -> None:
    assert (model().timestamp_quantum_ns, model().clock_uncertainty_ns) == (ROUNDING, 300 + ROUNDING + 1_000)
    whole = model(machine=MachineCalibration(resolution_ns=1_000, sync_return=MACHINE.sync_return))
    assert (whole.timestamp_quantum_ns, whole.clock_uncertainty_ns) == (2_000, 2_000 + 1_000)


@pytest.mark.parametrize(("start", "ahead"), [(6_000, 6_000), (1, 1), (0, 0), (-5, 0)])
def test_a_device_is_ahead_by_no_more_than_the_soonest_start_took(start: int, ahead: int) -> None:
    timing = model([RAN[0]._replace(start=start), *RAN[1:]])
    assert timing.max_clock_lead_ns == timing.clock_uncertainty_ns + ahead


def test_a_device_is_ahead_by_the_doubt_alone_without_launches_and_only_measured_returns_are_exact() -> None:
    called = [*CALLS, Called(30_000, 34_000, "cudaStreamSynchronize")]
    timing, exact = model(called=called), 300 + ROUNDING
    doubt, lead = timing.clock_uncertainty_ns, timing.max_clock_lead_ns
    assert timing.return_error_ns.tolist() == [doubt, doubt, exact, doubt]
    assert timing.max_return_lead_ns.tolist() == [lead, lead, exact, lead]
    for timing in (model(RAN[2:]), model([], []), model([RAN[3]], [])):
        assert timing.max_clock_lead_ns == timing.clock_uncertainty_ns
    assert model([RAN[3]], []).ready_ns.tolist() == [NEVER]


CALLED = [Called(100 * number, 100 * number + 50) for number in range(5)]
FIRST, SECOND, THIRD = (StreamKey(0, stream) for stream in (7, 20, 24))


TENSORS = count(100)


def tensor(storage: int, device: str = "cuda:0") -> bytes:
    """A tensor of its own in a storage."""
    return f'{{"values":[[{next(TENSORS)}, {storage}, 0, 16, 4, "{device}"]]}}'.encode()


def origins(*rows: tuple[Ran, Op]) -> DataOrigins:
    ran = activities(*(row for row, _ in rows))
    ran = replace(ran, op_row=column(*range(len(rows))))
    return DataOrigins(ops(*(op for _, op in rows)), ran, calls(*CALLED))


def wrote(number: int, stream: int, storage: int) -> tuple[Ran, Op]:
    return Ran(1_000 + number, 2_000, number, stream), Op(outputs=tensor(storage))


def read(number: int, stream: int, storage: int, device: str = "cuda:0") -> tuple[Ran, Op]:
    return Ran(1_000 + number, 2_000, number, stream), Op(inputs=tensor(storage, device))


def test_data_comes_from_the_other_streams_that_touched_it_last_the_latest_launch_first() -> None:
    by_data = origins(wrote(0, 7, 1), read(1, 20, 1), wrote(2, 7, 2), read(3, 24, 1))
    assert by_data.streams([3], 0, 1_000) == [SECOND]
    assert by_data.streams([1], 0, 1_000) == [FIRST]
    assert by_data.streams([0, 2], 0, 1_000) == []
    assert origins(wrote(0, 7, 1), read(1, 7, 1)).streams([1], 0, 1_000) == []
    by_data = origins(wrote(0, 7, 1), wrote(1, 20, 2), wrote(2, 7, 3), read(3, 24, 1), read(4, 24, 2))
    assert by_data.streams([3, 4], 0, 1_000) == [SECOND, FIRST]
    by_data = origins(wrote(0, 7, 1), wrote(1, 20, 2), wrote(2, 7, 3), read(3, 24, 1), read(4, 24, 3))
    assert by_data.streams([3, 4], 0, 1_000) == [FIRST]


def test_launches_outside_of_the_time_the_hosts_tensors_and_storages_without_a_number_do_not_count() -> None:
    by_data = origins(wrote(1, 7, 1), read(2, 20, 1))
    assert [by_data.streams([1], *time) for time in ((100, 101), (101, 900), (0, 100))] == [[FIRST], [], []]
    assert origins(wrote(0, 7, 1), read(1, 20, 1, "cpu")).streams([1], 0, 1_000) == []
    assert origins(wrote(0, 7, 0), read(1, 20, 0)).streams([1], 0, 1_000) == []


def test_launches_count_in_the_order_of_their_calls_then_of_their_starts_if_they_have_an_op() -> None:
    late, early = wrote(0, 7, 1), wrote(1, 20, 1)
    assert origins(early, late, read(2, 24, 1)).streams([2], 0, 1_000) == [SECOND]
    graph = [(Ran(start, 2_000, 0, stream), Op(outputs=tensor(1))) for start, stream in ((1_500, 7), (1_400, 20))]
    assert origins(*graph, read(2, 24, 1)).streams([2], 0, 1_000) == [FIRST]
    without_call = Ran(1_000, 2_000, -1), Op(outputs=tensor(1))
    assert origins(without_call, read(2, 24, 1)).streams([0, 1], 0, 1_000) == []
    rows = wrote(0, 7, 1), read(1, 20, 1)
    ran = activities(*(row for row, _ in rows))
    assert DataOrigins(ops(*(op for _, op in rows)), ran, calls(*CALLED)).streams([1], 0, 1_000) == []
