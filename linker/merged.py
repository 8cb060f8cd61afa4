"""Device traces in which several ranks were merged: told before any work by their signs, and one rank's rows taken out of them.

One process that drives several devices is no sign; one correlation launched by several processes is.
"""

import re
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from ..schema.columns import Bool, Int64, Strings
from ..schema.errors import DataError
from .device_trace import ActivityRows, CallRows, DeviceTrace, OpRows, SyncRows

RANK = re.compile(r"\brank[ _:=#-]*(\d+)", re.IGNORECASE)
REPEATED = 0.1
"""Share of correlations on several calls, one after the other, above which a file holds copies: a driver call inside its runtime
call shares the correlation too, but not the time."""

Rows = TypeVar("Rows", OpRows, CallRows, ActivityRows, SyncRows)


def ranks_of_processes(device: DeviceTrace) -> dict[int, int]:
    """The rank that each process or device is labelled with, where it is."""
    found = ((process, RANK.search(text)) for process, text in device.labels)
    return {process: int(match.group(1)) for process, match in found if match}


def one_rank(device: DeviceTrace, rank: int | None) -> DeviceTrace:
    """The trace itself if it is of one process; of a merged one the rows of `rank`.

    Raises DataError for a merged trace when `rank` is None or is not labelled in it. Linear in the rows, but for a sort.
    """
    signs = merging_signs(device)
    if not signs:
        return device
    ranks = ranks_of_processes(device)
    known = sorted(set(ranks.values()))
    listing = (
        f"ranks {', '.join(map(str, known[:16]))}{' …' if len(known) > 16 else ''}"
        if known
        else "ranks that it does not label"
    )
    if rank is None:
        raise DataError(
            f"{device.path}: several ranks merged into one trace, {listing} ({'; '.join(signs)}); link each rank's own file"
            + (", or take one out with --rank N" if known else "")
        )
    if rank not in known:
        raise DataError(f"{device.path}: rank {rank} is not in this merged trace, which holds {listing}")
    return _taken(device, rank, np.array([process for process, of in ranks.items() if of == rank], np.int64))


def merging_signs(device: DeviceTrace) -> list[str]:
    """What in the trace says that it holds several ranks, in words; empty for a trace of one."""
    signs = list(device.merge_marks)
    ranks = set(ranks_of_processes(device).values())
    if len(ranks) > 1:
        signs.append(f"{len(ranks)} rank labels")
    calls = device.calls
    on_device = np.isin(calls.process, device.activities.process) & ~np.isin(calls.process, device.ops.process)
    order = np.lexsort((calls.start, calls.process, calls.correlation))
    order = order[(calls.correlation[order] != 0) & ~on_device[order]]
    same = calls.correlation[order[1:]] == calls.correlation[order[:-1]]
    shared = int((same & (calls.process[order[1:]] != calls.process[order[:-1]])).sum())
    if shared:
        signs.append(f"{shared} correlations launched by several processes")
    apart = same & (calls.start[order[1:]] >= calls.end[order[:-1]]) & (calls.end[order[1:]] > calls.start[order[1:]])
    if not shared and int(apart.sum()) > REPEATED * max(1, len(order)):
        signs.append(f"{int(apart.sum())} correlations launched more than once")
    return signs


def _taken(device: DeviceTrace, rank: int, processes: Int64) -> DeviceTrace:
    """The rows of some processes and devices."""

    def kept(process: Int64) -> Bool:
        return np.isin(process, processes)

    activities = kept(device.activities.process)
    correlations = device.calls.correlation[kept(device.calls.process)]
    ops, rows = np.flatnonzero(kept(device.ops.process)), np.flatnonzero(activities)
    place = {"op": dict(zip(ops.tolist(), range(len(ops)), strict=True))}
    place["activity"] = dict(zip(rows.tolist(), range(len(rows)), strict=True))
    communication = {
        (role, place[role.value][row]): args
        for (role, row), args in device.communication.items()
        if row in place[role.value]
    }
    return DeviceTrace(
        path=device.path,
        rank=rank,
        world_size=device.world_size,
        base_time_ns=device.base_time_ns,
        groups=device.groups,
        ops=_rows(device.ops, kept(device.ops.process)),
        calls=_rows(device.calls, kept(device.calls.process)),
        activities=_rows(device.activities, activities),
        syncs=_rows(device.syncs, np.isin(device.syncs.correlation, correlations) & kept(device.syncs.process)),
        event_records=device.event_records,
        communication=communication,
        labels=[],
        merge_marks=[],
        skipped=device.skipped,
    )


def _rows(table: Rows, mask: Bool) -> Rows:
    columns: dict[str, Any] = {field.name: getattr(table, field.name) for field in fields(table)}
    kept: dict[str, Any] = {n: c.take(mask) if isinstance(c, Strings) else c[mask] for n, c in columns.items()}
    return type(table)(**kept)
