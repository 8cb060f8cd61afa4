"""Who waited for whom: takes a process's submissions and returns the waits of host and device, by records, else by the
order and times of calls.

What a process submitted to its device: streams as queues, event records, calls that query or wait, and when each
activity was expected to start.
"""

from .events import EventRecord as EventRecord, Findings as Findings
from .process import Process as Process, TimingModel as TimingModel
from .submissions import (
    MOST_STREAMS as MOST_STREAMS,
    CallSites as CallSites,
    StreamKey as StreamKey,
    StreamQueues as StreamQueues,
    StreamTails as StreamTails,
    submitted_streams as submitted_streams,
)
from .synchronisation import Synchronisation as Synchronisation, synchronise as synchronise
from .unresolved_waits import EventQueryLoops as EventQueryLoops, event_query_loops as event_query_loops
