"""Writes a linked file, a block of nodes at a time; equal traces give equal bytes.

Finds the op that released an op on another thread, for readers of linked files that do not know hand-offs.
"""

import os
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..arguments import FilePath, check_ending
from ..columns import ABSENT, Categorical, Int64, JsonRecords, RowMap, Spans, repeated
from ..io import open_output
from ..progress import OnProgress, unseen
from ..reason_words import to_json
from .derived import op_parents
from .host import NO_TENSORS, Attr
from .json_columns import SEPARATOR, Member, SparseMember, integers, lists, microsecond_spans, objects, strings
from .layout import INTEGER_ATTRIBUTES, SCHEMA, CallTable, HandoffTable, WaitTable
from .linked_trace import Activities, LinkedTrace, Ops, Provenance


class _ThreadOps(NamedTuple):
    """A thread's ops by start, outer ops before inner ones that start together."""

    row: Int64
    start: Int64


def called_from(linked: LinkedTrace) -> SparseMember:
    """Returns for ops that another thread released the id of that thread's last op before."""
    ops, handoffs, threads = linked.ops, linked.handoffs, _ops_of_threads(linked.ops)
    caller_id: dict[int, int] = {}
    columns = (handoffs.source_thread, handoffs.source_time, handoffs.target_thread, handoffs.target_time)
    for source, source_ns, target, target_ns in zip(*(column.tolist() for column in columns), strict=True):
        if not {source, target} <= threads.keys():
            continue  # in a part of a run all ops of a thread may be outside
        before, released = threads[source], threads[target]
        last = int(np.searchsorted(before.start, source_ns)) - 1
        first = int(np.searchsorted(released.start, target_ns))
        if last >= 0 and first < len(released.row):
            caller_id[int(released.row[first])] = int(ops.id[before.row[last]])
    rows = np.array(sorted(caller_id), np.int64)
    ids = np.array([caller_id[row] for row in rows.tolist()], np.int64)
    return SparseMember("inter_thread_dep", [integers(ids)], rows)


def _ops_of_threads(ops: Ops) -> dict[int, _ThreadOps]:
    timed = np.flatnonzero(ops.start != ABSENT)
    row = timed[np.lexsort((ops.id[timed], -ops.end[timed], ops.start[timed], ops.thread[timed]))]
    numbers, first = np.unique(ops.thread[row], return_index=True)
    of_threads = np.split(row, first[1:])
    return {
        number: _ThreadOps(rows, ops.start[rows]) for number, rows in zip(numbers.tolist(), of_threads, strict=False)
    }


NODES_AT_ONCE = 1 << 13
A_TENSOR = b"Tensor("
encoded = to_json


def write_linked(linked: LinkedTrace, path: FilePath, on_progress: OnProgress = unseen) -> None:
    """Writes a linked trace, the file whole or not at all.

    >>> import execgraph as eg, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     eg.write_linked(eg.link("tests/data/training", rank=0), f"{folder}/linked.json")
    ...     len(eg.read_linked(f"{folder}/linked.json").calls)
    85

    Args:
        linked: The linked trace.
        path: The file to write.
        on_progress: Is called with the number of nodes written since the last call.

    Raises:
        DataError: The file cannot be written.
        ValueError: The name ends like another kind of file.
    """
    check_ending(os.fspath(path), ".json")
    info = linked.info
    head = {"schema": SCHEMA} | {name: getattr(info, name) for name in ("pid", "time", "start_ts", "finish_ts")}
    blocks = [*_blocks(_OpNodes(linked), len(linked.ops)), *_blocks(_ActivityNodes(linked), len(linked.activities))]
    with open_output(os.fspath(path)) as out:
        out.write(encoded(head)[:-1] + b',\n"nodes":[')
        before = b"\n"
        for nodes, block in blocks:
            out.write(before + objects(nodes.members(block), block.stop - block.start))
            before = SEPARATOR
            on_progress(block.stop - block.start)
        out.write(b"],\n")
        out.write(SEPARATOR.join(encoded(name) + b":" + encoded(table(linked)) for name, table in TABLES.items()))
        out.write(b"}\n")


NO_ATTRIBUTES = encoded([*(Attr(*attribute) for attribute in INTEGER_ATTRIBUTES), Attr("op_schema", "string", "")])
"""The attributes of activities."""


