"""Durations for a simulator that runs one host node and one computation at a time, whatever their threads and streams.

Waiting that overlaps work there would come on top of it: idle host time and host delays before activities are cut to the part
during which nothing else of their kind ran.
"""

from typing import NamedTuple

from ...schema.columns import Bool, Int64
from ...schema.graph import ExecutionGraph, NodeType
from ..annex import UNRECORDED
from ..lanes import lanes_of, whole_microseconds
from ..timeline import IDLE
from ..uncovered_time import alone

WAITING = (IDLE, UNRECORDED)
"""Host nodes that are time, not work."""


class SerialTime(NamedTuple):
    """In ns: waiting that was cut, and work that overlapped and will run in turn."""

    idle_cut: int
    delay_cut: int
    host_overlap: int
    device_overlap: int


class _Intervals(NamedTuple):
    start: Int64
    end: Int64

    def of(self, rows: Bool) -> "_Intervals":
        return _Intervals(self.start[rows], self.end[rows])

    def overlap(self) -> int:
        return int((self.end - self.start).sum() - alone(*self, self.start[:0], self.end[:0]).sum())


def serialise(graph: ExecutionGraph) -> SerialTime:
    """Sets `duration_micros` in place, whole µs that keep the total of each thread and stream; `duration_ns` stays as measured."""
    measured = _Intervals(graph.start_ns, graph.start_ns + graph.duration_ns)
    on_host = ~graph.is_activity & ~graph.is_delay
    computes = graph.is_activity & (graph.type == NodeType.COMP)
    waits = on_host & graph.name.where(WAITING.__contains__)
    idle, kept_idle = graph.duration_ns[waits], alone(*measured.of(waits), *measured.of(on_host & ~waits))
    duration = graph.duration_ns.copy()
    duration[waits] = kept_idle
    gap, delay = graph.integers("gap_ns", 0), graph.integers("host_delay_ns", 0)
    delays = _Intervals(measured.start - gap - delay, measured.start - gap)
    kept_delay = delay.copy()
    kept_delay[computes] = alone(*delays.of(computes), *measured.of(computes))
    graph.duration_micros = whole_microseconds(duration + gap + kept_delay, lanes_of(graph))
    return SerialTime(
        idle_cut=int((idle - kept_idle).sum()),
        delay_cut=int((delay - kept_delay)[computes].sum()),
        host_overlap=measured.of(on_host & ~waits).overlap(),
        device_overlap=measured.of(computes).overlap(),
    )
