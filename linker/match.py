"""Matches the ops of the host trace to those of the device trace: by record function id where both have it, else by the
order of names on each thread. In traces of other steps, the order of names within each step counts.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..schema import columns
from ..schema.columns import Bool, Categorical, DeviceOpRows, Int64, Lookup, ThreadIntervals
from ..schema.errors import DataError, Remedy
from ..schema.linked import GROUP_INIT, STEP_MARK, are_step_marks
from ..schema.reasons import Reason
from .communication import transfers_of_other_steps
from .readers import ROOT_NODE, DeviceTrace, HostTrace, RecordedOps

SMALLEST_AGREEMENT = 0.5
ALL_THE_SAME = Remedy.ALLOW_MISMATCH, " links them all the same)"
BY_RECORD_FUNCTION, BY_NAME_ORDER = "record function id", "order of names"
BY_OTHER_STEPS = "order of names in other steps"
"""How ops were matched, as linked files have it."""
LARGEST_DIFFERENCE = 2_000
"""Edits from which on two sequences count as different."""
UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
ANCHOR = 24
"""Consecutive names by which the position of a sequence in a longer one is found."""


@dataclass(slots=True, repr=False)
class Match(columns.SummaryRepr):
    """Pairs of rows of both traces that are the same op; `agreement` is the share of the smaller side that matched.
    `misnamed` are those of one record function id with different names; the shorter trace fits the longer one at
    `alignment_count` positions. `steps_apart` counts steps, of traces of different ones, that hold other ops.
    """

    host_row: Int64
    device_row: DeviceOpRows
    by: str
    agreement: float
    misnamed: int
    alignment_count: int
    host_is_longer: bool = False
    steps: tuple[int, int] = (0, 0)
    steps_apart: int = 0

    @property
    def of_other_steps(self) -> bool:
        """Whether the traces are of different steps of one job."""
        return self.by == BY_OTHER_STEPS

    @property
    def recorded(self) -> str:
        """How traces of different steps were recorded."""
        of_host, of_device = (f"{count} " if count else "" for count in self.steps)
        ends = ["s" * (count != 1) for count in self.steps]
        return (
            f"recorded: times in {of_device}step{ends[1]} with the device trace alone, structure (tensors, shapes, "
            f"arguments) in {of_host}other step{ends[0]}"
        )


def match_ops(host: HostTrace, device: DeviceTrace, allow_mismatch: bool = False) -> Match:
    """Matches the ops; DataError unless at least half of the smaller side's match, or `allow_mismatch`."""
    processes = device.processes
    if host.pid is not None and processes and host.pid not in processes and not allow_mismatch:
        listing = ", ".join(map(str, processes[:4]))
        raise DataError(
            f"{host.path}: process {host.pid} in the host trace, process{'es' * (len(processes) > 1)} {listing} in "
            f"{device.path}; these two files are not of one run, pair them by process (",
            *ALL_THE_SAME,
        )
    candidates = np.flatnonzero(are_ops(host.name))
    for path, count in ((host.path, len(candidates)), (device.path, len(device.ops.start))):
        if not count and not allow_mismatch:
            raise DataError(f"{path}: holds no op; ", Remedy.HOST_TRACE, " to link the device trace alone")
    match = _match(host, device, candidates)
    if match.agreement < SMALLEST_AGREEMENT and not allow_mismatch:
        damaged = [trace.path for trace in (host, device) if trace.ends_early]
        damage = f"{' and '.join(damaged)}: cut off; " if damaged else ""
        raise DataError(
            f"{damage}{host.path}: {len(match.host_row)} of {len(candidates)} host ops have a counterpart among the "
            f"{len(device.ops.start)} ops of {device.path} (by {match.by}, {match.misnamed} with another name); "
            f"{'copy the damaged file again' if damaged else 'these two files are not of one run'} (",
            *ALL_THE_SAME,
        )
    return match


