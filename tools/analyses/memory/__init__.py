"""How much memory was in use over time and whose it was at the peak: of each device, and of the host (-1)."""

from .curves import RECORDED, Curve, curves_of
from .timeline import memory_timeline

__all__ = ["RECORDED", "Curve", "curves_of", "memory_timeline"]
