"""A linked file in, the linked trace out: a piece of nodes at a time becomes columns, ids become rows."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, compress, count
from operator import attrgetter
from typing import Any

import numpy as np

from ..columns import ABSENT, Int32, Int64, Numbering, Strings, rows_of
from ..errors import DataError
from ..io import open_input
from ..progress import Advanced, unseen
from ..recovery import ArrayReader, decode
from ..traces import Attr, InexactTime, integers, nanoseconds
from .check import contradiction
from .layout import INTEGER_ATTRIBUTES, CallTable, ExactFile, ExactNode, HandOverTable, LinkedFile, Node, WaitTable
from .linked_trace import (
    Activities,
    Calls,
    DeviceWaits,
    Found,
    HandOvers,
    HostWaits,
    LinkedTrace,
    LinkReport,
    Ops,
    TraceInfo,
)

ATTRIBUTE_NAMES = (*(attribute.name for attribute in INTEGER_ATTRIBUTES), "op_schema")
SCHEMA_NUMBER = len(INTEGER_ATTRIBUTES)


def read_linked(path: str, advanced: Advanced = unseen) -> LinkedTrace:
    """Reads a linked trace, ours or chakra_trace_link's; `advanced` is told of the bytes. Raises DataError when it is none."""
    nodes = _Nodes()
    with open_input(path) as stream:
        reader: ArrayReader[Node] = ArrayReader(stream, path, "nodes", Node, advanced)
        for text, piece in reader:
            nodes.add(piece, partial(decode, text, list[ExactNode], path))
    top = decode(reader.document, LinkedFile, path)
    if bytes(top.events):
        raise DataError(
            f"{path}: a device trace; link it with its host trace first: trace-link --device-trace {path} …"
        )
    nodes.add(top.nodes, lambda: decode(reader.document, ExactFile, path).nodes)
    if not nodes.timed:
        kind = "a host trace that was never linked" if len(nodes) else "holds no nodes"
        raise DataError(f"{path}: {kind}; make a linked trace with trace-link first")
    try:
        linked = _linked(path, top, nodes)
    except (KeyError, IndexError) as error:
        raise DataError(f"{path}: inconsistent linked trace: {error} is referred to but not there") from error
    if wrong := contradiction(linked):
        raise DataError(f"{path}: inconsistent linked trace: {wrong}; link the traces again")
    return linked


