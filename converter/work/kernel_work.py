"""The work of every kernel of a linked trace, from the op that launched it; of copies and sets, from their size."""

import re
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from ...schema.columns import ABSENT, ActivityRows, Bool, Int64, OpRows, Table
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
    works = OpWorks(linked.ops)
    kernel, op = _kernels_of_ops(linked, op_parent, works, computing & ~sized & (activities.op_row >= 0))
    columns, has_work = _shared_work(works, op, (activities.end - activities.start)[kernel])
    kernel, op = ActivityRows(kernel[has_work]), OpRows(op[has_work])
    operations[kernel], moved[kernel], element[kernel] = columns[has_work].T
    op_row[kernel] = op
    return _with_counts(linked, KernelWork(operations, moved, element, op_row), computing)


def _kernels_of_ops(
    linked: LinkedTrace, op_parent: OpRows, works: OpWorks, chosen: Bool
) -> tuple[ActivityRows, OpRows]:
    """Returns the kernels that do the work of an op, by op, and that op. Those that the op itself launched come first,
    each op's in order of time.
    """
    rows = np.flatnonzero(chosen)
    # whole numbers are divided among kernels in order of time, independent of the order of the file
    rows = rows[np.lexsort([getattr(linked.activities, key)[rows] for key in ("correlation", "end", "start")])]
    launching, first, launch = np.unique(linked.activities.op_row[rows], return_index=True, return_inverse=True)
    op = working_ops(OpRows(launching), op_parent, works)[launch]
    order = np.lexsort((first[launch], launching[launch] != op, op))
    order = order[op[order] >= 0]
    return ActivityRows(rows[order]), OpRows(op[order])


def _shared_work(works: OpWorks, op: OpRows, times: Int64) -> tuple[Int64, Bool]:
    """Returns operations, bytes and bytes of an element of each kernel, given its op and time, and which are known."""
    ops, start, count = np.unique(op, return_index=True, return_counts=True)
    distinct_works, number = works.works(OpRows(ops))
    columns = np.array([_numbers(work) for work in distinct_works], np.int64).reshape(-1, 3)[np.repeat(number, count)]
    several = count > 1
    for first, end, at in zip(*(each[several].tolist() for each in (start, start + count, number)), strict=True):
        if (work := distinct_works[at]) is not None:
            kernel_times = times[first:end].tolist()
            columns[first:end, 1] = shares(work.bytes, kernel_times)
            if work.operations is not None:
                columns[first:end, 0] = shares(work.operations, kernel_times)
    is_known = np.array([work is not None for work in distinct_works], np.bool_)
    return columns, is_known[np.repeat(number, count)]


def _numbers(work: Work | None) -> tuple[int, int, int]:
    """Returns the work as it is written to columns."""
    if work is None:
        return ABSENT, ABSENT, ABSENT
    return ABSENT if work.operations is None else work.operations, work.bytes, work.element or ABSENT


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
