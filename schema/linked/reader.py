"""Reads a linked file: pieces become columns, ids become rows. Refuses files whose tables contradict each other."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, compress
from operator import attrgetter
from typing import Any

import numpy as np

from ..columns import (
    ABSENT,
    CallRows,
    Categorical,
    Int32,
    Int64,
    OpRows,
    RecordBuilder,
    TableBuilder,
    rows_in_circles,
    rows_of,
)  # fmt: skip
from ..errors import DataError, Remedy, Spelled
from ..io import open_input
from ..json_stream import ArrayReader, decode
from ..progress import OnProgress, unseen
from . import layout
from .arguments import plain_arguments
from .host import NO_TENSORS, listed_attributes
from .linked_trace import Activities, DeviceWaits, HostWaits, LinkedTrace, LinkReport, Ops, ThreadHandoffs, TraceInfo
from .numbers import InexactTime, nanoseconds

LATEST = 1 << 62
"""ns; sums and differences of two times up to it stay in 64 bits."""
MOST_APART = 1 << 61
CHECKED = ("ops", "calls", "activities", "device_waits", "host_waits", "handoffs")
"""The tables whose columns must be of one length."""
OBJECT = ord("{")
TIMES, ARGUMENTS = ("ts", "inclusive_dur", "exclusive_dur"), ("inputs", "outputs")
PYTHON_COLUMNS = ("module", "python_function")
NO_HOST_WAITS, NO_HANDOFFS = layout.HostWaitTable([], [], []), layout.HandoffTable([], [], [], [], [], [])


def contradiction(linked: LinkedTrace) -> str:
    """Returns in words what is wrong with the trace, an empty text if nothing is. O(n log n)."""
    return next(chain(_wrong_rows(linked), _wrong_times(linked)), "")


def _wrong_rows(linked: LinkedTrace) -> Iterator[str]:
    for name, table in ((name, getattr(linked, name)) for name in CHECKED):
        # all but two have a value for each row
        columns = (getattr(table, column) for column in table.__slots__ if column not in ("extra", "_arguments"))
        sizes = {len(column) for column in columns if column is not None}
        if len(sizes) > 1:
            yield f"the columns of {name} have {min(sizes)} to {max(sizes)} rows"
    activities, calls = linked.activities, linked.calls
    call_sites = (column for column in (calls.module, calls.python_function) if column)
    references: list[tuple[str, Int64 | Int32, int]] = [
        ("calls", activities.call_row, len(calls)),
        ("calls", linked.host_waits.call_row, len(calls)),
        ("communications", activities.communication_row, len(linked.communications)),
        ("communications", linked.ops.communication_row, len(linked.communications)),
        ("names of calls", calls.name.codes, len(calls.name.table)),
        *(("call sites of calls", column.codes, len(column.table)) for column in call_sites),
    ]
    for what, rows, count in references:
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


def _wrong_times(linked: LinkedTrace) -> Iterator[str]:
    handoffs = linked.handoffs
    times = [handoffs.source_time, handoffs.target_time, handoffs.waiting_since, linked.host_waits.since]
    for name, table in (("ops", linked.ops), ("calls", linked.calls), ("activities", linked.activities)):
        timed = table.start != ABSENT
        start, end = table.start[timed], table.end[timed]
        if (np.maximum(np.abs(start), np.abs(end)) > LATEST).any():
            yield f"times of {name} are beyond any clock"
        elif (end < start).any():
            yield f"{int((end < start).sum())} {name} end before they begin"
        times += [start, end]
    recorded = [column[column != ABSENT] for column in times]
    first = min(int(column.min(initial=LATEST)) for column in recorded)
    # other linkers mix times since 1970 with others
    if max(int(column.max(initial=-LATEST)) for column in recorded) - first > MOST_APART:
        yield "its times are further apart than any clock shows"


class LinkedNodes:
    """The nodes of a file. `timed` tells whether any node has a time."""

    def __init__(self) -> None:
        self.ops = TableBuilder(("name", layout.OP_SCHEMA, *PYTHON_COLUMNS), ARGUMENTS)
        self.activities = TableBuilder(("name", "category", *PYTHON_COLUMNS))
        self.timed = False
        self.extra = RecordBuilder[dict[str, Any]](dict)
        self.unusable = 0
        """How many inputs or outputs are no lists."""
        self.modules = False
        """Whether any node has a module or a Python function."""
        self.waits: list[tuple[int, int]] = []
        """Pairs of an activity's row and the id that it waits for."""

    def add(self, nodes: Sequence[layout.Node], exact: Callable[[], Sequence[layout.Node]]) -> None:
        """Adds a piece of the file; `exact` decodes it again with exact times."""
        try:
            times = [nanoseconds([*map(attrgetter(name), nodes)]) for name in TIMES]
        except InexactTime:
            nodes = exact()
            times = [nanoseconds([*map(attrgetter(name), nodes)]) for name in TIMES]
        start, inclusive, exclusive = times
        end = np.where(start == ABSENT, ABSENT, start + np.where(inclusive == ABSENT, 0, inclusive))
        self.timed |= bool((start != ABSENT).any())
        is_activity = np.array([node.cat is not None for node in nodes], np.bool_)
        is_op = ~is_activity & np.array([node.recorded_by != layout.ADDED for node in nodes], np.bool_)
        for mask, table, columns_of in (
            (is_op, self.ops, self._op_columns),
            (is_activity, self.activities, self._activity_columns),
        ):
            selected = [*compress(nodes, mask.tolist())]
            python_names = {name: [getattr(node, name) or "" for node in selected] for name in PYTHON_COLUMNS}
            self.modules |= any(map(any, python_names.values()))
            callers = [node.ctrl_deps if node.called_by is None else node.called_by for node in selected]
            columns = {
                "id": _numbers(selected, "id"), "parent_id": layout.parent_ids(callers),
                "name": [node.name for node in selected], "start": start[mask], "end": end[mask],
                "exclusive": exclusive[mask], "communication_row": _numbers(selected, "communication"),
            }  # fmt: skip
            table.add(columns | python_names | columns_of(selected))

    def _op_columns(self, nodes: list[layout.Node]) -> dict[str, Any]:
        # attributes without a column go to `extra`
        listed, further = listed_attributes([node.attrs for node in nodes], layout.ATTRIBUTES)
        self.extra.add({len(self.ops) + row: extra for row, extra in further.items()})
        columns = layout.attribute_columns(listed)
        tids = columns["tid"].tolist()
        threads = [tid if node.thread is None else node.thread for node, tid in zip(nodes, tids, strict=True)]
        columns["thread"] = np.array(threads, np.int64)
        columns["recorded_by_host"] = np.array([node.recorded_by is None for node in nodes], np.bool_)
        for name in ARGUMENTS:
            texts = [bytes(getattr(node, name)) for node in nodes]
            for row in [row for row, text in enumerate(texts) if text[0] != OBJECT]:
                self.unusable += 1
                texts[row] = NO_TENSORS
            columns[name] = plain_arguments(texts)
        return columns

    def _activity_columns(self, nodes: list[layout.Node]) -> dict[str, Any]:
        first = len(self.activities)
        self.waits += [(row, each) for row, node in enumerate(nodes, first) if node.sync_dep for each in node.sync_dep]
        numbers = {name: _numbers(nodes, name) for name in ("call", *layout.ACTIVITY_NUMBERS)}
        return {"category": [node.cat or "" for node in nodes], **numbers}

    def columns_of(self, table: TableBuilder) -> dict[str, Any]:
        """Returns the columns of the table; modules and Python functions only where any node has one."""
        columns = table.columns()
        for name in PYTHON_COLUMNS:
            names = columns.pop(name)
            if self.modules:
                columns[name] = Categorical(np.where(names.where(bool), names.codes, -1).astype(np.int32), names.table)
        return columns


