"""A part of a graph in, a picture of it out: lanes over time, or its data flow, boxes with what flows between them."""

from .calls import Box
from .data_flow import DataFlow, ShownFlow, data_flow, path_times
from .drawing import lane_names, short_name
from .flow_picture import draw_flow
from .lane_picture import LOOKS, REASONS, draw_lanes, looks
from .replay_timeline import write_timeline
from .views import PICTURED, Selection, median_step, select, view, write_view
