"""Collects the nodes of a linked file as columns, a piece of the file at a time."""

from collections import defaultdict
from typing import Any

import numpy as np

from ..columns import (
    ABSENT,
    BytesColumnBuilder,
    Categorical,
    CategoricalBuilder,
    Int64,
    IntegerBuilder,
    JsonRecordsBuilder,
)
from .layout import INTEGER_ATTRIBUTES, OP_SCHEMA
from .node_piece import PYTHON_COLUMNS, NodePiece, Times

NODE_INTEGERS = ("id", "ctrl_deps", "communication")
OP_INTEGERS = ("thread", *(attribute.name for attribute in INTEGER_ATTRIBUTES))
ACTIVITY_INTEGERS = ("device", "stream", "correlation", "graph_node", "size", "bandwidth", "call")


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
        for mask, table, integers, texts in (
            (~piece.is_activity, self.ops, OP_INTEGERS, (OP_SCHEMA,)),
            (piece.is_activity, self.activities, ACTIVITY_INTEGERS, ("cat",)),
        ):
            for name in (*NODE_INTEGERS, *integers):
                table.integers(name, piece.integers[name][mask])
            for name in ("name", *texts, *PYTHON_COLUMNS):
                column = piece.texts[name].take(np.flatnonzero(mask))
                self.modules |= name in PYTHON_COLUMNS and bool(column.where(bool).any())
                table.texts(name, column)
            table.add(int(mask.sum()), piece.times.where(mask))


def _without_empty(texts: Categorical) -> Categorical:
    """Replaces empty texts by none (code -1)."""
    return Categorical(np.where(texts.where(bool), texts.codes, -1).astype(np.int32), texts.table)
