"""Recognises device traces in which several ranks were merged, and takes one rank's rows out of them.

A sign is one correlation launched by several processes; one process that drives several devices is none. What the
merging tool recorded that it changed in a rank is undone.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ...schema.columns import Categorical, Int64
from ...schema.errors import DataError, Remedy, RequestError
from ...schema.json_stream import decode
from ...schema.linked import LARGEST_ID, DeviceFile, MergedRank
from .device_rows import DeviceTrace, select
from .device_trace import described

RANK = re.compile(r"\brank[ _:=#-]*(\d+)", re.IGNORECASE)
REPEATED = 0.1
"""Share of correlations on several calls, one after the other, above which a file holds copies. A driver call inside
its runtime call shares the correlation too, but they are at the same time.
"""
OWN_FILES = "link each rank's own file"
TIMES = ("start", "end")
IDS = ("correlation", "record_correlation")


def ranks_of_processes(device: DeviceTrace) -> dict[int, set[int]]:
    """Returns the ranks of each process or device of a merged trace, by its records or labels."""
    # several ranks may have the same device
    ranks: defaultdict[int, set[int]] = defaultdict(set)
    for record in device.merged:
        for process in record.processes:
            ranks[process].add(record.rank)
    for process, text in device.labels if not device.merged else ():
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
    listing = f"ranks {', '.join(map(str, labelled[:16]))}{' …' if len(labelled) > 16 else ''}"
    if not labelled:
        listing = "ranks that it does not label"
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

    def processes(is_chosen: Callable[[set[int]], bool]) -> Int64:
        return np.array([process for process, its_ranks in ranks.items() if is_chosen(its_ranks)], np.int64)

    def refuse_any(rows: Int64, why: str) -> None:
        if len(rows):
            listing = ", ".join(map(str, np.unique(rows).tolist()))
            raise DataError(
                f"{device.path}: rank {rank} cannot be taken out of this merged trace, as {why} {listing}; {OWN_FILES}"
            )

    hosts = np.concatenate((device.ops.process, device.calls.process))
    shared = processes(lambda of: rank in of and len(of) > 1)
    refuse_any(hosts[np.isin(hosts, shared)], "several ranks have the process")
    tables, own, of_one = _tables(device), processes(lambda of: of == {rank}), processes(lambda of: len(of) == 1)
    chosen = {name: np.isin(table.process, own) for name, table in tables.items()}
    correlation = device.calls.correlation
    by_rank, by_others = correlation[chosen["calls"]], correlation[~chosen["calls"]]
    for name in ("activities", "syncs"):
        table = tables[name]
        launched = ~np.isin(table.process, of_one) & (table.correlation != 0) & np.isin(table.correlation, by_rank)
        ambiguous = table.process[launched & np.isin(table.correlation, by_others)]
        refuse_any(ambiguous, "several ranks launched under the same correlations on device")
        chosen[name] |= launched
    counted = f"{device.path}: what was left out of it is counted over all its ranks"
    notes = [*device.notes, *([counted] if any(device.skipped.values()) else [])]
    return replace(select(device, **chosen), rank=rank, labels=[], merged=[], merge_marks=[], notes=notes)


def _tables(device: DeviceTrace) -> dict[str, Any]:
    """Returns the tables with rows of processes, by name."""
    names = ("ops", "calls", "activities", "syncs", "event_records", "python")
    return {name: table for name in names if (table := getattr(device, name)) is not None}


def _undo_merging(device: DeviceTrace, record: MergedRank) -> DeviceTrace:
    """Returns the rank's rows with the processes, times and ids of its own file, and with the top level of that."""
    top = decode(bytes(record.metadata), DeviceFile, f"{device.path}: metadata of rank {record.rank}")
    tables = {name: _undo_in(table, record) for name, table in _tables(device).items()}
    start = None if device.recording_start is None else device.recording_start - record.time_shift_ns
    return replace(device, **described(top), **tables, recording_start=start)


def _undo_in(table: Any, record: MergedRank) -> Any:
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    for name, column in columns.items():
        if isinstance(column, Categorical):
            # without the texts of other ranks
            columns[name] = Categorical.of(column[row] for row in range(len(column)))
        elif name in TIMES:
            columns[name] = column - record.time_shift_ns
        elif name in IDS:
            is_moved = (column > record.id_offset) & (column <= record.id_offset + LARGEST_ID)
            columns[name] = np.where(is_moved, column - record.id_offset, column)
    process = _mapped(columns["process"], record.processes)
    if "device" in columns:
        # rows that name no device are on that of their process
        columns["device"] = np.where(columns["device"] == columns["process"], process, columns["device"])
    if "thread" in columns:
        columns["thread"] = _mapped(columns["thread"], record.threads)
    if "stream" in columns:
        # a row without a stream, whose number is that of a thread
        columns["stream"] = np.where(np.isin(columns["stream"], [*record.threads]), -1, columns["stream"])
    return type(table)(**columns | {"process": process})


def _mapped(numbers: Int64, original: dict[int, int]) -> Int64:
    """Returns the original numbers; merging left those unchanged that are in no map."""
    unique_numbers, rows = np.unique(numbers, return_inverse=True)
    return np.array([original.get(number, number) for number in unique_numbers.tolist()], np.int64)[rows]