def _match(host: HostTrace, device: DeviceTrace, candidates: Int64) -> Match:
    """Matches ops as those of the same steps, unless the files, their step marks, or their ids say otherwise."""
    names, ops, same = _shared_names(host.name, device.ops.name), device.ops, None
    marks = [set(side[names.is_step_mark[side]].tolist()) for side in (names.host, names.device)]
    # numbers that repeat in one trace alone, and were numbered on, are not those of the other
    repeated = [trace.oddities.of(Reason.REPEATED_STEPS) > 0 for trace in (host, device)]
    are_others = all(marks) and (marks[0].isdisjoint(marks[1]) or repeated[0] != repeated[1])
    if not are_others and (host.window, device.window) != ("host", "device"):
        by_id = bool((ops.rf_id > 0).any() and (host.rf_id[candidates] > 0).any())
        same = (_by_record_function if by_id else _by_name_order)(host, ops, candidates, names)
        if not by_id or same.agreement >= SMALLEST_AGREEMENT:
            return same
    others = _by_name_order(host, ops, candidates, _shared_names(host.name, ops.name, numbered=False))
    others.by = BY_OTHER_STEPS
    # traces of different runs have ids that contradict the names, too, but other names
    return others if same is None or others.agreement >= SMALLEST_AGREEMENT else same


def are_ops(names: Categorical) -> Bool:
    """Returns which names are of ops, not of the process, thread and group nodes that only host traces hold."""
    return ~names.where(lambda name: bool(ROOT_NODE.search(name)) or GROUP_INIT in name)


def _by_record_function(host: HostTrace, ops: RecordedOps, candidates: Int64, names: "_Names") -> Match:
    """Matches ops by record function id."""
    # ids grow over a process's life, so ops outside the range of ids that both files hold do not count as unmatched
    host_rows = candidates[host.rf_id[candidates] > 0]
    device_rows = np.flatnonzero(ops.rf_id > 0)
    ids = host.rf_id[host_rows], ops.rf_id[device_rows]
    first, last = max(column.min() for column in ids), min(column.max() for column in ids)
    smaller = min(int(((column >= first) & (column <= last)).sum()) for column in ids)
    device_row = Lookup(ids[1][::-1], device_rows[::-1]).of(ids[0])
    host_row, device_row = host_rows[device_row >= 0], device_row[device_row >= 0]
    same = names.host[host_row] == names.device[device_row]
    agreement = int(same.sum()) / max(1, smaller)
    return Match(host_row[same], DeviceOpRows(device_row[same]), BY_RECORD_FUNCTION, agreement, int((~same).sum()), 1)


def _by_name_order(host: HostTrace, ops: RecordedOps, candidates: Int64, names: "_Names") -> Match:
    """Matches ops by the order of names on each thread, paired by common names; one file may be a part of the other."""
    candidates = candidates[np.argsort(host.id[candidates], kind="stable")]
    order = columns.thread_order(ThreadIntervals(ops.thread, ops.start, ops.end), ops.event_index)
    of_thread, unpaired = columns.rows_by_number(candidates, host.tid), columns.rows_by_number(order, ops.thread)
    # threads that ran the same ops, such as the workers of a pool, are compared once
    alike: dict[bytes, list[int]] = defaultdict(list)
    for number in reversed(unpaired):
        alike[np.sort(names.device[unpaired[number]]).tobytes()].append(number)
    pairs = [(candidates[:0], order[:0])]
    (of_ids, of_times), alignment_count, host_is_longer = (EVERYTHING, EVERYTHING), 1, False
    largest = pairs[0]
    numbers, of_number, sizes = np.unique(host.tid[candidates], return_inverse=True, return_counts=True)
    steps = np.bincount(of_number, names.marks_step_of_both(candidates), len(numbers)) > 0
    for number in numbers[np.lexsort((-sizes, ~steps))].tolist():
        nodes = of_thread[number]
        most_alike = _most_alike(names.host[nodes], alike, unpaired, names.device)
        if most_alike is None:
            continue
        rows = unpaired[alike[most_alike].pop()]
        nodes, rows = nodes[of_ids.holds(host.id[nodes])], rows[of_times.holds(ops.start[rows])]
        alignment = names.aligned(nodes, rows)
        if len(pairs) == 1 and len(alignment.left):
            largest = nodes, rows
            of_ids, of_times = _overlap(host.id[nodes], columns.Intervals(ops.start[rows], ops.end[rows]), alignment)
            alignment_count, host_is_longer = alignment.alignment_count, len(nodes) > len(rows)
        pairs.append((nodes[alignment.left], rows[alignment.right]))
    if not names.numbered:
        pairs.append(_on_unpaired_threads(host, candidates, ops, pairs, names))
    host_row, device_row = (np.concatenate(side) for side in zip(*pairs, strict=True))
    sides = [len(candidates), len(ops.start)]
    if names.marks_step_of_both(host_row).any():
        sides = [int(of_ids.holds(host.id[candidates]).sum()), int(of_times.holds(ops.start).sum())]
    # those of other jobs have marks of steps in common, too
    marks = [names.is_step_mark[side].all() for side in (names.host[host_row], names.host[candidates], names.device)]
    agreement = 0.0 if marks == [True, False, False] else len(host_row) / max(1, min(sides))
    match = Match(host_row, DeviceOpRows(device_row), BY_NAME_ORDER, agreement, 0, alignment_count, host_is_longer)
    if not names.numbered:
        match.steps, match.steps_apart = _compared_steps(largest, match, names)
    return match


