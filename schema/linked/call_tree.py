"""Which op called which, by rows.

Parents never go round in a circle: circles are cut where traces are linked and where linked files are read.
"""

from ..columns import OpRows, Tree, parent_rows
from .linked_trace import Ops


def op_parents(ops: Ops) -> OpRows:
    """Returns for each op the row of the op that called it, -1 for none. O(n log n).

    An op that names itself as its parent is outermost.
    """
    return OpRows(parent_rows(ops.id, ops.parent_id))


def op_tree(ops: Ops) -> Tree:
    """Returns the tree of ops; those that one op called are in order of time. O(n log n)."""
    return Tree.of(op_parents(ops), ops.start)
