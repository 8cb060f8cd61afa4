"""Files: what is read and written whole or not at all, compressed or not."""

from .alone import fresh_folder, locked
from .compressed import GZIP_MAGIC
from .files import (
    MAX_SIZE,
    STANDARD_STREAM,
    bytes_of,
    decompressing_at_most,
    folder_beside,
    open_input,
    open_output,
    say_opened,
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
    "open_input",
    "open_output",
    "say_opened",
    "state_of",
]
