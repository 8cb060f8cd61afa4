"""The linked trace: host ops, launch calls, device activities and who waits for whom, in memory and as a file."""

from .file import LinkedFile, read_linked, write_linked
from .linked_trace import (
    Activities,
    Calls,
    Communication,
    DeviceWaits,
    Found,
    HandOvers,
    HostWaits,
    LinkedTrace,
    LinkReport,
    Ops,
    ProcessGroup,
    TraceInfo,
    guessed,
    on_host_clock,
    without_guesses,
)
from .streams import previous_on_stream, stream_sorted, streams_of, took_over

__all__ = [
    "Activities",
    "Calls",
    "Communication",
    "DeviceWaits",
    "Found",
    "HandOvers",
    "HostWaits",
    "LinkReport",
    "LinkedFile",
    "LinkedTrace",
    "Ops",
    "ProcessGroup",
    "TraceInfo",
    "guessed",
    "on_host_clock",
    "previous_on_stream",
    "read_linked",
    "stream_sorted",
    "streams_of",
    "took_over",
    "without_guesses",
    "write_linked",
]
