"""Reads a linked file: nodes become columns a piece of the file at a time, ids become rows. Refuses files whose tables
contradict each other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..columns import (
    ABSENT,
    BytesColumnBuilder,
    CallRows,
    Categorical,
    CategoricalBuilder,
    CommunicationRows,
    Int32,
    Int64,
    IntegerBuilder,
    JsonRecordsBuilder,
    OpRows,
    rows_in_circles,
    rows_of,
)
from ..errors import DataError, Remedy, Spelled
from ..io import open_input
from ..json_stream import ArrayReader, decode
from ..progress import OnProgress, unseen
from .arguments import plain_arguments
from .host import NO_TENSORS, Attr, listed_attributes
from .layout import (
    INTEGER_ATTRIBUTES,
    ExactFile,
    ExactNode,
    LinkedFile,
    Node,
    as_table,
    assumed_calls,
    calls,
    waits_of_nodes,
)
from .linked_trace import Activities, DeviceWaits, HostWaits, LinkedTrace, LinkReport, Ops, ThreadHandoffs, TraceInfo
from .numbers import InexactTime, integers, nanoseconds

LATEST = 1 << 62
"""ns; sums and differences of two times up to it stay in 64 bits."""
MOST_APART = 1 << 61
CHECKED = ("ops", "calls", "activities", "device_waits", "host_waits", "handoffs")
"""The tables whose columns must be of one length."""
OLDER_NAMES = {
    "calls": {"places"},
    "device_waits": {"found"},
    "host_waits": {"found"},
    "trace": {"carried"},
    "link_report": {"noted", "remarks"},
}
"""Members that were renamed and that every such file has, by the table that they are in."""
SCHEMA = "op_schema"
OBJECT = ord("{")
PYTHON_COLUMNS = ("module", "python_function")
ATTRIBUTE_NAMES = (*(attribute.name for attribute in INTEGER_ATTRIBUTES), SCHEMA)
ACTIVITY_COLUMNS = ("id", "stream", "start", "end", "correlation", "graph_node", "size", "bandwidth")


def contradiction(linked: LinkedTrace) -> str:
    """Returns in words what is wrong with the trace, an empty text if nothing is. O(n log n)."""
    return next(_contradictions(linked), "")


def _contradictions(linked: LinkedTrace) -> Iterator[str]:
    for name, table in ((name, getattr(linked, name)) for name in CHECKED):
        sizes = {len(column) for column in _columns(table)}
        if len(sizes) > 1:
            yield f"the columns of {name} have {min(sizes)} to {max(sizes)} rows"
    activities, calls = linked.activities, linked.calls
    for what, rows, count in (
        ("calls", activities.call_row, len(calls)),
        ("calls", linked.host_waits.call_row, len(calls)),
        ("communications", activities.communication_row, len(linked.communications)),
        ("communications", linked.ops.communication_row, len(linked.communications)),
        _codes("names of calls", calls.name),
        *(_codes("call sites of calls", column) for column in (calls.module, calls.python_function) if column),
    ):
        if (wrong := rows[(rows < -1) | (rows >= count)]).size:
            yield f"row {wrong[0]} of the {what} is referred to, and there are {count}"
    if (calls.name.codes < 0).any():
        yield "a call has no name"
    if (linked.host_waits.call_row < 0).any():
        yield "a wait of the host is in no call"
    ids, occurrences = np.unique(np.concatenate((linked.ops.id, activities.id)), return_counts=True)
    if (occurrences > 1).any():
        yield f"{occurrences[occurrences > 1][0]} nodes have the id {ids[occurrences > 1][0]}"
    if untimed := int((activities.start == ABSENT).sum()):
        yield f"{untimed} activities have no time"
    yield from _wrong_times(linked)


def _codes(what: str, column: Categorical) -> tuple[str, Int64 | Int32, int]:
    return what, column.codes, len(column.table)


def _columns(table: Any) -> list[Any]:
    """Returns the columns with a value for each row, that is all but `extra`."""
    columns = [getattr(table, name) for name in table.__slots__ if name != "extra"]
    columns = [column for column in columns if column is not None]
    return [column.codes if isinstance(column, Categorical) else column for column in columns]


def _wrong_times(linked: LinkedTrace) -> Iterator[str]:
    first, last = LATEST, -LATEST
    for name, table in (("ops", linked.ops), ("calls", linked.calls), ("activities", linked.activities)):
        timed = table.start != ABSENT
        start, end = table.start[timed], table.end[timed]
        if (np.maximum(np.abs(start), np.abs(end)) > LATEST).any():
            yield f"times of {name} are beyond any clock"
        elif (end < start).any():
            yield f"{int((end < start).sum())} {name} end before they begin"
        first, last = min(first, int(start.min(initial=LATEST))), max(last, int(end.max(initial=-LATEST)))
    handoffs = linked.handoffs
    for column in (handoffs.source_time, handoffs.target_time, handoffs.waiting_since, linked.host_waits.since):
        times = column[column != ABSENT]
        first, last = min(first, int(times.min(initial=LATEST))), max(last, int(times.max(initial=-LATEST)))
    # other linkers mix times since 1970 with others
    if last - first > MOST_APART:
        yield "its times are further apart than any clock shows"


def has_older_names(document: bytes) -> bool:
    """Returns whether a linked file has members that were renamed since, which readers would not see."""
    top = _members(document)
    return "hand_overs" in top or any(
        names & _members(top[table]).keys() for table, names in OLDER_NAMES.items() if table in top
    )


def _members(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Returns the members of a JSON object, none of any other text."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


class NodeTable:
    """The columns of ops or activities, which grow piece by piece."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: dict[str, IntegerBuilder] = defaultdict(IntegerBuilder)
        self._strings: dict[str, CategoricalBuilder] = defaultdict(CategoricalBuilder)

    def add(self, nodes: Sequence[Node], times: "_Times") -> None:
        """Adds the columns that ops and activities both have."""
        self.count += len(nodes)
        length = np.where(times.inclusive == ABSENT, 0, times.inclusive)
        end = np.where(times.start == ABSENT, ABSENT, times.start + length)
        for name, column in (("start", times.start), ("end", end), ("exclusive", times.exclusive)):
            self._parts[name].add(column)
        self.integers("id", [node.id for node in nodes])
        self.integers("parent_id", _parents([node.ctrl_deps for node in nodes]))
        self.integers("communication", [node.communication for node in nodes])
        self.strings("name", [node.name for node in nodes])

    def integers(self, name: str, values: Sequence[int] | Int64) -> None:
        """Adds a piece of an integer column."""
        self._parts[name].add(np.asarray(values, np.int64))

    def strings(self, name: str, values: list[str]) -> None:
        """Adds a piece of a column of strings."""
        self._strings[name].add(values)

    def column(self, name: str) -> Int64:
        """Returns the whole integer column."""
        return self._parts[name].column()

    def categorical(self, name: str) -> Categorical:
        """Returns the whole column of strings."""
        return self._strings[name].column()


