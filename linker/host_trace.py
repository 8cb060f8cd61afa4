"""Reads a host trace (PyTorch Execution Trace, any schema) into columns. Node order is the file's; ids are looked up, never assumed."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from ..schema import host
from ..schema.columns import Int64, Strings
from ..schema.command import progress_bytes
from ..schema.errors import DataError
from ..schema.files import open_input
from ..schema.json_stream import ArrayReader, decode

INTEGERS = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
DEFAULTS = {"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 0, "fw_tid": 0}
GROUP_INIT = "process_group:init"
ROOT_NODE = re.compile(r"\[pytorch\|profiler\|execution_(graph|trace)\|(process|thread)\]")


@dataclass(slots=True)
class HostTrace:
    """n nodes. `inputs` and `outputs` are the JSON texts {"values", "shapes", "types"} of each node's arguments.

    `extra` holds, per row, the attributes that only some nodes have: those of `record_param_comms`, and kernel back ends.
    """

    path: str
    schema: str
    pid: int | None
    time: str
    start_ts: float
    finish_ts: float
    id: Int64
    parent: Int64
    name: Strings
    schema_text: Strings
    rf_id: Int64
    fw_parent: Int64
    seq_id: Int64
    scope: Int64
    tid: Int64
    fw_tid: Int64
    inputs: list[bytes]
    outputs: list[bytes]
    extra: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.id)


def read_host_trace(path: str) -> HostTrace:
    """Reads `path` (JSON, gzip accepted). Raises DataError when it is no host trace; memory is that of the columns and one piece."""
    columns: dict[str, list[Any]] = defaultdict(list)
    with open_input(path) as stream, progress_bytes("read host trace", None) as bar:
        reader: ArrayReader[msgspec.Raw] = ArrayReader(stream, path, "nodes", msgspec.Raw, bar.update)
        for piece, _ in reader:
            _append(columns, piece, path)
    top = decode(reader.document, host.HostFile, path)
    if top.nodes is None:
        found = "a device trace (it has traceEvents)" if bytes(top.events) else 'JSON without "nodes"'
        raise DataError(f"{path}: {found}; expected a PyTorch Execution Trace, see --host-trace and --device-trace")
    _append(columns, b"[" + b",".join(bytes(node) for node in top.nodes) + b"]", path)
    if not columns["id"]:
        raise DataError(f"{path}: the host trace has no nodes; was anything recorded?")
    return _trace(path, top, columns)


def _append(columns: dict[str, list[Any]], piece: bytes, path: str) -> None:
    if re.search(rb'"rf_id"\s*:', piece):
        _append_flat(columns, decode(piece, list[host.FlatNode], path))
    else:
        _append_nodes(columns, decode(piece, list[host.Node], path))


def _append_flat(columns: dict[str, list[Any]], nodes: list[host.FlatNode]) -> None:
    for name in ("id", "name", "parent", "op_schema", *INTEGERS):
        columns[name] += map(attrgetter(name), nodes)
    text = b'{"values":%b,"shapes":%b,"types":%b}'
    columns["inputs"] += [text % (bytes(n.inputs), bytes(n.input_shapes), bytes(n.input_types)) for n in nodes]
    columns["outputs"] += [text % (bytes(n.outputs), bytes(n.output_shapes), bytes(n.output_types)) for n in nodes]


def _append_nodes(columns: dict[str, list[Any]], nodes: list[host.Node]) -> None:
    for node in nodes:
        attributes = {attr.name: attr.value for attr in node.attrs}
        for name in INTEGERS:
            columns[name].append(attributes.pop(name, DEFAULTS[name]))
        columns["op_schema"].append(attributes.pop("op_schema", ""))
        rest = {name: value for name, value in attributes.items() if value != ""}
        if rest:
            columns["extra"].append((len(columns["id"]), rest))
        columns["id"].append(node.id)
    columns["name"] += map(attrgetter("name"), nodes)
    columns["parent"] += [
        n.ctrl_deps[0] if isinstance(n.ctrl_deps, list) and n.ctrl_deps else n.ctrl_deps for n in nodes
    ]
    columns["inputs"] += [bytes(n.inputs) or b'{"values":[],"shapes":[],"types":[]}' for n in nodes]
    columns["outputs"] += [bytes(n.outputs) or b'{"values":[],"shapes":[],"types":[]}' for n in nodes]


def _trace(path: str, top: host.HostFile, columns: dict[str, list[Any]]) -> HostTrace:
    def integers(name: str) -> Int64:
        try:
            return np.array([value if isinstance(value, int) else -1 for value in columns[name]], np.int64)
        except OverflowError:
            return np.array([value if -(2**63) <= value < 2**63 else -1 for value in columns[name]], np.int64)

    return HostTrace(
        path=path,
        schema=top.schema,
        pid=top.pid,
        time=top.time,
        start_ts=top.start_ts,
        finish_ts=top.finish_ts or 0,
        id=integers("id"),
        parent=integers("parent"),
        name=Strings.of(columns["name"]),
        schema_text=Strings.of(columns["op_schema"]),
        rf_id=integers("rf_id"),
        fw_parent=integers("fw_parent"),
        seq_id=integers("seq_id"),
        scope=integers("scope"),
        tid=integers("tid"),
        fw_tid=integers("fw_tid"),
        inputs=columns["inputs"],
        outputs=columns["outputs"],
        extra=dict(columns["extra"]),
    )
