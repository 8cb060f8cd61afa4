"""Recognises device traces in which several ranks were merged, and takes one rank's rows out of them.

A sign is one correlation launched by several processes; one process that drives several devices is none. What the
merging tool recorded that it changed in a rank is undone.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np

from ...schema.columns import Bool, Categorical, Int64, SummaryRepr
from ...schema.errors import DataError, Remedy, RequestError
from ...schema.json_stream import decode
from ...schema.linked import LARGEST_ID, DeviceFile, MergedRank
from .device_rows import DeviceTrace, RecordedActivities, RecordedSyncs, select
from .device_trace import described

RANK = re.compile(r"\brank[ _:=#-]*(\d+)", re.IGNORECASE)
REPEATED = 0.1
"""Share of correlations on several calls, one after the other, above which a file holds copies. A driver call inside
its runtime call shares the correlation too, but they are at the same time.
"""
OWN_FILES = "link each rank's own file"
TIMES = ("start", "end")
IDS = ("correlation", "record_correlation")

AnyTable = TypeVar("AnyTable", bound=SummaryRepr)


def ranks_of_processes(device: DeviceTrace) -> dict[int, set[int]]:
    """Returns the ranks of each process or device of a merged trace, by its records or labels.

    Several ranks may have the same device.
    """
    ranks: defaultdict[int, set[int]] = defaultdict(set)
    for record in device.merged:
        for process in record.processes:
            ranks[process].add(record.rank)
    for process, text in () if device.merged else device.labels:
        if match := RANK.search(text):
            ranks[process].add(int(match.group(1)))
    return dict(ranks)


def one_rank(device: DeviceTrace, rank: int | None) -> DeviceTrace:
    """Returns the trace itself if it is of one process, the rows of `rank` if it is a merged one.

    The rows are as the rank's own file had them, where the trace records what merging changed. Raises DataError for a
    merged trace when `rank` is None or not in it. Linear in the rows, but for a sort.
    """
    signs = merging_signs(device)
    if not signs:
        return device
    ranks = ranks_of_processes(device)
    labelled = sorted(set().union(*ranks.values()))
    listing = (
        f"ranks {', '.join(map(str, labelled[:16]))}{' …' if len(labelled) > 16 else ''}"
        if labelled
        else "ranks that it does not label"
    )
    if rank is None:
        raise DataError(
            f"{device.path}: several ranks merged into one trace, {listing} ({'; '.join(signs)}); {OWN_FILES}",
            *((", or take one out with ", Remedy.LINK_RANK) if labelled else ()),
        )
    if rank not in labelled:
        raise RequestError(f"{device.path}: rank {rank} is not in this merged trace, which holds {listing}")
    selected = _select_rank(device, rank, ranks)
    record = next((record for record in device.merged if record.rank == rank), None)
    return _undo_merging(selected, record) if record else selected


def merging_signs(device: DeviceTrace) -> list[str]:
    """Returns the signs, in words, that the trace holds several ranks; empty for a trace of one."""
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


def _select_rank(device: DeviceTrace, rank: int, ranks: dict[int, set[int]]) -> DeviceTrace:
    """Returns the rows of processes and devices that only this rank has, and what its calls launched on other devices
    that no single rank has.
    """
    processes = _processes_of(ranks, lambda of: of == {rank})
    hosts = np.concatenate((device.ops.process, device.calls.process))
    shared = hosts[np.isin(hosts, _processes_of(ranks, lambda of: rank in of and len(of) > 1))]
    _refuse_shared(device, rank, shared, "several ranks have the process")
    tables = (
        "ops",
        "calls",
        "activities",
        "syncs",
        "event_records",
        *(("python",) if device.python is not None else ()),
    )
    masks = {name: np.isin(getattr(device, name).process, processes) for name in tables}
    for name in ("activities", "syncs"):
        masks[name] |= _launched(device, rank, ranks, masks["calls"], getattr(device, name))
    notes = (
        [f"{device.path}: what was left out of it is counted over all its ranks"]
        if any(device.skipped.values())
        else []
    )
    selected = select(device, **masks)
    return replace(selected, rank=rank, labels=[], merged=[], merge_marks=[], notes=device.notes + notes)


def _launched(
    device: DeviceTrace, rank: int, ranks: dict[int, set[int]], calls: Bool, table: RecordedActivities | RecordedSyncs
) -> Bool:
    """Returns which rows on devices of no single rank these calls launched.

    Raises DataError where calls of other ranks have the same correlations.
    """
    correlation = device.calls.correlation
    is_shared = ~np.isin(table.process, _processes_of(ranks, lambda of: len(of) == 1)) & (table.correlation != 0)
    launched = is_shared & np.isin(table.correlation, correlation[calls])
    ambiguous = table.process[launched & np.isin(table.correlation, correlation[~calls])]
    _refuse_shared(device, rank, ambiguous, "several ranks launched under the same correlations on device")
    return np.asarray(launched)


def _processes_of(ranks: dict[int, set[int]], is_chosen: Callable[[set[int]], bool]) -> Int64:
    return np.array([process for process, its_ranks in ranks.items() if is_chosen(its_ranks)], np.int64)


def _refuse_shared(device: DeviceTrace, rank: int, processes: Int64, why: str) -> None:
    """Raises DataError where any rows are of processes that may belong to several ranks."""
    if len(processes):
        listing = ", ".join(map(str, np.unique(processes).tolist()))
        raise DataError(
            f"{device.path}: rank {rank} cannot be taken out of this merged trace, as {why} {listing}; {OWN_FILES}"
        )


def _undo_merging(device: DeviceTrace, record: MergedRank) -> DeviceTrace:
    """Returns the rank's rows with the processes, times and ids of its own file, and with the top level of that."""
    top = decode(bytes(record.metadata), DeviceFile, f"{device.path}: metadata of rank {record.rank}")
    return replace(
        device,
        **described(top),
        ops=_undo_in(device.ops, record),
        calls=_undo_in(device.calls, record),
        activities=_undo_in(device.activities, record),
        syncs=_undo_in(device.syncs, record),
        event_records=_undo_in(device.event_records, record),
        python=None if device.python is None else _undo_in(device.python, record),
        recording_start=None if device.recording_start is None else device.recording_start - record.time_shift_ns,
    )


