"""The time of a run: linked ops and calls in, slices, waits and idle time of every thread out, and the rules' context.

With it what passed between the release of each device activity and its start: the usual latency or gap, and delays.
"""

from .context import ConversionContext
from .delays import UNRECORDED, Delays, GraphNodes, StartTiming, by_cause, concurrency_limit, find_delays, start_timing
from .timeline import IDLE, Timeline, names_of, slice_host
