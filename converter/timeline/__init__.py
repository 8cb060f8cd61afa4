"""The time of a run: linked ops and calls in, slices, waits and idle time of every thread out, and the rules' context.

With it what passed between the release of each device activity and its start: the usual latency or gap, and delays.
"""

from .context import ConversionContext as ConversionContext
from .delays import (
    UNRECORDED as UNRECORDED,
    Delays as Delays,
    GraphNodes as GraphNodes,
    StartTiming as StartTiming,
    by_cause as by_cause,
    concurrency_limit as concurrency_limit,
    find_delays as find_delays,
    start_timing as start_timing,
)
from .timeline import IDLE as IDLE, Timeline as Timeline, names_of as names_of, slice_host as slice_host
