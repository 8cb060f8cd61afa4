"""The work of every kernel of a linked trace, from the op that launched it; of copies and sets, from their size.

A kernel belongs to the op that launched it, if there is a rule for that; otherwise to the nearest enclosing op with a
rule, unless other launching ops inside that one do its work. The kernels of an op share its operations and bytes in
proportion to their measured time, so sums are the op's, and all kernels have its operations per byte. The work of ops
that were recorded alike is computed once.
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Interner, OpRows, SummaryRepr, nearest
from ...schema.linked import LinkedTrace, Ops
from . import families, products
from .recorded_op import LARGEST, Family, RecordedOp, Rule, Unknown, moved, recorded_by_device, recorded_by_host

TRITON = Family(
    "Triton kernel",
    "not known, and absent",
    "the arguments that the kernel was launched with",
    "the tensors among its arguments, each once",
)
RULES: dict[str, Rule] = families.RULES | products.RULES
"""The rules by the op's name."""
BACKEND, TRITON_BACKEND, PREFIX = "kernel_backend", "triton", "triton_"
"""The attribute that names the backend of a kernel, its value for Triton, and the prefix of the names of such ops."""
WITHIN_DEVICE = re.compile(r"DtoD|DeviceToDevice|Device -> Device", re.IGNORECASE)
MOVING = ("gpu_memcpy", "gpu_memset")
NO_OP = "no recorded op"


class Work(NamedTuple):
    """The work of an op: floating-point operations (None if not known), bytes read and written, and bytes of an element
    of its largest tensor, which shows the number format (0 if not known).
    """

    operations: int | None
    bytes: int
    element: int = 0


def work_of(op: RecordedOp) -> Work:
    """Returns the work of an op that is in the table, or of a Triton kernel that was launched as an op. Raises Unknown
    if its arguments do not determine it.
    """
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


