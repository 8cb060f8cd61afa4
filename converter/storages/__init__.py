"""Storages in the host trace: the bytes of them that ops name, and the time for which each one lives."""

from ...schema.traces import HOST as HOST
from .lifetimes import (
    ByteCurve as ByteCurve,
    Lifetimes as Lifetimes,
    highest_within as highest_within,
    lifetimes as lifetimes,
    live_bytes as live_bytes,
)
from .named_ranges import (
    Ranges as Ranges,
    named_ranges as named_ranges,
)
