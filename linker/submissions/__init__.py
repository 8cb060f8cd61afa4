"""What a process submitted to its device: streams as queues, recordings of events, calls that ask or wait, what times say of them."""

from .events import Findings as Findings, Recording as Recording
from .evidence import Evidence as Evidence
from .places import Places as Places
from .process import Process as Process, process_of as process_of
from .queries import Queries as Queries, queries_of as queries_of
from .streams import MOST_STREAMS as MOST_STREAMS, StreamKey as StreamKey, StreamQueues as StreamQueues, Tails as Tails
