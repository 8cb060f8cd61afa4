"""The execution graph: columns in memory, protobuf messages in a file, JSON for people.

`ExecutionGraph` is the model; its `read` and `write` handle files. `execution_graph.proto` is the contract with
simulators.
"""

from .et_file import read_bytes as read_bytes, read_frames as read_frames
from .execution_graph import (
    Change as Change,
    ConvertReport as ConvertReport,
    ExecutionGraph as ExecutionGraph,
    TargetChanges as TargetChanges,
    digraph_of as digraph_of,
    read_et as read_et,
)
from .json_files import graph_to_json as graph_to_json, json_to_graph as json_to_graph
from .nodes import (
    ATTRIBUTES as ATTRIBUTES,
    CONCURRENCY_LIMIT as CONCURRENCY_LIMIT,
    DATA_WAIT_WITHOUT_PROFILER_NS as DATA_WAIT_WITHOUT_PROFILER_NS,
    DEVICE_NAME as DEVICE_NAME,
    RANKS_OF_GROUP as RANKS_OF_GROUP,
    STEP_START as STEP_START,
    STEP_WITHOUT_PROFILER_NS as STEP_WITHOUT_PROFILER_NS,
    STEPS as STEPS,
    CollectiveType as CollectiveType,
    Column as Column,
    Delay as Delay,
    DependencyKind as DependencyKind,
    NodeType as NodeType,
    TensorText as TensorText,
)
from .wire import varint as varint
