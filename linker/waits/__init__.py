"""Who waited for whom: the waits of host and device from submissions, by records, else by order and times of calls."""

from .process import Findings, FoundCalls, Process, SyncRecords
from .submissions import MOST_STREAMS, StreamQueues, submitted_streams
from .synchronisation import synchronise
