"""Groups calls by call site, so that the same call of every step is recognised.

Calls are of one site if they have the same thread, name and path of op names, and are the same occurrence within their
step. Where no steps are marked, the trace is one step.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import count

import numpy as np

from ...schema.columns import ABSENT, Int64, Interner
from ...schema.linked import Calls, Ops, are_step_marks

UNKNOWN = -2


class CallSites:
    """The call sites of one process. `step` is the number of the step that each call is in."""

    def __init__(self, calls: Calls, ops: Ops, parent: Int64) -> None:
        self._calls, self._ops, self._parent = calls, ops, parent
        marks = np.flatnonzero(are_step_marks(ops.name))
        marks = marks[ops.start[marks] != ABSENT]
        self._is_mark = np.zeros(len(ops), np.bool_)
        self._is_mark[marks] = True
        self.step = np.searchsorted(np.unique(ops.start[marks]), calls.start, side="right")
        # the last entry is the path of calls in no op (-1)
        self._paths = np.full(len(ops) + 1, UNKNOWN, np.int64).data
        self._paths[-1] = -1
        self._path_numbers = Interner[tuple[int, ...]]()

    def path(self, call: int) -> int:
        """Returns a number for the names of the ops that enclose a call; ops that mark steps do not count."""
        new_ops: list[int] = []
        op = int(self._calls.op_row[call])
        while self._paths[op] == UNKNOWN:
            new_ops.append(op)
            op = int(self._parent[op])
        path = self._paths[op]
        for op in reversed(new_ops):
            path = path if self._is_mark[op] else self._path_numbers[(path, int(self._ops.name.codes[op]))]
            self._paths[op] = path
        return path

    def groups(self, calls: list[int], *columns: list[int]) -> list[list[int]]:
        """Returns the positions in `calls` of each call site. `calls` are in the order of time.

        Calls of one site also have the same values in `columns`.
        """
        occurrences = defaultdict[tuple[int, ...], Iterator[int]](count)
        sites = defaultdict[tuple[int, ...], list[int]](list)
        for position, (call, *values) in enumerate(zip(calls, *columns, strict=True)):
            key = (int(self._calls.thread[call]), int(self._calls.name.codes[call]), self.path(call), *values)
            in_step = (int(self.step[call]), *key)
            sites[(next(occurrences[in_step]), *key)].append(position)
        return list(sites.values())