class _OpNodes:
    """Makes the members of the ops' nodes, in the order of the file."""

    def __init__(self, linked: LinkedTrace) -> None:
        self.ops = linked.ops
        self.names = strings(linked.ops.name.table)
        self.schemas = strings([*linked.ops.op_schema.table, ""])
        self.extra = _extra_attributes(linked.ops.extra)
        self.called_from = called_from(linked)
        self.awaited = _awaited_by_op(linked)
        self.python = _PythonMembers(linked.ops)

    def members(self, block: slice) -> Iterator[Member]:
        ops = self.ops
        yield Member("id", [integers(ops.id[block])])
        yield Member("name", [self.names.take(ops.name.codes[block])])
        yield Member("ctrl_deps", [integers(ops.parent_id[block])])
        yield Member("inputs", [ops.inputs.spans(block)])
        yield Member("outputs", [ops.outputs.spans(block)])
        yield Member("attrs", list(self._attributes(block)))
        timed = block.start + np.flatnonzero(ops.start[block] != ABSENT)
        for key, time in (
            ("ts", ops.start[timed]),
            ("inclusive_dur", ops.end[timed] - ops.start[timed]),
            ("exclusive_dur", ops.exclusive[timed]),
        ):
            yield Member(key, microsecond_spans(time), timed - block.start)
        yield Member("thread", [integers(ops.thread[timed])], timed - block.start)
        yield _present("communication", ops.communication_row[block], -1)
        yield self.called_from.within(block)
        yield self.awaited.within(block)
        by_device = np.flatnonzero(~ops.recorded_by_host[block])
        yield Member("recorded_by", [repeated(b'"device"', len(by_device))], by_device)
        yield from self.python.members(block)

    def _attributes(self, block: slice) -> Iterator[Spans]:
        ops, count = self.ops, block.stop - block.start
        before = "["
        for name, kind, _ in INTEGER_ATTRIBUTES:
            yield repeated(f'{before}{{"name":"{name}","type":"{kind}","value":'.encode(), count)
            yield integers(getattr(ops, name)[block])
            before = "},"
        yield repeated(b'},{"name":"op_schema","type":"string","value":', count)
        yield self.schemas.take(ops.op_schema.codes[block])
        yield repeated(b"}", count)
        extra = self.extra.within(block)
        yield extra.parts[0].placed(extra.rows, count)
        yield repeated(b"]", count)


class _ActivityNodes:
    """Makes the members of the activities' nodes, in the order of the file."""

    def __init__(self, linked: LinkedTrace) -> None:
        self.linked = linked
        self.names = strings(linked.activities.name.table)
        self.categories = strings(linked.activities.category.table)
        self.groups = strings(communication.group for communication in linked.communications)
        self.awaited = _awaited_by_activity(linked)
        self.parent = op_parents(linked.ops)
        self.listing: dict[int, int] = {}
        self.python = _PythonMembers(linked.activities)

    def members(self, block: slice) -> Iterator[Member]:
        activities, count = self.linked.activities, block.stop - block.start
        yield Member("id", [integers(activities.id[block])])
        yield Member("name", [self.names.take(activities.name.codes[block])])
        yield Member("ctrl_deps", self._launching_op(activities.op_row[block]))
        yield Member("inputs", [Spans.of(self._tensors(block))])
        yield Member("outputs", [repeated(NO_TENSORS, count)])
        yield Member("attrs", [repeated(NO_ATTRIBUTES, count)])
        yield Member("cat", [self.categories.take(activities.category.codes[block])])
        yield Member("ph", [repeated(b'"X"', count)])
        yield Member("ts", microsecond_spans(activities.start[block]))
        duration = microsecond_spans(activities.end[block] - activities.start[block])
        yield Member("inclusive_dur", duration)
        yield Member("exclusive_dur", duration)
        yield _present("device", activities.device[block], -1)
        yield _present("stream", activities.stream[block], -1)
        yield _present("correlation", activities.correlation[block], 0)
        yield _present("graph_node", activities.graph_node[block], -1)
        yield _present("size", activities.size[block], -1)
        yield _present("bandwidth", activities.bandwidth[block], -1)
        yield Member("call", [integers(activities.call_row[block])])
        communication = activities.communication_row[block]
        yield _present("communication", communication, -1)
        communicating = np.flatnonzero(communication >= 0)
        yield Member("pg_name", [self.groups.take(communication[communicating])], communicating)
        yield self.awaited.within(block)
        yield from self.python.members(block)

    def _launching_op(self, op: Int64) -> tuple[Spans, Spans]:
        with_op, without_op = np.flatnonzero(op >= 0), np.flatnonzero(op < 0)
        ids, nulls = integers(self.linked.ops.id[op[with_op]]), repeated(b"null", len(without_op))
        return ids.placed(with_op, len(op)), nulls.placed(without_op, len(op))

    def _tensors(self, block: slice) -> list[bytes]:
        """Returns the tensors of the communication ops around launches.

        Chakra's converter takes the size of a collective from them.
        """
        activities, ops = self.linked.activities, self.linked.ops
        tensors = [NO_TENSORS] * (block.stop - block.start)
        launched = (activities.communication_row[block] >= 0) & (activities.op_row[block] >= 0)
        for row in np.flatnonzero(launched).tolist():
            op = self._listing_tensors(int(activities.op_row[block.start + row]))
            tensors[row] = ops.inputs[op] if op >= 0 else NO_TENSORS
        return tensors

    def _listing_tensors(self, op: int) -> int:
        """Returns the op itself or the innermost one around it that lists a tensor, -1 for none.

        Each op is visited once, however many are inside it.
        """
        visited = []
        while op >= 0 and op not in self.listing and A_TENSOR not in self.linked.ops.inputs[op]:
            visited.append(op)
            op = int(self.parent[op])
        listing = self.listing.get(op, op)
        self.listing.update(dict.fromkeys(visited, listing))
        return listing


