"""The call tree of host ops by columns: sums over subtrees, preorder ranges, paths from the root. Linear in ops, but for a sort."""

from dataclasses import dataclass

import numpy as np

from ....schema.columns import Bool, Int32, Int64, begins
from ....schema.linked import Ops

USER_SCOPE = 7


@dataclass(slots=True)
class OpTree:
    """n ops: `parent` is the row of the op around each, -1 for roots.

    `levels[d]` holds the rows of depth d, those of one parent together and in order of time. `first` numbers the ops in preorder; the
    subtree of row r, itself included, has the numbers `first[r]` … `last[r]` - 1.
    """

    parent: Int64
    levels: list[Int64]
    first: Int64
    last: Int64

    def subtree_sums(self, own: Int64) -> Int64:
        """For each op the sum of a column over its subtree; each op's sum is added to its parent's once."""
        total = own.copy()
        for rows in reversed(self.levels[1:]):
            np.add.at(total, self.parent[rows], total[rows])
        return total

    def is_outermost(self, kind: Int32 | Int64) -> Bool:
        """Which ops lie in no op of their own kind, by a number from 0 on for each."""
        outermost = np.ones(len(self.parent), np.bool_)
        order = np.lexsort((self.first, kind))
        # the ops of a kind lie in the order of their numbers, in which each one's subtree is a range
        extent, code = len(order) + 1, kind[order].astype(np.int64)
        until = np.maximum.accumulate(self.last[order] + code * extent)
        outermost[order[1:]] = self.first[order[1:]] + code[1:] * extent >= until[:-1]
        return outermost

    def path(self, row: int) -> list[int]:
        """The rows from the root to an op, itself included; none for -1."""
        found = []
        while row >= 0:
            found.append(row)
            row = int(self.parent[row])
        return found[::-1]


def op_tree(ops: Ops) -> OpTree:
    """The tree by the recorded parents. Ops that are their own ancestors, as no trace should have them, become roots."""
    parent = _parent_rows(ops)
    levels = _levels(parent, ops.start)
    lost = np.ones(len(ops), np.bool_)
    for rows in levels:
        lost[rows] = False
    if lost.any():
        parent[lost] = -1
        levels = _levels(parent, ops.start)
    size = np.ones(len(ops), np.int64)
    for rows in reversed(levels[1:]):
        np.add.at(size, parent[rows], size[rows])
    first = np.zeros(len(ops), np.int64)
    for rows in levels:
        above = parent[rows]
        elder = np.cumsum(size[rows]) - size[rows]
        eldest = np.maximum.accumulate(np.where(begins(above), elder, 0))
        first[rows] = elder - eldest + np.where(above >= 0, first[above] + 1, 0)
    return OpTree(parent, levels, first, first + size)


def _parent_rows(ops: Ops) -> Int64:
    order = np.argsort(ops.id, kind="stable")
    if not len(order):
        return order
    place = order[np.minimum(np.searchsorted(ops.id, ops.parent_id, sorter=order), len(order) - 1)]
    return np.where((ops.id[place] == ops.parent_id) & (place != np.arange(len(order))), place, -1)


def _levels(parent: Int64, start: Int64) -> list[Int64]:
    children = np.lexsort((start, parent))
    above = parent[children]
    bounds = np.searchsorted(above, np.arange(len(parent) + 1))
    levels = [children[: int(bounds[0])]] if len(parent) else []
    while levels and len(levels[-1]):
        begin, count = bounds[levels[-1]], bounds[levels[-1] + 1] - bounds[levels[-1]]
        within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        levels.append(children[np.repeat(begin, count) + within])
    return levels[:-1]
