"""The rules that make the edges of a graph.

Each rule is a pure function from a conversion context to edges between its nodes. `inferred` runs after them, on the
activities that start late by their edges. Lateness that remains becomes delays.
"""

from collections.abc import Callable

from ..edges import Edges
from ..timeline import ConversionContext
from .rules import (
    LOOKED_BACK as LOOKED_BACK,
    calling_slices as calling_slices,
    event_wait,
    graph_launch,
    handoff,
    host_sync,
    inferred as inferred,
    launch as launch,
    launching_node as launching_node,
    program_order,
    stream_order,
    with_synchronous_launches as with_synchronous_launches,
)
from .tensor_flow import tensor_flow

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
