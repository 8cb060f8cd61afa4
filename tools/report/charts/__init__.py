"""Tables in, drawings out."""

from .cells import cell, heading, kind, short_and_full, shortened
from .charts import CHARTS, what_if
from .drawing import Chart, by_label, data, hover, largest_names, place, ranked, sized, stacked
from .flame_graph import module_time
from .rows import Row, first, largest

__all__ = [
    "CHARTS",
    "Chart",
    "Row",
    "by_label",
    "cell",
    "data",
    "first",
    "heading",
    "hover",
    "kind",
    "largest",
    "largest_names",
    "module_time",
    "place",
    "ranked",
    "short_and_full",
    "shortened",
    "sized",
    "stacked",
    "what_if",
]
