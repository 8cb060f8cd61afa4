"""The linked trace as a file: JSON in the node layout of host schema 1.1.1, so that Chakra's converter reads it too,
our tables beside.

Op nodes carry `ts`, `inclusive_dur` and `exclusive_dur` in µs; activity nodes have `cat`. Calls, waits and hand-offs
are tables of columns after the nodes, times in ns. A file without them, as chakra_trace_link writes it, is read too:
its activities are taken to be launched at the end of their op or when they start, whichever is earlier.
"""

from .layout import LinkedFile
from .reader import read_linked
from .writer import write_linked

__all__ = ["LinkedFile", "read_linked", "write_linked"]
