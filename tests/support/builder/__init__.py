"""A few readable lines make a host trace and a device trace that belong together: see `TraceBuilder`."""

from support.builder.records import LAYOUTS, Activity, Call, Collective, Event, Group, Op, Tensor
from support.builder.timeline import TraceBuilder

__all__ = ["LAYOUTS", "Activity", "Call", "Collective", "Event", "Group", "Op", "Tensor", "TraceBuilder"]
