"""The rules that make the edges of a graph.

Each rule is a pure function from a conversion context to edges between its nodes. `inferred` runs after them, on the
activities that start late by their edges. Lateness that remains becomes delays.
"""

from collections.abc import Callable

from ..context import ConversionContext, Edges
from .graph_launch import graph_launch
from .handoff import handoff
from .inferred import CUT_OFF as CUT_OFF, inferred as inferred
from .orders import launch as launch, launching_node as launching_node, program_order, stream_order
from .tensor_flow import tensor_flow
from .waits import event_wait, host_sync

Rule = Callable[[ConversionContext], Edges]

RULES: tuple[Rule, ...] = (
    program_order,
    launch,
    stream_order,
    graph_launch,
    event_wait,
    host_sync,
    tensor_flow,
    handoff,
)
