"""Writes a linked file, a block of nodes at a time; equal traces give equal bytes."""

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import count, repeat
from typing import Any

import msgspec
import numpy as np

from ..arguments import FilePath, check_ending
from ..columns import ABSENT, Bool, Int64, Keys, Lookup, OpRows, RowMap, asof_backward, asof_forward, nearest
from ..io import open_output
from ..progress import OnProgress, unseen
from ..reasons import to_json
from .host import FRAME, NO_TENSORS, THREAD_ROOTS, Attr
from .layout import ACTIVITY_NUMBERS, ADDED, INTEGER_ATTRIBUTES, OP_SCHEMA, SCHEMA, TABLES
from .linked_trace import Activities, LinkedTrace, Ops, op_parents
from .numbers import exact_microseconds

NODES_AT_ONCE = 1 << 10
SEPARATOR = b",\n"
LARGEST_DOUBLE = 10**15
"""ns; any shorter time in µs is exact as a double."""
A_TENSOR = b"Tensor("
NOTHING: Any = msgspec.UNSET
ENCODER = msgspec.json.Encoder()
encode = ENCODER.encode


MEMBERS = (
    "id", "name", "ctrl_deps", "inputs", "outputs", "attrs", "cat", "ph", "ts", "inclusive_dur", "exclusive_dur",
    "thread", *ACTIVITY_NUMBERS, "call", "communication", "pg_name",
    "inter_thread_dep", "sync_dep", "recorded_by", "called_by", "module", "python_function",
)  # fmt: skip
"""The members of nodes in the order of the file."""
_Node = msgspec.defstruct("_Node", [(name, Any, NOTHING) for name in MEMBERS], gc=False)
"""A node as it is written; what it has not is left out."""
Columns = dict[str, Sequence[Any]]
"""Members of some nodes, by name."""
NO_ATTRIBUTES = msgspec.Raw(
    encode([*(Attr(name, *typed) for name, typed in INTEGER_ATTRIBUTES.items()), Attr(OP_SCHEMA, "string", "")])
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
    controls = _controls(linked)
    tables = zip(controls, (_root_columns, _op_columns, _activity_columns), strict=True)
    with open_output(os.fspath(path)) as out:
        out.write(encode(head)[:-1] + b',\n"nodes":[')
        before = b"\n"
        for control, table in tables:
            columns_of = table(linked, control)
            for first in range(0, len(control), NODES_AT_ONCE):
                columns = columns_of(slice(first, min(first + NODES_AT_ONCE, len(control))))
                members = [columns.get(name, repeat(NOTHING)) for name in MEMBERS]
                nodes = [*map(_Node, *members)]
                lines = ENCODER.encode_lines(nodes)
                # texts of the file may hold line ends of their own
                is_plain = lines.count(b"\n") == len(nodes)
                joined = lines[:-1].replace(b"\n", SEPARATOR) if is_plain else SEPARATOR.join(map(encode, nodes))
                out.write(before + joined)
                before = SEPARATOR
                on_progress(len(nodes))
        out.write(b"],\n")
        out.write(SEPARATOR.join(encode(name) + b":" + to_json(table(linked)) for name, table in TABLES.items()))
        out.write(b"}\n")


def _controls(linked: LinkedTrace) -> tuple[Int64, Int64, Int64]:
    """Returns ids: those of the roots to add, and what ops and activities have in `ctrl_deps`.

    Chakra's converter walks from the roots of threads, in the order of ids, and drops what it does not meet. So what
    is outermost has its thread's root. Ops that only the device trace holds have the highest ids: they come under the
    host trace's last op before them, activities without an op under the last op before their call.
    """
    ops, calls, activities = linked.ops, linked.calls, linked.activities
    parent, by_host, ids = op_parents(ops), ops.recorded_by_host, RowMap(ops.id)
    (recorded, starts), (timed, all_starts) = _by_time(ops, by_host), _by_time(ops, ops.start != ABSENT)
    before = RowMap(recorded)[OpRows(asof_backward(starts, Keys(ops.thread, ops.start)))]
    control = np.where(by_host, RowMap(nearest(by_host, parent))[parent], np.where(before >= 0, before, parent))
    launch = Keys(RowMap(calls.thread)[activities.call_row], RowMap(calls.start)[activities.call_row])
    last = RowMap(timed)[OpRows(asof_backward(all_starts, launch))]
    op = np.where(activities.op_row >= 0, activities.op_row, last)

    is_frame, is_root = ops.name.where(lambda name: name.startswith(FRAME)), ops.name.where(THREAD_ROOTS.__contains__)
    outermost = ~is_frame & ((control < 0) | (is_frame & ~is_root)[control])
    # the host trace numbers threads by itself
    root = Lookup(ops.tid[is_root], ops.id[is_root]).of(ops.tid)
    threads = np.concatenate((ops.thread[outermost], launch.group[op < 0]))
    roots = Lookup(ops.thread[recorded], root[recorded]).of(threads)
    of_host, size = by_host[outermost], int(outermost.sum())
    roots[:size] = np.where(of_host, root[outermost], roots[:size])
    added = np.unique(threads[roots < 0])
    new = 1 + max(int(table.id.max(initial=0)) for table in (ops, activities)) + np.arange(len(added))
    roots = np.where(roots < 0, RowMap(new)[np.searchsorted(added, threads)], roots)
    of_ops, of_activities = np.where(control == parent, ops.parent_id, ids[control]), ids[op]
    of_ops[outermost], of_activities[op < 0] = np.split(roots, [size])
    return new, of_ops, of_activities


def _root_columns(_: LinkedTrace, ids: Int64) -> Callable[[slice], Columns]:
    """Returns a function that returns the members of a block of added roots."""
    texts = zip(("inputs", "outputs", "attrs"), (msgspec.Raw(NO_TENSORS),) * 2 + (NO_ATTRIBUTES,), strict=True)
    same = {"name": THREAD_ROOTS[0], "ctrl_deps": -1, "recorded_by": ADDED, **dict(texts)}
    return lambda block: {name: repeat(value) for name, value in same.items()} | {"id": ids[block].tolist()}


def _op_columns(linked: LinkedTrace, controls: Int64) -> Callable[[slice], Columns]:
    """Returns a function that returns the members of a block of ops."""
    ops, released_by = linked.ops, _last_ops_before_handoffs(linked)
    waits, op_of_wait = linked.host_waits, linked.calls.op_row[linked.host_waits.call_row]
    awaited = _awaited(linked, op_of_wait, waits.source_row)
    extra: dict[int, bytes] = {}
    for row, further in ops.extra.items():
        kinds = ((name, "string" if isinstance(value, str) else "int64", value) for name, value in further.items())
        extra[row] = b"".join(b"," + encode(Attr(*attribute)) for attribute in kinds)
    # the attributes with a column, with places for their values, and for further ones
    known = ",".join(
        f'{{"name":"{name}","type":"{kind}","value":%d}}' for name, (kind, _) in INTEGER_ATTRIBUTES.items()
    )
    pattern = b"[" + known.encode() + b',{"name":"op_schema","type":"string","value":%b}%b]'
    schemas = [encode(text) for text in (*ops.op_schema.table, "")]

    def columns(block: slice) -> Columns:
        timed = ops.start[block] != ABSENT
        further = [extra.get(row, b"") for row in range(block.start, block.stop)] if extra else repeat(b"")
        numbers = (getattr(ops, name)[block].tolist() for name in INTEGER_ATTRIBUTES)
        schema = [schemas[code] for code in ops.op_schema.codes[block].tolist()]
        return {
            "id": ops.id[block].tolist(),
            "name": ops.name[block],
            "ctrl_deps": controls[block].tolist(),
            "inputs": [*map(msgspec.Raw, ops.inputs[block])],
            "outputs": [*map(msgspec.Raw, ops.outputs[block])],
            "attrs": [msgspec.Raw(pattern % values) for values in zip(*numbers, schema, further)],  # noqa: B905
            "ts": _where(timed, microsecond_numbers(ops.start[block])),
            "inclusive_dur": _where(timed, microsecond_numbers(ops.end[block] - ops.start[block])),
            "exclusive_dur": _where(timed, microsecond_numbers(ops.exclusive[block])),
            "thread": _where(timed, ops.thread[block].tolist()),
            "communication": _present(ops.communication_row[block], -1),
            "inter_thread_dep": _sparse(released_by, block),
            "sync_dep": _sparse(awaited, block),
            "recorded_by": _where(~ops.recorded_by_host[block], ["device"] * len(timed)),
            "called_by": _where(controls[block] != ops.parent_id[block], ops.parent_id[block].tolist()),
            **_python_columns(ops, block),
        }

    return columns


def _activity_columns(linked: LinkedTrace, controls: Int64) -> Callable[[slice], Columns]:
    """Returns a function that returns the members of a block of activities.

    A communication has the tensors of the op that launched it, or of the innermost one around that which lists any:
    Chakra's converter takes its size from them.
    """
    activities, waits, ops = linked.activities, linked.device_waits, linked.ops
    groups = [*_numbered_groups(linked), NOTHING]
    awaited, no_tensors = _awaited(linked, waits.target_row, waits.source_row), msgspec.Raw(NO_TENSORS)
    lists_tensor = [A_TENSOR in text for text in ops.inputs] if len(groups) > 1 else [False] * len(ops)
    listing = RowMap(nearest(np.array(lists_tensor, np.bool_), op_parents(ops)))

    def columns(block: slice) -> Columns:
        size, op = block.stop - block.start, activities.op_row[block]
        communication = activities.communication_row[block]
        launching = listing[np.where(communication >= 0, op, -1)].tolist()
        duration = microsecond_numbers(activities.end[block] - activities.start[block])
        return {
            "id": activities.id[block].tolist(), "name": activities.name[block],
            "ctrl_deps": controls[block].tolist(), "called_by": _where(op < 0, [-1] * size),
            "inputs": [msgspec.Raw(ops.inputs[row]) if row >= 0 else no_tensors for row in launching],
            "outputs": [no_tensors] * size, "attrs": [NO_ATTRIBUTES] * size, "cat": activities.category[block],
            "ph": ["X"] * size, "ts": microsecond_numbers(activities.start[block]), "inclusive_dur": duration,
            "exclusive_dur": duration,
            **{name: _present(getattr(activities, name)[block], none) for name, none in ACTIVITY_NUMBERS.items()},
            "call": activities.call_row[block].tolist(), "communication": _present(communication, -1),
            "pg_name": [groups[row] for row in communication.tolist()], "sync_dep": _sparse(awaited, block),
            **_python_columns(activities, block),
        }  # fmt: skip

    return columns


def _numbered_groups(linked: LinkedTrace) -> list[str]:
    """Returns each communication's group as a number of 32 bits, as simulators want it; of other names, such as
    addresses, that of all ranks is 0, others are the next free numbers.
    """
    taken = {entry.group for entry in linked.communications} | {group.name for group in linked.groups}
    free, numbers = (number for number in map(str, count(1)) if number not in taken), dict[str, str]()
    for name, ranks in ((entry.group, entry.ranks) for entry in linked.communications):
        if f"0{name}".isdecimal() and len(name) < 10:
            numbers[name] = name
        elif name not in numbers:
            numbers[name] = "0" if len(ranks) == linked.info.world_size else next(free)
    return [numbers[entry.group] for entry in linked.communications]


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
        values[row] = msgspec.Raw(exact_microseconds(long_time))
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
    ids = linked.activities.id[source[is_known]].tolist()
    for waiting, awaited_id in zip(row[is_known].tolist(), ids, strict=True):
        awaited[waiting].append(awaited_id)
    return dict(awaited)


def _last_ops_before_handoffs(linked: LinkedTrace) -> dict[int, int]:
    """Returns by released op the id of the other thread's last op before, for readers that do not know hand-offs."""
    ops, handoffs = linked.ops, linked.handoffs
    order, starts = _by_time(ops, ops.start != ABSENT)
    # in a part of a run all ops of a thread may be outside; nothing is before the least time that a column holds
    before = asof_backward(starts, Keys(handoffs.source_thread, np.maximum(handoffs.source_time, ABSENT + 1) - 1))
    released = asof_forward(starts, Keys(handoffs.target_thread, handoffs.target_time))
    both = (before >= 0) & (released >= 0)
    return dict(zip(order[released[both]].tolist(), ops.id[order[before[both]]].tolist(), strict=True))


def _by_time(ops: Ops, chosen: Bool) -> tuple[OpRows, Keys]:
    timed = np.flatnonzero(chosen & (ops.start != ABSENT))
    rows = OpRows(timed[np.lexsort((ops.id[timed], -ops.end[timed], ops.start[timed], ops.thread[timed]))])
    return rows, Keys(ops.thread[rows], ops.start[rows])
