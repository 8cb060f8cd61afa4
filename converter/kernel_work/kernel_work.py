"""The work of every kernel of a linked trace, by the op that launched it; of copies and sets by their recorded size."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64
from ..context import ConversionContext
from .op_works import OpWorks
from .sharing import owners, shares
from .table import Work

WITHIN_DEVICE = re.compile(r"DtoD|DeviceToDevice|Device -> Device", re.IGNORECASE)
MOVING = ("gpu_memcpy", "gpu_memset")
NO_OP = "no recorded op"


@dataclass(slots=True)
class KernelWork:
    """By activity, ABSENT where not known: floating-point operations, bytes read and written, and bytes of an element. Communication has
    none.

    `unknown` counts activities that lack one of them by their op's name, `known_ns` is the time of the others of `whole_ns`.
    """

    operations: Int64
    bytes: Int64
    element: Int64
    known: int
    unknown: dict[str, int]
    known_ns: int
    whole_ns: int


def kernel_work(context: ConversionContext) -> KernelWork:
    """The work of all activities. Linear in activities, ops and their texts."""
    activities = context.linked.activities
    count = len(activities)
    operations, moved, element = np.full((3, count), ABSENT, np.int64)
    sized = activities.category.equal(*MOVING) & (activities.size >= 0)
    both_ways = np.where(activities.name.where(lambda name: WITHIN_DEVICE.search(name) is not None), 2, 1)
    operations[sized], moved[sized] = 0, (activities.size * both_ways)[sized]
    computing = activities.communication_row < 0
    for kernels, work in _works(context, computing & ~sized & (activities.op_row >= 0)):
        times = (activities.end - activities.start)[kernels].tolist()
        moved[kernels], element[kernels] = shares(work.bytes, times), work.element or ABSENT
        if work.operations is not None:
            operations[kernels] = shares(work.operations, times)
    return _counted(context, operations, moved, element, computing)


def _works(context: ConversionContext, wanted: Bool) -> list[tuple[list[int], Work]]:
    """The kernels of each op whose work is known, and the work."""
    of_op: defaultdict[int, list[int]] = defaultdict(list)
    rows = np.flatnonzero(wanted)
    for kernel, op in zip(rows.tolist(), context.linked.activities.op_row[rows].tolist(), strict=True):
        of_op[op].append(kernel)
    works = OpWorks(context.linked.ops)
    owner = owners(np.array(list(of_op), np.int64), context.op_parent, works)
    kernels: defaultdict[int, list[int]] = defaultdict(list)
    for op, whose in owner.items():
        kernels[whose] += of_op[op]
    return [(kernels[op], work) for op, work in works.works(kernels).items()]


def _counted(
    context: ConversionContext, operations: Int64, moved: Int64, element: Int64, computing: Bool
) -> KernelWork:
    activities, ops = context.linked.activities, context.linked.ops
    lacking = computing & ((operations == ABSENT) | (moved == ABSENT))
    length = activities.end - activities.start
    names = [ops.name[row] if row >= 0 else NO_OP for row in activities.op_row[lacking].tolist()]
    return KernelWork(
        operations,
        moved,
        element,
        known=int((computing & ~lacking).sum()),
        unknown=dict(Counter(names).most_common()),
        known_ns=int(length[computing & ~lacking].sum()),
        whole_ns=int(length[computing].sum()),
    )
