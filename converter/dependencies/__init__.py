"""The rules that make the edges. Their names, read in order, explain the graph.

Each rule is a pure function from a run to edges between its nodes. What is left unexplained afterwards, `inferred` and `carry_in`
look at.
"""

from .event_wait import event_wait
from .graph_launch import graph_launch
from .hand_over import hand_over
from .host_sync import host_sync
from .launch import launch
from .program_order import program_order
from .stream_order import stream_order
from .tensor_flow import tensor_flow

RULES = (program_order, launch, stream_order, graph_launch, event_wait, host_sync, tensor_flow, hand_over)

__all__ = ["RULES"]
