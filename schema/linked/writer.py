"""Writes a linked file, a block of nodes at a time; equal traces give equal bytes."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from ..arguments import FilePath, check_ending
from ..columns import ABSENT, Categorical, Int64, RowMap
from ..counts import to_json
from ..io import open_output
from ..progress import OnProgress, unseen
from .host import NO_TENSORS, Attr
from .layout import INTEGER_ATTRIBUTES, SCHEMA, CallTable, as_record
from .linked_trace import Activities, LinkedTrace, Ops, op_parents

NODES_AT_ONCE = 1 << 10
SEPARATOR = b",\n"
FRACTIONS = [f".{fraction:03d}".rstrip("0").rstrip(".") for fraction in range(1000)]
LARGEST_DOUBLE = 10**15
"""ns; any shorter time in µs is exact as a double."""
A_TENSOR = b"Tensor("
NOTHING: Any = msgspec.UNSET
ENCODER = msgspec.json.Encoder()
encode = ENCODER.encode


MEMBERS = (
    "id", "name", "ctrl_deps", "inputs", "outputs", "attrs", "cat", "ph", "ts", "inclusive_dur", "exclusive_dur",
    "thread", "device", "stream", "correlation", "graph_node", "size", "bandwidth", "call", "communication", "pg_name",
    "inter_thread_dep", "sync_dep", "recorded_by", "module", "python_function",
)  # fmt: skip
"""The members of nodes in the order of the file."""
_Node = msgspec.defstruct("_Node", [(name, Any, NOTHING) for name in MEMBERS], gc=False)
"""A node as it is written; what it has not is left out."""
Columns = dict[str, Sequence[Any]]
"""Members of some nodes, by name."""
NO_ATTRIBUTES = msgspec.Raw(
    encode([*(Attr(*attribute) for attribute in INTEGER_ATTRIBUTES), Attr("op_schema", "string", "")])
)
"""The attributes of activities."""


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
    with open_output(os.fspath(path)) as out:
        out.write(encode(head)[:-1] + b',\n"nodes":[')
        before = b"\n"
        for columns in _blocks(linked):
            members = [columns.get(name, repeat(NOTHING)) for name in MEMBERS]
            nodes = [*map(_Node, *members)]
            lines = ENCODER.encode_lines(nodes)
            # texts of the file may hold line ends of their own
            is_plain = lines.count(b"\n") == len(nodes)
            out.write(
                before + (lines[:-1].replace(b"\n", SEPARATOR) if is_plain else SEPARATOR.join(map(encode, nodes)))
            )
            before = SEPARATOR
            on_progress(len(nodes))
        out.write(b"],\n")
        out.write(SEPARATOR.join(encode(name) + b":" + to_json(table(linked)) for name, table in TABLES.items()))
        out.write(b"}\n")


def _blocks(linked: LinkedTrace) -> Iterator[Columns]:
    """Yields the members of the nodes of ops, then of activities, some nodes at a time."""
    for columns_of, count in (
        (_op_columns(linked), len(linked.ops)),
        (_activity_columns(linked), len(linked.activities)),
    ):
        for first in range(0, count, NODES_AT_ONCE):
            yield columns_of(slice(first, min(first + NODES_AT_ONCE, count)))


def _op_columns(linked: LinkedTrace) -> Callable[[slice], Columns]:
    """Returns a function that returns the members of a block of ops."""
    ops, released_by = linked.ops, _last_ops_before_handoffs(linked)
    waits, op_of_wait = linked.host_waits, linked.calls.op_row[linked.host_waits.call_row]
    awaited = _awaited(linked, op_of_wait, waits.source_row)
    extra = dict(zip(ops.extra.rows.tolist(), map(_further_attributes, ops.extra.values()), strict=True))
    attributes = _attributes_pattern()
    schemas = [encode(text) for text in (*ops.op_schema.table, "")]

    def columns(block: slice) -> Columns:
        timed = ops.start[block] != ABSENT
        further = [extra.get(row, b"") for row in range(block.start, block.stop)] if extra else repeat(b"")
        numbers = (getattr(ops, name)[block].tolist() for name, _, _ in INTEGER_ATTRIBUTES)
        schema = [schemas[code] for code in ops.op_schema.codes[block].tolist()]
        return {
            "id": ops.id[block].tolist(),
            "name": ops.name[block],
            "ctrl_deps": ops.parent_id[block].tolist(),
            "inputs": [*map(msgspec.Raw, ops.inputs[block])],
            "outputs": [*map(msgspec.Raw, ops.outputs[block])],
            "attrs": [msgspec.Raw(attributes % values) for values in zip(*numbers, schema, further)],  # noqa: B905
            "ts": _where(timed, microsecond_numbers(ops.start[block])),
            "inclusive_dur": _where(timed, microsecond_numbers(ops.end[block] - ops.start[block])),
            "exclusive_dur": _where(timed, microsecond_numbers(ops.exclusive[block])),
            "thread": _where(timed, ops.thread[block].tolist()),
            "communication": _present(ops.communication_row[block], -1),
            "inter_thread_dep": _sparse(released_by, block),
            "sync_dep": _sparse(awaited, block),
            "recorded_by": _where(~ops.recorded_by_host[block], ["device"] * len(timed)),
            **_python_columns(ops, block),
        }

    return columns


def _attributes_pattern() -> bytes:
    """Returns the attributes of an op, with places for its numbers, its schema and further attributes."""
    known = ",".join(f'{{"name":"{name}","type":"{kind}","value":%d}}' for name, kind, _ in INTEGER_ATTRIBUTES)
    return b"[" + known.encode() + b',{"name":"op_schema","type":"string","value":%b}%b]'


def _further_attributes(attributes: dict[str, Any]) -> bytes:
    """Returns attributes that have no column, as the rest of a list."""
    kinds = ((name, "string" if isinstance(value, str) else "int64", value) for name, value in attributes.items())
    return b"".join(b"," + encode(Attr(*attribute)) for attribute in kinds)


def _activity_columns(linked: LinkedTrace) -> Callable[[slice], Columns]:
    """Returns a function that returns the members of a block of activities."""
    activities, waits, ids = linked.activities, linked.device_waits, linked.ops.id
    groups = [communication.group for communication in linked.communications]
    awaited, tensors = _awaited(linked, waits.target_row, waits.source_row), _tensors_around_launches(linked)
    no_tensors = msgspec.Raw(NO_TENSORS)

    def columns(block: slice) -> Columns:
        count, op, communication = (
            block.stop - block.start,
            activities.op_row[block],
            activities.communication_row[block],
        )
        duration = microsecond_numbers(activities.end[block] - activities.start[block])
        return {
            "id": activities.id[block].tolist(),
            "name": activities.name[block],
            "ctrl_deps": _where(op >= 0, RowMap(ids)[op].tolist(), None),
            "inputs": [*map(msgspec.Raw, tensors(op, communication))],
            "outputs": [no_tensors] * count,
            "attrs": [NO_ATTRIBUTES] * count,
            "cat": activities.category[block],
            "ph": ["X"] * count,
            "ts": microsecond_numbers(activities.start[block]),
            "inclusive_dur": duration,
            "exclusive_dur": duration,
            "device": _present(activities.device[block], -1),
            "stream": _present(activities.stream[block], -1),
            "correlation": _present(activities.correlation[block], 0),
            "graph_node": _present(activities.graph_node[block], -1),
            "size": _present(activities.size[block], -1),
            "bandwidth": _present(activities.bandwidth[block], -1),
            "call": activities.call_row[block].tolist(),
            "communication": _present(communication, -1),
            "pg_name": [groups[row] if row >= 0 else NOTHING for row in communication.tolist()],
            "sync_dep": _sparse(awaited, block),
            **_python_columns(activities, block),
        }

    return columns


def _tensors_around_launches(linked: LinkedTrace) -> Callable[[Int64, Int64], list[bytes]]:
    """Returns a function that returns the tensors of the communication ops around launches, given the launching ops and
    the communications of activities. Chakra's converter takes the size of a collective from them.
    """
    inputs, parent = linked.ops.inputs, op_parents(linked.ops)
    listing: dict[int, int] = {}

    def listing_op(op: int) -> int:
        """Returns the op itself or the innermost one around it that lists a tensor, -1 for none; visits each once."""
        visited = []
        while op >= 0 and op not in listing and A_TENSOR not in inputs[op]:
            visited.append(op)
            op = int(parent[op])
        found = listing.get(op, op)
        listing.update(dict.fromkeys(visited, found))
        return found

    def tensors(op: Int64, communication: Int64) -> list[bytes]:
        ops = [listing_op(row) if of >= 0 else -1 for row, of in zip(op.tolist(), communication.tolist(), strict=True)]
        return [inputs[row] if row >= 0 else NO_TENSORS for row in ops]

    return tensors


def _python_columns(table: Ops | Activities, block: slice) -> Columns:
    """Returns modules and Python functions, for nodes that have them."""
    columns = {"module": table.module, "python_function": table.python_function}
    return {
        name: [column.table[code] if code >= 0 else NOTHING for code in column.codes[block].tolist()]
        for name, column in columns.items()
        if column is not None
    }


def microsecond_numbers(time: Int64) -> list[Any]:
    """Returns times in ns as numbers that are written as exact decimal µs, without needless zeros."""
    numbers, has_fraction = (time // 1000).astype(np.object_), time % 1000 != 0
    # the shortest decimals of a double with up to 15 digits are those that it was made of
    numbers[has_fraction] = time[has_fraction] / 1000
    values: list[Any] = numbers.tolist()
    rows = np.flatnonzero(has_fraction & (np.abs(time) >= LARGEST_DOUBLE))
    for row, long_time in zip(rows.tolist(), time[rows].tolist(), strict=True):
        whole, fraction = divmod(abs(long_time), 1000)
        values[row] = msgspec.Raw(f"{'-' * (long_time < 0)}{whole}{FRACTIONS[fraction]}")
    return values


def _where(mask: Any, values: Sequence[Any], otherwise: Any = NOTHING) -> Sequence[Any]:
    if mask.all():
        return values
    return [value if is_there else otherwise for value, is_there in zip(values, mask.tolist(), strict=True)]


def _present(column: Int64, missing: int) -> Sequence[Any]:
    """Returns the values, nothing for missing ones."""
    return _where(column != missing, column.tolist())


def _sparse(values: Mapping[int, Any], block: slice) -> Sequence[Any]:
    """Returns the values of the rows of a block that have one."""
    return [values.get(row, NOTHING) for row in range(block.start, block.stop)]


def _awaited(linked: LinkedTrace, row: Int64, source: Int64) -> dict[int, list[int]]:
    """Returns for rows of nodes that waited the ids of the activities that they waited for; rows of -1 are none."""
    awaited: dict[int, list[int]] = defaultdict(list)
    is_known = (row >= 0) & (source >= 0)
    for waiting, awaited_id in zip(
        row[is_known].tolist(), linked.activities.id[source[is_known]].tolist(), strict=True
    ):
        awaited[waiting].append(awaited_id)
    return dict(awaited)


def _last_ops_before_handoffs(linked: LinkedTrace) -> dict[int, int]:
    """Returns for ops that another thread released the id of that thread's last op before, for readers of linked files
    that do not know hand-offs.
    """
    ops, handoffs = linked.ops, linked.handoffs
    timed = np.flatnonzero(ops.start != ABSENT)
    row = timed[np.lexsort((ops.id[timed], -ops.end[timed], ops.start[timed], ops.thread[timed]))]
    numbers, first = np.unique(ops.thread[row], return_index=True)
    rows_of = dict(zip(numbers.tolist(), np.split(row, first[1:]), strict=False))
    released_by: dict[int, int] = {}
    columns = (handoffs.source_thread, handoffs.source_time, handoffs.target_thread, handoffs.target_time)
    for source, source_ns, target, target_ns in zip(*(column.tolist() for column in columns), strict=True):
        if not {source, target} <= rows_of.keys():
            continue  # in a part of a run all ops of a thread may be outside
        before, released = rows_of[source], rows_of[target]
        last = int(np.searchsorted(ops.start[before], source_ns)) - 1
        position = int(np.searchsorted(ops.start[released], target_ns))
        if last >= 0 and position < len(released):
            released_by[int(released[position])] = int(ops.id[before[last]])
    return released_by


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


TABLES: dict[str, Callable[[LinkedTrace], Any]] = {
    "calls": _call_table,
    "device_waits": lambda linked: as_record(linked.device_waits, linked.activities.id),
    "host_waits": lambda linked: as_record(linked.host_waits, linked.activities.id),
    "handoffs": lambda linked: as_record(linked.handoffs, linked.activities.id),
    "communications": lambda linked: [*linked.communications],
    "groups": attrgetter("groups"),
    "trace": attrgetter("info"),
    "link_report": attrgetter("report"),
}
"""The tables after the nodes."""
