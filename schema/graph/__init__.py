"""The execution graph: columns in memory, protobuf messages in a file, JSON for people.

`ExecutionGraph` is the model; its `read` and `write` handle files. `execution_graph.proto` is the contract with
simulators.
"""

from .attributes import ATTRIBUTES as ATTRIBUTES
from .execution_graph import (
    DEVICE_NAME as DEVICE_NAME,
    RANKS_OF_GROUP as RANKS_OF_GROUP,
    ROOM as ROOM,
    CollectiveType as CollectiveType,
    Column as Column,
    ConvertReport as ConvertReport,
    Delay as Delay,
    DependencyKind as DependencyKind,
    ExecutionGraph as ExecutionGraph,
    NodeType as NodeType,
    TargetChanges as TargetChanges,
    TensorText as TensorText,
)
from .framing import FrameBlock as FrameBlock, read_bytes as read_bytes, read_frames as read_frames
from .json_form import METADATA as METADATA, NODE as NODE, Form as Form, FormError as FormError
from .message_checks import MessageChecks as MessageChecks
from .varints import varint as varint, varint_lengths as varint_lengths
from .wire import WireError as WireError