def _numbers(nodes: Sequence[layout.Node], name: str) -> Int64:
    return np.array([*map(attrgetter(name), nodes)], np.int64)


def read_linked(path: str, on_progress: OnProgress = unseen) -> LinkedTrace:
    """Reads a linked trace, ours or chakra_trace_link's. Raises DataError when the file is none."""
    nodes = LinkedNodes()
    with open_input(path, protected=True) as stream:
        reader: ArrayReader[layout.Node] = ArrayReader(stream, path, "nodes", layout.Node, on_progress)
        for text, piece in reader:
            nodes.add(piece, partial(decode, text, list[layout.ExactNode], path))
    top = decode(reader.document, layout.LinkedFile, path)
    if bytes(top.events):
        how = Spelled(f"trace-link HOST.json {path} -o LINKED.json", f'execgraph.link("HOST.json", "{path}")')
        raise DataError(f"{path}: a device trace; link it with its host trace first: ", how)
    nodes.add(top.nodes, lambda: decode(reader.document, layout.ExactFile, path).nodes)
    if not nodes.timed and not (top.calls and top.calls.name):
        kind = "a host trace that was never linked" if len(nodes.ops) + len(nodes.activities) else "holds no nodes"
        raise DataError(f"{path}: {kind}; make a linked trace with ", Remedy.LINK, " first")
    try:
        linked = _linked(path, top, nodes)
    except (KeyError, IndexError) as error:
        raise DataError(f"{path}: inconsistent linked trace: {error} is referred to but not there") from error
    if wrong := contradiction(linked):
        raise DataError(f"{path}: inconsistent linked trace: {wrong}; link the traces again")
    return linked


