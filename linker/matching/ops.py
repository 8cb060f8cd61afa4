"""Matches the host trace's ops to the device trace's, by record-function id where both have it, else by the order of
names per thread.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema.columns import (
    ABSENT,
    Bool,
    Categorical,
    DeviceOpRows,
    Int64,
    Interner,
    Table,
    rows_by_number,
    thread_order,
)
from ...schema.errors import DataError
from ...schema.traces import FOREVER, GROUP_INIT, are_step_marks
from ..readers import ROOT_NODE, DeviceTrace, HostTrace, RecordedOps
from .alignment import Alignment, align_steps

SMALLEST_AGREEMENT = 0.5


@dataclass(slots=True, repr=False)
class Match(Table):
    """Row pairs that are the same op, how they were found, and matched ÷ the smaller side.

    `places` is in how many places of the other file the shorter one fits.
    """

    host_row: Int64
    device_row: DeviceOpRows
    by: str
    agreement: float
    misnamed: int
    places: int
    host_is_longer: bool = False


def match_ops(host: HostTrace, device: DeviceTrace, allow_mismatch: bool = False) -> Match:
    """Returns pairs the ops of two traces of one process.

    Raises DataError when the pid differs, a side holds no op, or fewer than half of the smaller side's agree, unless
    `allow_mismatch`.
    """
    if host.pid is not None and device.processes and host.pid not in device.processes and not allow_mismatch:
        raise DataError(
            f"{host.path}: process {host.pid} in the host trace, {_listing(device.processes)} in {device.path}; these two files "
            "are not of one run, pair them by process (--allow-mismatch links them all the same)"
        )
    candidates = np.flatnonzero(is_op(host))
    for path, count in ((host.path, len(candidates)), (device.path, len(device.ops.start))):
        if not count and not allow_mismatch:
            raise DataError(f"{path}: holds no op; leave --host-trace out to link the device trace alone")
    names = _shared_names(host.name, device.ops.name)
    by_id = bool((device.ops.rf_id > 0).any() and (host.rf_id[candidates] > 0).any())
    pair = _by_record_function if by_id else _by_name_order
    match = pair(host, device.ops, candidates, names)
    if match.agreement < SMALLEST_AGREEMENT and not allow_mismatch:
        raise DataError(
            f"{host.path}: {len(match.host_row)} of {len(candidates)} host ops have a counterpart among the "
            f"{len(device.ops.start)} ops of {device.path} (by {match.by}, {match.misnamed} with another name); these two files "
            "are not of one run (--allow-mismatch links them all the same)"
        )
    return match


def is_op(host: HostTrace) -> Bool:
    """Returns host nodes that are ops."""
    return are_ops(host.name)


def are_ops(names: Categorical) -> Bool:
    """Returns names of ops, not of process and thread nodes or process-group metadata, which no device trace holds."""
    return ~names.where(lambda name: bool(ROOT_NODE.search(name)) or GROUP_INIT in name)


def _by_record_function(host: HostTrace, ops: RecordedOps, candidates: Int64, names: "_Names") -> Match:
    """Returns ids grow over a process's life: ops outside the range that both files hold have no counterpart and say
    nothing against the pair.
    """
    host_rows = candidates[host.rf_id[candidates] > 0]
    device_rows = np.flatnonzero(ops.rf_id > 0)
    ids = host.rf_id[host_rows], ops.rf_id[device_rows]
    first, last = max(column.min() for column in ids), min(column.max() for column in ids)
    smaller = min(int(((column >= first) & (column <= last)).sum()) for column in ids)
    order = device_rows[np.argsort(ids[1], kind="stable")]
    ordered = ops.rf_id[order]
    place = np.minimum(np.searchsorted(ordered, ids[0]), len(order) - 1)
    same = ordered[place] == ids[0]
    host_row, device_row = host_rows[same], order[place[same]]
    named = names.host[host_row] == names.device[device_row]
    agreement = int(named.sum()) / max(1, smaller)
    return Match(
        host_row[named], DeviceOpRows(device_row[named]), "record function id", agreement, int((~named).sum()), 1
    )


def _by_name_order(host: HostTrace, ops: RecordedOps, candidates: Int64, names: "_Names") -> Match:
    """Returns both files hold a thread's ops in start order; threads are paired by how many names they have in common.

    One file may be a window of the other, or begin or end in its midst: the first thread, one with steps or else the
    largest, says where.
    """
    candidates = candidates[np.argsort(host.id[candidates], kind="stable")]
    order = thread_order(ops.thread, ops.start, ops.end, ops.event_index)
    threads = _AlikeThreads(rows_by_number(order, ops.thread), names.device)
    of_thread = rows_by_number(candidates, host.tid)
    pairs = [(candidates[:0], order[:0])]
    overlap, places, host_is_longer = _Overlap(), 1, False
    for number in _threads_in_turn(host.tid[candidates], names.marks_step_of_both(candidates)):
        rows = of_thread[number]
        inside = threads.take_most_alike(names.host[rows])
        if inside is None:
            continue
        rows, inside = rows[overlap.holds_ids(host.id[rows])], inside[overlap.holds_times(ops.start[inside])]
        found = align_steps(names.host[rows], names.device[inside], names.is_step_mark)
        if len(pairs) == 1 and len(found.left):
            overlap = _overlap(host.id[rows], ops.start[inside], ops.end[inside], found)
            places, host_is_longer = found.places, len(rows) > len(inside)
        pairs.append((rows[found.left], inside[found.right]))
    host_row, device_row = (np.concatenate(side) for side in zip(*pairs, strict=True))
    sides = [len(candidates), len(ops.start)]
    if names.marks_step_of_both(host_row).any():
        sides = [int(overlap.holds_ids(host.id[candidates]).sum()), int(overlap.holds_times(ops.start).sum())]
    agreement = len(host_row) / max(1, min(sides))
    return Match(host_row, DeviceOpRows(device_row), "order of names", agreement, 0, places, host_is_longer)


def _threads_in_turn(thread: Int64, marks_step: Bool) -> list[int]:
    """Returns the threads of host nodes, those with steps first, and of these the largest."""
    numbers, of_number, sizes = np.unique(thread, return_inverse=True, return_counts=True)
    steps = np.bincount(of_number, marks_step, len(numbers)) > 0
    in_turn: list[int] = numbers[np.lexsort((-sizes, ~steps))].tolist()
    return in_turn


class _Overlap(NamedTuple):
    """Where the files overlap: from a host id and a device time up to others."""

    first_id: int = ABSENT
    end_id: int = np.iinfo(np.int64).max
    start: int = ABSENT
    end: int = FOREVER

    def holds_ids(self, ids: Int64) -> Bool:
        return (ids >= self.first_id) & (ids < self.end_id)

    def holds_times(self, times: Int64) -> Bool:
        return (times >= self.start) & (times < self.end)


def _overlap(ids: Int64, start: Int64, end: Int64, found: Alignment) -> _Overlap:
    """Returns from the first op of an aligned thread that has a counterpart to the next that has none; ops around all
    of it say nothing.
    """
    everything = _Overlap()
    (first, last), (begin, stop) = ((int(side.min()), int(side.max())) for side in (found.left, found.right))
    later = start[stop + 1 :][start[stop + 1 :] >= end[stop]]
    return _Overlap(
        int(ids[first]) if first else everything.first_id,
        int(ids[last + 1]) if last + 1 < len(ids) else everything.end_id,
        int(start[begin]) if (end[:begin] <= start[begin]).any() else everything.start,
        int(later.min(initial=everything.end)),
    )


class _AlikeThreads:
    """The threads of the device trace, those that ran the same ops together: workers of a pool are compared once and
    not one by one.
    """

    def __init__(self, rows: dict[int, Int64], names: Int64) -> None:
        self._rows, self._names = rows, names
        self._alike: dict[bytes, list[int]] = defaultdict(list)
        for number in reversed(rows):
            self._alike[np.sort(names[rows[number]]).tobytes()].append(number)

    def take_most_alike(self, names: Int64) -> Int64 | None:
        """Returns the rows of the thread with most names in common, of several the one with the smallest number; None
        if none has any.

        Nobody gets them again.
        """
        common = {same: _common(names, self._names[self._rows[numbers[-1]]]) for same, numbers in self._alike.items()}
        most = max(common, key=lambda same: (common[same], -self._alike[same][-1]), default=None)
        if most is None or not common[most]:
            return None
        number = self._alike[most].pop()
        if not self._alike[most]:
            del self._alike[most]
        return self._rows[number]


def _common(left: Int64, right: Int64) -> int:
    """Returns how many names two sequences share, repetitions included."""
    size = int(max(left.max(initial=0), right.max(initial=0))) + 1
    return int(np.minimum(np.bincount(left, minlength=size), np.bincount(right, minlength=size)).sum())


class _Names(NamedTuple):
    """The names of host nodes and of the device trace's ops as codes of one table, and which codes mark steps."""

    host: Int64
    device: Int64
    is_step_mark: Bool

    def marks_step_of_both(self, rows: Int64) -> Bool:
        """Returns which of the host nodes mark a step that the device trace marks too."""
        return self.is_step_mark[self.host[rows]] & np.isin(self.host[rows], self.device)


def _shared_names(host: Categorical, device: Categorical) -> _Names:
    """Returns names after what Kineto does to them: quotes, backslashes, control characters."""
    table = Interner[str]()
    both = [names.numbers(lambda name: table[_as_kineto_writes(name)], -1) for names in (host, device)]
    return _Names(both[0], both[1], np.append(are_step_marks(Categorical.of(table)), False))


def _as_kineto_writes(name: str) -> str:
    if re.search(r"[^\x20-\x7e]", name):
        return "unknown"
    return name.replace('"', "'").replace("\\", "/")


def _listing(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:4]))
    return f"process {shown}" if len(numbers) == 1 else f"processes {shown}"
