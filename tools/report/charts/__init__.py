"""Tables in, drawings out."""

from .charts import CHARTS
from .drawing import Chart
from .drawing_library import drawing_library
from .overview_charts import gains, limits, spent

__all__ = ["CHARTS", "Chart", "drawing_library", "gains", "limits", "spent"]
