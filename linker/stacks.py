"""Finds the innermost call of Python around each span of a thread, among calls of modules and among those
of functions.
"""

from typing import NamedTuple

import numpy as np

from ..schema.columns import (
    ROUNDING,
    TOLERANCE,
    Bool,
    Categorical,
    Int64,
    NestedIntervals,
    RowMap,
    Rows,
    ThreadIntervals,
    nest,
)
from .readers import RecordedPython

MODULE = "nn.Module: "
SEPARATOR = "/"


class Stack(NamedTuple):
    """n calls, each with the row of the call that encloses it (-1 for none) and its name, `text[code]`."""

    calls: ThreadIntervals
    parent: Rows
    code: Int64
    text: list[str]

    def enclosing(self, spans: ThreadIntervals) -> Rows:
        """Returns for each span the row of the innermost call that encloses it, -1 for none. O(n log n)."""
        if not len(self.parent):
            return np.full(len(spans.start), -1, np.int64)
        nested = NestedIntervals(self.calls, self.parent)
        return nested.innermost(spans, rounding=ROUNDING, tolerance=TOLERANCE)


class Paths:
    """The paths of nested modules, numbered as they come: `texts`. A module that calls itself keeps its path."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._number: dict[str, int] = {}

    def below(self, enclosing_path: Int64, name: Int64, names: list[str]) -> Int64:
        """Returns for each pair the number of the path of `names[name]` below the path `enclosing_path`, -1 for
        outermost.
        """
        if not len(enclosing_path):
            return enclosing_path
        pairs, which = np.unique(np.stack((enclosing_path, name)), axis=1, return_inverse=True)
        numbers = [self.number(self._below(path, names[code])) for path, code in pairs.T.tolist()]
        return np.array(numbers, np.int64)[which.reshape(-1)]

    def _below(self, enclosing_path: int, name: str) -> str:
        if enclosing_path < 0:
            return name
        path = self.texts[enclosing_path]
        return path if path.rpartition(SEPARATOR)[2] == name else f"{path}{SEPARATOR}{name}"

    def number(self, text: str) -> int:
        """Returns the number of a path, a new one for a new path."""
        if text not in self._number:
            self._number[text] = len(self.texts)
            self.texts.append(text)
        return self._number[text]


def module_stack(rows: RecordedPython) -> Stack:
    """Returns the calls of modules, named by their paths, as `Net_0/Sequential_0/Linear_2`."""
    calls, paths = _nested(rows, rows.name.where(lambda name: name.startswith(MODULE))), Paths()
    names = [name.removeprefix(MODULE) for name in calls.text]
    code, remaining = np.full(len(calls.code), -1, np.int64), np.arange(len(calls.code))
    while len(remaining):  # once per level
        enclosing_path = RowMap(code)[calls.parent[remaining]]
        ready = (calls.parent[remaining] < 0) | (enclosing_path >= 0)
        code[remaining[ready]] = paths.below(enclosing_path[ready], calls.code[remaining[ready]], names)
        remaining = remaining[~ready]
    return calls._replace(code=code, text=paths.texts)


def function_stack(rows: RecordedPython) -> Stack:
    """Returns the calls of functions, named as `train.py(12): forward`."""
    return _nested(rows, ~rows.name.where(lambda name: name.startswith(MODULE)))


def _nested(rows: RecordedPython, chosen: Bool) -> Stack:
    calls = ThreadIntervals(*(column[chosen] for column in (rows.thread, rows.start, rows.end)))
    nesting = nest(calls)
    names: Categorical = rows.name.take(chosen)
    return Stack(calls._replace(end=nesting.end), nesting.parent, names.codes.astype(np.int64), names.table)
