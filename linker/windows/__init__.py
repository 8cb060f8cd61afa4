"""Cuts a part out of a run: steps, a window of time or an annotation."""

from .cut import TracePart as TracePart, cut as cut, of_both as of_both
from .windows import (
    EVERYTHING as EVERYTHING,
    Window as Window,
    given_window as given_window,
    host_period as host_period,
    period_of as period_of,
    trace_start as trace_start,
    whole as whole,
)
