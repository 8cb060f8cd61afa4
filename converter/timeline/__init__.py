"""The time of a run: slices, waits and idle time of every thread, the rules' context, and what delays activities."""

from .context import ConversionContext
from .delays import UNRECORDED, Delays, GraphNodes, StartTiming, by_cause, concurrency_limit, find_delays, start_timing
from .timeline import IDLE, Timeline, names_of, slice_host
