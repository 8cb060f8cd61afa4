"""What `import execgraph` gives."""

from .converter import ConvertReport, Options, convert
from .linker import DeviceTrace, HostTrace, link, read_device_trace, read_host_trace, read_linked
from .schema.comm_groups import read_groups, write_groups
from .schema.errors import DataError
from .schema.graph import CollectiveType, Delay, DependencyKind, ExecutionGraph, NodeType, TargetChanges, read_graph
from .schema.linked import LinkedTrace, write_linked
from .tools.capture import capture
from .tools.replay import MakespanRange, Replay, WhatIf, replay, replay_ranks, what_if

__all__ = [
    "CollectiveType",
    "ConvertReport",
    "DataError",
    "Delay",
    "DependencyKind",
    "DeviceTrace",
    "ExecutionGraph",
    "HostTrace",
    "LinkedTrace",
    "MakespanRange",
    "NodeType",
    "Options",
    "Replay",
    "TargetChanges",
    "WhatIf",
    "capture",
    "convert",
    "link",
    "read_device_trace",
    "read_graph",
    "read_groups",
    "read_host_trace",
    "read_linked",
    "replay",
    "replay_ranks",
    "what_if",
    "write_groups",
    "write_linked",
]
