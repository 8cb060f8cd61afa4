"""Files: what is read and written whole or not at all, compressed or not."""

from .compressed import GZIP_MAGIC
from .files import STANDARD_STREAM, open_input, open_output
from .frames import Values, nullable, to_pandas, to_polars
from .shown import Figures, Shown, counted, microseconds

__all__ = [
    "GZIP_MAGIC",
    "STANDARD_STREAM",
    "Figures",
    "Shown",
    "Values",
    "counted",
    "microseconds",
    "nullable",
    "open_input",
    "open_output",
    "to_pandas",
    "to_polars",
]