def _on_unpaired_threads(
    host: HostTrace, candidates: Int64, ops: RecordedOps, pairs: list[tuple[Int64, Int64]], names: "_Names"
) -> tuple[Int64, Int64]:
    """Matches transfers on threads that the host trace does not have, by their requests, else by order in each step."""
    host_row, device_row = (np.concatenate(side) for side in zip(*pairs, strict=True))
    order = np.argsort(ops.start, kind="stable")
    is_unpaired = ~columns.isin(ops.thread[order], ops.thread[device_row])
    node, op = transfers_of_other_steps(host, ops, host_row, device_row)
    known = columns.isin(node, candidates) & ~columns.isin(node, host_row) & (names.host[node] == names.device[op])
    known &= columns.isin(op, order[is_unpaired])
    node, op = node[known], op[known]
    is_unpaired &= ~columns.isin(order, op)
    rows = order[is_unpaired | (names.is_step_mark[names.device[order]] & columns.isin(order, device_row))]
    is_mark = names.is_step_mark[names.host[candidates]]
    nodes = candidates[is_mark == columns.isin(candidates, np.concatenate((host_row, node)))]
    alignment = names.aligned(nodes, rows)
    is_op = ~names.is_step_mark[names.host[nodes[alignment.left]]]
    left, right = nodes[alignment.left[is_op]], rows[alignment.right[is_op]]
    return np.concatenate((node, left)), np.concatenate((op, right))


def _compared_steps(thread: tuple[Int64, Int64], match: Match, names: "_Names") -> tuple[tuple[int, int], int]:
    """Returns how many steps a thread's nodes and ops mark, and in how many of both these are not all matched."""
    nodes, rows = thread
    of_node, of_row = (np.cumsum(names.is_step_mark[codes]) for codes in (names.host[nodes], names.device[rows]))
    steps = int(of_node.max(initial=0)), int(of_row.max(initial=0))
    lost = of_node[~columns.isin(nodes, match.host_row)], of_row[~columns.isin(rows, match.device_row)]
    apart = np.unique(np.concatenate(lost))
    return steps, int(((apart > 0) & (apart <= min(steps))).sum())


def _most_alike(
    names: Int64, alike: dict[bytes, list[int]], rows: dict[int, Int64], name_of_row: Int64
) -> bytes | None:
    """Returns which threads, of those `alike`, have most names in common, with repetitions; None if none has any."""
    # of several it is those with the thread of the smallest number
    common: dict[bytes, int] = {}
    for key, numbers in alike.items():
        if numbers:
            both = names, name_of_row[rows[numbers[-1]]]
            size = max(int(side.max(initial=0)) for side in both) + 1
            common[key] = int(np.minimum(*(np.bincount(side, minlength=size) for side in both)).sum())
    best = max(common, key=lambda key: (common[key], -alike[key][-1]), default=None)
    return best if best is not None and common[best] else None


class _Range(NamedTuple):
    """Numbers from `first` up to but without `end`."""

    first: int = columns.ABSENT
    end: int = np.iinfo(np.int64).max

    def holds(self, numbers: Int64) -> Bool:
        return (numbers >= self.first) & (numbers < self.end)


