"""What passed between the release of each device activity and its start: the usual latency or gap, and delays."""

from .concurrency_limit import ConcurrencyLimit as ConcurrencyLimit, concurrency_limit as concurrency_limit
from .delays import Delays as Delays, by_cause as by_cause, find_delays as find_delays
from .start_timing import StartTiming as StartTiming, start_timing as start_timing
