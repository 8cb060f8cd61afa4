"""Recurring sequences of kernels: what each operator and the ops that it calls launch, in launch order."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64, group_sums
from ...schema.linked import LinkedTrace, op_tree
from .annotations import USER_SCOPE
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .table import Column, Table, integers, microseconds, rank_column

ARROW = " → "


class Occurrences(NamedTuple):
    """Operators and the activities that each launched, in launch order: those of operator i are at `first[i]` up to
    `first[i + 1]` - 1. `longer` is the number of operators with more activities than the limit.
    """

    op_row: Int64
    activity: Int64
    first: Int64
    longer: int


def occurrences(linked: LinkedTrace, operator: str, longest: int) -> Occurrences:
    """Returns what each op whose name contains `operator` launched with its subtree, up to `longest` activities.

    Annotations do not count as operators, nor do ops within an op of the same name, as dispatched again. Besides
    sorting, linear in the activities times the number of operators that enclose each.
    """
    ops, tree = linked.ops, op_tree(linked.ops)
    in_order = _sort_by_launch(linked)
    number = tree.first[linked.activities.op_row[in_order]]
    by_op = np.argsort(number, kind="stable")
    begin = np.searchsorted(number[by_op], tree.first)
    count = np.searchsorted(number[by_op], tree.last) - begin
    named = ops.name.where(lambda name: operator in name)
    is_operator = (
        named & tree.is_outermost(ops.name.codes) & (ops.scope != USER_SCOPE) & (ops.start != ABSENT) & (count > 0)
    )
    row = np.flatnonzero(is_operator & (count <= longest))
    first = np.concatenate(([0], np.cumsum(count[row])))
    occurrence = np.repeat(np.arange(len(row)), count[row])
    within = np.arange(len(occurrence)) - first[occurrence]
    position = by_op[begin[row][occurrence] + within]
    position = position[np.lexsort((position, occurrence))]
    return Occurrences(row, in_order[position], first, int((is_operator & (count > longest)).sum()))


def _sort_by_launch(linked: LinkedTrace) -> Int64:
    """Returns the activities with an op, by the start of the launch call, or of the op if the call is unknown."""
    ops, activities, calls = linked.ops, linked.activities, linked.calls
    row = np.flatnonzero(activities.op_row >= 0)
    call, issued = activities.call_row[row], ops.start[activities.op_row[row]]
    issued[call >= 0] = calls.start[call[call >= 0]]
    return row[np.lexsort((activities.start[row], issued))]


class Patterns(NamedTuple):
    """Distinct pairs of operator and kernels, as codes of names, and for each occurrence the position of its pair."""

    operator: list[int]
    kernels: list[tuple[int, ...]]
    of_occurrence: Int64


def patterns_of(occurrences_: Occurrences, linked: LinkedTrace) -> Patterns:
    """Groups the occurrences of the same operator with the same sequence of kernels."""
    kernel = linked.activities.name.codes[occurrences_.activity].astype(np.int32)
    text, first = kernel.tobytes(), (kernel.itemsize * occurrences_.first).tolist()
    names = linked.ops.name.codes[occurrences_.op_row].tolist()
    pairs: dict[tuple[int, bytes], int] = {}
    spans = zip(names, first[:-1], first[1:], strict=True)
    number = [pairs.setdefault((name, text[begin:end]), len(pairs)) for name, begin, end in spans]
    kernels = [tuple(np.frombuffer(codes, np.int32).tolist()) for _, codes in pairs]
    return Patterns([name for name, _ in pairs], kernels, np.array(number, np.int64))


def pattern_times(occurrences_: Occurrences, patterns: Patterns, linked: LinkedTrace) -> Int64:
    """Returns the device time (ns) of each pattern, summed over its occurrences."""
    pattern = np.repeat(patterns.of_occurrence, np.diff(occurrences_.first))
    duration = (linked.activities.end - linked.activities.start)[occurrences_.activity]
    return group_sums(pattern, duration, len(patterns.kernels))


def _table(rank: RankTrace, options: AnalysisOptions) -> Table:
    linked = rank.linked
    occurrences_ = occurrences(linked, options.operator, options.longest_pattern)
    patterns = patterns_of(occurrences_, linked)
    activities, ops, device = linked.activities, linked.ops, pattern_times(occurrences_, patterns, linked)
    count = group_sums(patterns.of_occurrence, 1, len(patterns.kernels))
    host = group_sums(patterns.of_occurrence, (ops.end - ops.start)[occurrences_.op_row], len(count))
    order = np.lexsort((-device, -count))
    names, sorted_patterns = activities.name.table, order.tolist()
    columns = [
        rank_column(rank.rank, len(order)),
        Column("operator", "", [ops.name.table[patterns.operator[pattern]] for pattern in sorted_patterns]),
        Column(
            "pattern",
            "",
            [ARROW.join(names[code] for code in patterns.kernels[pattern]) for pattern in sorted_patterns],
        ),
        integers("length", [len(patterns.kernels[pattern]) for pattern in sorted_patterns]),
        Column("count", "", count[order]),
        microseconds("device_time", device[order]),
        microseconds("host_time", host[order]),
    ]
    return Table(NAME, "Frequent kernel patterns", columns, _note(occurrences_, options))


def _note(occurrences_: Occurrences, options: AnalysisOptions) -> str:
    if occurrences_.longer:
        return (
            f"{occurrences_.longer} operators that launched more than {options.longest_pattern} activities are not in "
            "it"
        )
    named = f" with {options.operator!r} in its name" if options.operator else ""
    return "" if len(occurrences_.op_row) else f"no operator{named} launched an activity"


NAME = "frequent_kernel_patterns"
frequent_kernel_patterns = per_rank(NAME, _table)
