"""What the host trace tells of storages: which bytes of them ops name, and from when to when each one lives."""

from .lifetimes import (
    Lifetimes as Lifetimes,
    Steps as Steps,
    highest_within as highest_within,
    lifetimes as lifetimes,
    live_bytes as live_bytes,
)
from .named_ranges import HOST as HOST, Ranges as Ranges, named_ranges as named_ranges
from .tensor_bytes import ByteRange as ByteRange, byte_ranges as byte_ranges
