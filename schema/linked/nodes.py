"""Collects the nodes of a linked file as columns, a piece of the file at a time."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..columns import (
    ABSENT,
    Bool,
    BytesColumnBuilder,
    Categorical,
    CategoricalBuilder,
    Int64,
    IntegerBuilder,
    JsonRecordsBuilder,
)
from ..traces import NO_TENSORS, InexactTime, integers, listed_attributes, nanoseconds, plain_arguments
from .layout import ATTRIBUTE_NAMES, INTEGER_ATTRIBUTES, INTEGER_MEMBERS, OP_SCHEMA, TIMES, Node

PYTHON_COLUMNS = ("module", "python_function")
NODE_INTEGERS = ("id", "ctrl_deps", "communication")
OP_INTEGERS = ("thread", *(attribute.name for attribute in INTEGER_ATTRIBUTES))
ACTIVITY_INTEGERS = ("device", "stream", "correlation", "graph_node", "size", "bandwidth", "call")


class Times(NamedTuple):
    """Starts, and durations with and without called ops, in ns; ABSENT where not recorded."""

    start: Int64
    inclusive: Int64
    exclusive: Int64

    def where(self, mask: Bool) -> "Times":
        """Returns the times of some nodes."""
        return Times(*(column[mask] for column in self))


class NodePiece(NamedTuple):
    """Columns by node, in the order of the file: `integers` and `texts` by the names of members and attributes.

    `inputs` and `outputs` are of ops alone; `further` has the other attributes of ops, by index among them. `waits` are
    pairs of an index among the activities and an awaited id. `unusable` counts arguments that are no lists.
    """

    is_activity: Bool
    integers: dict[str, Int64]
    times: Times
    texts: dict[str, Categorical]
    inputs: Sequence[bytes]
    outputs: Sequence[bytes]
    recorded_by_host: Bool
    further: dict[int, dict[str, Any]]
    waits: list[tuple[int, int]]
    unusable: int


class NodeTable:
    """The columns of ops or activities, which grow piece by piece."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: dict[str, IntegerBuilder] = defaultdict(IntegerBuilder)
        self._texts: dict[str, CategoricalBuilder] = defaultdict(CategoricalBuilder)

    def add(self, count: int, times: Times) -> None:
        """Adds the times of so many nodes."""
        self.count += count
        length = np.where(times.inclusive == ABSENT, 0, times.inclusive)
        end = np.where(times.start == ABSENT, ABSENT, times.start + length)
        for name, column in (("start", times.start), ("end", end), ("exclusive", times.exclusive)):
            self._parts[name].add(column)

    def integers(self, name: str, values: Int64) -> None:
        """Adds a piece of an integer column."""
        self._parts[name].add(values)

    def texts(self, name: str, values: Categorical) -> None:
        """Adds a piece of a column of texts."""
        self._texts[name].add_coded(values)

    def column(self, name: str) -> Int64:
        """Returns the whole integer column."""
        return self._parts[name].column()

    def categorical(self, name: str) -> Categorical:
        """Returns the whole column of texts."""
        return self._texts[name].column()


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

    def add(self, piece: NodePiece) -> None:
        """Adds a piece of the file."""
        self.timed |= bool((piece.times.start != ABSENT).any())
        self.unusable += piece.unusable
        self.extra.add({self.ops.count + op: extra for op, extra in piece.further.items()})
        self.waits += [(self.activities.count + activity, source) for activity, source in piece.waits]
        self.inputs.add(piece.inputs)
        self.outputs.add(piece.outputs)
        self.recorded_by_host += piece.recorded_by_host[~piece.is_activity].tolist()
        for mask, table, numbers, texts in (
            (~piece.is_activity, self.ops, OP_INTEGERS, (OP_SCHEMA,)),
            (piece.is_activity, self.activities, ACTIVITY_INTEGERS, ("cat",)),
        ):
            for name in (*NODE_INTEGERS, *numbers):
                table.integers(name, piece.integers[name][mask])
            for name in ("name", *texts, *PYTHON_COLUMNS):
                column = piece.texts[name].take(np.flatnonzero(mask))
                self.modules |= name in PYTHON_COLUMNS and bool(column.where(bool).any())
                table.texts(name, column)
            table.add(int(mask.sum()), piece.times.where(mask))


def _without_empty(texts: Categorical) -> Categorical:
    """Replaces empty texts by none (code -1)."""
    return Categorical(np.where(texts.where(bool), texts.codes, -1).astype(np.int32), texts.table)


def decoded_piece(nodes: Sequence[Node], exact: Callable[[], Sequence[Node]]) -> NodePiece:
    """Returns the columns of decoded nodes; `exact` decodes them again with exact times."""
    try:
        times = _times(nodes)
    except InexactTime:
        nodes = exact()
        times = _times(nodes)
    ops, activities = ([node for node in nodes if (node.cat is not None) == wanted] for wanted in (False, True))
    attributes, further = listed_attributes([node.attrs for node in nodes], ATTRIBUTE_NAMES)
    arguments = [[bytes(getattr(node, name)) for node in ops] for name in ("inputs", "outputs")]
    inputs, outputs = ([text if text[:1] == b"{" else NO_TENSORS for text in column] for column in arguments)
    columns = {
        name: [parent_of(node) if name == "ctrl_deps" else getattr(node, name) for node in nodes]
        for name in INTEGER_MEMBERS
    }
    names = ("name", "cat", *PYTHON_COLUMNS)
    texts = {name: Categorical.of(getattr(node, name) or "" for node in nodes) for name in names}
    op_of = {id(node): op for op, node in enumerate(ops)}
    return NodePiece(
        is_activity=np.array([node.cat is not None for node in nodes], np.bool_),
        integers={
            **{name: _present(values, INTEGER_MEMBERS[name]) for name, values in columns.items()},
            **{name: integers(attributes[name], missing) for name, _, missing in INTEGER_ATTRIBUTES},
        },
        times=times,
        texts={**texts, OP_SCHEMA: Categorical.of(text if type(text) is str else "" for text in attributes[OP_SCHEMA])},
        inputs=plain_arguments(inputs),
        outputs=plain_arguments(outputs),
        recorded_by_host=np.array([node.recorded_by is None for node in nodes], np.bool_),
        further={op_of[id(nodes[row])]: extra for row, extra in further.items() if nodes[row].cat is None},
        waits=[(row, source) for row, node in enumerate(activities) for source in node.sync_dep or ()],
        unusable=sum(text[:1] != b"{" for column in arguments for text in column),
    )


def _present(values: Sequence[int | None], missing: int) -> Int64:
    return np.array([missing if value is None else value for value in values], np.int64)


def _times(nodes: Sequence[Node]) -> Times:
    """Returns the times of nodes. Raises InexactTime."""
    return Times(*(_nanoseconds([getattr(node, name) for node in nodes]) for name in TIMES))


def _nanoseconds(stamps: list[int | float | None]) -> Int64:
    """Returns times in ns for stamps in µs, ABSENT for none."""
    times = np.full(len(stamps), ABSENT, np.int64)
    has_time = np.array([stamp is not None for stamp in stamps], np.bool_)
    times[has_time] = nanoseconds([stamp for stamp in stamps if stamp is not None])
    return times


def parent_of(node: Node) -> int:
    """Returns the id of the op that called this one, or launched this activity, -1 for none."""
    parent = node.ctrl_deps
    if isinstance(parent, list):
        return parent[0] if parent else -1
    return -1 if parent is None else parent
