"""Tables in, drawings out."""

from .cells import cell, heading, shortened
from .charts import CHARTS, what_if
from .drawing import Chart, by_label, data, hover, largest_names, place, ranked, sized, stacked
from .rows import Row, first_rows, largest_rows

__all__ = [
    "CHARTS",
    "Chart",
    "Row",
    "by_label",
    "cell",
    "data",
    "first_rows",
    "heading",
    "hover",
    "largest_names",
    "largest_rows",
    "place",
    "ranked",
    "shortened",
    "sized",
    "stacked",
    "what_if",
]
