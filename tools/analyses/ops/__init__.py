"""Host ops: what they cost the host, what device time they own, and which kernels they launch over and over. A rank in, tables out."""

from .frequent_kernel_patterns import Patterns, frequent_kernel_patterns, occurrences, pattern_times, patterns_of
from .host_time_per_op import host_time_per_op
from .per_op_device_time import device_time_of_ops, per_op_device_time

__all__ = [
    "Patterns",
    "device_time_of_ops",
    "frequent_kernel_patterns",
    "host_time_per_op",
    "occurrences",
    "pattern_times",
    "patterns_of",
    "per_op_device_time",
]
