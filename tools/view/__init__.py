"""A part of a graph in, a picture of it out.

The data flow of a graph: calls of ops and what they launched, in boxes by module and op, with what flows between.
"""

from .boxes import Box as Box
from .calls import Calls as Calls, TensorTexts as TensorTexts, calls_of as calls_of
from .data_flow import (
    DataFlow as DataFlow,
    ShownFlow as ShownFlow,
    data_flow as data_flow,
    path_times as path_times,
)
from .flow_picture import draw_flow as draw_flow
from .graph_view import (
    Selection as Selection,
    View as View,
    calls_of_module as calls_of_module,
    calls_of_op as calls_of_op,
    median_step as median_step,
    rows_of_step as rows_of_step,
    view as view,
    with_neighbours as with_neighbours,
)
from .lane_picture import LOOKS as LOOKS, draw_lanes as draw_lanes, looks as looks
from .names import lane_names as lane_names, short_name as short_name
from .replay_timeline import write_timeline as write_timeline
from .write_view import (
    PICTURED as PICTURED,
    select as select,
    write_dot as write_dot,
    write_graphml as write_graphml,
    write_view as write_view,
)
