"""Memory in use over time, and the ops that hold it at the peak: of each device, and of the host (-1)."""

from .curves import curves_of as curves_of
from .timeline import memory_timeline as memory_timeline
