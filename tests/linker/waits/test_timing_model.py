"""When each activity could and should have started by its known dependencies, and how exact the clocks are."""

import pytest
from execgraph.linker.waits import TimingModel
from execgraph.schema.columns import ROUNDING
from execgraph.schema.linked import NEVER
from execgraph.schema.machine import LatencyStats, MachineCalibration
from support.tables import Called, Ran, activities, calls

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


def test_an_activity_is_free_to_start_once_its_stream_is_free_and_its_call_began() -> None:
    assert model().ready_ns.tolist() == [0, 30_000, 40_000, NEVER]
    late = [RAN[0]._replace(end=5_000), *RAN[1:]]
    assert model(late).ready_ns.tolist() == [0, 6_000, 40_000, NEVER]


def test_an_activity_is_due_when_its_launch_and_the_gap_usually_have_passed() -> None:
    assert model().expected_start_ns.tolist() == [7_000, 30_700, 40_900, NEVER]
    late = [RAN[0]._replace(end=14_000), *RAN[1:]]
    assert model(late).expected_start_ns.tolist() == [7_000, 15_000, 40_900, NEVER]


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


def test_only_calls_of_a_name_whose_returns_were_measured_are_compared_exactly() -> None:
    called = [*CALLS, Called(30_000, 34_000, "cudaStreamSynchronize")]
    timing, exact = model(called=called), 300 + ROUNDING
    doubt, lead = timing.clock_uncertainty_ns, timing.max_clock_lead_ns
    assert timing.return_error_ns.tolist() == [doubt, doubt, exact, doubt]
    assert timing.max_return_lead_ns.tolist() == [lead, lead, exact, lead]


def test_without_launches_a_device_is_ahead_by_no_more_than_the_doubt() -> None:
    for timing in (model(RAN[2:]), model([], []), model([RAN[3]], [])):
        assert timing.max_clock_lead_ns == timing.clock_uncertainty_ns
    assert model([RAN[3]], []).ready_ns.tolist() == [NEVER]


def test_usual_times_are_those_of_the_name() -> None:
    assert (model().max_gap_ns, model().max_sync_return_ns(0), model().max_sync_return_ns(2)) == (700, 1_500, 1_700)