class LinkedNodes:
    """The nodes of a file. `timed` tells whether any node has a time."""

    def __init__(self) -> None:
        self.ops, self.activities = NodeTable(), NodeTable()
        self.timed = False
        self.recorded_by_host: list[bool] = []
        self.inputs, self.outputs = BytesColumnBuilder(), BytesColumnBuilder()
        self.extra: JsonRecordsBuilder[dict[str, Any]] = JsonRecordsBuilder(dict[str, Any])
        self.unusable = 0
        """How many inputs or outputs are no lists."""
        self.modules = False
        """Whether any node has a module or a Python function."""
        self.waits: list[tuple[int, int]] = []
        """Pairs of an activity's row and the id that it waits for."""

    def __len__(self) -> int:
        return self.ops.count + self.activities.count

    def python_columns(self, table: NodeTable) -> tuple[Categorical | None, Categorical | None]:
        """Returns the modules and the Python functions of a table's rows, None if no node has any."""
        if not self.modules:
            return None, None
        module, function = (_without_empty(table.categorical(name)) for name in PYTHON_COLUMNS)
        return module, function

    def add(self, nodes: Sequence[Node], exact: Callable[[], Sequence[Node]]) -> None:
        """Adds a piece of the file; `exact` decodes it again with exact times."""
        try:
            times = _times(nodes)
        except InexactTime:
            nodes = exact()
            times = _times(nodes)
        self.timed |= bool((times.start != ABSENT).any())
        is_activity = np.array([node.cat is not None for node in nodes], np.bool_)
        for mask, table, add in (
            (~is_activity, self.ops, self._add_ops),
            (is_activity, self.activities, self._add_activities),
        ):
            selected = list(compress(nodes, mask.tolist()))
            add(selected)
            for name in PYTHON_COLUMNS:
                values = list(map(attrgetter(name), selected))
                self.modules |= any(values)
                table.strings(name, [value or "" for value in values])
            table.add(selected, _Times(*(column[mask] for column in times)))

    def _add_ops(self, nodes: list[Node]) -> None:
        self._add_attributes([node.attrs for node in nodes])
        self.ops.integers("thread", [ABSENT if node.thread is None else node.thread for node in nodes])
        self.recorded_by_host += [node.recorded_by is None for node in nodes]
        self.inputs.add(plain_arguments(self._arguments([node.inputs for node in nodes])))
        self.outputs.add(plain_arguments(self._arguments([node.outputs for node in nodes])))

    def _arguments(self, arguments: list[msgspec.Raw]) -> list[bytes]:
        texts = [*map(bytes, arguments)]
        for row in [row for row, text in enumerate(texts) if text[0] != OBJECT]:
            self.unusable += 1
            texts[row] = NO_TENSORS
        return texts

    def _add_attributes(self, attributes: list[list[Attr]]) -> None:
        """Adds the ops' attributes to their columns, those without a column to `extra`."""
        columns, further = listed_attributes(attributes, ATTRIBUTE_NAMES)
        for name, _, missing in INTEGER_ATTRIBUTES:
            self.ops.integers(name, integers(columns[name], missing))
        self.ops.strings(SCHEMA, [text if type(text) is str else "" for text in columns[SCHEMA]])
        self.extra.add({self.ops.count + row: extra for row, extra in further.items()})

    def _add_activities(self, nodes: list[Node]) -> None:
        for name in ("device", "stream", "correlation", "graph_node", "size", "bandwidth", "call"):
            self.activities.integers(name, list(map(attrgetter(name), nodes)))
        self.activities.strings("category", [node.cat or "" for node in nodes])
        first = self.activities.count
        self.waits += [(row, each) for row, node in enumerate(nodes, first) if node.sync_dep for each in node.sync_dep]


