"""Recognises device traces in which several ranks were merged, before any work, and takes one rank's rows out of them.

One process that drives several devices is no sign; one correlation launched by several processes is. Where the merging
tool wrote down what it did to a rank, that is undone.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np

from ...schema.columns import Bool, Categorical, Int64
from ...schema.errors import DataError, RequestError
from ...schema.recovery import decode
from ...schema.traces import LARGEST_ID, DeviceFile, MergedRank
from .device_rows import (
    DeviceTrace,
    RecordedActivities,
    RecordedCalls,
    RecordedEvents,
    RecordedOps,
    RecordedPython,
    RecordedSyncs,
)
from .distributed_info import device_names, place_in_job
from .selection import select

RANK = re.compile(r"\brank[ _:=#-]*(\d+)", re.IGNORECASE)
REPEATED = 0.1
"""Share of correlations on several calls, one after the other, above which a file holds copies: a driver call inside
its runtime call shares the correlation too, but not the time.
"""
OWN_FILES = "link each rank's own file"
TIMES = ("start", "end")
IDS = ("correlation", "record_correlation")

Table = TypeVar("Table", RecordedOps, RecordedCalls, RecordedActivities, RecordedSyncs, RecordedEvents, RecordedPython)


def ranks_of_processes(device: DeviceTrace) -> dict[int, set[int]]:
    """Returns the ranks of each process or device of a merged trace that tells them, by record or label; several ranks
    may show one device.
    """
    found: defaultdict[int, set[int]] = defaultdict(set)
    for record in device.merged:
        for process in record.processes:
            found[process].add(record.rank)
    for process, text in () if device.merged else device.labels:
        if match := RANK.search(text):
            found[process].add(int(match.group(1)))
    return dict(found)


def one_rank(device: DeviceTrace, rank: int | None) -> DeviceTrace:
    """Returns the trace itself if it is of one process; of a merged one the rows of `rank`, as its own file had them if
    that is recorded.

    Raises DataError for a merged trace when `rank` is None or is not told in it. Linear in the rows, but for a sort.
    """
    signs = merging_signs(device)
    if not signs:
        return device
    ranks = ranks_of_processes(device)
    known = sorted(set().union(*ranks.values()))
    listing = (
        f"ranks {', '.join(map(str, known[:16]))}{' …' if len(known) > 16 else ''}"
        if known
        else "ranks that it does not label"
    )
    if rank is None:
        raise DataError(
            f"{device.path}: several ranks merged into one trace, {listing} ({'; '.join(signs)}); {OWN_FILES}"
            + (", or take one out with trace-link --rank N" if known else "")
        )
    if rank not in known:
        raise RequestError(f"{device.path}: rank {rank} is not in this merged trace, which holds {listing}")
    taken = _taken(device, rank, ranks)
    record = next((record for record in device.merged if record.rank == rank), None)
    return _restored(taken, record) if record else taken


def merging_signs(device: DeviceTrace) -> list[str]:
    """Returns what in the trace says that it holds several ranks, in words; empty for a trace of one."""
    signs = list(device.merge_marks)
    ranks = set().union(*ranks_of_processes(device).values())
    if device.merged:
        signs.append(f"{len(device.merged)} ranks recorded as merged")
    elif len(ranks) > 1:
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
    if not shared and int(apart.sum()) > REPEATED * len(order):
        signs.append(f"{int(apart.sum())} correlations launched more than once")
    return signs


def _taken(device: DeviceTrace, rank: int, ranks: dict[int, set[int]]) -> DeviceTrace:
    """Returns the rows of a rank: those of processes and devices that are its own, and what its calls launched on
    devices of nobody's own.
    """
    own = _processes(ranks, lambda of: of == {rank})
    hosts = np.concatenate((device.ops.process, device.calls.process))
    shared = hosts[np.isin(hosts, _processes(ranks, lambda of: rank in of and len(of) > 1))]
    _check_told(device, rank, shared, "several ranks have the process")
    calls = np.isin(device.calls.process, own)
    activities, syncs = (
        np.isin(table.process, own) | _launched(device, rank, ranks, calls, table)
        for table in (device.activities, device.syncs)
    )
    ops, records = np.isin(device.ops.process, own), np.isin(device.event_records.process, own)
    python = None if device.python is None else np.isin(device.python.process, own)
    taken = select(device, ops, calls, activities, syncs, records, python)
    left_out = [f"{device.path}: what was left out of it is counted over all its ranks"] if +device.skipped else []
    return replace(taken, rank=rank, labels=[], merged=[], merge_marks=[], remarks=device.remarks + left_out)


def _launched(
    device: DeviceTrace, rank: int, ranks: dict[int, set[int]], calls: Bool, table: RecordedActivities | RecordedSyncs
) -> Bool:
    """Returns the rows on devices of no single rank that these calls launched, where no others have the same
    correlation.
    """
    correlation = device.calls.correlation
    untold = ~np.isin(table.process, _processes(ranks, lambda of: len(of) == 1)) & (table.correlation != 0)
    launched = untold & np.isin(table.correlation, correlation[calls])
    elsewhere = table.process[launched & np.isin(table.correlation, correlation[~calls])]
    _check_told(device, rank, elsewhere, "several ranks launched under the same correlations on device")
    return np.asarray(launched)


def _processes(ranks: dict[int, set[int]], wanted: Callable[[set[int]], bool]) -> Int64:
    return np.array([process for process, of in ranks.items() if wanted(of)], np.int64)


def _check_told(device: DeviceTrace, rank: int, processes: Int64, why: str) -> None:
    """Raises DataError where there are rows of processes that may be any rank's."""
    if len(processes):
        listing = ", ".join(map(str, np.unique(processes).tolist()))
        raise DataError(
            f"{device.path}: rank {rank} cannot be taken out of this merged trace, as {why} {listing}; {OWN_FILES}"
        )


