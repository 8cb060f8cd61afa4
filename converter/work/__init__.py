"""The work of every kernel, operations and bytes, from the op that launched it, and the lifetimes of storages.

The input is a linked trace with the caller of each op, the output a column of each. Unknown work is absent and counted.
"""

from .kernel_work import (
    RULES as RULES,
    KernelWork as KernelWork,
    Lifetimes as Lifetimes,
    Work as Work,
    highest_within as highest_within,
    kernel_work as kernel_work,
    lifetimes as lifetimes,
    live_bytes as live_bytes,
    work_of as work_of,
)
from .recorded_op import RecordedOp as RecordedOp, Tensor as Tensor, Unknown as Unknown
