"""Whose work a kernel does: which op it belongs to, and how the kernels of one op share that op's work.

A kernel belongs to the op that launched it, if the table has that; else to the nearest op around it that the table has,
unless other ops in that one, which launched too, do its work. The kernels of an op share operations and bytes in
proportion to their measured time, so that the sums are the op's, and all have its operations per byte.
"""

from collections.abc import Sequence

import numpy as np

from ...schema.columns import Bool, Int64, nearest
from .op_works import OpWorks


def owners(launching: Int64, parent: Int64, works: OpWorks) -> dict[int, int]:
    """Returns for each launching op the op whose work its kernels do; ops without one are not there. `parent` is -1 for
    none. Linear.
    """
    has_rule = works.has_rule[launching]
    own = launching[has_rule]
    families = works.family[own]
    # an op around others of its family has handed its work on to them
    handed_on = np.zeros(len(own), np.bool_)
    for family in np.unique(families).tolist():
        mine = families == family
        handed_on[mine] = _around(own[mine], parent)[own[mine]]
    found = {row: row for row in own[~handed_on].tolist()}
    others, around, does_itself = launching[~has_rule], _around(own, parent), frozenset(found)
    above = nearest(works.has_rule, parent)[others]
    pairs = zip(others.tolist(), above.tolist(), strict=True)
    found |= {row: owner for row, owner in pairs if owner in does_itself or (owner >= 0 and not around[owner])}
    return found


def _around(rows: Int64, parent: Int64) -> Bool:
    """Returns which ops called one of these, directly or not."""
    around = np.zeros(len(parent), np.bool_)
    above = parent[rows]
    while (above := np.unique(above[above >= 0])).size:
        above = above[~around[above]]
        around[above] = True
        above = parent[above]
    return around


def shares(total: int, times: Sequence[int]) -> list[int]:
    """Returns the total divided in proportion to the times, in whole numbers; kernels of no measured time count as 1
    ns.

    >>> shares(10, [1, 1, 1])
    [3, 3, 4]
    """
    if len(times) == 1:
        return [total]
    weights = [max(time, 1) for time in times]
    whole, before, given, found = sum(weights), 0, 0, []
    for weight in weights:
        before += weight
        until = total * before // whole
        found.append(until - given)
        given = until
    return found
