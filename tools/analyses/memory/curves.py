"""The bytes in use over time, by device: as the allocators recorded them, else by the lives of the storages that the
host trace names.
"""

from typing import NamedTuple

import numpy as np

from ....converter.storages import Lifetimes, lifetimes, live_bytes
from ....schema.columns import ABSENT, Int64, Rows, innermost, is_group_start, rows_of_each
from ....schema.linked import LinkedTrace, op_tree
from ..rank import Allocations, Floats, RankTrace

RECORDED, BY_TENSORS = "allocators", "tensors"
NONE = -1


class Curve(NamedTuple):
    """`allocated` bytes from each `time` (ns) on, on a device; `reserved` is NaN where that is not known.

    At the peak, which is at `peak`, live `live` bytes each, got by the op of the same place in `op_row` (-1 for none),
    and `before` more that were there before the recording.
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
    left_out: int = 0


def curves_of(rank: RankTrace) -> list[Curve]:
    """Returns a curve for each device that anything is known of. O(n log n)."""
    allocations = rank.recorded.allocations if rank.recorded is not None else None
    if allocations is not None and len(allocations.time):
        op_row = _ops_around(rank.linked, allocations)
        return [_recorded(allocations.where(rows), op_row[rows]) for rows in rows_of_each(allocations.device).values()]
    storages = lifetimes(rank.linked.ops)
    return [_by_tensors(storages.where(rows)) for rows in rows_of_each(storages.device).values()]


def _recorded(rows: Allocations, op_row: Rows) -> Curve:
    """Returns one device's rows in order of time. Some allocators report what they give but keep no total: these are
    left out.
    """
    freed = _freed(rows)
    total_missing = (rows.size > 0) & (rows.allocated >= 0) & (rows.allocated < rows.size)
    total_missing[freed[total_missing & (freed >= 0)]] = True
    kept = ~total_missing
    if not kept.any():
        kept = np.ones(len(kept), np.bool_)
    position = np.cumsum(kept) - 1
    freed = np.where(freed >= 0, position[freed], len(position))[kept]
    rows, op_row = rows.where(kept), op_row[kept]
    allocated = rows.allocated if (rows.allocated >= 0).all() else np.cumsum(rows.size)
    peak = int(np.argmax(allocated))
    live = np.flatnonzero((rows.size > 0) & (np.arange(len(freed)) <= peak) & (freed > peak))
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
        left_out=int((~kept).sum()),
    )


def _freed(rows: Allocations) -> Rows:
    """Returns for each block that was given the row at which it was taken back, -1 for none."""
    order = np.lexsort((np.arange(len(rows.time)), rows.address))
    is_allocated = rows.size[order] > 0
    same_address = np.append(~is_group_start(rows.address[order])[1:], False)
    pair = is_allocated & same_address & np.append(~is_allocated[1:], False)
    freed_at = np.full(len(order), NONE)
    freed_at[order[pair]] = order[np.flatnonzero(pair) + 1]
    return freed_at


def _ops_around(linked: LinkedTrace, rows: Allocations) -> Rows:
    """Returns the innermost op that ran on the thread of each row."""
    ops = linked.ops
    timed = np.flatnonzero(ops.start != ABSENT)
    position = np.full(len(ops) + 1, NONE)
    position[timed] = np.arange(len(timed))
    parent = position[op_tree(ops).parent[timed]]
    thread, start, end = (column[timed] for column in (ops.thread, ops.start, ops.end))
    interval = innermost(rows.thread, rows.time, rows.time, thread, start, end, parent)
    return np.append(timed, NONE)[interval]


def _by_tensors(storages: Lifetimes) -> Curve:
    steps = live_bytes(storages)
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