class _Times(NamedTuple):
    """Starts, and durations with and without called ops, in ns; ABSENT where not recorded."""

    start: Int64
    inclusive: Int64
    exclusive: Int64


def _times(nodes: Sequence[Node]) -> _Times:
    """Returns the times of nodes. Raises InexactTime."""
    names = ("ts", "inclusive_dur", "exclusive_dur")
    return _Times(*(_nanoseconds(list(map(attrgetter(name), nodes))) for name in names))


def _nanoseconds(stamps: list[int | float | None]) -> Int64:
    """Returns times in ns for stamps in µs, ABSENT for none."""
    if None not in stamps:
        return nanoseconds(stamps)
    times = np.full(len(stamps), ABSENT, np.int64)
    has_time = np.array([stamp is not None for stamp in stamps], np.bool_)
    times[has_time] = nanoseconds([stamp for stamp in stamps if stamp is not None])
    return times


def _without_empty(column: Categorical) -> Categorical:
    """Replaces empty strings by none (code -1)."""
    return Categorical(np.where(column.where(bool), column.codes, -1).astype(np.int32), column.table)


def _parents(parents: list[int | list[int] | None]) -> Int64:
    if list in {*map(type, parents)}:
        parents = [next(iter(parent), None) if isinstance(parent, list) else parent for parent in parents]
    return integers(parents, -1)


