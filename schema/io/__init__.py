"""Files: what is read and written whole or not at all, compressed or not."""

from .alone import fresh_folder, locked
from .compressed import GZIP_MAGIC
from .files import (
    MAX_SIZE,
    STANDARD_STREAM,
    bytes_of,
    decompressing_at_most,
    folder_beside,
    note_input,
    open_input,
    open_output,
    protecting_inputs,
    put_in_place,
    state_of,
)
from .plain import ACTING

__all__ = [
    "ACTING",
    "GZIP_MAGIC",
    "MAX_SIZE",
    "STANDARD_STREAM",
    "bytes_of",
    "decompressing_at_most",
    "folder_beside",
    "fresh_folder",
    "locked",
    "note_input",
    "open_input",
    "open_output",
    "protecting_inputs",
    "put_in_place",
    "state_of",
]
