"""A part of a graph in, a picture of it out."""

from .graph_formats import write_dot, write_graphml
from .graph_view import Selection, View, lane_names, view
from .kernel_names import short_name
from .lane_picture import LOOKS, draw_lanes, looks

__all__ = [
    "LOOKS",
    "Selection",
    "View",
    "draw_lanes",
    "lane_names",
    "looks",
    "short_name",
    "view",
    "write_dot",
    "write_graphml",
]
