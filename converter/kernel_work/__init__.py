"""How much every kernel computes and moves: floating-point operations and bytes, from the op that launched it.

In come a linked trace and who called whom, out goes a column of each. What is not known stays absent and is counted.
"""

from .kernel_work import KernelWork as KernelWork, kernel_work as kernel_work
from .recorded_op import RecordedOp as RecordedOp, Tensor as Tensor, Unknown as Unknown
from .table import RULES as RULES, TRITON as TRITON, Work as Work, work_of as work_of
