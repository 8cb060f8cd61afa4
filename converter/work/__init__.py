"""The work of every kernel, operations and bytes, from the op that launched it, and the lifetimes of storages."""

from .kernel_work import RULES, KernelWork, Lifetimes, Work, kernel_work, lifetimes, live_bytes, work_of
from .recorded_op import RecordedOp, Tensor, Unknown
