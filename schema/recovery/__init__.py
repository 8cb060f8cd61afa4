"""JSON that may be damaged: a stream of bytes in, its elements and what was lost out.

The readers of traces and of linked files are built on it.
"""

from .damage import CUT_OFF, UNREADABLE, Damage
from .json_stream import BYTE_ORDER_MARK, LONGEST_HEAD, ArrayReader, decode, kind_of_text
from .plain_letters import with_plain_letters
from .structure import opening_of

__all__ = [
    "BYTE_ORDER_MARK",
    "CUT_OFF",
    "LONGEST_HEAD",
    "UNREADABLE",
    "ArrayReader",
    "Damage",
    "decode",
    "kind_of_text",
    "opening_of",
    "with_plain_letters",
]
