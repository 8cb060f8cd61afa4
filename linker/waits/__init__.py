"""Who waited for whom: takes a process's submissions and returns the waits of host and device, by records, else by the
order and times of calls.
"""

from .process import Findings, FoundCalls, Process
from .submissions import MOST_STREAMS, submitted_streams
from .synchronisation import synchronise
