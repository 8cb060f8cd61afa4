"""Files: what is read and written whole or not at all, compressed or not."""

from .alone import fresh_folder as fresh_folder, locked as locked, make_folder as make_folder
from .files import (
    ACTING as ACTING,
    BOLD as BOLD,
    GZIP_MAGIC as GZIP_MAGIC,
    MAX_SIZE as MAX_SIZE,
    NORMAL as NORMAL,
    STANDARD_STREAM as STANDARD_STREAM,
    bytes_of as bytes_of,
    decompressing_at_most as decompressing_at_most,
    note_input as note_input,
    open_input as open_input,
    open_output as open_output,
    protecting_inputs as protecting_inputs,
    put_in_place as put_in_place,
    state_of as state_of,
    write_items as write_items,
)