class OpWorks:
    """The work of ops, by row: whether the table has a rule for each op, and a number of its family."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._triton = ops.name.where(lambda name: name.startswith(PREFIX))
        self._triton[[row for row, attributes in ops.extra.items() if attributes.get(BACKEND) == TRITON_BACKEND]] = True
        families = {rule.family.name: number for number, rule in enumerate(RULES.values())}
        named = ops.name.numbers(lambda name: families[RULES[name].family.name] if name in RULES else -1, -1)
        self.has_rule: Bool = (named >= 0) | self._triton
        self.family: Int64 = named

    def works(self, rows: OpRows) -> tuple[list[Work | None], Int64]:
        """Returns the distinct works of these ops, None where not known, and which of them each op has.

        All the ops must have a rule.
        """
        ops, numbers = self._ops, Interner[Hashable]()
        columns = (column[rows].tolist() for column in (ops.name.codes, ops.op_schema.codes, ops.recorded_by_host))
        number = numbers.codes(zip(*columns, ops.arguments.alike(rows), strict=True), len(rows))
        first = np.unique(number, return_index=True)[1]
        return [*map(self._work, rows[first].tolist())], number.astype(np.int64)

    def _work(self, row: int) -> Work | None:
        ops = self._ops
        try:
            if not ops.recorded_by_host[row]:
                return work_of(recorded_by_device(ops.name[row], ops.inputs[row]))
            return work_of(recorded_by_host(ops.name[row], ops.op_schema[row], ops.inputs[row], ops.outputs[row]))
        except (Unknown, RecursionError):
            return None


def working_ops(launching: OpRows, parent: OpRows, works: OpWorks) -> OpRows:
    """Returns, for each launching op, the op whose work its kernels do, -1 where there is none. Linear.

    `parent` is the row of the op that encloses each op, -1 for none.
    """
    has_rule = works.has_rule[launching]
    with_rule, without_rule = OpRows(launching[has_rule]), OpRows(launching[~has_rule])
    families = works.family[with_rule]
    # an op that encloses others of its family delegates its work to them
    encloses_family = np.zeros(len(with_rule), np.bool_)
    for family in np.unique(families).tolist():
        of_family = families == family
        members = OpRows(with_rule[of_family])
        encloses_family[of_family] = _enclosing(members, parent)[members]
    is_worker = np.zeros(len(parent), np.bool_)
    is_worker[with_rule[~encloses_family]] = True
    above = nearest(works.has_rule, parent)[without_rule]
    does_work_of_above = is_worker[above] | ~_enclosing(with_rule, parent)[above]
    working_op = OpRows(np.empty_like(launching))
    working_op[has_rule] = np.where(encloses_family, -1, with_rule)
    working_op[~has_rule] = np.where(does_work_of_above, above, -1)
    return working_op


def _enclosing(rows: OpRows, parent: OpRows) -> Bool:
    """Returns which ops enclose one of these rows, directly or not."""
    encloses = np.zeros(len(parent), np.bool_)
    above = parent[rows]
    while (above := np.unique(above[above >= 0])).size:
        above = above[~encloses[above]]
        encloses[above] = True
        above = parent[above]
    return encloses


def shares(total: int, times: Sequence[int]) -> list[int]:
    """Returns the total divided in proportion to the times, in whole numbers; a time of 0 counts as 1 ns.

    >>> shares(10, [1, 1, 1])
    [3, 3, 4]
    """
    weights = [max(time, 1) for time in times]
    whole, before, given_before, parts = sum(weights), 0, 0, []
    for weight in weights:
        before += weight
        until = total * before // whole
        parts.append(until - given_before)
        given_before = until
    return parts


@dataclass(slots=True, repr=False)
class KernelWork(SummaryRepr):
    """Columns by activity, ABSENT where not known: floating-point operations, bytes read and written, and bytes of an
    element. Communication has none. `op_row` is the op whose work the activity does, -1 where not known.

    `with_work` counts activities with work, `without_work` those without, by the name of their op. `with_work_ns` of
    `total_ns` is the time of activities with work.
    """

    operations: Int64
    bytes: Int64
    element: Int64
    op_row: OpRows
    with_work: int = 0
    without_work: dict[str, int] = field(default_factory=dict)
    with_work_ns: int = 0
    total_ns: int = 0


def kernel_work(linked: LinkedTrace, op_parent: OpRows) -> KernelWork:
    """Returns the work of all activities. Linear in activities, ops and their texts.

    `op_parent` is the row of the op that encloses each op, -1 for none.
    """
    activities = linked.activities
    columns = np.full((len(activities), 3), ABSENT, np.int64)
    op_row = OpRows(np.full(len(activities), -1, np.int64))
    sized = activities.category.equal(*MOVING) & (activities.size >= 0)
    both_ways = np.where(activities.name.where(lambda name: WITHIN_DEVICE.search(name) is not None), 2, 1)
    columns[sized, 0], columns[sized, 1] = 0, (activities.size * both_ways)[sized]
    computing, length = activities.communication_row < 0, activities.end - activities.start
    works = OpWorks(linked.ops)
    rows = np.flatnonzero(computing & ~sized & (activities.op_row >= 0))
    # whole numbers are divided among kernels in order of time, independent of the order of the file
    rows = rows[np.lexsort([getattr(activities, key)[rows] for key in ("correlation", "end", "start")])]
    launching, first, launch = np.unique(activities.op_row[rows], return_index=True, return_inverse=True)
    op = working_ops(OpRows(launching), op_parent, works)[launch]
    # the kernels of an op, those that it launched itself first
    order = np.lexsort((first[launch], launching[launch] != op, op))
    order = order[op[order] >= 0]
    kernel, op = rows[order], OpRows(op[order])
    shared, has_work = _shared_work(works, op, length[kernel])
    columns[kernel[has_work]], op_row[kernel[has_work]] = shared[has_work], op[has_work]
    lacking = computing & (columns[:, :2] == ABSENT).any(axis=1)
    names = [linked.ops.name[row] if row >= 0 else NO_OP for row in activities.op_row[lacking].tolist()]
    operations, moved_bytes, element = columns.T.copy()
    return KernelWork(
        operations,
        moved_bytes,
        element,
        op_row,
        with_work=int((computing & ~lacking).sum()),
        without_work=dict(Counter(names).most_common()),
        with_work_ns=int(length[computing & ~lacking].sum()),
        total_ns=int(length[computing].sum()),
    )


def _shared_work(works: OpWorks, op: OpRows, times: Int64) -> tuple[Int64, Bool]:
    """Returns operations, bytes and bytes of an element of each kernel, given its op and time, and which are known."""
    ops, start, count = np.unique(op, return_index=True, return_counts=True)
    distinct_works, number = works.works(OpRows(ops))
    absent = [Work(ABSENT, ABSENT, ABSENT)]
    written = [
        work._replace(operations=ABSENT if work.operations is None else work.operations, element=work.element or ABSENT)
        for work in [work or absent[0] for work in distinct_works]
    ]
    columns = np.array(written, np.int64).reshape(-1, 3)[np.repeat(number, count)]
    several = count > 1
    for first, end in zip(start[several].tolist(), (start + count)[several].tolist(), strict=True):
        kernel_times = times[first:end].tolist()
        for column in np.flatnonzero(columns[first, :2] != ABSENT).tolist():
            columns[first:end, column] = shares(int(columns[first, column]), kernel_times)
    return columns, columns[:, 1] != ABSENT
