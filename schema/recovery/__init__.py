"""JSON that may be damaged: a stream of bytes in, its elements and what was lost out.

The readers of traces and of linked files are built on it.
"""

from .damage import CUT_OFF as CUT_OFF, ENDS_EARLY as ENDS_EARLY, UNREADABLE as UNREADABLE, Damage as Damage
from .json_stream import (
    BYTE_ORDER_MARK as BYTE_ORDER_MARK,
    LONGEST_HEAD as LONGEST_HEAD,
    ArrayReader as ArrayReader,
    decode as decode,
    kind_of_text as kind_of_text,
)
from .plain_letters import with_plain_letters as with_plain_letters
from .structure import opening_of as opening_of
