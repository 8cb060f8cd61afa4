"""A part of a run: steps, a window of time or an annotation in, what belongs to the part and what carries into it out."""

from .cut import Part, cut, of_both
from .windows import EVERYTHING, Window, host_period, period_of, trace_start, whole

__all__ = [
    "EVERYTHING",
    "Part",
    "Window",
    "cut",
    "host_period",
    "of_both",
    "period_of",
    "trace_start",
    "whole",
]
