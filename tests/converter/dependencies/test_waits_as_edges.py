"""Waits as edges, by hand-made rows: between which nodes, and marked where timing alone told of them."""

import numpy as np
import pytest
from execgraph.converter.context import ConversionContext
from execgraph.converter.dependencies import inferred
from execgraph.converter.dependencies.waits import event_wait, host_sync
from execgraph.schema.columns import ABSENT, Categorical
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import DeviceWaits, HostWaits, Provenance
from support.graphs import Named, edges_of, named, run_of
from support.tables import Called, Ran, column

CALLS = [Called(0, 1_000), Called(2_000, 3_000)]
RAN = [Ran(5_000, 9_000, 0, name="first"), Ran(9_500, 29_000, 1, stream=8, name="second")]
INFERRED, CALL_ORDER, UNMARKED = DependencyKind.INFERRED, DependencyKind.CALL_ORDER, DependencyKind(0)
EVIDENCE = pytest.mark.parametrize(
    ("known_by", "mark"),
    [(Provenance.TIMING, INFERRED), (Provenance.CALL_ORDER, CALL_ORDER), (Provenance.RECORD, UNMARKED)],
)


def run_with(
    *,
    device: tuple[int, int] | None = None,
    host: int | None = None,
    known_by: Provenance = Provenance.RECORD,
    call: str = "cudaStreamSynchronize",
    second_device: int = 0,
) -> ConversionContext:
    """`device` are source and target of a wait between streams, `host` is what the last call awaits; -1 is unknown."""
    held, awaited = [] if device is None else [device], [] if host is None else [host]
    first, second = RAN
    return run_of(
        [first, second._replace(device=second_device)],
        [*CALLS, Called(20_000, 30_000, call)],
        device_waits=DeviceWaits(
            column(*(source for source, _ in held)), column(*(target for _, target in held)), Categorical.of(known_by.value for _ in held)
        ),
        host_waits=HostWaits(
            column(*(2 for _ in awaited)),
            column(*awaited),
            column(*(ABSENT for _ in awaited)),
            Categorical.of(known_by.value for _ in awaited),
        ),
    )  # fmt: skip


@EVIDENCE
def test_a_wait_between_streams_leads_from_what_was_marked_to_what_was_held(
    known_by: Provenance, mark: DependencyKind
) -> None:
    edges = edges_of(event_wait, run_with(device=(0, 1), known_by=known_by))
    assert edges == {("first", "second", DependencyKind.EVENT_WAIT | mark)}


def test_a_wait_for_nothing_that_is_known_is_no_edge() -> None:
    assert edges_of(event_wait, run_with(device=(-1, 1))) == set()
    assert len(host_sync(run_with(host=-1)).source) == 0


@EVIDENCE
@pytest.mark.parametrize("awaited", [0, 1])
def test_a_blocking_calls_wait_follows_what_it_awaited(
    awaited: int, known_by: Provenance, mark: DependencyKind
) -> None:
    run = run_with(host=awaited, known_by=known_by)
    edges = host_sync(run)
    assert edges.source.tolist() == [run.activities_from + awaited]
    assert edges.target.tolist() == np.flatnonzero(run.timeline.is_wait).tolist()
    assert edges.kind.tolist() == [int(DependencyKind.HOST_SYNC | mark)]


@pytest.mark.parametrize(("second_device", "mark"), [(0, UNMARKED), (1, CALL_ORDER)])
def test_what_a_call_for_all_work_of_the_only_device_waits_for_is_certain(
    second_device: int, mark: DependencyKind
) -> None:
    given = {"known_by": Provenance.CALL_ORDER, "call": "cudaDeviceSynchronize", "second_device": second_device}
    assert host_sync(run_with(host=1, **given)).kind.tolist() == [int(DependencyKind.HOST_SYNC | mark)]


@pytest.mark.parametrize("other", Provenance)
def test_a_wait_that_is_recorded_too_is_not_known_by_order_alone(other: Provenance) -> None:
    run = run_with()
    run.linked.device_waits = DeviceWaits(
        column(0, 0), column(1, 1), Categorical.of([Provenance.CALL_ORDER.value, other.value])
    )
    kind = np.bitwise_or.reduce(event_wait(run).kind)
    assert bool(kind & CALL_ORDER) == (other != Provenance.RECORD)


# What timing alone tells


def late(*ran: Ran, called: int, tolerance: int = 1_000) -> Named:
    """What the last one, which started late, probably waited for; so many calls began one ns after the other."""
    run = run_of(ran, [Called(time, time) for time in range(called)])
    return named(inferred(run, column(len(ran) - 1), tolerance)[0], run)


WAITED = {("source", "late", DependencyKind.EVENT_WAIT | INFERRED)}


@pytest.mark.parametrize(("start", "found"), [(5_000, True), (6_000, True), (6_001, False), (4_999, False)])
def test_what_starts_late_right_after_another_streams_end_waited_for_it(start: int, found: bool) -> None:
    edges = late(Ran(1_000, 5_000, 0, name="source"), Ran(start, 9_000, 1, stream=8, name="late"), called=2)
    assert edges == (WAITED if found else set())


def test_of_several_the_one_that_ended_last_was_awaited() -> None:
    rows = [Ran(1_000, 5_000, 0, name="source"), Ran(1_000, 4_900, 1, stream=9), Ran(1_000, 4_950, 2, stream=10)]
    assert late(*rows, Ran(5_500, 9_000, 3, stream=8, name="late"), called=4) == WAITED


def test_the_own_stream_is_no_source_but_one_of_its_number_on_another_device_is() -> None:
    target = Ran(5_500, 9_000, 1, name="late")
    assert late(Ran(1_000, 5_000, 0), target, called=2) == set()
    assert late(Ran(1_000, 5_000, 0, device=1, name="source"), target, called=2) == WAITED


@pytest.mark.parametrize("call", [1, 2])
def test_what_was_launched_with_it_or_later_was_not_awaited(call: int) -> None:
    assert late(Ran(1_000, 5_000, call), Ran(5_500, 9_000, 1, stream=8, name="late"), called=3) == set()


@pytest.mark.parametrize("between", [7, 8])
def test_no_more_than_eight_ends_are_looked_at(between: int) -> None:
    own = [Ran(5_000 + n, 5_001 + n, 1 + n, stream=8, name="own") for n in range(between)]
    rows = [Ran(1_000, 5_000, 0, name="source"), *own, Ran(5_500, 9_000, 1 + between, stream=8, name="late")]
    assert late(*rows, called=2 + between) == (WAITED if between == 7 else set())


@pytest.mark.parametrize("count", [4, 5])
def test_what_usually_passes_between_two_streams_is_not_long(count: int) -> None:
    """More than the tolerance each time: usual if that is so often enough."""
    rows = [
        row
        for n in range(count)
        for row in (
            Ran(100_000 * n, 100_000 * n + 5_000, 2 * n, name="source"),
            Ran(100_000 * n + 7_000, 100_000 * n + 9_000, 2 * n + 1, stream=8, name="late"),
        )
    ]
    run = run_of(rows, [Called(time, time) for time in range(2 * count)])
    found, _ = inferred(run, column(*range(1, 2 * count, 2)), 1_000)
    assert len(found.source) == (count if count == 5 else 0)


def test_nothing_late_waited_for_nothing() -> None:
    assert len(inferred(run_of([]), column(), 1_000)[0].source) == 0