class _Table:
    """A table of nodes on its way: what the pieces have for each of its columns."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: dict[str, list[Int64]] = defaultdict(list)
        self._codes: dict[str, list[Int32]] = defaultdict(list)
        self._numbering: dict[str, Numbering[str]] = defaultdict(Numbering)

    def add(self, nodes: Sequence[Node], start: Int64, inclusive: Int64, exclusive: Int64) -> None:
        """What ops and activities both have."""
        self.count += len(nodes)
        end = np.where(start == ABSENT, ABSENT, start + np.where(inclusive == ABSENT, 0, inclusive))
        for name, times in (("start", start), ("end", end), ("exclusive", exclusive)):
            self._parts[name].append(times)
        self.integers("id", [node.id for node in nodes])
        self.integers("parent_id", [_parent(node) for node in nodes])
        self.integers("communication", [node.communication for node in nodes])
        self.texts("name", [node.name for node in nodes])

    def integers(self, name: str, values: Sequence[int] | Int64) -> None:
        self._parts[name].append(np.asarray(values, np.int64))

    def texts(self, name: str, values: list[str]) -> None:
        self._codes[name].append(self._numbering[name].codes(values, len(values)))

    def column(self, name: str) -> Int64:
        return np.concatenate(self._parts[name])

    def strings(self, name: str) -> Strings:
        return Strings(np.concatenate(self._codes[name]), list(self._numbering[name]))


class _Nodes:
    """Ops and activities on their way to columns."""

    def __init__(self) -> None:
        self.ops, self.activities = _Table(), _Table()
        self.timed = False
        self.recorded_by_host: list[bool] = []
        self.inputs: list[bytes] = []
        self.outputs: list[bytes] = []
        self.extra: dict[int, dict[str, Any]] = {}
        self.attribute_names = Numbering(zip(ATTRIBUTE_NAMES, count(), strict=False))
        self.waits: list[tuple[int, int]] = []
        """Rows of activities and the ids that they wait for."""

    def __len__(self) -> int:
        return self.ops.count + self.activities.count

    def add(self, nodes: Sequence[Node], exact: Callable[[], Sequence[Node]]) -> None:
        """Adds a piece; `exact` decodes it again with exact times."""
        try:
            times = _times(nodes)
        except InexactTime:
            nodes = exact()
            times = _times(nodes)
        self.timed |= bool((times[0] != ABSENT).any())
        is_activity = np.array([node.cat is not None for node in nodes], np.bool_)
        for mask, table, add in (
            (~is_activity, self.ops, self._add_ops),
            (is_activity, self.activities, self._add_activities),
        ):
            chosen = list(compress(nodes, mask.tolist()))
            add(chosen)
            table.add(chosen, *(column[mask] for column in times))

    def _add_ops(self, nodes: list[Node]) -> None:
        self._add_attributes([node.attrs for node in nodes])
        self.ops.integers("thread", [ABSENT if node.thread is None else node.thread for node in nodes])
        self.recorded_by_host += [node.recorded_by is None for node in nodes]
        self.inputs += [bytes(node.inputs) for node in nodes]
        self.outputs += [bytes(node.outputs) for node in nodes]

    def _add_attributes(self, attributes: list[list[Attr]]) -> None:
        """The ops' attributes as columns; those without a column stay in `extra`."""
        row = np.repeat(np.arange(len(attributes)), np.array([len(of_op) for of_op in attributes], np.int64))
        every = list(chain.from_iterable(attributes))
        code = self.attribute_names.codes([attribute.name for attribute in every], len(every))
        value = np.empty(len(every), object)
        value[:] = [attribute.value for attribute in every]
        for number, (name, _, missing) in enumerate(INTEGER_ATTRIBUTES):
            column = np.full(len(attributes), missing, np.int64)
            column[row[code == number]] = integers(value[code == number].tolist(), missing)
            self.ops.integers(name, column)
        schema = np.full(len(attributes), "", object)
        schema[row[code == SCHEMA_NUMBER]] = value[code == SCHEMA_NUMBER]
        self.ops.texts("op_schema", [text if type(text) is str else "" for text in schema.tolist()])
        for place in np.flatnonzero(code > SCHEMA_NUMBER).tolist():
            self.extra.setdefault(self.ops.count + int(row[place]), {})[every[place].name] = value[place]

    def _add_activities(self, nodes: list[Node]) -> None:
        for name in ("device", "stream", "correlation", "graph_node", "call"):
            self.activities.integers(name, list(map(attrgetter(name), nodes)))
        self.activities.texts("category", [node.cat or "" for node in nodes])
        for row, node in enumerate(nodes, self.activities.count):
            self.waits += [(row, source) for source in node.sync_dep or ()]


def _times(nodes: Sequence[Node]) -> list[Int64]:
    """Starts, inclusive and exclusive durations in ns. Raises InexactTime."""
    return [_nanoseconds([getattr(node, name) for node in nodes]) for name in ("ts", "inclusive_dur", "exclusive_dur")]


def _nanoseconds(stamps: list[int | float | None]) -> Int64:
    """Of µs stamps, ABSENT where there is none."""
    times = np.full(len(stamps), ABSENT, np.int64)
    given = np.array([stamp is not None for stamp in stamps], np.bool_)
    times[given] = nanoseconds([stamp for stamp in stamps if stamp is not None])
    return times


def _parent(node: Node) -> int:
    above = node.ctrl_deps
    return (above[0] if above else -1) if isinstance(above, list) else -1 if above is None else above


def _linked(path: str, top: LinkedFile, nodes: _Nodes) -> LinkedTrace:
    ops = _ops(nodes)
    op_row = rows_of(ops.id, nodes.activities.column("parent_id"))
    ours = top.calls is not None
    activities = _activities(nodes.activities, op_row, assumed=not ours)
    report = top.link_report or LinkReport(host_ops=len(ops), activities=len(activities), linked=len(activities))
    if not ours:
        report.remarks.append(
            "no calls in the linked trace: activities are launched at their op's end or their start, the earlier one"
        )
    return LinkedTrace(
        info=top.trace or TraceInfo(schema=top.schema, pid=top.pid if top.pid is not None else -1, source_host=path),
        ops=ops,
        calls=_assumed_calls(activities, ops) if top.calls is None else _calls(top.calls, ops.id),
        activities=activities,
        device_waits=_device_waits(top.device_waits, nodes.waits, activities.id),
        host_waits=_host_waits(top.host_waits, activities.id),
        hand_overs=_hand_overs(top.hand_overs),
        communications=top.communications,
        groups=top.groups,
        report=report,
    )


