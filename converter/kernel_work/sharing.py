"""Whose work a kernel does: which op it belongs to, and how the kernels of one op share that op's work.

A kernel belongs to the op that launched it, if the table has that; else to the nearest op around it that the table has, unless other
ops in that one, which launched too, do its work. The kernels of an op share operations and bytes in proportion to their measured
time, so that the sums are the op's, and all have its operations per byte.
"""

from collections.abc import Sequence

import numpy as np

from ...schema.columns import Bool, Int64
from .op_works import OpWorks


def owners(launching: Int64, parent: Int64, works: OpWorks) -> dict[int, int]:
    """For each launching op the op whose work its kernels do; ops without one are not there. `parent` is -1 for none. Linear."""
    has_rule = works.has_rule[launching]
    own = launching[has_rule]
    families = works.family[own]
    # an op around others of its family has handed its work on to them
    handed_on = np.zeros(len(own), np.bool_)
    for family in np.unique(families).tolist():
        mine = families == family
        handed_on[mine] = _around(own[mine], parent)[own[mine]]
    found = {row: row for row in own[~handed_on].tolist()}
    known: dict[int, int] = {}
    nearest = [(row, _nearest(row, parent, works.has_rule, known)) for row in launching[~has_rule].tolist()]
    around, does_itself = _around(own, parent), frozenset(found)
    found |= {row: above for row, above in nearest if above in does_itself or (above >= 0 and not around[above])}
    return found


def _around(rows: Int64, parent: Int64) -> Bool:
    """Which ops called one of these, directly or not."""
    around = np.zeros(len(parent), np.bool_)
    above = parent[rows]
    while (above := np.unique(above[above >= 0])).size:
        above = above[~around[above]]
        around[above] = True
        above = parent[above]
    return around


def _nearest(row: int, parent: Int64, has_rule: Bool, known: dict[int, int]) -> int:
    """The nearest op around this one that the table has, -1 for none; `known` are those of ops that were asked for before."""
    path, above = {row: None}, int(parent[row])
    while above >= 0 and not has_rule[above] and above not in known and above not in path:
        path[above] = None
        above = int(parent[above])
    # calls in a circle, as a damaged file may have them, lead nowhere
    found = known.get(above, -1 if above in path else above)
    known.update(dict.fromkeys(path, found))
    return found


def shares(total: int, times: Sequence[int]) -> list[int]:
    """The total divided in proportion to the times, in whole numbers; kernels of no measured time count as 1 ns.

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
