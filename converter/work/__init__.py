"""The work of every kernel, operations and bytes, from the op that launched it, and the lifetimes of storages.

The input is a linked trace with the caller of each op, the output a column of each. Unknown work is absent and counted.
"""

from .kernel_work import (
    RULES as RULES,
    KernelWork as KernelWork,
    Work as Work,
    kernel_work as kernel_work,
    work_of as work_of,
)
from .lifetimes import (
    Lifetimes as Lifetimes,
    highest_within as highest_within,
    lifetimes as lifetimes,
    live_bytes as live_bytes,
)
from .recorded_op import RecordedOp as RecordedOp, Tensor as Tensor, Unknown as Unknown
