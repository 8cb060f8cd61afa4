"""What a process submitted to its device: streams as queues, recordings of events, calls that ask or wait, what times say of them."""

from .events import Findings, Recording
from .evidence import Evidence
from .places import Places
from .process import Process, process_of
from .queries import Queries, queries_of
from .streams import MOST_STREAMS, StreamKey, StreamQueues, Tails

__all__ = [
    "MOST_STREAMS",
    "Evidence",
    "Findings",
    "Places",
    "Process",
    "Queries",
    "Recording",
    "StreamKey",
    "StreamQueues",
    "Tails",
    "process_of",
    "queries_of",
]
