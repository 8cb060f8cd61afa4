"""Numbers calls by where in the program they stand: the same call of every step has the same number.

The same place is the same thread, call, path of op names and turn within a step. Where no steps are marked, the trace
is one step.
"""

import numpy as np

from ...schema.columns import ABSENT, Int64, Interner
from ...schema.linked import Calls, Ops
from ...schema.traces import are_step_marks

UNKNOWN = -2


class CallSites:
    """The places of the calls of one process; `step` is the number of the step that each call is in."""

    def __init__(self, calls: Calls, ops: Ops, parent: Int64) -> None:
        self._calls, self._ops, self._parent = calls, ops, parent
        marks = np.flatnonzero(are_step_marks(ops.name))
        marks = marks[ops.start[marks] != ABSENT]
        self._is_mark = np.zeros(len(ops), np.bool_)
        self._is_mark[marks] = True
        self.step = np.searchsorted(np.unique(ops.start[marks]), calls.start, side="right")
        # of no op (-1) is the last
        self._paths = np.full(len(ops) + 1, UNKNOWN, np.int64).data
        self._paths[-1] = -1
        self._numbers = Interner[tuple[int, ...]]()

    def path(self, call: int) -> int:
        """Returns a number for the names of the ops around a call, but for those that mark steps."""
        below: list[int] = []
        op = int(self._calls.op_row[call])
        while self._paths[op] == UNKNOWN:
            below.append(op)
            op = int(self._parent[op])
        found = self._paths[op]
        for op in reversed(below):
            found = found if self._is_mark[op] else self._numbers[(found, int(self._ops.name.codes[op]))]
            self._paths[op] = found
        return found

    def of(self, calls: list[int], *also: list[int]) -> list[list[int]]:
        """Returns the positions in `calls`, which are in the order of time, that are of one place; of one place are the
        same columns `also`.
        """
        turns: dict[tuple[int, ...], int] = {}
        places: dict[tuple[int, ...], list[int]] = {}
        for position, (call, *columns) in enumerate(zip(calls, *also, strict=True)):
            key = (int(self._calls.thread[call]), int(self._calls.name.codes[call]), self.path(call), *columns)
            turn = (int(self.step[call]), *key)
            turns[turn] = turns.get(turn, -1) + 1
            places.setdefault((turns[turn], *key), []).append(position)
        return list(places.values())
