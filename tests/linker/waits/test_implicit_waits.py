"""What blocks the host besides synchronising calls, to the nanosecond: by rows made by hand.

Waits that a device's own queues record, by rows made by hand; times are in ns.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple, cast

import pytest
from execgraph.linker.readers import RecordedQueueEvents
from execgraph.linker.waits import Process, synchronisation
from execgraph.linker.waits.process import TimingModel
from execgraph.linker.waits.submissions import CallSites, StreamQueues
from execgraph.linker.waits.synchronisation import FULL_QUEUE, blocking_copies, full_queue, observer_waits
from execgraph.schema.columns import ABSENT, ActivityRows, CallRows, Categorical
from execgraph.schema.linked import Calls, HostWaits, Provenance, sync_calls
from execgraph.schema.machine import ENOUGH, LatencyStats, MachineCalibration
from support.tables import Called, Op, Ran, activities, calls, column, ops


class HostWait(NamedTuple):
    """A call that waited for an activity since a time."""

    call: int
    source: int
    since: int
    provenance: Provenance


def rows_of(waits: synchronisation.ImplicitHostWaits) -> list[HostWait]:
    columns = (waits.call_row, waits.source, waits.since)
    return [HostWait(*row, waits.provenance) for row in zip(*(one.tolist() for one in columns), strict=True)]


# copies

MACHINE = MachineCalibration(
    sync_return={"": LatencyStats(1_000, 1_500, ENOUGH)}, launch={"": LatencyStats(2_000, 3_000, ENOUGH)}
)
COPY, PINNED, WITHIN = (
    "Memcpy DtoH (Device -> Pageable)",
    "Memcpy DtoH (Device -> Pinned)",
    "Memcpy DtoD (Device -> Device)",
)
STEP = 100_000


def copies(*returned: int, call: str = "cudaMemcpyAsync", **changed: str) -> list[HostWait]:
    """Copies of 1000 that end 10000 into their step, for calls that return so long into it."""
    kinds = {"name": COPY, "category": "gpu_memcpy"} | changed
    starts = range(0, STEP * len(returned), STEP)
    ran = [Ran(at + 9_000, at + 10_000, row, **kinds) for row, at in enumerate(starts)]  # type: ignore[arg-type]
    made = calls(*(Called(at + 1, at + end, call) for at, end in zip(starts, returned, strict=True)))
    call_sites = CallSites(made, ops(*(Op("ProfilerStep#1", at) for at in starts)), column(*(-1 for _ in starts)))
    return rows_of(blocking_copies(activities(*ran), made, MACHINE, call_sites))


@pytest.mark.parametrize(("returned", "blocks"), [(9_000, False), (9_001, True), (11_000, True)])
def test_a_call_waited_if_it_returned_nearer_to_a_wake_up_after_the_copy_than_to_before_its_launch(returned, blocks):
    """The first is 1000 after its end, the second 3000 before."""
    assert copies(returned) == [HostWait(0, 0, ABSENT, Provenance.RECORD)] * blocks


@pytest.mark.parametrize(("returned", "blocks"), [(12_000, False), (899_000, True), (900_000, True)])
def test_a_call_waited_for_a_queued_copy_if_it_returned_at_the_end_as_far_as_the_clocks_can_tell(returned, blocks):
    """The copy starts at 899000, behind a kernel, and takes 1000. The clocks may differ by 2000."""
    ran = [Ran(2_000, 890_000, 0), Ran(899_000, 900_000, 1, name=COPY, category="gpu_memcpy")]
    made = calls(Called(0, 1_000, "cudaLaunchKernel"), Called(2_000, returned, "cudaMemcpyAsync"))
    call_sites = CallSites(made, ops(Op("ProfilerStep#1", 0)), column(-1))
    machine = MachineCalibration(clock_error_ns=2_000, sync_return=MACHINE.sync_return, launch=MACHINE.launch)
    assert bool(rows_of(blocking_copies(activities(*ran), made, machine, call_sites))) is blocks


@pytest.mark.parametrize(("returned", "blocks"), [(3_000, False), (5_200, False), (8_000, True), (9_000, True)])
def test_where_no_latency_is_known_a_call_waited_that_took_much_longer_than_launches(returned, blocks):
    """The copy ends 10000 into the call, by clocks that may be off; launches take 1000."""
    ran = [Ran(9_000, 10_000, 1, name=COPY, category="gpu_memcpy"), Ran(-1_000, -900, 0), Ran(-500, -400)]
    made = calls(Called(-2_000, -1_000, "cudaLaunchKernel"), Called(0, returned, "cudaMemcpyAsync"))
    call_sites = CallSites(made, ops(Op("ProfilerStep#1", -STEP)), column(-1))
    assert bool(rows_of(blocking_copies(activities(*ran), made, MachineCalibration(), call_sites))) == blocks


def test_copies_are_judged_by_call_site_and_name() -> None:
    assert [one.call for one in copies(11_000, 5_000, 11_000)] == [0, 1, 2]
    assert copies(11_000, 5_000, 5_000) == []
    ran = [Ran(9_000, 10_000, 1, name="Memcpy HtoD (Pageable -> Device)", category="gpu_memcpy")]
    ran += [Ran(9_000, 10_000, 0, name=COPY, category="gpu_memcpy"), Ran(1, 2, category="gpu_memcpy")]
    made = calls(Called(1, 11_000, "cudaMemcpyAsync"), Called(STEP + 1, STEP + 2_000, "cudaMemcpyAsync"))
    ran[0] = ran[0]._replace(start=STEP + 9_000, end=STEP + 10_000)
    call_sites = CallSites(made, ops(Op("ProfilerStep#1", 0), Op("ProfilerStep#2", STEP)), column(-1, -1))
    assert rows_of(blocking_copies(activities(*ran), made, MACHINE, call_sites)) == [
        HostWait(0, 1, ABSENT, Provenance.RECORD)
    ]


@pytest.mark.parametrize(
    ("changed", "blocks"),
    [
        ({"name": PINNED}, False), ({"name": WITHIN}, False), ({"name": PINNED, "call": "cudaMemcpy"}, True),
        ({"name": WITHIN, "call": "cudaMemcpy"}, True), ({"call": "cudaMemcpy"}, True),
        ({"category": "kernel"}, False), ({"category": "concurrent_memcpy"}, True),
    ],
)  # fmt: skip
def test_asynchronous_copies_of_pinned_memory_or_on_the_device_are_never_waited_for(changed, blocks):
    assert bool(copies(11_000, **changed)) == blocks


# a full queue


def blocked(ended: int, returned: int = 5_006, first: int = 5_010, under_way: int = FULL_QUEUE) -> list[HostWait]:
    """A launch at 5000 after others that took 4 each. Only the kernel of the first one has `ended`."""
    ran = [Ran(4_000, ended, 0), *(Ran(20_000 + row, 30_000 + row, row) for row in range(1, under_way))]
    ran.append(Ran(first, 90_000, under_way))
    made = [Called(10 * row, 10 * row + 4) for row in range(under_way)]
    return rows_of(full_queue(activities(*ran), calls(*made, Called(5_000, returned))))


@pytest.mark.parametrize(("ended", "waited"), [(5_000, False), (5_001, True), (5_004, True), (5_005, False)])
def test_a_launch_waited_for_the_last_end_before_the_time_that_launches_take(ended: int, waited: bool) -> None:
    """Half of that, so that neither end has to be exact; and for none before it began."""
    assert blocked(ended) == [HostWait(FULL_QUEUE, 0, 5_000, Provenance.TIMING)] * waited


@pytest.mark.parametrize(("returned", "waited"), [(5_005, False), (5_006, True)])
def test_a_launch_that_took_as_long_as_others_did_not_wait(returned: int, waited: bool) -> None:
    assert bool(blocked(5_001, returned)) == waited


@pytest.mark.parametrize(("first", "waited"), [(5_002, False), (5_003, True)])
def test_a_launch_waited_for_nothing_that_ended_after_its_own_kernel_began(first: int, waited: bool) -> None:
    assert bool(blocked(5_003, first=first)) == waited


@pytest.mark.parametrize(("under_way", "waited"), [(FULL_QUEUE - 1, False), (FULL_QUEUE, True)])
def test_a_queue_has_room_while_few_launches_are_under_way(under_way: int, waited: bool) -> None:
    assert bool(blocked(5_001, under_way=under_way)) == waited


def test_a_launch_is_under_way_until_the_last_of_its_kernels_has_ended_and_without_launches_no_queue_is_full() -> None:
    ran = [Ran(4_000, 5_001, 0), Ran(4_000, 5_000, 1), *(Ran(20_000, 30_000, row) for row in range(2, FULL_QUEUE))]
    made = calls(*(Called(10 * row, 10 * row + 4) for row in range(FULL_QUEUE)), Called(5_000, 5_006))
    last = Ran(5_010, 90_000, FULL_QUEUE)
    assert rows_of(full_queue(activities(*ran, last), made)) == []
    assert len(rows_of(full_queue(activities(*ran, Ran(20_000, 30_000, 1, stream=20), last), made))) == 1
    assert rows_of(full_queue(activities(Ran(1, 2)), calls())) == []


# observer threads


def on(*threads: int) -> Calls:
    """Calls 100 apart that take 50 each."""
    rows = calls(*(Called(100 * row, 100 * row + 50) for row in range(len(threads))))
    return replace(rows, thread=column(*threads))


def test_threads_look_on_that_neither_launch_nor_run_ops() -> None:
    launched = activities(Ran(500, 600, 0), Ran(500, 600))
    found = synchronisation.on_observer_threads(on(1, 2, 3, 2), launched, column(3)).tolist()
    assert found == [False, True, False, True]


@pytest.mark.parametrize(("ended", "follows"), [(50, False), (51, True), (100, True), (101, False)])
def test_a_call_of_a_thread_that_looks_on_follows_what_ended_since_its_call_before(ended: int, follows: bool) -> None:
    waits = observer_waits(on(1, 1), activities(Ran(10, ended)), column(1, 1) > 0)
    assert rows_of(waits) == [HostWait(1, 0, 50, Provenance.TIMING)] * follows


def test_a_wait_follows_what_the_observed_thread_saw_end_last_and_others_follow_nothing() -> None:
    ran = activities(Ran(10, 60), Ran(10, 90), Ran(10, 80), Ran(10, 270))
    waits = rows_of(observer_waits(on(1, 1, 2, 1), ran, column(1, 1, 1, 1) > 0))
    assert waits == [HostWait(1, 1, 50, Provenance.TIMING), HostWait(3, 3, 150, Provenance.TIMING)]
    assert rows_of(observer_waits(on(1, 1), activities(Ran(10, 60)), column(0, 0) > 0)) == []
    assert rows_of(observer_waits(on(1, 2), activities(Ran(10, 60)), column(1, 1) > 0)) == []
    assert rows_of(observer_waits(on(1, 1), activities(), column(1, 1) > 0)) == []


# calls that lasted on


def lasting(*ran, returned=600000, known=-1, known_by=Provenance.TIMING, behind_unresolved=False):
    """What a cudaStreamSynchronize from 100 µs on waited for, if that is known to end with an activity, -1 for none."""
    launches = [Called(one.start - 50_000, one.start - 49_000) for one in ran]
    made = calls(Called(100_000, returned, "cudaStreamSynchronize"), *launches)
    rows = [one._replace(call=1 + row) for row, one in enumerate(ran)]
    table = activities(*rows)
    parts = {"timing": TimingModel(table, made, MACHINE), "queues": StreamQueues(table, made)}
    process = SimpleNamespace(calls=made, activities=table, kinds=sync_calls(made.name), **parts)
    waits = HostWaits(
        CallRows(column(0)), ActivityRows(column(known)), column(ABSENT), Categorical.of([known_by.value])
    )
    behind = column(*[behind_unresolved] * len(made)) > 0
    return rows_of(synchronisation.unexplained_waits(cast(Process, process), waits, behind))


AWAITED = Ran(90_000, 599_000)
WAITED = HostWait(0, 0, ABSENT, Provenance.TIMING)


def test_a_call_that_lasted_on_waited_for_what_ended_right_before_it_returned() -> None:
    assert lasting(AWAITED) == [WAITED]
    assert lasting(AWAITED, Ran(60_000, 200_000, stream=20), known=1) == [WAITED]
    assert lasting(AWAITED, Ran(95_000, 599_500, stream=20)) == [WAITED._replace(source=1)]


@pytest.mark.parametrize(
    "ran",
    [Ran(90_000, 550_000), Ran(60_000, 99_000), Ran(160_000, 599_000)],
    ids=["ended long before", "ended before the call", "submitted later"],
)
def test_what_cannot_have_been_awaited_is_not(ran: Ran) -> None:
    assert lasting(ran) == []


def test_a_call_that_is_short_or_whose_wait_is_known_or_recorded_waited_for_nothing_else() -> None:
    assert lasting(AWAITED, Ran(95_000, 599_500, stream=20), known=0) == []
    assert lasting(Ran(50_000, 99_000), returned=101_500) == []
    ran = (AWAITED, Ran(60_000, 200_000, stream=20))
    assert lasting(*ran, known=1, known_by=Provenance.RECORD) == []
    assert lasting(*ran, known_by=Provenance.RECORD) == [WAITED]


@pytest.mark.parametrize(("known_by", "waits"), [(Provenance.TIMING, [WAITED]), (Provenance.RECORD, [])])
def test_a_call_whose_record_names_no_work_waited_for_none_that_ended_after_it_by_the_clocks(known_by, waits):
    assert lasting(AWAITED._replace(end=600_500), known_by=known_by) == waits


def test_a_recorded_stream_that_waited_for_something_unknown_explains_no_later_return() -> None:
    ran = (AWAITED, Ran(60_000, 200_000, stream=20))
    assert lasting(*ran, known=1, known_by=Provenance.RECORD, behind_unresolved=True) == [WAITED]


RAN = [Ran(100, 200, 0, stream=0), Ran(300, 400, 0, stream=0), Ran(350, 420, 0, stream=5), Ran(500, 600, 0, stream=5)]


class Queued(NamedTuple):
    """An event record of a stream, or its wait for the event record of that number on the stream `awaited`."""

    stream: int
    number: int
    start: int
    awaited: int = -1
    device: int = 0


def waits(*rows: Queued) -> list[tuple[int, int]]:
    start = column(*(row.start for row in rows))
    events = RecordedQueueEvents(
        device=column(*(row.device for row in rows)),
        stream=column(*(row.stream for row in rows)),
        awaited=column(*(row.awaited for row in rows)),
        sequence=column(*(row.number for row in rows)),
        start=start,
        end=start + 1,
    )
    queues = StreamQueues(activities(*RAN), calls(Called(0, 50)))
    return list(synchronisation.queue_waits(events, queues, [ran.start for ran in RAN]))


def test_a_stream_that_waits_goes_on_after_the_last_activity_before_the_event_record() -> None:
    assert waits(Queued(0, 3, 250), Queued(5, 3, 240, awaited=0)) == [(0, 2)]
    assert waits(Queued(0, 3, 301), Queued(5, 3, 400, awaited=0)) == [(1, 3)]
    assert waits(Queued(0, 3, 450), Queued(5, 3, 240, awaited=0)) == [(1, 3)]
    assert waits(Queued(0, 3, 100), Queued(5, 3, 240, awaited=0)) == [(-1, 2)]
    assert waits(Queued(0, 3, 450), Queued(5, 3, 501, awaited=0)) == [(1, -1)]
    assert waits(Queued(0, 4, 250), Queued(5, 3, 240, awaited=0)) == [(-1, 2)]
    assert waits(Queued(0, 3, 250, device=1), Queued(5, 3, 240, awaited=0)) == [(-1, 2)]
    assert waits(Queued(7, 3, 250), Queued(9, 3, 240, awaited=7)) == [(-1, -1)]
