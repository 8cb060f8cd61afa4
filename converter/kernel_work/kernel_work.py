"""The work of every kernel of a linked trace, from the op that launched it; of copies and sets, from their size."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, OpRows, Table
from ...schema.linked import LinkedTrace
from .op_works import OpWorks
from .sharing import shares, working_ops
from .table import Work

WITHIN_DEVICE = re.compile(r"DtoD|DeviceToDevice|Device -> Device", re.IGNORECASE)
MOVING = ("gpu_memcpy", "gpu_memset")
NO_OP = "no recorded op"


@dataclass(slots=True, repr=False)
class KernelWork(Table):
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
    operations, moved, element = np.full((3, len(activities)), ABSENT, np.int64)
    op_row = OpRows(np.full(len(activities), -1, np.int64))
    sized = activities.category.equal(*MOVING) & (activities.size >= 0)
    both_ways = np.where(activities.name.where(lambda name: WITHIN_DEVICE.search(name) is not None), 2, 1)
    operations[sized], moved[sized] = 0, (activities.size * both_ways)[sized]
    computing = activities.communication_row < 0
    length = (activities.end - activities.start).tolist()
    rows_of_work: list[tuple[int, int, int, int, int]] = []
    for op, kernels, work in _works(linked, op_parent, computing & ~sized & (activities.op_row >= 0)):
        times, count = [length[kernel] for kernel in kernels], len(kernels)
        of_operations = [ABSENT] * count if work.operations is None else shares(work.operations, times)
        rows_of_work += zip(
            kernels,
            of_operations,
            shares(work.bytes, times),
            [work.element or ABSENT] * count,
            [op] * count,
            strict=True,
        )
    kernel, *columns = np.array(rows_of_work, np.int64).reshape(-1, 5).T
    operations[kernel], moved[kernel], element[kernel], op_row[kernel] = columns
    return _with_counts(linked, KernelWork(operations, moved, element, op_row), computing)


def _works(linked: LinkedTrace, op_parent: OpRows, chosen: Bool) -> list[tuple[int, list[int], Work]]:
    """Returns the ops with known work, the kernels of each, and the work."""
    of_op: defaultdict[int, list[int]] = defaultdict(list)
    rows = np.flatnonzero(chosen)
    # whole numbers are divided among kernels in order of time, independent of the order of the file
    rows = rows[np.lexsort([getattr(linked.activities, key)[rows] for key in ("correlation", "end", "start")])]
    for kernel, op in zip(rows.tolist(), linked.activities.op_row[rows].tolist(), strict=True):
        of_op[op].append(kernel)
    works = OpWorks(linked.ops)
    working_op = working_ops(OpRows(np.array(list(of_op), np.int64)), op_parent, works)
    kernels: defaultdict[int, list[int]] = defaultdict(list)
    for op, worker in working_op.items():
        kernels[worker] += of_op[op]
    return [(op, kernels[op], work) for op, work in works.works(kernels).items()]


def _with_counts(linked: LinkedTrace, work: KernelWork, computing: Bool) -> KernelWork:
    activities, ops = linked.activities, linked.ops
    lacking = computing & ((work.operations == ABSENT) | (work.bytes == ABSENT))
    length = activities.end - activities.start
    names = [ops.name[row] if row >= 0 else NO_OP for row in activities.op_row[lacking].tolist()]
    return replace(
        work,
        with_work=int((computing & ~lacking).sum()),
        without_work=dict(Counter(names).most_common()),
        with_work_ns=int(length[computing & ~lacking].sum()),
        total_ns=int(length[computing].sum()),
    )
