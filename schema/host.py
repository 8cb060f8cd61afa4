"""Typed records of the host trace (PyTorch Execution Trace) in its two layouts: flat (1.0.1) and with attributes (1.0.2 on)."""

from typing import Any

import msgspec

Raw = msgspec.Raw
EMPTY_LIST = Raw(b"[]")


class Attr(msgspec.Struct, gc=False):
    name: str
    type: str = ""
    value: Any = None


class TensorLists(msgspec.Struct):
    """Parallel lists over an op's arguments, left as JSON text until somebody needs them."""

    values: Raw = EMPTY_LIST
    shapes: Raw = EMPTY_LIST
    types: Raw = EMPTY_LIST
    strides: Raw = EMPTY_LIST


class Node(msgspec.Struct):
    """A node of schema 1.0.2 and later; `ctrl_deps` is the one id of the calling op."""

    id: int
    name: str = ""
    ctrl_deps: int | list[int] | None = None
    inputs: Raw = msgspec.field(default_factory=Raw)
    outputs: Raw = msgspec.field(default_factory=Raw)
    attrs: list[Attr] = []


class FlatNode(msgspec.Struct):
    """A node of schema 1.0.1."""

    id: int
    name: str = ""
    parent: int | None = None
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0
    op_schema: str = ""
    inputs: Raw = EMPTY_LIST
    input_shapes: Raw = EMPTY_LIST
    input_types: Raw = EMPTY_LIST
    outputs: Raw = EMPTY_LIST
    output_shapes: Raw = EMPTY_LIST
    output_types: Raw = EMPTY_LIST


class HostFile(msgspec.Struct):
    """The top level without its nodes."""

    schema: str = ""
    pid: int | None = None
    time: str = ""
    start_ts: int | float = 0
    finish_ts: int | float | None = None
    nodes: list[Raw] | None = None
    events: Raw = msgspec.field(name="traceEvents", default_factory=Raw)