def _ops(nodes: _Nodes) -> Ops:
    table = nodes.ops
    thread = table.column("thread")
    return Ops(
        id=table.column("id"),
        parent_id=table.column("parent_id"),
        name=table.strings("name"),
        thread=np.where(thread == ABSENT, table.column("tid"), thread),
        start=table.column("start"),
        end=table.column("end"),
        exclusive=table.column("exclusive"),
        recorded_by_host=np.array(nodes.recorded_by_host, np.bool_),
        op_schema=table.strings("op_schema"),
        inputs=nodes.inputs,
        outputs=nodes.outputs,
        extra=nodes.extra,
        communication_row=table.column("communication"),
        **{attribute.name: table.column(attribute.name) for attribute in INTEGER_ATTRIBUTES},
    )


def _activities(table: _Table, op_row: Int64, assumed: bool) -> Activities:
    device, call = table.column("device"), table.column("call")
    if assumed:
        device, call = np.maximum(device, 0), np.where(op_row >= 0, np.arange(table.count), -1)
    return Activities(
        id=table.column("id"),
        name=table.strings("name"),
        category=table.strings("category"),
        device=device,
        stream=table.column("stream"),
        start=table.column("start"),
        end=table.column("end"),
        correlation=table.column("correlation"),
        graph_node=table.column("graph_node"),
        call_row=call,
        op_row=op_row,
        communication_row=table.column("communication"),
    )


def _calls(table: CallTable, op_ids: Int64) -> Calls:
    return Calls(
        name=Strings(np.array(table.name, np.int32), table.names),
        thread=np.array(table.thread, np.int64),
        start=np.array(table.start_ns, np.int64),
        end=np.array(table.end_ns, np.int64),
        correlation=np.array(table.correlation, np.int64),
        op_row=_rows_or_none(op_ids, table.op),
    )


def _assumed_calls(activities: Activities, ops: Ops) -> Calls:
    """One launch per activity, at its op's end or its own start, the earlier one."""
    op, start = activities.op_row, activities.start
    known = op >= 0
    moment = start.copy()
    moment[known] = np.maximum(np.minimum(ops.end[op[known]], start[known]), ops.start[op[known]])
    thread = np.where(known, ops.thread[op], 0) if len(ops) else np.zeros(len(op), np.int64)
    return Calls(Strings.of("launch" for _ in op), thread, moment, moment.copy(), np.zeros(len(op), np.int64), op)


def _device_waits(table: WaitTable | None, sync_deps: list[tuple[int, int]], ids: Int64) -> DeviceWaits:
    """Those of the table, or those that chakra_trace_link found, where they are between activities."""
    if table:
        found = Strings.of(found.value for found in table.found)
        return DeviceWaits(_rows_or_none(ids, table.source), _rows(ids, table.of), found)
    target, source = np.array(sync_deps, np.int64).reshape(-1, 2).T
    source = rows_of(ids, source)
    known = source >= 0
    return DeviceWaits(source[known], target[known], Strings.of(Found.RECORD.value for _ in range(known.sum())))


def _host_waits(table: WaitTable | None, ids: Int64) -> HostWaits:
    table = table or WaitTable([], [], [])
    return HostWaits(
        np.array(table.of, np.int64),
        _rows_or_none(ids, table.source),
        _column_of_times(table.since_ns),
        Strings.of(found.value for found in table.found),
    )


def _hand_overs(table: HandOverTable | None) -> HandOvers:
    table = table or HandOverTable([], [], [], [], [], [])
    return HandOvers(
        np.array(table.source_thread, np.int64),
        np.array(table.source_ns, np.int64),
        np.array(table.target_thread, np.int64),
        np.array(table.target_ns, np.int64),
        _column_of_times(table.waiting_since_ns),
        Strings.of(found.value for found in table.found),
    )


def _column_of_times(times: list[int | None]) -> Int64:
    return np.array([ABSENT if time is None else time for time in times], np.int64)


def _rows(ids: Int64, wanted: list[int]) -> Int64:
    """The rows of these ids. Raises KeyError for one that is not there."""
    rows = rows_of(ids, np.array(wanted, np.int64))
    if (missing := np.flatnonzero(rows < 0)).size:
        raise KeyError(wanted[missing[0]])
    return rows


def _rows_or_none(ids: Int64, wanted: list[int]) -> Int64:
    """The same, with -1 for a negative id."""
    rows = np.full(len(wanted), -1, np.int64)
    given = [place for place, identity in enumerate(wanted) if identity >= 0]
    rows[given] = _rows(ids, [wanted[place] for place in given])
    return rows
