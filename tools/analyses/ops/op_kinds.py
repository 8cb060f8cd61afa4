"""Ops of one kind, as of one name and shape, and sums over them."""

from dataclasses import dataclass

import numpy as np

from ....schema.columns import Bool, Int32, Int64, Tree, group_ids, group_sums


@dataclass(slots=True)
class OpKinds:
    """m kinds of n ops: the `row` of one op of each kind, each op's `number` of its kind, and whether it lies in no op
    of its kind.
    """

    row: Int64
    number: Int64
    outermost: Bool

    def count(self) -> Int64:
        """Returns how many ops each kind has."""
        return np.bincount(self.number, minlength=len(self.row)).astype(np.int64)

    def total(self, values: Int64) -> Int64:
        """Returns per kind the sum of what each of the n ops has by itself."""
        return group_sums(self.number, values, len(self.row))

    def total_once(self, values: Int64) -> Int64:
        """Returns per kind the sum of what each of the n ops has with all that it called, so that ops inside one of
        their kind add nothing.
        """
        return group_sums(self.number[self.outermost], values[self.outermost], len(self.row))


def op_kinds(tree: Tree, rows: Int64, *columns: Int32 | Int64) -> OpKinds:
    """Returns the kinds of the ops in these rows, which differ by any of these columns over all ops."""
    kind = group_ids(*(column.astype(np.int64) for column in columns))
    _, first, number = np.unique(kind[rows], return_index=True, return_inverse=True)
    return OpKinds(rows[first], number, tree.is_outermost(kind)[rows])
