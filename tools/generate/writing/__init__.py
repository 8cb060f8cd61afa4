"""A simulated run in, the files that the profiler would have written out."""

from .chrome import Rows
from .files import RankFiles, write_traces
from .identity import correlation, identify
from .shown import shown

__all__ = [
    "RankFiles",
    "Rows",
    "correlation",
    "identify",
    "shown",
    "write_traces",
]
