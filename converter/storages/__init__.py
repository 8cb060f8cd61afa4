"""What the host trace tells of storages: which bytes of them ops name, and from when to when each one lives."""

from .lifetimes import Lifetimes, Steps, highest_within, lifetimes, live_bytes
from .named_ranges import HOST, Ranges, named_ranges
from .tensor_bytes import ByteRange, byte_ranges

__all__ = [
    "HOST",
    "ByteRange",
    "Lifetimes",
    "Ranges",
    "Steps",
    "byte_ranges",
    "highest_within",
    "lifetimes",
    "live_bytes",
    "named_ranges",
]