class _PythonMembers:
    """Makes the members for modules and Python functions, of nodes that have them."""

    def __init__(self, table: Ops | Activities) -> None:
        columns = {"module": table.module, "python_function": table.python_function}
        self.columns = [
            (name, column.codes, strings(column.table)) for name, column in columns.items() if column is not None
        ]

    def members(self, block: slice) -> Iterator[Member]:
        for name, codes, table in self.columns:
            rows = np.flatnonzero(codes[block] >= 0)
            yield Member(name, [table.take(codes[block][rows])], rows)


def _blocks(nodes: _OpNodes | _ActivityNodes, count: int) -> list[tuple[_OpNodes | _ActivityNodes, slice]]:
    return [(nodes, slice(start, min(start + NODES_AT_ONCE, count))) for start in range(0, count, NODES_AT_ONCE)]


def _present(key: str, column: Int64, missing: int) -> Member:
    """Returns a member of the rows that have a value."""
    rows = np.flatnonzero(column != missing)
    return Member(key, [integers(column[rows])], rows)


def _extra_attributes(extra: JsonRecords[dict[str, Any]]) -> SparseMember:
    """Returns the further attributes of ops that have some, as the rest of their lists of attributes."""
    members = [b"".join(b"," + encoded(_extra_attribute(*pair)) for pair in row.items()) for row in extra.values()]
    return SparseMember("", [Spans.of(members)], extra.rows)


def _extra_attribute(name: str, value: Any) -> Attr:
    return Attr(name, "string" if isinstance(value, str) else "int64", value)


def _awaited_by_op(linked: LinkedTrace) -> SparseMember:
    """Returns the ids of the activities that the calls of each op waited for."""
    waits = linked.host_waits
    has_source = waits.source_row >= 0
    op = linked.calls.op_row[waits.call_row[has_source]]
    source = linked.activities.id[waits.source_row[has_source]]
    return lists("sync_dep", op[op >= 0], source[op >= 0])


def _awaited_by_activity(linked: LinkedTrace) -> SparseMember:
    """Returns the ids of the activities that each activity waited for, because its stream had to."""
    waits = linked.device_waits
    has_source = waits.source_row >= 0
    return lists("sync_dep", waits.target_row[has_source], linked.activities.id[waits.source_row[has_source]])


def _call_table(linked: LinkedTrace) -> CallTable:
    calls, ops = linked.calls, linked.ops
    op = RowMap(ops.id)[calls.op_row]
    columns = (calls.name.codes, calls.thread, calls.start, calls.end, calls.correlation, op)
    table = CallTable(calls.name.table, *(column.tolist() for column in columns))
    if calls.module is not None and calls.python_function is not None:
        both = Categorical.joined((calls.module, calls.python_function))
        table.python_names = both.table
        table.module, table.python_function = (half.tolist() for half in np.split(both.codes, [len(calls)]))
    return table


def _device_wait_table(linked: LinkedTrace) -> WaitTable:
    waits, ids = linked.device_waits, linked.activities.id
    return WaitTable(ids[waits.target_row].tolist(), _ids(ids, waits.source_row), _provenance(waits.known_by))


def _host_wait_table(linked: LinkedTrace) -> WaitTable:
    waits, ids = linked.host_waits, linked.activities.id
    return WaitTable(
        waits.call_row.tolist(), _ids(ids, waits.source_row), _provenance(waits.known_by), _times(waits.since)
    )


def _ids(ids: Int64, rows: Int64) -> list[int]:
    """Returns the ids of rows, -1 for none."""
    ids_or_none: list[int] = RowMap(ids)[rows].tolist()
    return ids_or_none


def _handoff_table(linked: LinkedTrace) -> HandoffTable:
    handoffs = linked.handoffs
    return HandoffTable(
        handoffs.source_thread.tolist(),
        handoffs.source_time.tolist(),
        handoffs.target_thread.tolist(),
        handoffs.target_time.tolist(),
        _times(handoffs.waiting_since),
        _provenance(handoffs.known_by),
    )


def _times(column: Int64) -> list[int | None]:
    return [None if time == ABSENT else time for time in column.tolist()]


def _provenance(column: Categorical) -> list[Provenance]:
    return [Provenance(column.table[code]) for code in column.codes.tolist()]


TABLES: dict[str, Callable[[LinkedTrace], Any]] = {
    "calls": _call_table,
    "device_waits": _device_wait_table,
    "host_waits": _host_wait_table,
    "handoffs": _handoff_table,
    "communications": lambda linked: [*linked.communications],
    "groups": attrgetter("groups"),
    "trace": attrgetter("info"),
    "link_report": attrgetter("report"),
}
"""The tables after the nodes."""
