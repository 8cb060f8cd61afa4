"""Files: what is read and written whole or not at all, compressed or not."""

from .alone import fresh_folder, locked, make_folder
from .files import (
    ACTING, BOLD, GZIP_MAGIC, MAX_SIZE, NORMAL, STANDARD_STREAM, bytes_of, decompressing_at_most, is_compressed, note_input,
    open_input, open_output, path_is, protecting_inputs, put_in_place, state_of, without_link,
    write_items,
)  # fmt: skip
