"""The device's clock against the host's: found from what cannot have been, believed where nothing speaks against it."""

from typing import Any

import numpy as np
import pytest
from builder import TraceBuilder
from execgraph.schema.graph import DependencyKind
from execgraph.tools.replay import replay
from runs import Nodes, convert_run, link_run

OFFSETS = [-5, -3, 3, 5]
LATENCY = 6.35
"""µs from the call's start to the activity's, of which the call takes 4."""
Edges = set[tuple[str, str, DependencyKind]]


def steps(count: int = 20, **options: Any) -> TraceBuilder:
    """Steps of three kernels on two streams, each step awaited, and once more when nothing is left to await."""
    t = TraceBuilder(**options)
    for number in range(count):
        with t.op("aten::mm"):
            t.launch(f"first {number}", 7, 20.2, latency=LATENCY)
            t.ready[7] += 1_150
            t.launch(f"second {number}", 7, 30.3, latency=LATENCY)
        done = t.record_event(stream=7)
        t.wait_event(done, stream=20)
        with t.op("aten::add"):
            t.launch(f"third {number}", 20, 10.1, latency=LATENCY)
        t.device_synchronize()
        t.work(30)
        t.device_synchronize()
    return t


def edges_of(nodes: Nodes) -> Edges:
    return {(source, target, kind) for target in nodes.labels for source, kind in nodes.follows(target).items()}


def test_clocks_that_agree_are_left_alone() -> None:
    machine = link_run(steps()).info.machine
    assert (machine.clock_offset_ns, machine.clock_drift_ns, machine.clock_error_ns) == (0, 0, 0)


@pytest.mark.parametrize("drift", [0, -1, 1])
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_device_clock_that_is_off_is_found(offset: float, drift: float) -> None:
    t = steps(clock_offset=offset, clock_drift=drift)
    linked = link_run(t)
    shown = linked.activities.start
    true = np.array(sorted(activity.start for activity in t.activities)) + t.origin_ns
    found = np.sort(shown + linked.info.machine.clock_shift(shown))
    print(offset, drift, linked.info.machine, np.abs(found - true).max())
    assert np.abs(found - true).max() <= 1_000


@pytest.mark.parametrize("drift", [0, -1, 1])
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_device_clock_that_is_off_changes_no_dependency(offset: float, drift: float) -> None:
    nodes = convert_run(steps(clock_offset=offset, clock_drift=drift))
    assert edges_of(nodes) == edges_of(convert_run(steps()))
    assert abs(replay(nodes.graph).error_pct or 0) <= 0.5
