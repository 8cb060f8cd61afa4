"""Files: what is read and written whole or not at all, compressed or not."""

from .compressed import GZIP_MAGIC
from .files import STANDARD_STREAM, folder_beside, open_input, open_output

__all__ = [
    "GZIP_MAGIC",
    "STANDARD_STREAM",
    "folder_beside",
    "open_input",
    "open_output",
]
