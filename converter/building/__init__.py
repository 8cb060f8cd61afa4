"""From the timeline and the edges to an execution graph: synthetic nodes, attributes, communication."""

from .attributes import graph_of
from .calling_slices import calling_slices
from .communication import bytes_per_element, meaning, peers
from .communication_columns import COALESCED, CommunicationColumns
from .synchronous_launches import block_on_activities
from .synthetic_nodes import UNRECORDED, Annex

__all__ = [
    "COALESCED",
    "UNRECORDED",
    "Annex",
    "CommunicationColumns",
    "block_on_activities",
    "bytes_per_element",
    "calling_slices",
    "graph_of",
    "meaning",
    "peers",
]
