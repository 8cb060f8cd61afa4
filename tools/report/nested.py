"""The ops of host threads that bars lie in, one below the one that called it, as slices around the bars."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Int64, Ns
from ...schema.linked import Ops
from ..replay import Workload

ROWS = 10
"""The most rows of a thread; what lies deeper is drawn in the last one."""


class HostOps(NamedTuple):
    """The timed ops of a rank by thread, then start, outer before inner ones; times on the device trace's clock."""

    thread: Int64
    start_ns: Ns
    end_ns: Ns
    name: Categorical


class Slices(NamedTuple):
    """Ops around bars by lane, then start; `row` is 0 for the outermost ones."""

    lane: Int64
    start_ns: Ns
    end_ns: Ns
    name: Categorical
    row: Int64

    def take(self, rows: Int64 | Bool) -> "Slices":
        """Returns some of the slices, in the order of the rows."""
        lane, start, end, row = (column[rows] for column in (self.lane, self.start_ns, self.end_ns, self.row))
        return Slices(lane, start, end, self.name.take(rows), row)


def host_ops(ops: Ops) -> HostOps:
    """Returns copies of what is needed of the ops, so that the others can go."""
    rows = np.flatnonzero((ops.start != ABSENT) & (ops.end > ops.start))
    rows = rows[np.lexsort((-ops.end[rows], ops.start[rows], ops.thread[rows]))]
    return HostOps(ops.thread[rows], ops.start[rows], ops.end[rows], ops.name.take(rows))


def ops_on_lanes(ops: HostOps, work: Workload, drawn_lanes: list[int], begin_ns: int) -> Slices:
    """Returns the ops of the threads that are drawn, on the clock on which the rank begins at `begin_ns`.

    Ops are nested by time, as the parents that host traces name may have ended before.
    """
    timed = np.flatnonzero(work.is_timed)[:1]
    shift = int((work.measured_start_ns - work.graphs[0].host_clock_start_ns)[timed].sum()) + begin_ns
    positions = {work.lanes[lane].number: row for row, lane in enumerate(drawn_lanes) if not work.lanes[lane].is_stream}
    threads, thread = np.unique(ops.thread, return_inverse=True)
    lane = np.array([positions.get(number, -1) for number in threads.tolist()], np.int64)[thread.reshape(-1)]
    order = np.flatnonzero(lane >= 0)
    order = order[np.argsort(lane[order], kind="stable")]
    lane, start, end = lane[order], ops.start_ns[order] + shift, ops.end_ns[order] + shift
    row = np.arange(len(order)) - _ended(lane, end, lane, start)
    return Slices(lane, start, end, ops.name.take(order), np.minimum(row, ROWS - 1))


def rows_of_bars(slices: Slices, lane: Int64, start_ns: Ns, end_ns: Ns) -> Int64:
    """Returns the row of each bar: that of the innermost op around its middle, 0 without one."""
    middle = start_ns + (end_ns - start_ns) // 2
    around = _ended(slices.lane, slices.start_ns, lane, middle) - _ended(slices.lane, slices.end_ns, lane, middle)
    return np.asarray(np.clip(around - 1, 0, ROWS - 1))


def around_several(slices: Slices, lane: Int64, start_ns: Ns) -> Slices:
    """Returns the ops in which two bars or more begin, as others look like their bar."""
    until, since = (_ended(lane, start_ns, slices.lane, time - 1) for time in (slices.end_ns, slices.start_ns))
    return slices.take(until - since >= 2)


def _ended(lane: Int64, time: Ns, at_lane: Int64, at_time: Ns) -> Int64:
    """Returns for each time on a lane how many times of the lanes before and of this one lie at or before it."""
    everything = np.concatenate((time, at_time))
    order = np.lexsort((np.arange(len(everything)) >= len(time), everything, np.concatenate((lane, at_lane))))
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(order < len(time))
    return before[len(time) :]
