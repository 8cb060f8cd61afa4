"""The stacks of Python's calls, of modules and of functions each for itself: which call is the innermost one around a
span of a thread.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ROUNDING, TOLERANCE, Bool, Categorical, Int64, RowMap, Rows, innermost, nest
from ..readers import RecordedPython

MODULE = "nn.Module: "
SEPARATOR = "/"


class Stack(NamedTuple):
    """n calls, each with the row of the one around it (-1 for none), and what it is called: `text` of its `code`."""

    thread: Int64
    start: Int64
    end: Int64
    parent: Rows
    code: Int64
    text: list[str]

    def around(self, thread: Int64, start: Int64, end: Int64) -> Rows:
        """Returns for each span the row of the innermost call around it, -1 for none. O(n log n)."""
        if not len(self.start):
            return np.full(len(start), -1, np.int64)
        return innermost(thread, start, end, self.thread, self.start, self.end, self.parent, ROUNDING, TOLERANCE)


class Paths:
    """The paths of modules in each other, numbered as they come: `texts`. A module that calls itself stays where it is."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._number: dict[str, int] = {}

    def below(self, outer: Int64, name: Int64, names: list[str]) -> Int64:
        """Returns for each pair the number of the path `names[name]` below path `outer`, -1 for below none."""
        if not len(outer):
            return outer
        pairs, which = np.unique(np.stack((outer, name)), axis=1, return_inverse=True)
        numbers = [self.number(self._below(above, names[code])) for above, code in pairs.T.tolist()]
        return np.array(numbers, np.int64)[which.reshape(-1)]

    def _below(self, outer: int, name: str) -> str:
        if outer < 0:
            return name
        above = self.texts[outer]
        return above if above.rpartition(SEPARATOR)[2] == name else f"{above}{SEPARATOR}{name}"

    def number(self, text: str) -> int:
        """Returns the number of a path, a new one for a new path."""
        if text not in self._number:
            self._number[text] = len(self.texts)
            self.texts.append(text)
        return self._number[text]


def module_stack(rows: RecordedPython) -> Stack:
    """Returns the calls of modules, each called by its path, as `Net_0/Sequential_0/Linear_2`."""
    calls, paths = _nested(rows, rows.name.where(lambda name: name.startswith(MODULE))), Paths()
    names = [name.removeprefix(MODULE) for name in calls.text]
    code, waiting = np.full(len(calls.code), -1, np.int64), np.arange(len(calls.code))
    while len(waiting):  # once per level
        above = RowMap(code)[calls.parent[waiting]]
        ready = (calls.parent[waiting] < 0) | (above >= 0)
        code[waiting[ready]] = paths.below(above[ready], calls.code[waiting[ready]], names)
        waiting = waiting[~ready]
    return calls._replace(code=code, text=paths.texts)


def function_stack(rows: RecordedPython) -> Stack:
    """Returns the calls of functions, as `train.py(12): forward`."""
    return _nested(rows, ~rows.name.where(lambda name: name.startswith(MODULE)))


def _nested(rows: RecordedPython, chosen: Bool) -> Stack:
    thread, start, end = (column[chosen] for column in (rows.thread, rows.start, rows.end))
    nesting = nest(thread, start, end)
    names: Categorical = rows.name.take(chosen)
    return Stack(thread, start, nesting.end, nesting.parent, names.codes.astype(np.int64), names.table)
