"""Builds an execution graph from timeline and edges: synthetic nodes, attributes, communication."""

from .attributes import BuiltGraph as BuiltGraph, GraphEdges as GraphEdges, graph_of as graph_of
from .calling_slices import calling_slices as calling_slices
from .communication import bytes_per_element as bytes_per_element, meaning as meaning, peers as peers
from .communication_columns import COALESCED as COALESCED, CommunicationColumns as CommunicationColumns
from .synchronous_launches import with_synchronous_launches as with_synchronous_launches
from .synthetic_nodes import UNRECORDED as UNRECORDED, SyntheticNodes as SyntheticNodes
