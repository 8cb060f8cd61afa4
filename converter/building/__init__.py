"""From the timeline and the edges to an execution graph: synthetic nodes, attributes, communication."""

from .attributes import Built, graph_of
from .calling_slices import calling_slices
from .communication import bytes_per_element, meaning, peers
from .communication_columns import COALESCED, CommunicationColumns
from .synchronous_launches import with_synchronous_launches
from .synthetic_nodes import UNRECORDED, SyntheticNodes

__all__ = [
    "COALESCED",
    "UNRECORDED",
    "Built",
    "CommunicationColumns",
    "SyntheticNodes",
    "bytes_per_element",
    "calling_slices",
    "graph_of",
    "meaning",
    "peers",
    "with_synchronous_launches",
]
