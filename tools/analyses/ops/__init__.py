"""Host ops: their host time, their device time, and the sequences of kernels that they launch repeatedly."""

from .frequent_kernel_patterns import (
    Patterns as Patterns,
    frequent_kernel_patterns as frequent_kernel_patterns,
    occurrences as occurrences,
    pattern_times as pattern_times,
    patterns_of as patterns_of,
)
from .host_time_per_op import host_time_per_op as host_time_per_op
from .per_op_device_time import device_time_of_ops as device_time_of_ops, per_op_device_time as per_op_device_time
