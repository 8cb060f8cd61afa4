"""Finds the innermost call of Python around each span of a thread, among calls of modules and among those of functions."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ROUNDING, TOLERANCE, Bool, Categorical, Int64, RowMap, Rows, innermost, nest
from ..readers import RecordedPython

MODULE = "nn.Module: "
SEPARATOR = "/"


class Stack(NamedTuple):
    """n calls, each with the row of the call around it (-1 for none) and its name, `text[code]`. Times are in ns."""

    thread: Int64
    start: Int64
    end: Int64
    parent: Rows
    code: Int64
    text: list[str]

    def enclosing(self, thread: Int64, start: Int64, end: Int64) -> Rows:
        """Returns for each span the row of the innermost call around it, -1 for none. O(n log n)."""
        if not len(self.start):
            return np.full(len(start), -1, np.int64)
        return innermost(thread, start, end, self.thread, self.start, self.end, self.parent, ROUNDING, TOLERANCE)


class Paths:
    """The paths of nested modules, numbered as they come: `texts`. A module that calls itself keeps its path."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._number: dict[str, int] = {}

    def below(self, outer: Int64, name: Int64, names: list[str]) -> Int64:
        """Returns for each pair the number of the path of `names[name]` below the path `outer`, -1 for outermost."""
        if not len(outer):
            return outer
        pairs, which = np.unique(np.stack((outer, name)), axis=1, return_inverse=True)
        numbers = [self.number(self._below(path, names[code])) for path, code in pairs.T.tolist()]
        return np.array(numbers, np.int64)[which.reshape(-1)]

    def _below(self, outer: int, name: str) -> str:
        if outer < 0:
            return name
        path = self.texts[outer]
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
    code, unnamed = np.full(len(calls.code), -1, np.int64), np.arange(len(calls.code))
    while len(unnamed):  # once per level
        outer = RowMap(code)[calls.parent[unnamed]]
        ready = (calls.parent[unnamed] < 0) | (outer >= 0)
        code[unnamed[ready]] = paths.below(outer[ready], calls.code[unnamed[ready]], names)
        unnamed = unnamed[~ready]
    return calls._replace(code=code, text=paths.texts)


def function_stack(rows: RecordedPython) -> Stack:
    """Returns the calls of functions, named as `train.py(12): forward`."""
    return _nested(rows, ~rows.name.where(lambda name: name.startswith(MODULE)))


def _nested(rows: RecordedPython, chosen: Bool) -> Stack:
    thread, start, end = (column[chosen] for column in (rows.thread, rows.start, rows.end))
    nesting = nest(thread, start, end)
    names: Categorical = rows.name.take(chosen)
    return Stack(thread, start, nesting.end, nesting.parent, names.codes.astype(np.int64), names.table)
