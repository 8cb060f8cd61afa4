"""Waits as edges, by hand-made rows: between which nodes, and marked where timing alone told of them."""

import numpy as np
import pytest
from execgraph.converter.dependencies.event_wait import event_wait
from execgraph.converter.dependencies.host_sync import host_sync
from execgraph.converter.run import ConversionContext
from execgraph.schema.columns import ABSENT, Strings
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import DeviceWaits, Found, HostWaits
from rules import edges_of, run_of
from tables import Called, Ran, column

CALLS = [Called(0, 1_000), Called(2_000, 3_000), Called(20_000, 30_000, "cudaDeviceSynchronize")]
RAN = [Ran(5_000, 9_000, 0, name="first"), Ran(9_500, 29_000, 1, stream=8, name="second")]
INFERRED = DependencyKind.INFERRED
EVIDENCE = pytest.mark.parametrize(("found", "mark"), [(Found.TIMING, INFERRED), (Found.RECORD, DependencyKind(0))])


def run_with(
    *, device: tuple[int, int] | None = None, host: int | None = None, found: Found = Found.RECORD
) -> ConversionContext:
    """`device` are source and target of a wait between streams, `host` is what the last call awaits; -1 is unknown."""
    held, awaited = [] if device is None else [device], [] if host is None else [host]
    return run_of(
        RAN,
        CALLS,
        device_waits=DeviceWaits(
            column(*(source for source, _ in held)), column(*(target for _, target in held)), Strings.of(found.value for _ in held)
        ),
        host_waits=HostWaits(
            column(*(2 for _ in awaited)), column(*awaited), column(*(ABSENT for _ in awaited)), Strings.of(found.value for _ in awaited)
        ),
    )  # fmt: skip


@EVIDENCE
def test_a_wait_between_streams_leads_from_what_was_marked_to_what_was_held(found: Found, mark: DependencyKind) -> None:
    edges = edges_of(event_wait, run_with(device=(0, 1), found=found))
    assert edges == {("first", "second", DependencyKind.EVENT_WAIT | mark)}


def test_a_wait_for_nothing_that_is_known_is_no_edge() -> None:
    assert edges_of(event_wait, run_with(device=(-1, 1))) == set()
    assert len(host_sync(run_with(host=-1)).source) == 0


@EVIDENCE
@pytest.mark.parametrize("awaited", [0, 1])
def test_a_blocking_calls_wait_follows_what_it_awaited(awaited: int, found: Found, mark: DependencyKind) -> None:
    run = run_with(host=awaited, found=found)
    edges = host_sync(run)
    assert edges.source.tolist() == [run.activities_from + awaited]
    assert edges.target.tolist() == np.flatnonzero(run.timeline.is_wait).tolist()
    assert edges.kind.tolist() == [int(DependencyKind.HOST_SYNC | mark)]
