"""The linked trace as a file: JSON in the node layout of host schema 1.1.1, which Chakra's converter reads too.

Op nodes have `ts`, `inclusive_dur` and `exclusive_dur` in µs; activity nodes have `cat`. Calls, waits and hand-offs are
tables of columns after the nodes, times in ns. A file without these tables, as chakra_trace_link writes it, can be read
too: its activities are taken to be launched at the end of their op or at their start, whichever is earlier.
"""

from .layout import LinkedFile
from .reader import read_linked
from .writer import write_linked

__all__ = ["LinkedFile", "read_linked", "write_linked"]
