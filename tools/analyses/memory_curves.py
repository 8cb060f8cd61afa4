"""The bytes in use over time by device: as recorded by the allocators, else from the lifetimes of tensor storages."""

from typing import NamedTuple

import numpy as np

from ...converter.work import Lifetimes, lifetimes, live_bytes
from ...schema.columns import ABSENT, Int64, NestedIntervals, Rows, ThreadIntervals, is_group_start, rows_of_each
from ...schema.linked import LinkedTrace, op_tree
from .first_start import last_end_ns
from .rank_trace import RankTrace
from .recorded import Allocations
from .table import Floats

RECORDED, BY_TENSORS = "allocators", "tensors"
NONE = -1


class Curve(NamedTuple):
    """The `allocated` bytes of a device from each `time` (ns) on; `reserved` is NaN if unknown.

    `peak` is the position of the maximum. `live` are the sizes of the blocks in use there, `op_row` the ops that
    allocated them (-1 for none), `before` the bytes allocated before the recording. `skipped` allocations are of
    allocators that do not report a total.
    """

    device: int
    source: str
    time: Int64
    allocated: Int64
    reserved: Floats
    peak: int
    live: Int64
    op_row: Rows
    before: int
    skipped: int = 0


def curves_of(rank: RankTrace) -> list[Curve]:
    """Returns the curve of each device with known allocations. O(n log n)."""
    allocations = rank.recorded.allocations if rank.recorded is not None else None
    if allocations is not None and len(allocations.time):
        op_row = _enclosing_ops(rank.linked, allocations)
        return [_recorded(allocations.where(rows), op_row[rows]) for rows in rows_of_each(allocations.device).values()]
    storages, end = lifetimes(rank.linked.ops), last_end_ns(rank.linked)
    return [_tensor_curve(storages.where(rows), end) for rows in rows_of_each(storages.device).values()]


def _recorded(rows: Allocations, op_row: Rows) -> Curve:
    """Returns the curve of one device's allocations, without those of allocators that do not report a total."""
    release = _release_rows(rows)
    total_missing = (rows.size > 0) & (rows.allocated >= 0) & (rows.allocated < rows.size)
    total_missing[release[total_missing & (release >= 0)]] = True
    kept = ~total_missing
    if not kept.any():
        kept = np.ones(len(kept), np.bool_)
    position = np.cumsum(kept) - 1
    release = np.where(release >= 0, position[release], len(position))[kept]
    rows, op_row = rows.where(kept), op_row[kept]
    allocated = rows.allocated if (rows.allocated >= 0).all() else np.cumsum(rows.size)
    peak = int(np.argmax(allocated))
    live = np.flatnonzero((rows.size > 0) & (np.arange(len(release)) <= peak) & (release > peak))
    return Curve(
        device=int(rows.device[0]),
        source=RECORDED,
        time=rows.time,
        allocated=allocated,
        reserved=np.where(rows.reserved > 0, rows.reserved, np.nan),
        peak=peak,
        live=rows.size[live],
        op_row=op_row[live],
        before=max(int(allocated[peak]) - int(rows.size[live].sum()), 0),
        skipped=int((~kept).sum()),
    )


def _release_rows(rows: Allocations) -> Rows:
    """Returns for each allocation the row of its release, -1 for none."""
    order = np.lexsort((np.arange(len(rows.time)), rows.address))
    is_allocated = rows.size[order] > 0
    same_address = np.append(~is_group_start(rows.address[order])[1:], False)
    pair = is_allocated & same_address & np.append(~is_allocated[1:], False)
    release = np.full(len(order), NONE)
    release[order[pair]] = order[np.flatnonzero(pair) + 1]
    return release


def _enclosing_ops(linked: LinkedTrace, rows: Allocations) -> Rows:
    """Returns the innermost op that was running on the thread of each allocation, -1 for none."""
    ops = linked.ops
    timed = np.flatnonzero(ops.start != ABSENT)
    position = np.full(len(ops) + 1, NONE)
    position[timed] = np.arange(len(timed))
    parent = position[op_tree(ops).parent[timed]]
    intervals = ThreadIntervals(*(column[timed] for column in (ops.thread, ops.start, ops.end)))
    interval = NestedIntervals(intervals, parent).innermost(ThreadIntervals.at(rows.thread, rows.time))
    return np.append(timed, NONE)[interval]


def _tensor_curve(storages: Lifetimes, end_ns: int) -> Curve:
    """Returns the curve of one device's storages up to the end of the recording, which those outlast that were there
    before it, though no op names them any more.
    """
    until = np.where(storages.op_row < 0, np.maximum(storages.until, end_ns + 1), storages.until)
    storages = storages._replace(until=until)
    steps = live_bytes(storages)
    recorded = steps.time <= max(end_ns, int(steps.time.min()))
    steps = steps._replace(time=steps.time[recorded], value=steps.value[recorded])
    peak = int(np.argmax(steps.value))
    peak_time = steps.time[peak]
    at_peak = storages.where((storages.begin <= peak_time) & (peak_time < storages.until))
    was_made = at_peak.op_row >= 0
    return Curve(
        device=int(storages.device[0]),
        source=BY_TENSORS,
        time=steps.time,
        allocated=steps.value,
        reserved=np.full(len(steps.time), np.nan),
        peak=peak,
        live=at_peak.size[was_made],
        op_row=at_peak.op_row[was_made],
        before=int(at_peak.size[~was_made].sum()),
    )
