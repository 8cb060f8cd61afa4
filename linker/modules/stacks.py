"""The stacks of Python's calls, of modules and of functions each for itself: which call is the innermost one around a span of a thread."""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ROUNDING, TOLERANCE, Bool, Int64, Rows, Strings, innermost, nest
from ..readers import PythonRows

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
        """For each span the row of the innermost call around it, -1 for none. O(n log n)."""
        if not len(self.start):
            return np.full(len(start), -1, np.int64)
        return innermost(thread, start, end, self.thread, self.start, self.end, self.parent, ROUNDING, TOLERANCE)


def module_stack(rows: PythonRows) -> Stack:
    """The calls of modules, each called by its path, as `Net_0/Sequential_0/Linear_2`."""
    calls = _nested(rows, rows.name.where(lambda name: name.startswith(MODULE)))
    names = [name.removeprefix(MODULE) for name in calls.text]
    places: dict[tuple[int, int], int] = {}
    paths: list[str] = []
    code, waiting = np.full(len(calls.code), -1, np.int64), np.arange(len(calls.code))
    while len(waiting):  # once per level
        above = np.where(calls.parent[waiting] >= 0, code[calls.parent[waiting]], -1)
        ready = (calls.parent[waiting] < 0) | (above >= 0)
        pairs, which = np.unique(np.stack((above, calls.code[waiting]))[:, ready], axis=1, return_inverse=True)
        known = [_place(outer, name, names, places, paths) for outer, name in pairs.T.tolist()]
        code[waiting[ready]] = np.array(known, np.int64)[which.reshape(-1)]
        waiting = waiting[~ready]
    return calls._replace(code=code, text=paths)


def _place(outer: int, name: int, names: list[str], places: dict[tuple[int, int], int], paths: list[str]) -> int:
    """The path of a module below another; one that calls itself stays where it is."""
    if outer >= 0 and paths[outer].rpartition(SEPARATOR)[2] == names[name]:
        return outer
    if (outer, name) not in places:
        places[outer, name] = len(paths)
        paths.append(f"{paths[outer]}{SEPARATOR}{names[name]}" if outer >= 0 else names[name])
    return places[outer, name]


def function_stack(rows: PythonRows) -> Stack:
    """The calls of functions, as `train.py(12): forward`."""
    return _nested(rows, ~rows.name.where(lambda name: name.startswith(MODULE)))


def _nested(rows: PythonRows, chosen: Bool) -> Stack:
    thread, start, end = (column[chosen] for column in (rows.thread, rows.start, rows.end))
    nesting = nest(thread, start, end)
    names: Strings = rows.name.take(chosen)
    return Stack(thread, start, nesting.end, nesting.parent, names.codes.astype(np.int64), names.table)
