"""The linked trace as a file: JSON in the node layout of host schema 1.1.1, so that Chakra's converter reads it too, our tables beside.

Op nodes carry `ts`, `inclusive_dur` and `exclusive_dur` in µs; activity nodes have `cat`. Calls, waits and hand-overs are tables of
columns after the nodes, times in ns. A file without them, as chakra_trace_link writes it, is read too: its activities are taken to
be launched at the end of their op or when they start, whichever is earlier.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import IO, Any

import msgspec
import numpy as np

from .columns import ABSENT, Int64, Strings
from .command import progress, progress_bytes
from .errors import DataError
from .files import open_input, open_output
from .host import Attr
from .json_stream import ArrayReader, decode
from .linked import (
    Activities,
    Calls,
    Communication,
    DeviceWaits,
    Found,
    HandOvers,
    HostWaits,
    LinkedTrace,
    LinkReport,
    Ops,
    ProcessGroup,
    TraceInfo,
)
from .times import InexactTime, microseconds, nanoseconds

SCHEMA = "1.1.1-chakra.0.0.4"
BLOCK = 4096
Raw = msgspec.Raw
NO_TENSORS = b'{"values":[],"shapes":[],"types":[]}'
INTEGER_ATTRIBUTES = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
ATTRIBUTE_TYPES = {
    "rf_id": "uint64",
    "fw_parent": "uint64",
    "seq_id": "int64",
    "scope": "uint64",
    "tid": "uint64",
    "fw_tid": "uint64",
}


class Node(msgspec.Struct, omit_defaults=True, gc=False):
    """An op, or an activity if it has a `cat`. `call` and `communication` are rows of the tables below."""

    id: int
    name: str
    ctrl_deps: int | list[int] | None
    inputs: Raw
    outputs: Raw
    attrs: Raw
    cat: str | None = None
    ph: str | None = None
    ts: Any = None
    inclusive_dur: Any = None
    exclusive_dur: Any = None
    thread: int | None = None
    device: int = -1
    stream: int = -1
    correlation: int = 0
    graph_node: int = -1
    call: int | None = None
    communication: int = -1
    pg_name: str | None = None
    inter_thread_dep: int | None = None
    sync_dep: list[int] | None = None
    recorded_by: str | None = None


class ReadNode(Node, gc=False):
    """The same for reading, where numbers are checked."""

    ctrl_deps: int | list[int] | None = None
    inputs: Raw = Raw(NO_TENSORS)
    outputs: Raw = Raw(NO_TENSORS)
    attrs: Raw = Raw(b"[]")
    ts: int | float | None = None
    inclusive_dur: int | float | None = None
    exclusive_dur: int | float | None = None


class ExactNode(ReadNode, gc=False):
    """With decimal time stamps, for fractions that a double cannot hold."""

    ts: Decimal | None = None  # type: ignore[assignment]


class CallTable(msgspec.Struct):
    names: list[str]
    name: list[int]
    thread: list[int]
    start_ns: list[int]
    end_ns: list[int]
    correlation: list[int]
    op: list[int]


class WaitTable(msgspec.Struct):
    """Device waits: `of` is an activity id; host waits: a row of the call table. `source` is an activity id, -1 for none."""

    of: list[int]
    source: list[int]
    found: list[Found]
    since_ns: list[int | None] = []


class HandOverTable(msgspec.Struct):
    source_thread: list[int]
    source_ns: list[int]
    target_thread: list[int]
    target_ns: list[int]
    waiting_since_ns: list[int | None]
    found: list[Found]


class LinkedFile(msgspec.Struct):
    """The top level, as it is read and written."""

    schema: str = ""
    pid: int | None = None
    time: str = ""
    start_ts: int | float = 0
    finish_ts: int | float | None = 0
    nodes: list[ReadNode] = []
    trace: TraceInfo | None = None
    calls: CallTable | None = None
    device_waits: WaitTable | None = None
    host_waits: WaitTable | None = None
    hand_overs: HandOverTable | None = None
    communications: list[Communication] = []
    groups: list[ProcessGroup] = []
    link_report: LinkReport | None = None
    events: Raw = msgspec.field(name="traceEvents", default_factory=Raw)


class ExactFile(LinkedFile):
    nodes: list[ExactNode] = []  # type: ignore[assignment]


def write_linked(linked: LinkedTrace, path: str) -> None:
    """Writes the file whole or not at all; a block of nodes is in memory at a time."""
    info = linked.info
    encoder = msgspec.json.Encoder()
    with open_output(path) as out:
        head = {
            "schema": SCHEMA,
            "pid": info.pid,
            "time": info.time,
            "start_ts": info.start_ts,
            "finish_ts": info.finish_ts,
        }
        out.write(encoder.encode(head)[:-1] + b',\n"nodes":[')
        _write_nodes(linked, out, encoder)
        out.write(b"],\n")
        tables = {
            "calls": _call_table(linked),
            "device_waits": _device_wait_table(linked),
            "host_waits": _host_wait_table(linked),
            "hand_overs": _hand_over_table(linked),
            "communications": linked.communications,
            "groups": linked.groups,
            "trace": info,
            "link_report": linked.report,
        }
        out.write(b",\n".join(encoder.encode(name) + b":" + encoder.encode(table) for name, table in tables.items()))
        out.write(b"}\n")


def _write_nodes(linked: LinkedTrace, out: IO[bytes], encoder: msgspec.json.Encoder) -> None:
    total = len(linked.ops) + len(linked.activities)
    with_comma = b"\n"
    block: list[bytes] = []
    nodes = _nodes(linked)
    for node in progress(nodes, "write linked trace", total, "node"):
        block.append(encoder.encode(node))
        if len(block) == BLOCK:
            out.write(with_comma + b",\n".join(block))
            with_comma = b",\n"
            block.clear()
    if block:
        out.write(with_comma + b",\n".join(block))


def _nodes(linked: LinkedTrace) -> Iterator[Node]:
    yield from _op_nodes(linked)
    yield from _activity_nodes(linked)


def _op_nodes(linked: LinkedTrace) -> Iterator[Node]:
    ops = linked.ops
    awaited = _awaited_by_op(linked)
    called = _called_from(linked)
    columns = (
        ops.id,
        ops.name.codes,
        ops.parent_id,
        ops.thread,
        ops.start,
        ops.end,
        ops.exclusive,
        ops.recorded_by_host,
        ops.op_schema.codes,
        ops.communication_row,
    )
    integers = [getattr(ops, name).tolist() for name in INTEGER_ATTRIBUTES]
    lists = [column.tolist() for column in columns]
    for row, (identity, name, parent, thread, start, end, exclusive, by_host, schema, talk) in enumerate(
        zip(*lists, strict=True)
    ):
        node = Node(
            id=identity,
            name=ops.name.table[name],
            ctrl_deps=parent,
            inputs=Raw(ops.inputs[row]),
            outputs=Raw(ops.outputs[row]),
            attrs=_attributes(
                [column[row] for column in integers], ops.op_schema.table[schema], ops.extra.get(row, {})
            ),
            recorded_by=None if by_host else "device",
            sync_dep=awaited.get(row),
            inter_thread_dep=called.get(row),
            communication=talk,
        )
        if start != ABSENT:
            node.thread, node.ts = thread, _number(start)
            node.inclusive_dur, node.exclusive_dur = _number(end - start), _number(exclusive)
        yield node


def _attributes(integers: list[int], schema: str, extra: dict[str, Any]) -> Raw:
    known = [Attr(name, ATTRIBUTE_TYPES[name], value) for name, value in zip(INTEGER_ATTRIBUTES, integers, strict=True)]
    rest = [Attr(name, "string" if isinstance(value, str) else "int64", value) for name, value in extra.items()]
    return Raw(msgspec.json.encode([*known, Attr("op_schema", "string", schema), *rest]))


DEVICE_ATTRIBUTES = _attributes([0, 0, -1, 0, 0, 0], "", {})


def _activity_nodes(linked: LinkedTrace) -> Iterator[Node]:
    activities, ops = linked.activities, linked.ops
    blocked = _blocked_by(linked)
    columns = (
        activities.id, activities.name.codes, activities.category.codes, activities.device, activities.stream, activities.start,
        activities.end, activities.correlation, activities.graph_node, activities.call_row, activities.op_row, activities.communication_row,
    )  # fmt: skip
    op_id = ops.id.tolist()
    row_of = {identity: row for row, identity in enumerate(op_id)}
    for row, (
        identity,
        name,
        category,
        device,
        stream,
        start,
        end,
        correlation,
        graph_node,
        call,
        op,
        talk,
    ) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        with_tensors = talk >= 0 and op >= 0
        yield Node(
            id=identity,
            name=activities.name.table[name],
            ctrl_deps=op_id[op] if op >= 0 else None,
            inputs=Raw(_recorded_tensors(ops, row_of, op)) if with_tensors else Raw(NO_TENSORS),
            outputs=Raw(NO_TENSORS),
            attrs=DEVICE_ATTRIBUTES,
            cat=activities.category.table[category],
            ph="X",
            ts=_number(start),
            inclusive_dur=_number(end - start),
            exclusive_dur=_number(end - start),
            device=device,
            stream=stream,
            correlation=correlation,
            graph_node=graph_node,
            call=call,
            communication=talk,
            pg_name=linked.communications[talk].group if talk >= 0 else None,
            sync_dep=blocked.get(row),
        )


def _recorded_tensors(ops: Ops, row_of: dict[int, int], op: int) -> bytes:
    """The tensors of the communication op around a launch; Chakra's converter takes the size of a collective from them."""
    while ops.inputs[op] == NO_TENSORS:
        above = row_of.get(int(ops.parent_id[op]), op)
        if above == op:
            break
        op = above
    return ops.inputs[op]