def _undo_in(table: AnyTable, record: MergedRank) -> AnyTable:
    columns = {field.name: getattr(table, field.name) for field in fields(table)}  # type: ignore[arg-type]
    categoricals = {name: column for name, column in columns.items() if isinstance(column, Categorical)}
    # without the texts of other ranks
    columns |= {
        name: Categorical.of(map(column.__getitem__, range(len(column)))) for name, column in categoricals.items()
    }
    columns |= {name: columns[name] - record.time_shift_ns for name in TIMES if name in columns}
    columns |= {name: _without_offset(columns[name], record.id_offset) for name in IDS if name in columns}
    if "device" in columns:
        # rows that name no device are on that of their process
        of_process = columns["device"] == columns["process"]
        columns["device"] = np.where(of_process, _mapped(columns["process"], record.processes), columns["device"])
    if "thread" in columns:
        columns["thread"] = _mapped(columns["thread"], record.threads)
    if "stream" in columns:
        # a row without a stream, whose number is that of a thread
        columns["stream"] = np.where(np.isin(columns["stream"], [*record.threads]), -1, columns["stream"])
    table_of: Callable[..., AnyTable] = type(table)
    return table_of(**columns | {"process": _mapped(columns["process"], record.processes)})


def _without_offset(ids: Int64, offset: int) -> Int64:
    moved = (ids > offset) & (ids <= offset + LARGEST_ID)
    return np.where(moved, ids - offset, ids)


def _mapped(numbers: Int64, original: dict[int, int]) -> Int64:
    """Returns the original numbers; merging left those unchanged that are in no map."""
    unique_numbers, rows = np.unique(numbers, return_inverse=True)
    return np.array([original.get(number, number) for number in unique_numbers.tolist()], np.int64)[rows]