EVERYTHING = _Range()


def _overlap(ids: Int64, times: columns.Intervals, alignment: "Alignment") -> tuple[_Range, _Range]:
    """Returns the host ids and the device times (ns) in which the files overlap by an aligned thread."""
    # ops that enclose all matched ones do not count
    (first, last), (begin, stop) = ((int(side.min()), int(side.max())) for side in (alignment.left, alignment.right))
    start, end = times
    later = start[stop + 1 :][start[stop + 1 :] >= end[stop]]
    first_id = int(ids[first]) if first else EVERYTHING.first
    end_id = int(ids[last + 1]) if last + 1 < len(ids) else EVERYTHING.end
    begins = int(start[begin]) if (end[:begin] <= start[begin]).any() else EVERYTHING.first
    return _Range(first_id, end_id), _Range(begins, int(later.min(initial=EVERYTHING.end)))


class _Names(NamedTuple):
    """The names of host nodes and of the device trace's ops as codes of one table, and which codes mark steps."""

    host: Int64
    device: Int64
    is_step_mark: Bool
    numbered: bool

    def marks_step_of_both(self, rows: Int64) -> Bool:
        """Returns which of the host nodes mark a step that the device trace marks too."""
        return self.is_step_mark[self.host[rows]] & columns.isin(self.host[rows], self.device)

    def aligned(self, nodes: Int64, rows: Int64) -> "Alignment":
        """Aligns host nodes with the device trace's ops, step by step."""
        sides = self.host[nodes], self.device[rows]
        return align_steps(*sides, marks_step=self.is_step_mark, numbered=self.numbered)


def _shared_names(host: Categorical, device: Categorical, numbered: bool = True) -> _Names:
    """Returns the names as Kineto writes them; those of steps without their numbers, unless `numbered`."""
    table = columns.Interner[str]()

    def number(name: str) -> int:
        if not numbered and name.startswith(STEP_MARK):
            name = STEP_MARK
        return table["unknown" if UNPRINTABLE.search(name) else name.replace('"', "'").replace("\\", "/")]

    codes = [names.numbers(number, -1) for names in (host, device)]
    return _Names(codes[0], codes[1], np.append(are_step_marks(Categorical.of(table)), False), numbered)


class Alignment(NamedTuple):
    """Pairs of positions in both sequences, and at how many positions of the longer one the shorter one would fit."""

    left: Int64
    right: Int64
    alignment_count: int


def align_steps(left: Int64, right: Int64, *, marks_step: Bool, numbered: bool = True) -> Alignment:
    """Aligns sequences between step marks that both have in the same order; unless `numbered`, marks go by count."""
    sides, shared = (left, right), np.intersect1d(left, right)
    rows = [np.flatnonzero(~marks_step[side] | columns.isin(side, shared)) for side in sides]
    marks = [side[kept][marks_step[side[kept]]] for side, kept in zip(sides, rows, strict=True)]
    if numbered and not np.array_equal(marks[0], marks[1]):
        rows = [np.flatnonzero(~marks_step[side]) for side in sides]
    by_side = (np.split(kept, np.flatnonzero(marks_step[side[kept]])) for side, kept in zip(sides, rows, strict=True))
    steps = [*zip(*by_side, strict=numbered)]
    pairs: list[tuple[Int64, Int64]] = []
    for left_step, right_step in steps:
        direction = slice(None, None, -1 if len(steps) > 1 and not pairs else 1)
        a, b = left_step[direction], right_step[direction]
        alignment = align(left[a], right[b])
        if not numbered and not len(alignment.left):
            alignment = _ends_in_common(left[a], right[b])
        pairs.append((a[alignment.left][direction], b[alignment.right][direction]))
    left_row, right_row = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return Alignment(left_row, right_row, 1 if len(steps) > 1 else alignment.alignment_count)


