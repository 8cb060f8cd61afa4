"""Changes to the nodes and edges of a graph: order, lanes, removal of nodes that keeps what depended on
them in order.
"""

from .chain_gaps import chain_gaps as chain_gaps
from .circles import order_through_circles as order_through_circles
from .device_only import COMMUNICATION as COMMUNICATION, SILENT as SILENT, without_host as without_host
from .lane_clocks import known_after as known_after
from .lanes import lanes_of as lanes_of, whole_microseconds as whole_microseconds
from .order import check as check, deduplicated as deduplicated, topological_order as topological_order
from .rewiring import (
    NO_EDGES as NO_EDGES,
    control_edges as control_edges,
    data_edges as data_edges,
    edited_graph as edited_graph,
    recorded_edges as recorded_edges,
    rows_of_graph as rows_of_graph,
    spliced as spliced,
    take_rows as take_rows,
    used as used,
)
from .uncovered_time import uncovered as uncovered
