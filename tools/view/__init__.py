"""A part of a graph in, a picture of it out: lanes over time, or its data flow, boxes with what flows between them."""

from .calls import Box as Box
from .data_flow import DataFlow as DataFlow, ShownFlow as ShownFlow, data_flow as data_flow, path_times as path_times
from .drawing import lane_names as lane_names, short_name as short_name
from .flow_picture import draw_flow as draw_flow
from .lane_picture import LOOKS as LOOKS, REASONS as REASONS, draw_lanes as draw_lanes, looks as looks
from .replay_timeline import write_timeline as write_timeline
from .selection import Selection as Selection, median_step as median_step, view as view
from .write_view import PICTURED as PICTURED, select as select, write_view as write_view
