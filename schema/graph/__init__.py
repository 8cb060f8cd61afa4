"""The execution graph: columns in memory, protobuf in files, which is the contract with simulators, JSON for people."""

from .et_file import read_frames
from .execution_graph import Change, ConvertReport, ExecutionGraph, TargetChanges, digraph_of, read_et
from .json_files import graph_to_json, json_to_graph
from .nodes import (
    ATTRIBUTES, CHANGED_BY, CONCURRENCY_LIMIT, DATA_WAIT_WITHOUT_PROFILER_NS, DEVICE_NAME, LOSSES, MEASURED_BESIDE,
    RANKS_OF_GROUP, STEP_START, STEP_WITHOUT_PROFILER_NS, STEPS, UNPROFILED, CollectiveType, Column, Delay, DependencyKind, NodeType,
    TensorText,
)  # fmt: skip
from .wire import varint
