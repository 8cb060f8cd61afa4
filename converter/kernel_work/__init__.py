"""How much every kernel computes and moves: floating-point operations and bytes, from the op that launched it.

In come a linked trace and who called whom, out goes a column of each. What is not known stays absent and is counted.
"""

from .kernel_work import KernelWork, kernel_work
from .recorded_op import RecordedOp, Tensor, Unknown
from .table import RULES, TRITON, Work, work_of

__all__ = ["RULES", "TRITON", "KernelWork", "RecordedOp", "Tensor", "Unknown", "Work", "kernel_work", "work_of"]