def _linked(path: str, top: layout.LinkedFile, nodes: LinkedNodes) -> LinkedTrace:
    op_columns, columns = nodes.columns_of(nodes.ops), nodes.columns_of(nodes.activities)
    op_columns["recorded_by_host"] = op_columns["recorded_by_host"].astype(np.bool_)
    ops = Ops(**op_columns, extra=nodes.extra.records())
    in_circles = rows_in_circles(ops.id, ops.parent_id)
    ops.parent_id[in_circles] = -1
    op_row, call_row = OpRows(rows_of(ops.id, columns.pop("parent_id"))), columns.pop("call")
    notes = []
    if top.calls is None:
        columns["device"] = np.maximum(columns["device"], 0)
        call_row = np.where(op_row >= 0, np.arange(len(op_row)), -1)
        notes = [
            "no calls in the linked trace: activities are launched at their op's end or their start, the earlier one"
        ]
    del columns["exclusive"]
    activities = Activities(**columns, op_row=op_row, call_row=CallRows(call_row))
    report = top.link_report or LinkReport(host_ops=len(ops), activities=len(activities), linked=len(activities))
    report.notes += notes
    if nodes.unusable:
        report.notes.append(f"{nodes.unusable} inputs or outputs of ops are no lists and left out")
    if len(in_circles):
        report.notes.append(f"parents that go round in a circle: {len(in_circles)} ops became outermost")
    ids, waits = activities.id, top.device_waits
    return LinkedTrace(
        info=top.trace or TraceInfo(schema=top.schema, pid=top.pid if top.pid is not None else -1, source_host=path),
        ops=ops,
        calls=layout.assumed_calls(activities, ops) if top.calls is None else layout.calls_in(top.calls, ops.id),
        activities=activities,
        device_waits=DeviceWaits(**layout.columns_in(waits, ids)) if waits else layout.waits_of_nodes(nodes.waits, ids),
        host_waits=HostWaits(**layout.columns_in(top.host_waits or NO_HOST_WAITS, ids)),
        handoffs=ThreadHandoffs(**layout.columns_in(top.handoffs or NO_HANDOFFS, ids)),
        communications=top.communications, groups=top.groups, report=report,
    )  # fmt: skip