def _number(time: int) -> Raw:
    return Raw(microseconds(time).encode())


def _grouped(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    grouped: dict[int, list[int]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return grouped


def _awaited_by_op(linked: LinkedTrace) -> dict[int, list[int]]:
    """Ids of the activities that each op's calls waited for."""
    waits = linked.host_waits
    real = waits.source_row >= 0
    op = linked.calls.op_row[waits.call_row[real]]
    source = linked.activities.id[waits.source_row[real]]
    return _grouped((o, s) for o, s in zip(op.tolist(), source.tolist(), strict=True) if o >= 0)


def _blocked_by(linked: LinkedTrace) -> dict[int, list[int]]:
    """Ids of the activities that each activity's stream was told to wait for."""
    waits = linked.device_waits
    return _grouped(zip(waits.target_row.tolist(), linked.activities.id[waits.source_row].tolist(), strict=True))


def _called_from(linked: LinkedTrace) -> dict[int, int]:
    """For ops that another thread released, the id of that thread's last op before."""
    ops, over = linked.ops, linked.hand_overs
    timed = np.flatnonzero(ops.start != ABSENT)
    by_start = timed[np.lexsort((ops.start[timed], ops.thread[timed]))]
    of_thread = {number: by_start[ops.thread[by_start] == number] for number in np.unique(ops.thread[timed]).tolist()}
    found: dict[int, int] = {}
    columns = (over.source_thread, over.source_time, over.target_thread, over.target_time)
    for source, source_ns, target, target_ns in zip(*(column.tolist() for column in columns), strict=True):
        before, released = of_thread[source], of_thread[target]
        last = int(np.searchsorted(ops.start[before], source_ns)) - 1
        first = int(np.searchsorted(ops.start[released], target_ns))
        if last >= 0 and first < len(released):
            found[int(released[first])] = int(ops.id[before[last]])
    return found


def _call_table(linked: LinkedTrace) -> CallTable:
    calls, ops = linked.calls, linked.ops
    op = np.where(calls.op_row >= 0, ops.id[calls.op_row], -1) if len(ops) else calls.op_row
    columns = (calls.name.codes, calls.thread, calls.start, calls.end, calls.correlation, op)
    return CallTable(calls.name.table, *(column.tolist() for column in columns))


def _device_wait_table(linked: LinkedTrace) -> WaitTable:
    waits, ids = linked.device_waits, linked.activities.id
    return WaitTable(ids[waits.target_row].tolist(), ids[waits.source_row].tolist(), _found(waits.found))


def _host_wait_table(linked: LinkedTrace) -> WaitTable:
    waits, ids = linked.host_waits, linked.activities.id
    source = np.where(waits.source_row >= 0, ids[waits.source_row], -1) if len(ids) else waits.source_row
    return WaitTable(waits.call_row.tolist(), source.tolist(), _found(waits.found), _times(waits.since))


def _hand_over_table(linked: LinkedTrace) -> HandOverTable:
    over = linked.hand_overs
    return HandOverTable(
        over.source_thread.tolist(),
        over.source_time.tolist(),
        over.target_thread.tolist(),
        over.target_time.tolist(),
        _times(over.waiting_since),
        _found(over.found),
    )


def _times(column: Int64) -> list[int | None]:
    return [None if time == ABSENT else time for time in column.tolist()]


def _columns_of_times(times: list[int | None]) -> Int64:
    return np.array([ABSENT if time is None else time for time in times], np.int64)


def _found(texts: Strings) -> list[Found]:
    return [Found(texts.table[code]) for code in texts.codes.tolist()]


def read_linked(path: str) -> LinkedTrace:
    """Reads a linked trace, ours or chakra_trace_link's. Raises DataError when it is none."""
    columns = _NodeColumns()
    with open_input(path) as stream, progress_bytes("read linked trace", None) as bar:
        reader: ArrayReader[ReadNode] = ArrayReader(stream, path, "nodes", ReadNode, bar.update)
        for piece, nodes in reader:
            columns.add(nodes, lambda text=piece: decode(text, list[ExactNode], path))
    top = decode(reader.document, LinkedFile, path)
    if bytes(top.events):
        raise DataError(
            f"{path}: a device trace; link it with its host trace first: trace-link --device-trace {path} …"
        )
    columns.add(top.nodes, lambda: decode(reader.document, ExactFile, path).nodes)
    if not columns.timed:
        kind = "a host trace that was never linked" if columns.ids else "holds no nodes"
        raise DataError(f"{path}: {kind}; make a linked trace with trace-link first")
    try:
        return _linked(path, top, columns)
    except (KeyError, IndexError) as error:
        raise DataError(f"{path}: inconsistent linked trace: {error} is referred to but not there") from error


class _NodeColumns:
    """Ops and activities of a linked file on their way to columns."""

    def __init__(self) -> None:
        self.ops: list[ReadNode] = []
        self.activities: list[ReadNode] = []
        self.times: dict[bool, list[tuple[Int64, Int64, Int64]]] = {True: [], False: []}
        self.timed = False
        self.ids = 0

    def add(self, nodes: list[Any], again: Any) -> None:
        try:
            nanoseconds([node.ts for node in nodes])
        except InexactTime:
            nodes = again()
        for is_activity, rows in ((False, self.ops), (True, self.activities)):
            part = [node for node in nodes if (node.cat is not None) == is_activity]
            start = nanoseconds([node.ts for node in part])
            inclusive = nanoseconds([node.inclusive_dur for node in part])
            exclusive = nanoseconds([node.exclusive_dur for node in part])
            inclusive[inclusive == ABSENT] = 0
            self.times[is_activity].append((start, np.where(start == ABSENT, ABSENT, start + inclusive), exclusive))
            self.timed |= bool((start != ABSENT).any())
            rows += part
        self.ids += len(nodes)

    def start_end_exclusive(self, is_activity: bool) -> list[Int64]:
        return [np.concatenate(column) for column in zip(*self.times[is_activity], strict=True)]


def _linked(path: str, top: LinkedFile, columns: _NodeColumns) -> LinkedTrace:
    ops = _ops(columns)
    op_row = {identity: row for row, identity in enumerate(ops.id.tolist())}
    activity_row = {node.id: row for row, node in enumerate(columns.activities)}
    ours = top.calls is not None
    calls = _calls(top.calls, op_row) if top.calls is not None else _assumed_calls(columns, ops, op_row)
    activities = _activities(columns, op_row, assumed=not ours)
    device_waits = (
        _wait_columns(top.device_waits, activity_row, activity_row)
        if top.device_waits
        else _sync_deps(columns, activity_row)
    )
    host = top.host_waits or WaitTable([], [], [])
    host_waits = HostWaits(
        np.array(host.of, np.int64),
        np.array([activity_row[source] if source >= 0 else -1 for source in host.source], np.int64),
        _columns_of_times(host.since_ns),
        Strings.of(found.value for found in host.found),
    )
    report = top.link_report or LinkReport(host_ops=len(ops), activities=len(activities), linked=len(activities))
    if not ours:
        report.remarks.append(
            "no calls in the linked trace: activities are launched at their op's end or their start, the earlier one"
        )
    return LinkedTrace(
        info=top.trace or TraceInfo(schema=top.schema, pid=top.pid if top.pid is not None else -1, source_host=path),
        ops=ops,
        calls=calls,
        activities=activities,
        device_waits=DeviceWaits(device_waits[0], device_waits[1], device_waits[2]),
        host_waits=host_waits,
        hand_overs=_hand_overs(top.hand_overs),
        communications=top.communications,
        groups=top.groups,
        report=report,
    )


def _ops(columns: _NodeColumns) -> Ops:
    nodes = columns.ops
    start, end, exclusive = columns.start_end_exclusive(False)
    decoder = msgspec.json.Decoder(list[Attr])
    attributes = [{attr.name: attr.value for attr in decoder.decode(node.attrs)} for node in nodes]

    def integers(name: str, missing: int) -> Int64:
        return np.array([values.pop(name, missing) for values in attributes], np.int64)

    known = {name: integers(name, -1 if name == "seq_id" else 0) for name in INTEGER_ATTRIBUTES}
    schema = Strings.of(values.pop("op_schema", "") for values in attributes)
    return Ops(
        id=np.array([node.id for node in nodes], np.int64),
        parent_id=np.array([_parent(node) for node in nodes], np.int64),
        name=Strings.of(node.name for node in nodes),
        thread=np.array(
            [
                tid if node.thread is None else node.thread
                for node, tid in zip(nodes, known["tid"].tolist(), strict=True)
            ],
            np.int64,
        ),
        start=start,
        end=end,
        exclusive=exclusive,
        recorded_by_host=np.array([node.recorded_by is None for node in nodes], np.bool_),
        op_schema=schema,
        inputs=[bytes(node.inputs) for node in nodes],
        outputs=[bytes(node.outputs) for node in nodes],
        extra={row: values for row, values in enumerate(attributes) if values},
        communication_row=np.array([node.communication for node in nodes], np.int64),
        **known,
    )


def _parent(node: ReadNode) -> int:
    above = node.ctrl_deps
    return (above[0] if above else -1) if isinstance(above, list) else -1 if above is None else above


def _activities(columns: _NodeColumns, op_row: dict[int, int], assumed: bool) -> Activities:
    nodes = columns.activities
    start, end, _ = columns.start_end_exclusive(True)
    call = range(len(nodes)) if assumed else [-1 if node.call is None else node.call for node in nodes]
    op = [op_row.get(_parent(node), -1) for node in nodes]
    return Activities(
        id=np.array([node.id for node in nodes], np.int64),
        name=Strings.of(node.name for node in nodes),
        category=Strings.of(node.cat or "" for node in nodes),
        device=np.array([max(node.device, 0) if assumed else node.device for node in nodes], np.int64),
        stream=np.array([node.stream for node in nodes], np.int64),
        start=start,
        end=end,
        correlation=np.array([node.correlation for node in nodes], np.int64),
        graph_node=np.array([node.graph_node for node in nodes], np.int64),
        call_row=np.array([c if not assumed or o >= 0 else -1 for c, o in zip(call, op, strict=True)], np.int64),
        op_row=np.array(op, np.int64),
        communication_row=np.array([node.communication for node in nodes], np.int64),
    )


def _calls(table: CallTable, op_row: dict[int, int]) -> Calls:
    return Calls(
        name=Strings(np.array(table.name, np.int32), table.names),
        thread=np.array(table.thread, np.int64),
        start=np.array(table.start_ns, np.int64),
        end=np.array(table.end_ns, np.int64),
        correlation=np.array(table.correlation, np.int64),
        op_row=np.array([op_row[op] if op >= 0 else -1 for op in table.op], np.int64),
    )


def _assumed_calls(columns: _NodeColumns, ops: Ops, op_row: dict[int, int]) -> Calls:
    """One launch per activity, at its op's end or its own start, the earlier one."""
    start, _, _ = columns.start_end_exclusive(True)
    op = np.array([op_row.get(_parent(node), -1) for node in columns.activities], np.int64)
    known = op >= 0
    moment = start.copy()
    moment[known] = np.maximum(np.minimum(ops.end[op[known]], start[known]), ops.start[op[known]])
    thread = np.where(known, ops.thread[op], 0) if len(ops) else np.zeros(len(op), np.int64)
    return Calls(Strings.of("launch" for _ in op), thread, moment, moment.copy(), np.zeros(len(op), np.int64), op)


def _wait_columns(table: WaitTable, of: dict[int, int], source: dict[int, int]) -> tuple[Int64, Int64, Strings]:
    return (
        np.array([source[s] for s in table.source], np.int64),
        np.array([of[t] for t in table.of], np.int64),
        Strings.of(found.value for found in table.found),
    )


def _sync_deps(columns: _NodeColumns, activity_row: dict[int, int]) -> tuple[Int64, Int64, Strings]:
    """Waits that chakra_trace_link found, where they are between activities."""
    pairs = [
        (activity_row[source], row)
        for row, node in enumerate(columns.activities)
        for source in node.sync_dep or []
        if source in activity_row
    ]
    source, target = np.array([s for s, _ in pairs], np.int64), np.array([t for _, t in pairs], np.int64)
    return source, target, Strings.of(Found.RECORD.value for _ in pairs)


def _hand_overs(table: HandOverTable | None) -> HandOvers:
    table = table or HandOverTable([], [], [], [], [], [])
    return HandOvers(
        np.array(table.source_thread, np.int64),
        np.array(table.source_ns, np.int64),
        np.array(table.target_thread, np.int64),
        np.array(table.target_ns, np.int64),
        _columns_of_times(table.waiting_since_ns),
        Strings.of(found.value for found in table.found),
    )
