"""Which op called which, by rows. Parents do not go round: circles are cut where traces are linked and where linked
files are read.
"""

from ..columns import Rows, Tree, parent_rows
from .linked_trace import Ops


def op_parents(ops: Ops) -> Rows:
    """Returns for each op the row of the op that called it, -1 for none; an op that names itself is outermost. O(n log
    n).
    """
    return parent_rows(ops.id, ops.parent_id)


def op_tree(ops: Ops) -> Tree:
    """Returns the tree of calls, of which those of one op are in order of time. O(n log n)."""
    return Tree.of(op_parents(ops), ops.start)