def align(left: Int64, right: Int64) -> Alignment:
    """Returns the positions at which `left` and `right` agree, in order: where one contains the other, at the first
    such position, else by the greedy shortest edit script (Myers, "An O(ND) difference algorithm", 1986) of at most
    LARGEST_DIFFERENCE edits.
    """
    if len(left) > len(right):
        swapped = align(right, left)
        return Alignment(swapped.right, swapped.left, swapped.alignment_count)
    if not len(left):
        return Alignment(np.empty(0, np.int64), np.empty(0, np.int64), 1)
    first_positions = occurrences(left, right)
    if len(first_positions):
        positions = np.arange(len(left))
        return Alignment(positions, positions + first_positions[0], len(first_positions))
    first, last, count = _window(left, right)
    part = right[first:last]
    size = 1 + max(int(left.max()), int(part.max(initial=0)))
    # at least as many edits as there are names that only one side holds
    edits = np.abs(np.bincount(left, minlength=size) - np.bincount(part, minlength=size)).sum()
    if edits > LARGEST_DIFFERENCE:
        return Alignment(left[:0], left[:0], count)
    pairs = _common_subsequence(left.tolist(), part.tolist())
    return Alignment(pairs[:, 0], pairs[:, 1] + first, count)


def _ends_in_common(left: Int64, right: Int64) -> Alignment:
    """Aligns sequences that differ too much in between by how they begin and end."""
    size = min(len(left), len(right))
    first = int(np.argmin(np.append(left[:size] == right[:size], False)))
    last = int(np.argmin(np.append(left[::-1][: size - first] == right[::-1][: size - first], False)))
    rows = [np.r_[:first, len(side) - last : len(side)] for side in (left, right)]
    return Alignment(rows[0], rows[1], 1)


def _window(left: Int64, right: Int64) -> tuple[int, int, int]:
    """Returns the range of a much longer `right` that `left` was taken from, and in how many ranges it would fit."""
    # they are those that hold the middle of `left`
    middle = len(left) // 2
    anchor = left[middle : middle + ANCHOR]
    in_left, in_right = occurrences(anchor, left), occurrences(anchor, right)
    first = in_right - middle
    first = first[(first >= -ANCHOR) & (first <= len(right) - len(left) + ANCHOR)]
    # an anchor that occurs several times in `left` does so in each range
    count = max(1, min(len(first), len(in_right) - len(in_left) + 1))
    if len(right) < 2 * len(left) or not len(first):
        return 0, len(right), count
    slack = min(len(left) // 10 + 8, LARGEST_DIFFERENCE // 4)
    return max(0, int(first[0]) - slack), int(first[0]) + len(left) + slack, count


def occurrences(part: Int64, whole: Int64) -> Int64:
    """Returns every position at which `whole` contains `part`, which is not empty."""
    candidates = np.arange(len(whole) - len(part) + 1)
    for offset in range(len(part)):
        candidates = candidates[whole[candidates + offset] == part[offset]]
        if len(candidates) <= 1:
            break
    return candidates[[bool((whole[at : at + len(part)] == part).all()) for at in candidates.tolist()]]


def _common_subsequence(left: list[int], right: list[int]) -> Int64:
    """Returns the pairs of positions that the shortest edit script keeps, none beyond LARGEST_DIFFERENCE edits."""
    # how far the furthest path comes in `left` on each diagonal, and the last run of equal values on its way: from and
    # to which position, on which diagonal, after which other run
    furthest: dict[int, tuple[int, Any]] = {1: (0, None)}
    unreached = -1, None
    for edits in range(LARGEST_DIFFERENCE + 1):
        for diagonal in range(-edits, edits + 1, 2):
            without_left, without_right = (furthest.get(diagonal + step, unreached) for step in (-1, 1))
            x, run = without_right if without_left[0] < without_right[0] else (without_left[0] + 1, without_left[1])
            first = x
            while x < len(left) and x - diagonal < len(right) and left[x] == right[x - diagonal]:
                x += 1
            furthest[diagonal] = x, (first, x, diagonal, run) if x > first else run
            if x >= len(left) and x - diagonal >= len(right):
                return _pairs_of_runs(furthest[diagonal][1])
    return np.empty((0, 2), np.int64)


def _pairs_of_runs(run: Any) -> Int64:
    pairs = [np.empty((0, 2), np.int64)]
    while run is not None:
        first, last, diagonal, run = run
        positions = np.arange(first, last)
        pairs.append(np.stack((positions, positions - diagonal), axis=1))
    return np.concatenate(pairs[::-1])
