"""The host's time: linked ops and calls in, slices, waits and idle time of every thread out."""

from .timeline import IDLE, Timeline, names_of, slice_host

__all__ = [
    "IDLE",
    "Timeline",
    "names_of",
    "slice_host",
]
