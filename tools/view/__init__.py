"""A part of a graph in, a picture of it out.

The data flow of a graph: calls of ops and what they launched, in boxes by module and op, with what flows between.
"""

from .boxes import Box as Box
from .calls import Calls as Calls, calls_of as calls_of
from .chosen_calls import (
    calls_of_module as calls_of_module,
    calls_of_op as calls_of_op,
    median_step as median_step,
    rows_of_step as rows_of_step,
    with_neighbours as with_neighbours,
)
from .data_flow import DataFlow as DataFlow, data_flow as data_flow, path_times as path_times
from .flow_picture import draw_flow as draw_flow
from .flow_wording import (
    figures_of as figures_of,
    full_text as full_text,
    kind_of as kind_of,
    label_of as label_of,
    link_text as link_text,
    share_of_path as share_of_path,
)
from .flows import TensorTexts as TensorTexts
from .graph_formats import write_dot as write_dot, write_graphml as write_graphml
from .graph_view import Selection as Selection, View as View, view as view
from .kernel_names import short_name as short_name
from .lane_names import lane_names as lane_names
from .lane_picture import LOOKS as LOOKS, draw_lanes as draw_lanes, looks as looks
from .layers import layered as layered, links as links, open_boxes as open_boxes, weight as weight
from .placement import phases_of as phases_of
from .replay_timeline import write_timeline as write_timeline
from .write_view import PICTURED as PICTURED, select as select, write_view as write_view
