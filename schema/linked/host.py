"""Typed records of host traces (PyTorch Execution Trace) of all versions, and what their nodes list, as columns."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

Raw = msgspec.Raw
EMPTY_LIST = Raw(b"[]")
NO_TENSORS = b'{"values":[],"shapes":[],"types":[]}'
"""The arguments or results of an op that has none."""
GROUP_INIT = "process_group:init"
"""Is in the name of ops that only describe process groups."""
FRAME = "[pytorch|profiler|execution_"
"""How names of nodes begin that stand for the process or a thread."""
THREAD_ROOTS = f"{FRAME}trace|thread]", f"{FRAME}graph|thread]"
"""The names of nodes that the ops of a thread descend from."""
WINDOW = "execgraph_window"
"""The key under which a trace of `capture` says that it was recorded without the other: "host" or "device"."""


class Attr(msgspec.Struct, gc=False):
    """An attribute of a node, as schemas from 1.0.2 on list them; `value` as it stands in the file."""

    name: str
    type: Any = ""
    value: Any = None


class TensorLists(msgspec.Struct):
    """Parallel lists over an op's arguments as JSON texts; that of strides is empty where a version has none."""

    values: Raw = EMPTY_LIST
    shapes: Raw = EMPTY_LIST
    types: Raw = EMPTY_LIST
    strides: Raw = Raw()


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
    window: Any = msgspec.field(name=WINDOW, default="")


def listed_attributes(
    nodes: Sequence[list[Attr]], expected: tuple[str, ...]
) -> tuple[dict[str, list[Any]], dict[int, dict[str, Any]]]:
    """Returns the expected attributes of each node by name, None where it lists none, and further ones by row; of these
    such whose value is an empty text count as not there.
    """
    names = [attr.name for attr in nodes[0]] if nodes else []
    size = len(names)
    listed = [*chain.from_iterable(attrs for attrs in nodes if len(attrs) == size)]
    values = [attr.value for attr in listed]
    alike = (
        tuple(names[: len(expected)]) == expected
        and all(values[index::size].count("") * size == len(listed) for index in range(len(expected), size))
        and [attr.name for attr in listed] == names * (len(listed) // size)
    )
    columns = {name: values[index::size] if alike else [] for index, name in enumerate(expected)}
    further: dict[int, dict[str, Any]] = {}
    for row, attrs in enumerate(nodes):
        if not alike or len(attrs) != size:
            by_name = {attr.name: attr.value for attr in attrs}
            for name, column in columns.items():
                column.insert(row, by_name.pop(name, None))
            if additional := {name: value for name, value in by_name.items() if value != ""}:
                further[row] = additional
    return columns, further
