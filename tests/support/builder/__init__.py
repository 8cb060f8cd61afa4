"""A few readable lines make a host trace and a device trace that belong together: see `TraceBuilder`."""

from .layouts import LAYOUTS
from .records import Activity, Call, Collective, Event, Group, Op, Tensor
from .timeline import TraceBuilder

__all__ = ["LAYOUTS", "Activity", "Call", "Collective", "Event", "Group", "Op", "Tensor", "TraceBuilder"]
