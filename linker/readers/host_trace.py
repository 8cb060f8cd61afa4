"""Reads a host trace (PyTorch Execution Trace, any schema) into columns. Nodes are in the order of the file."""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...schema import columns, linked
from ...schema.arguments import InputFile, path_of
from ...schema.columns import ABSENT, Int64
from ...schema.errors import Damage, DataError
from ...schema.io import open_input
from ...schema.json_stream import ArrayReader, kind_of_text
from ...schema.linked import NO_TENSORS, host
from ...schema.progress import OnProgress, unseen
from ...schema.reasons import Counts, Reason

NEWEST_SCHEMA = (1, 1, 1)
SPLITS = ("in_split_size", "out_split_size")
ROOT_NODE = re.compile(r"\[pytorch\|profiler\|execution_(graph|trace)\|(process|thread)\]")
DEVICE_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


@dataclass(slots=True, repr=False)
class HostTrace(columns.SummaryRepr):
    """A host trace of n nodes. `inputs` and `outputs` are the JSON texts {"values", "shapes", "types"} of their
    arguments.

    `extra` holds, per row, the attributes that only some nodes have: those of `record_param_comms`, and kernel back
    ends. `skipped` counts nodes that could not be read, `oddities` decisions that the reader took; `notes` are whole
    sentences about the file, which `ends_early` if its end is missing. `window` is "host" where no profiler ran
    meanwhile, "" where the file does not say.

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
    name: columns.Categorical
    schema_text: columns.Categorical
    rf_id: Int64
    fw_parent: Int64
    seq_id: Int64
    scope: Int64
    tid: Int64
    fw_tid: Int64
    inputs: columns.BytesColumn
    outputs: columns.BytesColumn
    extra: columns.RecordsByRow[dict[str, Any]] = field(default_factory=lambda: columns.RecordsByRow.of(dict))
    skipped: Counts = field(default_factory=Counts)
    oddities: Counts = field(default_factory=Counts)
    notes: list[str] = field(default_factory=list)
    ends_early: bool = False
    window: str = ""

    def __len__(self) -> int:
        return len(self.id)

    @property
    def arguments(self) -> linked.Arguments:
        """What `inputs` and `outputs` stand for."""
        return linked.Arguments(self.inputs, self.outputs)

    @staticmethod
    def without_nodes() -> "HostTrace":
        """Returns an empty trace, for a device trace that has no host trace."""
        none, no_text, no_bytes = np.empty(0, np.int64), columns.Categorical.of(()), columns.BytesColumn.of(())
        return HostTrace("", "", None, "", 0, 0, none, none, no_text, no_text, *(none,) * 6, no_bytes, no_bytes)

    def summary(self) -> columns.Summary:
        """Returns the path of the file and the number of its nodes."""
        return columns.Summary(f"HostTrace: {self.path}, schema {self.schema}", {"nodes": f"{len(self):,}"})


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
        damage, nodes = Damage(path, "host nodes", strict), _Nodes()
        with open_input(path, protected=True) as stream:
            reader: ArrayReader[host.Node] = ArrayReader(stream, path, "nodes", host.Node, on_progress, damage=damage)
            for _, piece in reader:
                nodes.add(piece)
        is_list = reader.document.lstrip()[:1] == b"["
        if not reader.has_array or is_list:
            is_device = is_list or DEVICE_EVENTS.search(reader.document)
            what = "a device trace (it has traceEvents)" if is_device else kind_of_text(reader.document, "nodes")
            raise DataError(f"{path}: {what}; expected a PyTorch Execution Trace, as ExecutionTraceObserver writes it")
        if not len(nodes):
            seen = f" {damage.findings[0]}" if damage.findings else ""
            raise DataError(f"{path}: the host trace has no nodes; was anything recorded?{seen}")
        top = reader.top_level(host.HostFile)
        trace = nodes.trace(path, top)
        trace.skipped.add(damage.dropped)
        trace.oddities.add(damage.oddities)
        trace.notes += damage.notes
        version = re.match(r"(\d+)\.(\d+)\.(\d+)", top.schema)
        if not version or tuple(map(int, version.groups())) > NEWEST_SCHEMA:
            what = f"schema {top.schema[:40]!r} is not known here" if top.schema else "says no schema version"
            trace.notes.append(f"{path}: {what}; read by the rules of {'.'.join(map(str, NEWEST_SCHEMA))}")
        trace.ends_early = damage.ends_early
        return trace


class _Nodes:
    """Collects the nodes of the file as columns, piece by piece."""

    def __init__(self) -> None:
        self._columns = columns.TableBuilder(("name", linked.OP_SCHEMA), ("inputs", "outputs"))
        self._extra = columns.RecordBuilder[dict[str, Any]](dict)
        self._oddities = Counts()

    def __len__(self) -> int:
        return len(self._columns)

    def add(self, nodes: list[host.Node]) -> None:
        attributes = linked.attribute_columns(self._attributes(nodes))
        parents = [node.ctrl_deps if node.ctrl_deps is not None else node.parent for node in nodes]
        inputs = [self._arguments(node.inputs, node.input_shapes, node.input_types) for node in nodes]
        outputs = [self._arguments(node.outputs, node.output_shapes, node.output_types) for node in nodes]
        arguments = linked.plain_arguments(inputs + outputs)
        recorded = {
            "id": linked.integers([node.id for node in nodes], ABSENT),
            "parent": linked.parent_ids(parents),
            "name": [node.name or "" for node in nodes],
            "inputs": linked.usable_arguments(arguments[: len(nodes)], self._oddities),
            "outputs": linked.usable_arguments(arguments[len(nodes) :], self._oddities),
        }
        self._columns.add(recorded | attributes)

    def _arguments(self, recorded: host.Raw, shapes: host.Raw, types: host.Raw) -> bytes:
        """Returns the arguments as one JSON object; in a flat node three lists are recorded."""
        values = bytes(recorded)
        if values[:1] == b"{":
            return values
        if values[:1] == b"[":
            return b'{"values":%b,"shapes":%b,"types":%b}' % (values, bytes(shapes), bytes(types))
        self._oddities[Reason.NODES_WITHOUT_ARGUMENT_LISTS] += bool(values)
        return NO_TENSORS

    def _attributes(self, nodes: list[host.Node]) -> dict[str, list[Any]]:
        """Returns the attributes that every node has, by name, and adds those that only some nodes have to `extra`."""
        attributes, further = linked.listed_attributes([node.attrs for node in nodes], linked.ATTRIBUTES)
        for row in [row for row, node in enumerate(nodes) if not node.attrs]:
            for name, column in attributes.items():
                column[row] = getattr(nodes[row], name)
        lists = [node_attributes.get(name) for node_attributes in further.values() for name in SPLITS]
        self._oddities[Reason.UNREADABLE_LISTS] += sum(linked.integer_list(value) is None for value in lists)
        self._extra.add({len(self) + row: attributes for row, attributes in further.items()})
        return attributes

    def trace(self, path: str, top: host.HostFile) -> HostTrace:
        table = self._columns.columns()
        table["id"], table["parent"], renumbered = _unique_ids(table["id"], table["parent"])
        in_circles = columns.rows_in_circles(table["id"], table["parent"])
        table["parent"][in_circles] = -1
        # times in ms, 0 for none and for times beyond any clock
        start, finish = (
            stamp if stamp is not None and abs(stamp) < linked.FOREVER else 0 for stamp in (top.start_ts, top.finish_ts)
        )
        pid = linked.integer(top.pid, -1)
        order = np.arange(len(table["id"]))
        table["name"], repeated = linked.distinct_steps(table["name"], table["tid"], order, order)
        table["schema_text"] = table.pop(linked.OP_SCHEMA)
        trace = HostTrace(path, top.schema, pid if pid >= 0 else None, top.time, start, finish, **table)
        trace.window, trace.extra = top.window if isinstance(top.window, str) else "", self._extra.records()
        circles = Counts({Reason.NODES_WITHOUT_ID: renumbered, Reason.NODES_IN_CIRCLES: len(in_circles)})
        trace.oddities.add(self._oddities, circles, {Reason.REPEATED_STEPS: repeated})
        return trace


def _unique_ids(ids: Int64, parents: Int64) -> tuple[Int64, Int64, int]:
    """Returns unique ids from 0 to LARGEST_ID, the parents by these ids, and how many ids are new. O(n log n)."""
    # ids out of range, and all but the first of equal ids, are replaced by new ones beyond the largest. Children
    # follow a parent whose id was out of range; children of equal ids stay with the first
    order = np.argsort(ids, kind="stable")
    out_of_range = (ids < 0) | (ids > linked.LARGEST_ID)
    needs_new = out_of_range.copy()
    needs_new[order[~columns.is_group_start(ids[order])]] = True
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
    has_moved_parent = columns.isin(parents, list(moved))
    parents = parents.copy()
    parents[has_moved_parent] = [moved[parent] for parent in parents[has_moved_parent].tolist()]
    return new, parents, len(rows)
