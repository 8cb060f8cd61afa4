"""Counters: what builds up over time on streams and in copies, and what the hardware counted of single kernels."""

from .cupti import cupti_counters as cupti_counters
from .over_time import ALL_STREAMS as ALL_STREAMS, counters as counters, counters_of as counters_of