def read_linked(path: str, on_progress: OnProgress = unseen) -> LinkedTrace:
    """Reads a linked trace, ours or chakra_trace_link's. Raises DataError when the file is none.

    `on_progress` is called with the number of bytes read.
    """
    nodes = LinkedNodes()
    with open_input(path, protected=True) as stream:
        reader: ArrayReader[Node] = ArrayReader(stream, path, "nodes", Node, on_progress)
        for text, piece in reader:
            nodes.add(piece, partial(decode, text, list[ExactNode], path))
    if has_older_names(reader.document):
        raise DataError(f"{path}: was written by an older execgraph: link the traces again")
    top = decode(reader.document, LinkedFile, path)
    if bytes(top.events):
        how = Spelled(f"trace-link HOST.json {path} -o LINKED.json", f'execgraph.link("HOST.json", "{path}")')
        raise DataError(f"{path}: a device trace; link it with its host trace first: ", how)
    nodes.add(top.nodes, lambda: decode(reader.document, ExactFile, path).nodes)
    if not nodes.timed and not (top.calls and top.calls.name):
        kind = "a host trace that was never linked" if len(nodes) else "holds no nodes"
        raise DataError(f"{path}: {kind}; make a linked trace with ", Remedy.LINK, " first")
    try:
        linked = _linked(path, top, nodes)
    except (KeyError, IndexError) as error:
        raise DataError(f"{path}: inconsistent linked trace: {error} is referred to but not there") from error
    if wrong := contradiction(linked):
        raise DataError(f"{path}: inconsistent linked trace: {wrong}; link the traces again")
    return linked


def _linked(path: str, top: LinkedFile, nodes: LinkedNodes) -> LinkedTrace:
    ops = _ops(nodes)
    in_circles = rows_in_circles(ops.id, ops.parent_id)
    ops.parent_id[in_circles] = -1
    op_row = OpRows(rows_of(ops.id, nodes.activities.column("parent_id")))
    ours = top.calls is not None
    activities = _activities(nodes.activities, op_row, assumed=not ours)
    activities.module, activities.python_function = nodes.python_columns(nodes.activities)
    report = top.link_report or LinkReport(host_ops=len(ops), activities=len(activities), linked=len(activities))
    if not ours:
        report.notes.append(
            "no calls in the linked trace: activities are launched at their op's end or their start, the earlier one"
        )
    if nodes.unusable:
        report.notes.append(f"{nodes.unusable} inputs or outputs of ops are no lists and left out")
    if len(in_circles):
        report.notes.append(f"parents that go round in a circle: {len(in_circles)} ops became outermost")
    return LinkedTrace(
        info=top.trace or TraceInfo(schema=top.schema, pid=top.pid if top.pid is not None else -1, source_host=path),
        ops=ops,
        calls=assumed_calls(activities, ops) if top.calls is None else calls(top.calls, ops.id),
        activities=activities,
        device_waits=as_table(DeviceWaits, top.device_waits, activities.id)
        if top.device_waits
        else waits_of_nodes(nodes.waits, activities.id),
        host_waits=as_table(HostWaits, top.host_waits, activities.id),
        handoffs=as_table(ThreadHandoffs, top.handoffs, activities.id),
        communications=top.communications,
        groups=top.groups,
        report=report,
    )


def _ops(nodes: LinkedNodes) -> Ops:
    table = nodes.ops
    thread, (module, function) = table.column("thread"), nodes.python_columns(table)
    return Ops(
        name=table.categorical("name"),
        thread=np.where(thread == ABSENT, table.column("tid"), thread),
        recorded_by_host=np.array(nodes.recorded_by_host, np.bool_),
        op_schema=table.categorical("op_schema"),
        inputs=nodes.inputs.column(),
        outputs=nodes.outputs.column(),
        extra=nodes.extra.column(),
        communication_row=CommunicationRows(table.column("communication")),
        **{name: table.column(name) for name in ("id", "parent_id", "start", "end", "exclusive")},
        **{attribute.name: table.column(attribute.name) for attribute in INTEGER_ATTRIBUTES},
        module=module,
        python_function=function,
    )


def _activities(table: NodeTable, op_row: OpRows, assumed: bool) -> Activities:
    device, call = table.column("device"), table.column("call")
    if assumed:
        device, call = np.maximum(device, 0), np.where(op_row >= 0, np.arange(table.count), -1)
    columns: dict[str, Any] = {name: table.column(name) for name in ACTIVITY_COLUMNS}
    return Activities(
        name=table.categorical("name"),
        category=table.categorical("category"),
        device=device,
        **columns,
        call_row=CallRows(call),
        op_row=op_row,
        communication_row=CommunicationRows(table.column("communication")),
    )
