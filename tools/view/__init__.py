"""A part of a graph in, a picture of it out."""

from .flow import (
    Box as Box,
    DataFlow as DataFlow,
    TensorTexts as TensorTexts,
    data_flow as data_flow,
    draw_flow as draw_flow,
    figures_of as figures_of,
    full_text as full_text,
    kind_of as kind_of,
    label_of as label_of,
    layered as layered,
    link_text as link_text,
    links as links,
    median_step as median_step,
    open_boxes as open_boxes,
    path_times as path_times,
    phases_of as phases_of,
    share_of_path as share_of_path,
    weight as weight,
)
from .graph_formats import write_dot as write_dot, write_graphml as write_graphml
from .graph_view import Selection as Selection, View as View, view as view
from .kernel_names import short_name as short_name
from .lane_names import lane_names as lane_names
from .lane_picture import LOOKS as LOOKS, draw_lanes as draw_lanes, looks as looks
from .replay_timeline import write_timeline as write_timeline
from .write_view import PICTURED as PICTURED, select as select, write_view as write_view
