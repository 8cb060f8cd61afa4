"""Typed records of the host trace (PyTorch Execution Trace).

One record serves all versions: what differs is which keys are there, flat ones (1.0.1) or `attrs` (1.0.2 on); unknown
ones are skipped.
"""

from typing import Any

import msgspec

Raw = msgspec.Raw
EMPTY_LIST = Raw(b"[]")
NO_TENSORS = b'{"values":[],"shapes":[],"types":[]}'
"""The arguments or results of an op that has none."""
GROUP_INIT = "process_group:init"
"""Is in the name of ops that only describe process groups."""


class Attr(msgspec.Struct, gc=False):
    """An attribute of a node, as schemas from 1.0.2 on list them; `value` as it stands in the file."""

    name: str
    type: Any = ""
    value: Any = None


class TensorLists(msgspec.Struct):
    """Parallel lists over an op's arguments, left as JSON text until somebody needs them."""

    values: Raw = EMPTY_LIST
    shapes: Raw = EMPTY_LIST
    types: Raw = EMPTY_LIST
    strides: Raw = EMPTY_LIST


class Node(msgspec.Struct, gc=False):
    """A node. `ctrl_deps` (`parent` in flat nodes) is the calling op's id; arguments are `TensorLists` or values."""

    id: Any
    name: str | None = ""
    ctrl_deps: Any = None
    parent: Any = None
    inputs: Raw = Raw()
    outputs: Raw = Raw()
    attrs: list[Attr] = []
    rf_id: Any = None
    fw_parent: Any = None
    seq_id: Any = None
    scope: Any = None
    tid: Any = None
    fw_tid: Any = None
    op_schema: Any = ""
    input_shapes: Raw = EMPTY_LIST
    input_types: Raw = EMPTY_LIST
    output_shapes: Raw = EMPTY_LIST
    output_types: Raw = EMPTY_LIST


class HostFile(msgspec.Struct):
    """The top level beside its nodes."""

    schema: str = ""
    pid: Any = None
    time: str = ""
    start_ts: int | float = 0
    finish_ts: int | float | None = None
