"""Matches the host trace's ops to the device trace's, by record-function id where both have it, else by the order of names per thread."""

import re
from dataclasses import dataclass

import numpy as np

from ..schema.columns import Bool, Int64, Strings
from ..schema.errors import DataError
from ..schema.intervals import thread_order
from .alignment import align
from .device_trace import DeviceTrace, OpRows
from .host_trace import GROUP_INIT, ROOT_NODE, HostTrace

SMALLEST_AGREEMENT = 0.5
STEP_MARK = "ProfilerStep#"


@dataclass(slots=True)
class Match:
    """Row pairs that are the same op, how they were found, and matched ÷ the smaller side."""

    host_row: Int64
    device_row: Int64
    by: str
    agreement: float
    misnamed: int
    places: int


def match_ops(host: HostTrace, device: DeviceTrace, allow_mismatch: bool = False) -> Match:
    """Pairs the ops of two traces of one process.

    Raises DataError when the pid differs or fewer than half of the smaller side's ops agree, unless `allow_mismatch`.
    """
    if host.pid is not None and device.processes and host.pid not in device.processes and not allow_mismatch:
        raise DataError(
            f"{host.path}: process {host.pid} in the host trace, {_listing(device.processes)} in {device.path}; these two files "
            "are not of one run, pair them by process (--allow-mismatch links them all the same)"
        )
    candidates = np.flatnonzero(is_op(host))
    host_name, device_name = _shared_names(host.name, device.ops.name)
    by_id = bool((device.ops.rf_id > 0).any() and (host.rf_id[candidates] > 0).any())
    pair = _by_record_function if by_id else _by_name_order
    match = pair(host, device.ops, candidates, host_name, device_name)
    if match.agreement < SMALLEST_AGREEMENT and not allow_mismatch:
        raise DataError(
            f"{host.path}: {len(match.host_row)} of {len(candidates)} host ops have a counterpart among the "
            f"{len(device.ops.start)} ops of {device.path} (by {match.by}, {match.misnamed} with another name); these two files "
            "are not of one run (--allow-mismatch links them all the same)"
        )
    return match


def is_op(host: HostTrace) -> Bool:
    """Host nodes that are ops: neither process and thread nodes nor process-group metadata, which no device trace holds."""
    special = np.array([bool(ROOT_NODE.search(name)) or GROUP_INIT in name for name in host.name.table], np.bool_)
    return ~special[host.name.codes]


def _by_record_function(host: HostTrace, ops: OpRows, candidates: Int64, host_name: Int64, device_name: Int64) -> Match:
    host_rows = candidates[host.rf_id[candidates] > 0]
    device_rows = np.flatnonzero(ops.rf_id > 0)
    order = device_rows[np.argsort(ops.rf_id[device_rows], kind="stable")]
    place = np.minimum(np.searchsorted(ops.rf_id[order], host.rf_id[host_rows]), len(order) - 1)
    same = ops.rf_id[order[place]] == host.rf_id[host_rows]
    host_row, device_row = host_rows[same], order[place[same]]
    named = host_name[host_row] == device_name[device_row]
    smaller = max(1, min(len(host_rows), len(device_rows)))
    return Match(
        host_row[named], device_row[named], "record function id", float(named.sum()) / smaller, int((~named).sum()), 1
    )


def _by_name_order(host: HostTrace, ops: OpRows, candidates: Int64, host_name: Int64, device_name: Int64) -> Match:
    """Both files hold a thread's ops in start order; threads are paired by how many names they have in common."""
    candidates = candidates[np.argsort(host.id[candidates], kind="stable")]
    order = thread_order(ops.thread, ops.start, ops.end, ops.event_index)
    order = order[~_is_step_mark(ops.name)[order]]
    threads: dict[int, Int64] = {
        number: order[ops.thread[order] == number] for number in np.unique(ops.thread[order]).tolist()
    }
    numbers, sizes = np.unique(host.tid[candidates], return_counts=True)
    pairs: list[tuple[Int64, Int64]] = []
    places, window = 1, None
    for number in numbers[np.argsort(-sizes, kind="stable")].tolist():
        rows = candidates[host.tid[candidates] == number]
        rows = rows[~_is_step_mark(host.name)[rows]]
        thread = max(threads, key=lambda t: _common(host_name[rows], device_name[threads[t]]), default=None)
        if thread is None or not _common(host_name[rows], device_name[threads[thread]]):
            continue
        inside = threads.pop(thread)
        if window is not None:
            inside = inside[(ops.start[inside] >= window[0]) & (ops.start[inside] <= window[1])]
        found = align(host_name[rows], device_name[inside])
        pairs.append((rows[found.left], inside[found.right]))
        if window is None and len(found.right) and (found.places > 1 or len(inside) > 2 * len(rows)):
            places = found.places
            window = (int(ops.start[inside[found.right[0]]]), int(ops.end[inside[found.right]].max()))
    host_row = np.concatenate([host_rows for host_rows, _ in pairs]) if pairs else np.empty(0, np.int64)
    device_row = np.concatenate([device_rows for _, device_rows in pairs]) if pairs else np.empty(0, np.int64)
    smaller = max(1, min(len(candidates), len(ops.start)))
    return Match(host_row, device_row, "order of names", len(host_row) / smaller, 0, places)


def _is_step_mark(names: Strings) -> Bool:
    marks = np.array([name.startswith(STEP_MARK) for name in names.table] + [False], np.bool_)
    return marks[names.codes]


def _common(left: Int64, right: Int64) -> int:
    """How many names two sequences share, repetitions included."""
    size = int(max(left.max(initial=0), right.max(initial=0))) + 1
    return int(np.minimum(np.bincount(left, minlength=size), np.bincount(right, minlength=size)).sum())


def _shared_names(host: Strings, device: Strings) -> tuple[Int64, Int64]:
    """Both name columns as codes of one table, after what Kineto does to names: quotes, backslashes, control characters."""
    table: dict[str, int] = {}
    columns = []
    for names in (host, device):
        codes = np.array(
            [table.setdefault(_as_kineto_writes(name), len(table)) for name in names.table] or [0], np.int64
        )
        columns.append(codes[names.codes])
    return columns[0], columns[1]


def _as_kineto_writes(name: str) -> str:
    if re.search(r"[^\x20-\x7e]", name):
        return "unknown"
    return name.replace('"', "'").replace("\\", "/")


def _listing(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:4]))
    return f"process {shown}" if len(numbers) == 1 else f"processes {shown}"
