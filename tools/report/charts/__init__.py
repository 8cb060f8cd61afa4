"""Draws tables as charts."""

from .charts import CHARTS as CHARTS
from .drawing import Chart as Chart
from .drawing_library import drawing_library as drawing_library
from .overview_charts import gains as gains, limits as limits, spent as spent
from .units import in_suitable_units as in_suitable_units
