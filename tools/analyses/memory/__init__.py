"""How much memory was in use over time and whose it was at the peak: of each device, and of the host (-1)."""

from .curves import RECORDED as RECORDED, Curve as Curve, curves_of as curves_of
from .timeline import memory_timeline as memory_timeline
