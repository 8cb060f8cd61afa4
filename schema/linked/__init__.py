"""The linked trace: host ops, launch calls, device activities and who waits for whom, in memory and as a file."""

from .call_tree import op_parents, op_tree
from .communications import Communications
from .file import LinkedFile, read_linked, write_linked
from .guesses import guessed, without_guesses
from .linked_trace import (
    Activities,
    Calls,
    Communication,
    DeviceWaits,
    Found,
    HostWaits,
    LinkedTrace,
    LinkReport,
    Ops,
    ProcessGroup,
    ThreadHandoffs,
    TraceInfo,
    on_host_clock,
)
from .streams import previous_on_stream, stream_sorted, streams_of, took_over

__all__ = [
    "Activities",
    "Calls",
    "Communication",
    "Communications",
    "DeviceWaits",
    "Found",
    "HostWaits",
    "LinkReport",
    "LinkedFile",
    "LinkedTrace",
    "Ops",
    "ProcessGroup",
    "ThreadHandoffs",
    "TraceInfo",
    "guessed",
    "on_host_clock",
    "op_parents",
    "op_tree",
    "previous_on_stream",
    "read_linked",
    "stream_sorted",
    "streams_of",
    "took_over",
    "without_guesses",
    "write_linked",
]
