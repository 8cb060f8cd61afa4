"""Counters: queue lengths of streams and bandwidths of copies over time, and hardware counters of kernels."""

from .cupti import cupti_counters as cupti_counters
from .over_time import ALL_STREAMS as ALL_STREAMS, counters as counters, counters_of as counters_of
