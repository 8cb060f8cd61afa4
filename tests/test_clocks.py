"""The device's clock against the host's: found from what cannot have been, believed where nothing speaks against it."""

from typing import Any

import numpy as np
import pytest
from builder import TraceBuilder
from builder.timeline import SYNC_CALL_US
from execgraph.schema.columns import Int64
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import LinkedTrace, on_host_clock
from execgraph.tools.replay import replay
from runs import Nodes, convert_run, link_run

OFFSETS = [-5, -3, 3, 5]
EARLIEST = 4.65
"""µs from the call's start to the activity's at least, of which the call takes 4."""
Edges = set[tuple[str, str, DependencyKind]]


def steps(count: int = 20, **options: Any) -> TraceBuilder:
    """Steps of three kernels on two streams, each step awaited, and once more when nothing is left to await."""
    t = TraceBuilder(**options)
    for number in range(count):
        with t.op("aten::mm"):
            t.launch(f"first {number}", 7, 20.2, latency=EARLIEST)
            t.ready[7] += 1_150
            t.launch(f"second {number}", 7, 30.3, latency=EARLIEST)
        done = t.record_event(stream=7)
        t.wait_event(done, stream=20)
        with t.op("aten::add"):
            t.launch(f"third {number}", 20, 10.1, latency=EARLIEST)
        t.device_synchronize()
        t.work(30)
        t.device_synchronize()
    return t


def edges_of(nodes: Nodes) -> Edges:
    return {(source, target, kind) for target in nodes.labels for source, kind in nodes.follows(target).items()}


def true_starts(t: TraceBuilder) -> Int64:
    """When the activities really began, on the host's clock."""
    return np.sort([activity.start for activity in t.activities]) + t.origin_ns


def found_starts(linked: LinkedTrace) -> Int64:
    return np.sort(on_host_clock(linked.activities, linked.info.machine).start)


def test_clocks_that_agree_are_left_alone() -> None:
    machine = link_run(steps()).info.machine
    assert (machine.clock_offset_ns, machine.clock_drift_ns, machine.clock_error_ns) == (0, 0, 0)


@pytest.mark.parametrize("offset", [-5, 3, 5, 40])
def test_a_device_clock_that_is_off_is_found(offset: float) -> None:
    """Exactly, as the calls that found nothing to await tell how long such a call takes."""
    t = steps(clock_offset=offset)
    linked = link_run(t)
    assert (found_starts(linked) - true_starts(t)).tolist() == [0] * len(t.activities)
    assert convert_linked(linked).graph.metadata["clock_offset_ns"] == -1000 * offset


@pytest.mark.parametrize("drift", [-10, 10])
@pytest.mark.parametrize("offset", [-20, -5, 0, 5, 20])
def test_a_device_clock_that_drifts_is_found_as_far_as_cause_and_effect_tell(offset: float, drift: float) -> None:
    t = steps(clock_offset=offset, clock_drift=drift)
    linked = link_run(t)
    assert np.abs(found_starts(linked) - true_starts(t)).max() <= 1000 * (EARLIEST + SYNC_CALL_US)
    shifted = on_host_clock(linked.activities, linked.info.machine)
    assert (shifted.start >= linked.calls.start[shifted.call_row]).all()
    assert linked.info.machine.clock_error_ns == 0


@pytest.mark.parametrize("drift", [-1, 0, 1])
@pytest.mark.parametrize("offset", [-5, -3, 0, 3, 5])
def test_a_device_clock_that_is_off_changes_no_dependency(offset: float, drift: float) -> None:
    nodes = convert_run(steps(clock_offset=offset, clock_drift=drift))
    assert edges_of(nodes) == edges_of(convert_run(steps()))
    assert abs(replay(nodes.graph).error_pct or 0) <= 0.5


def test_the_graph_keeps_the_recorded_device_times() -> None:
    nodes = convert_run(steps(clock_offset=5))
    assert nodes.time("first 0")[0] == EARLIEST + 5
    assert nodes.time("first 0")[1] == pytest.approx(EARLIEST + 5 + 20.2)


@pytest.mark.parametrize(("early", "offset"), [(2, 0), (3, 9_000)])
def test_fewer_than_three_impossible_starts_are_damage_and_no_clock(early: int, offset: int) -> None:
    t = TraceBuilder()
    for number in range(6):
        t.idle(100)
        at = t.now + (-9 if number < early else 4.65)
        t.launch(f"kernel {number}", start=at, duration=20.2)
    assert link_run(t).info.machine.clock_offset_ns == offset


def test_a_host_that_only_launches_bounds_the_clock_from_one_side() -> None:
    """How long launches take is not known then, so that the smallest shift that is possible is taken."""
    t = TraceBuilder(clock_offset=-7)
    for number in range(6):
        t.idle(100)
        t.launch(f"kernel {number}", latency=EARLIEST, duration=20.2)
    assert link_run(t).info.machine.clock_offset_ns == round(1000 * (7 - EARLIEST))


# Whole µs


def test_times_in_whole_microseconds_are_known_to_be_no_more_exact() -> None:
    assert link_run(steps()).info.machine.resolution_ns == 1
    linked = link_run(steps(torch="2.1"))
    assert linked.info.machine.resolution_ns == 1000
    assert convert_linked(linked).graph.metadata["resolution_ns"] == 1000


def test_what_whole_microseconds_cut_off_is_no_other_clock() -> None:
    assert link_run(steps(torch="2.1")).info.machine.clock_offset_ns == 0
