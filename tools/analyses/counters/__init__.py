"""Counters: what builds up over time on streams and in copies, and what the hardware counted of single kernels."""

from .cupti import cupti_counters
from .over_time import ALL_STREAMS, counters, counters_of

__all__ = ["ALL_STREAMS", "counters", "counters_of", "cupti_counters"]
