"""The linked trace: host ops, launch calls, device activities and who waits for whom, in memory and as a file."""

from .call_tree import op_parents as op_parents, op_tree as op_tree
from .communications import Communications as Communications
from .file import LinkedFile as LinkedFile, read_linked as read_linked, write_linked as write_linked
from .guesses import guessed as guessed, without_guesses as without_guesses
from .linked_trace import (
    Activities as Activities,
    Calls as Calls,
    Communication as Communication,
    DeviceWaits as DeviceWaits,
    HostWaits as HostWaits,
    LinkedTrace as LinkedTrace,
    LinkReport as LinkReport,
    Ops as Ops,
    ProcessGroup as ProcessGroup,
    Provenance as Provenance,
    ThreadHandoffs as ThreadHandoffs,
    TraceInfo as TraceInfo,
    on_host_clock as on_host_clock,
)
from .streams import (
    previous_on_stream as previous_on_stream,
    stream_sorted as stream_sorted,
    streams_of as streams_of,
    took_over as took_over,
)
