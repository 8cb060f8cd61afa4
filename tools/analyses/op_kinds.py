"""Groups ops into kinds, such as those of one name and shape, and sums over them."""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import Bool, Int32, Int64, Tree, group_ids, group_sums


@dataclass(slots=True)
class OpKinds:
    """Kinds of ops: the `row` of one op of each kind; for each op the `number` of its kind, and whether it is
    `outermost`, in no other op of its kind.
    """

    row: Int64
    number: Int64
    outermost: Bool

    def count(self) -> Int64:
        """Returns how many ops each kind has."""
        return np.bincount(self.number, minlength=len(self.row)).astype(np.int64)

    def total(self, values: Int64) -> Int64:
        """Returns the sum of the ops' values by kind."""
        return group_sums(self.number, values, len(self.row))

    def total_once(self, values: Int64) -> Int64:
        """Returns the sum by kind of values that include called ops: ops within an op of their kind do not add."""
        return group_sums(self.number[self.outermost], values[self.outermost], len(self.row))


def op_kinds(tree: Tree, rows: Int64, *columns: Int32 | Int64) -> OpKinds:
    """Returns the kinds of the ops in these rows: ops that are equal in all columns, which are over all ops."""
    kind = group_ids(*(column.astype(np.int64) for column in columns))
    _, first, number = np.unique(kind[rows], return_index=True, return_inverse=True)
    return OpKinds(rows[first], number, tree.is_outermost(kind)[rows])
