"""Reads a host trace (PyTorch Execution Trace, any schema) into columns. Nodes are in the order of the file."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...schema.arguments import InputFile, path_of
from ...schema.columns import (
    ABSENT,
    BytesColumn,
    BytesColumnBuilder,
    Categorical,
    CategoricalBuilder,
    Int64,
    IntegerBuilder,
    JsonRecords,
    JsonRecordsBuilder,
    Summary,
    SummaryRepr,
    is_group_start,
    rows_in_circles,
)
from ...schema.counts import Counts
from ...schema.errors import Damage, DataError
from ...schema.io import open_input
from ...schema.json_stream import ArrayReader, kind_of_text
from ...schema.linked import (
    FOREVER,
    LARGEST_ID,
    NO_TENSORS,
    host,
    integer,
    integer_list,
    integers,
    listed_attributes,
    plain_arguments,
    usable_arguments,
)
from ...schema.progress import OnProgress, unseen
from ...schema.reasons import Reason

NEWEST_SCHEMA = (1, 1, 1)
INTEGERS = {"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 0, "fw_tid": 0}
"""Attributes that every node has, as its members or in `attrs`, and the values of missing ones."""
SCHEMA = "op_schema"
ATTRIBUTES = (*INTEGERS, SCHEMA)
SPLITS = ("in_split_size", "out_split_size")
ROOT_NODE = re.compile(r"\[pytorch\|profiler\|execution_(graph|trace)\|(process|thread)\]")
DEVICE_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


@dataclass(slots=True, repr=False)
class HostTrace(SummaryRepr):
    """A host trace of n nodes. `inputs` and `outputs` are the JSON texts {"values", "shapes", "types"} of their
    arguments.

    `extra` holds, per row, the attributes that only some nodes have: those of `record_param_comms`, and kernel back
    ends. `skipped` counts nodes that could not be read, `oddities` decisions that the reader took; `notes` are whole
    sentences about the file, which `ends_early` if its end is missing.

    >>> import execgraph as eg
    >>> host = eg.read_host_trace("tests/data/training/host_rank0.json.gz")
    >>> len(host), host.name[0]
    (204, '[pytorch|profiler|execution_trace|thread]')
    """

    path: str
    schema: str
    pid: int | None
    time: str
    start_ts: float
    finish_ts: float
    id: Int64
    parent: Int64
    name: Categorical
    schema_text: Categorical
    rf_id: Int64
    fw_parent: Int64
    seq_id: Int64
    scope: Int64
    tid: Int64
    fw_tid: Int64
    inputs: BytesColumn
    outputs: BytesColumn
    extra: JsonRecords[dict[str, Any]] = field(default_factory=lambda: JsonRecords.of({}, dict[str, Any]))
    skipped: Counts = field(default_factory=Counts)
    oddities: Counts = field(default_factory=Counts)
    notes: list[str] = field(default_factory=list)
    ends_early: bool = False

    def __len__(self) -> int:
        return len(self.id)

    @staticmethod
    def without_nodes() -> "HostTrace":
        """Returns an empty trace, for a device trace that has no host trace."""
        none, no_text = np.empty(0, np.int64), Categorical.of(())
        return HostTrace(
            "", "", None, "", 0, 0, none, none, no_text, no_text, *(none,) * 6, BytesColumn.of(()), BytesColumn.of(())
        )

    def summary(self) -> Summary:
        """Returns the path of the file and the number of its nodes."""
        return Summary(f"HostTrace: {self.path}, schema {self.schema}", {"nodes": f"{len(self):,}"})


def read_host_trace(path: InputFile, *, strict: bool = False, on_progress: OnProgress = unseen) -> HostTrace:
    """Reads a host trace: JSON, or gzip or zstd of it.

    Of a damaged file what can be mended, or comes before a cut, is used; the trace's `notes` say what was wrong. Memory
    is that of the columns and one piece of the file.

    >>> import execgraph as eg
    >>> len(eg.read_host_trace("tests/data/training/host_rank0.json.gz"))
    204

    Args:
        path: The file to read, or the open file.
        strict: Whether to refuse a damaged file.
        on_progress: Is called with the number of bytes read since the last call.

    Raises:
        DataError: The file is no host trace or holds no node; or it is damaged, with `strict`.
    """
    with path_of(path) as path:
        damage = Damage(path, "host nodes", strict)
        nodes = _Nodes()
        with open_input(path, protected=True) as stream:
            reader: ArrayReader[host.Node] = ArrayReader(stream, path, "nodes", host.Node, on_progress, damage=damage)
            for _, piece in reader:
                nodes.add(piece)
        if not reader.has_array or reader.document.lstrip()[:1] == b"[":
            raise DataError(
                f"{path}: {_what_it_is(reader.document)}; expected a PyTorch Execution Trace, as "
                "ExecutionTraceObserver writes it"
            )
        if not len(nodes):
            seen = f" {damage.findings[0]}" if damage.findings else ""
            raise DataError(f"{path}: the host trace has no nodes; was anything recorded?{seen}")
        top = reader.top_level(host.HostFile)
        trace = nodes.trace(path, top)
        trace.skipped.add(damage.dropped)
        trace.oddities.add(damage.oddities)
        trace.notes += [*damage.notes, *_schema_notes(path, top.schema)]
        trace.ends_early = damage.ends_early
        return trace


def _what_it_is(document: bytes) -> str:
    is_device = DEVICE_EVENTS.search(document) or document.lstrip()[:1] == b"["
    return "a device trace (it has traceEvents)" if is_device else kind_of_text(document, "nodes")


def _schema_notes(path: str, schema: str) -> list[str]:
    """Returns a note on a schema newer than all known ones, which is read as the newest known one."""
    version = re.match(r"(\d+)\.(\d+)\.(\d+)", schema)
    if version and tuple(map(int, version.groups())) <= NEWEST_SCHEMA:
        return []
    newest = ".".join(map(str, NEWEST_SCHEMA))
    what = f"schema {schema[:40]!r} is not known here" if schema else "says no schema version"
    return [f"{path}: {what}; read by the rules of {newest}"]


class _Nodes:
    """Collects the nodes of the file as columns, piece by piece."""

    def __init__(self) -> None:
        self._integers: dict[str, IntegerBuilder] = defaultdict(IntegerBuilder)
        self._categoricals = {"name": CategoricalBuilder(), "op_schema": CategoricalBuilder()}
        self._inputs, self._outputs = BytesColumnBuilder(), BytesColumnBuilder()
        self._extra: JsonRecordsBuilder[dict[str, Any]] = JsonRecordsBuilder(dict[str, Any])
        self._oddities = Counts()

    def __len__(self) -> int:
        return len(self._categoricals["name"])

    def add(self, nodes: list[host.Node]) -> None:
        attributes = self._attributes(nodes)
        for name, missing in INTEGERS.items():
            self._integers[name].add(integers(attributes[name], missing))
        self._integers["id"].add(integers([node.id for node in nodes], ABSENT))
        self._integers["parent"].add(integers([_parent(node) for node in nodes], -1))
        self._categoricals["op_schema"].add([text if type(text) is str else "" for text in attributes[SCHEMA]])
        self._categoricals["name"].add([node.name or "" for node in nodes])
        inputs, outputs = [bytes(node.inputs) for node in nodes], [bytes(node.outputs) for node in nodes]
        for row, (node, of_inputs, of_outputs) in enumerate(zip(nodes, inputs, outputs, strict=True)):
            if of_inputs[:1] != b"{":
                inputs[row] = self._arguments(of_inputs, node.input_shapes, node.input_types)
            if of_outputs[:1] != b"{":
                outputs[row] = self._arguments(of_outputs, node.output_shapes, node.output_types)
        arguments = plain_arguments(inputs + outputs)
        self._inputs.add(usable_arguments(arguments[: len(nodes)], self._oddities))
        self._outputs.add(usable_arguments(arguments[len(nodes) :], self._oddities))

    def _attributes(self, nodes: list[host.Node]) -> dict[str, list[Any]]:
        """Returns the attributes that every node has, by name, and adds those that only some nodes have to `extra`."""
        columns, further = listed_attributes([node.attrs for node in nodes], ATTRIBUTES)
        for row in [row for row, node in enumerate(nodes) if not node.attrs]:
            for name, column in columns.items():
                column[row] = getattr(nodes[row], name)
        lists = [attributes.get(name) for attributes in further.values() for name in SPLITS]
        self._oddities[Reason.UNREADABLE_LISTS] += sum(integer_list(value) is None for value in lists)
        self._extra.add({len(self) + row: attributes for row, attributes in further.items()})
        return columns

    def _arguments(self, values: bytes, shapes: host.Raw, types: host.Raw) -> bytes:
        """Returns the three lists of a flat node as one JSON object."""
        if values[:1] == b"[":
            return b'{"values":%b,"shapes":%b,"types":%b}' % (values, bytes(shapes), bytes(types))
        self._oddities[Reason.NODES_WITHOUT_ARGUMENT_LISTS] += bool(values)
        return NO_TENSORS

    def trace(self, path: str, top: host.HostFile) -> HostTrace:
        def column(name: str) -> Int64:
            return self._integers[name].column()

        ids, parents, renumbered = _unique_ids(column("id"), column("parent"))
        in_circles = rows_in_circles(ids, parents)
        parents[in_circles] = -1
        attributes: dict[str, Any] = {name: column(name) for name in INTEGERS}
        pid = integer(top.pid, -1)
        return HostTrace(
            path=path,
            schema=top.schema,
            pid=pid if pid >= 0 else None,
            time=top.time,
            start_ts=_clock(top.start_ts),
            finish_ts=_clock(top.finish_ts),
            id=ids,
            parent=parents,
            name=self._categoricals["name"].column(),
            schema_text=self._categoricals["op_schema"].column(),
            **attributes,
            inputs=self._inputs.column(),
            outputs=self._outputs.column(),
            extra=self._extra.column(),
            oddities=self._oddities.add(
                {Reason.NODES_WITHOUT_ID: renumbered, Reason.NODES_IN_CIRCLES: len(in_circles)}
            ),
        )


def _clock(stamp: float | None) -> float:
    """Returns a time in ms, 0 for none and for times beyond any clock."""
    return stamp if stamp is not None and abs(stamp) < FOREVER else 0


def _parent(node: host.Node) -> Any:
    parent = node.ctrl_deps if node.ctrl_deps is not None else node.parent
    return parent[0] if isinstance(parent, list) and parent else parent


def _unique_ids(ids: Int64, parents: Int64) -> tuple[Int64, Int64, int]:
    """Returns unique ids from 0 to LARGEST_ID, the parents by these ids, and how many ids are new. O(n log n).

    Ids out of range, and all but the first of equal ids, are replaced by new ones beyond the largest. Children follow a
    parent whose id was out of range; children of equal ids stay with the first.
    """
    order = np.argsort(ids, kind="stable")
    out_of_range = (ids < 0) | (ids > LARGEST_ID)
    needs_new = out_of_range.copy()
    needs_new[order[~is_group_start(ids[order])]] = True
    if not needs_new.any():
        return ids, parents, 0
    rows, moved_rows = np.flatnonzero(needs_new), np.flatnonzero(out_of_range)
    largest = int(ids[~needs_new].max(initial=0))
    new = ids.copy()
    new[rows] = largest + 1 + np.arange(len(rows))
    moved = dict(zip(ids[moved_rows][::-1].tolist(), new[moved_rows][::-1].tolist(), strict=True))
    # neither an id that was not recorded nor -1, which outermost nodes have as their parent, is the id of a parent
    for none in (ABSENT, -1):
        moved.pop(none, None)
    has_moved_parent = np.isin(parents, list(moved))
    parents = parents.copy()
    parents[has_moved_parent] = [moved[parent] for parent in parents[has_moved_parent].tolist()]
    return new, parents, len(rows)
