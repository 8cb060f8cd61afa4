"""Builds an execution graph from timeline and edges: synthetic nodes, attributes, communication.

What passed between the release of each device activity and its start: the usual latency or gap, and delays.
"""

from .attributes import BuiltGraph as BuiltGraph, GraphEdges as GraphEdges, graph_of as graph_of
from .calling_slices import calling_slices as calling_slices
from .communication import bytes_per_element as bytes_per_element, meaning as meaning, peers as peers
from .communication_columns import COALESCED as COALESCED, CommunicationColumns as CommunicationColumns
from .concurrency_limit import ConcurrencyLimit as ConcurrencyLimit, concurrency_limit as concurrency_limit
from .delays import Delays as Delays, by_cause as by_cause, find_delays as find_delays
from .start_timing import StartTiming as StartTiming, start_timing as start_timing
from .synchronous_launches import with_synchronous_launches as with_synchronous_launches
from .synthetic_nodes import UNRECORDED as UNRECORDED, SyntheticNodes as SyntheticNodes
