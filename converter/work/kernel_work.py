"""The work of every kernel of a linked trace, from the op that launched it, and the time for which each storage lives.
A kernel belongs to its op or the nearest enclosing one that has a rule; kernels of an op share its work by time. Ids of
storages are reused: an op that has one among its results, but not its inputs, has made a new storage.
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple, get_args

import numpy as np

from ...schema import columns
from ...schema.columns import ABSENT, Bool, Int64, Intervals, OpRows, Series, SummaryRepr, Tree
from ...schema.linked import LinkedTrace, Ops, op_tree
from . import families, products
from .recorded_op import LARGEST, Family, RecordedOp, Rule, Unknown, moved, recorded_by_device, recorded_by_host

RULES: dict[str, Rule] = families.RULES | products.RULES
FAMILIES = {name: get_args(Family).index(rule.family) for name, rule in RULES.items()}
BACKEND, TRITON_BACKEND, PREFIX = "kernel_backend", "triton", "triton_"
"""The attribute that names the backend of a kernel, its value for Triton, and the prefix of the names of such ops."""
WITHIN_DEVICE = re.compile(r"DtoD|DeviceToDevice|Device -> Device", re.IGNORECASE)
MOVING = ("gpu_memcpy", "gpu_memset")
NO_OP = "no recorded op"
BEFORE = -1


class Work(NamedTuple):
    """Operations (None if not known), bytes moved, and bytes of an element of the largest tensor (0 if not known)."""

    operations: int | None
    bytes: int
    element: int = 0


def work_of(op: RecordedOp) -> Work:
    """Returns the work of an op of the table or of a Triton kernel launched as one. Raises Unknown if undetermined."""
    operations = None
    if rule := RULES.get(op.name):
        if op.recorded_results is None:
            op = RecordedOp(op.name, op.schema, op.inputs, rule.results(op))
        operations, size = rule.operations(op), rule.moved(op)
    else:
        size = moved(op.read, [])
    tensors = [*op.read, *op.written]
    if not tensors:
        raise Unknown("tensors")
    if max(operations or 0, size) >= LARGEST:
        raise Unknown("a number of this world")
    return Work(operations, size, max(max(tensors, key=lambda tensor: tensor.stored).item, 0))


def _work_at(ops: Ops, row: int) -> Work:
    name, inputs = ops.name[row], ops.arguments.inputs(row)
    try:
        if not ops.recorded_by_host[row]:
            return work_of(recorded_by_device(name, inputs))
        return work_of(recorded_by_host(name, ops.op_schema[row], inputs, ops.arguments.outputs(row)))
    except (Unknown, RecursionError):
        return Work(ABSENT, ABSENT, ABSENT)


def working_ops(launching: OpRows, tree: Tree, ops: Ops) -> OpRows:
    """Returns for each launching op the op whose work its kernels do, -1 where there is none."""
    family_of = ops.name.numbers(lambda name: FAMILIES.get(name, -1), -1)
    op_has_rule = (family_of >= 0) | ops.name.where(lambda name: name.startswith(PREFIX))
    op_has_rule[[row for row, attributes in ops.extra.items() if attributes.get(BACKEND) == TRITON_BACKEND]] = True
    has_rule = op_has_rule[launching]
    with_rule = launching[has_rule]
    # an op that encloses others of its family delegates its work to them
    delegates = tree.encloses_its_kind(with_rule, family_of[with_rule])
    is_worker, has_own_work = np.zeros((2, len(ops)), np.int64)
    is_worker[with_rule[~delegates]] = has_own_work[with_rule] = 1
    above = columns.nearest(op_has_rule, tree.parent)[launching[~has_rule]]
    does_work_of_above = is_worker[above] | (tree.subtrees(np.add, has_own_work)[above] == has_own_work[above])
    working_op = launching.copy()
    working_op[has_rule] = np.where(delegates, -1, with_rule)
    working_op[~has_rule] = np.where(does_work_of_above, above, -1)
    return OpRows(working_op)


def shares(total: int, times: Sequence[int]) -> list[int]:
    """Returns the total divided in proportion to the times, in whole numbers; a time of 0 counts as 1 ns.

    >>> shares(10, [1, 1, 1])
    [3, 3, 4]
    """
    weights = [max(time, 1) for time in times]
    weight_of_all = sum(weights)
    until = [total * weight // weight_of_all for weight in accumulate(weights)]
    return [end - begin for begin, end in pairwise([0, *until])]


@dataclass(slots=True, repr=False)
class KernelWork(SummaryRepr):
    """Columns by activity, ABSENT where not known: operations, bytes moved, bytes of an element, and the op."""

    operations: Int64
    bytes: Int64
    element: Int64
    op_row: OpRows
    with_work: int = 0
    without_work: dict[str, int] = field(default_factory=dict)
    with_work_ns: int = 0
    total_ns: int = 0


def kernel_work(linked: LinkedTrace, tree: Tree) -> KernelWork:
    """Returns the work of all activities; `tree` has the ops by the ones that called them."""
    activities = linked.activities
    found = np.full((len(activities), 3), ABSENT, np.int64)
    op_row = OpRows(np.full(len(activities), -1, np.int64))
    sized = activities.category.equal(*MOVING) & (activities.size >= 0)
    both_ways = np.where(activities.name.where(lambda name: WITHIN_DEVICE.search(name) is not None), 2, 1)
    found[sized, 0], found[sized, 1] = 0, (activities.size * both_ways)[sized]
    computing, length = activities.communication_row < 0, activities.end - activities.start
    rows = np.flatnonzero(computing & ~sized & (activities.op_row >= 0))
    # whole numbers are divided among kernels in order of time, independent of the order of the file
    rows = rows[np.lexsort([getattr(activities, key)[rows] for key in ("correlation", "end", "start")])]
    launching, first, launch = np.unique(activities.op_row[rows], return_index=True, return_inverse=True)
    op = working_ops(OpRows(launching), tree, linked.ops)[launch]
    # the kernels of an op, those that it launched itself first
    order = np.lexsort((first[launch], launching[launch] != op, op))
    order = order[op[order] >= 0]
    kernel, op = rows[order], OpRows(op[order])
    shared, has_work = _shared_work(linked.ops, op, length[kernel])
    found[kernel[has_work]], op_row[kernel[has_work]] = shared[has_work], op[has_work]
    lacking = computing & (found[:, :2] == ABSENT).any(axis=1)
    names = [linked.ops.name[row] if row >= 0 else NO_OP for row in activities.op_row[lacking].tolist()]
    operations, moved_bytes, element = found.T.copy()
    return KernelWork(
        operations, moved_bytes, element, op_row, with_work=int((computing & ~lacking).sum()),
        without_work=dict(Counter(names).most_common()), with_work_ns=int(length[computing & ~lacking].sum()),
        total_ns=int(length[computing].sum()),
    )  # fmt: skip


def _shared_work(ops: Ops, op: OpRows, times: Int64) -> tuple[Int64, Bool]:
    """Returns operations, bytes and bytes of an element of each kernel, given its op and time, and which are known."""
    rows, start, count = np.unique(op, return_index=True, return_counts=True)
    # ops that were recorded alike have one work
    facts = (column[rows].tolist() for column in (ops.name.codes, ops.op_schema.codes, ops.recorded_by_host))
    alike = zip(*facts, ops.arguments.alike(OpRows(rows)), strict=True)
    number = columns.Interner[Hashable]().codes(alike, len(rows))
    first_rows = rows[np.unique(number, return_index=True)[1]]
    written = [
        work._replace(operations=ABSENT if work.operations is None else work.operations, element=work.element or ABSENT)
        for work in (_work_at(ops, row) for row in first_rows.tolist())
    ]
    shared = np.array(written, np.int64).reshape(-1, 3)[np.repeat(number, count)]
    several = count > 1
    for first, end in zip(start[several].tolist(), (start + count)[several].tolist(), strict=True):
        kernel_times = times[first:end].tolist()
        for column in np.flatnonzero(shared[first, :2] != ABSENT).tolist():
            shared[first:end, column] = shares(int(shared[first, column]), kernel_times)
    return shared, shared[:, 1] != ABSENT


class Lifetimes(NamedTuple):
    """Storages by id, then time: device, bytes, lifetime in ns, and the op that made each, BEFORE for earlier ones."""

    storage: Int64
    device: Int64
    size: Int64
    begin: Int64
    until: Int64
    op_row: Int64

    def where(self, chosen: Bool | Int64) -> "Lifetimes":
        """Returns the chosen storages."""
        return Lifetimes(*(column[chosen] for column in self))


def lifetimes(ops: Ops) -> Lifetimes:
    """Returns the storages that timed ops name. O(n log n) in the names."""
    is_timed = (ops.start != ABSENT) & ops.recorded_by_host
    tensors = ops.arguments.tensors
    tensors = tensors.where(is_timed[tensors.row] & tensors.in_memory)
    # one for each op and storage among its inputs or results, the one that reaches furthest
    tensors = tensors.where(np.lexsort((-tensors.high, tensors.storage, tensors.row, tensors.is_output)))
    named = tensors.where(columns.is_group_start(tensors.is_output, tensors.row, tensors.storage))
    start, end = ops.start[named.row], ops.end[named.row]
    # an op makes results that are none of its inputs, and no results of an op that it called
    pair = columns.group_ids(named.row, named.storage)
    makes = named.is_output & ~columns.isin(pair, pair[~named.is_output])
    makes[makes] = ~op_tree(ops).encloses_its_kind(named.row[makes], columns.group_ids(named.storage[makes]))
    # inputs are there when an op starts, results that it did not make when it ends
    time = np.where(named.is_output & ~makes, end, start)
    order = np.lexsort((~makes, time, named.storage))
    named, makes, start, end = named.where(order), makes[order], start[order], end[order]
    first = np.flatnonzero(columns.is_group_start(named.storage) | makes)
    if not len(first):
        return Lifetimes(*np.empty((6, 0), np.int64))
    made, storage = makes[first], named.storage[first]
    begin = np.where(made, start[first], ops.start[is_timed].min())
    until = np.maximum.reduceat(end, first)
    following = np.append(storage[1:] == storage[:-1], False)
    until[following] = np.minimum(until, np.append(begin[1:], 0))[following]
    return Lifetimes(
        storage=storage, device=named.device[first], size=np.maximum.reduceat(named.high, first), begin=begin,
        until=np.maximum(until, begin), op_row=np.where(made, named.row[first], BEFORE),
    )  # fmt: skip


def live_bytes(storages: Lifetimes) -> Series:
    """Returns how many bytes of these storages live at each time."""
    time, value = columns.running_sum(Intervals(storages.begin, storages.until), storages.size.astype(np.float64))
    return Series(time, value.astype(np.int64))
