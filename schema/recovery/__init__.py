"""JSON that may be damaged: a stream of bytes in, its elements and what was lost out.

The readers of traces and of linked files are built on it.
"""

from .damage import CUT_OFF, UNREADABLE, Damage
from .json_stream import ArrayReader, decode, kind_of_text

__all__ = [
    "CUT_OFF",
    "UNREADABLE",
    "ArrayReader",
    "Damage",
    "decode",
    "kind_of_text",
]
