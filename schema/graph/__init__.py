"""The execution graph: columns in memory, protobuf messages in a file, JSON for people.

`ExecutionGraph` is the model, its `read` and `write` are the file; `execution_graph.proto` is the contract with simulators.
"""

from .attributes import ATTRIBUTES
from .execution_graph import (
    DEVICE_NAME,
    RANKS_OF_GROUP,
    ROOM,
    CollectiveType,
    Column,
    ConvertReport,
    Delay,
    DependencyKind,
    ExecutionGraph,
    NodeType,
    TargetChanges,
    TensorText,
)
from .framing import FrameBlock, read_bytes, read_frames
from .json_form import METADATA, NODE, Form, FormError
from .message_checks import MessageChecks
from .varints import varint, varint_lengths
from .wire import WireError

__all__ = [
    "ATTRIBUTES",
    "DEVICE_NAME",
    "METADATA",
    "NODE",
    "RANKS_OF_GROUP",
    "ROOM",
    "CollectiveType",
    "Column",
    "ConvertReport",
    "Delay",
    "DependencyKind",
    "ExecutionGraph",
    "Form",
    "FormError",
    "FrameBlock",
    "MessageChecks",
    "NodeType",
    "TargetChanges",
    "TensorText",
    "WireError",
    "read_bytes",
    "read_frames",
    "varint",
    "varint_lengths",
]