def _restored(device: DeviceTrace, record: MergedRank) -> DeviceTrace:
    """Returns the rank's rows with the processes, times and ids of its own file, and what the top level of that said."""
    own = decode(bytes(record.metadata), DeviceFile, f"{device.path}: metadata of rank {record.rank}")
    return replace(
        device,
        **place_in_job(own)._asdict(),
        device_names=device_names(own),
        ops=_undone(device.ops, record),
        calls=_undone(device.calls, record),
        activities=_undone(device.activities, record),
        syncs=_undone(device.syncs, record),
        event_records=_undone(device.event_records, record),
        python=None if device.python is None else _undone(device.python, record),
        recording_start=None if device.recording_start is None else device.recording_start - record.time_shift_ns,
    )


def _undone(table: Table, record: MergedRank) -> Table:
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    texts = {name: column for name, column in columns.items() if isinstance(column, Categorical)}
    # without the texts of other ranks
    columns |= {name: Categorical.of(map(column.__getitem__, range(len(column)))) for name, column in texts.items()}
    columns |= {name: columns[name] - record.time_shift_ns for name in TIMES if name in columns}
    columns |= {name: _own_ids(columns[name], record.id_offset) for name in IDS if name in columns}
    if "device" in columns:
        # rows that name no device are on that of their process
        of_process = columns["device"] == columns["process"]
        columns["device"] = np.where(of_process, _mapped(columns["process"], record.processes), columns["device"])
    if "thread" in columns:
        columns["thread"] = _mapped(columns["thread"], record.threads)
    if "stream" in columns:
        # a row that left a thread without a number, and tells no stream
        columns["stream"] = np.where(np.isin(columns["stream"], [*record.threads]), -1, columns["stream"])
    return type(table)(**columns | {"process": _mapped(columns["process"], record.processes)})


def _own_ids(ids: Int64, offset: int) -> Int64:
    moved = (ids > offset) & (ids <= offset + LARGEST_ID)
    return np.where(moved, ids - offset, ids)


def _mapped(numbers: Int64, own: dict[int, int]) -> Int64:
    """Returns the rank's own numbers; those that are in no map are its own already."""
    different, rows = np.unique(numbers, return_inverse=True)
    return np.array([own.get(number, number) for number in different.tolist()], np.int64)[rows]
