"""Assigns kernels to ops, and divides the work of an op among its kernels.

A kernel belongs to the op that launched it, if the table has a rule for that; otherwise to the nearest enclosing op
with a rule, unless other launching ops inside that one do its work. The kernels of an op share its operations and bytes
in proportion to their measured time, so sums are the op's, and all kernels have its operations per byte.
"""

from collections.abc import Sequence

import numpy as np

from ...schema.columns import Bool, OpRows, nearest
from .op_works import OpWorks


def working_ops(launching: OpRows, parent: OpRows, works: OpWorks) -> OpRows:
    """Returns, for each launching op, the op whose work its kernels do, -1 where there is none. Linear.

    `parent` is the row of the op that encloses each op, -1 for none.
    """
    has_rule = works.has_rule[launching]
    with_rule, without_rule = OpRows(launching[has_rule]), OpRows(launching[~has_rule])
    families = works.family[with_rule]
    # an op that encloses others of its family delegates its work to them
    encloses_family = np.zeros(len(with_rule), np.bool_)
    for family in np.unique(families).tolist():
        of_family = families == family
        members = OpRows(with_rule[of_family])
        encloses_family[of_family] = _enclosing(members, parent)[members]
    is_worker = np.zeros(len(parent), np.bool_)
    is_worker[with_rule[~encloses_family]] = True
    above = nearest(works.has_rule, parent)[without_rule]
    does_work_of_above = is_worker[above] | ~_enclosing(with_rule, parent)[above]
    working_op = OpRows(np.empty_like(launching))
    working_op[has_rule] = np.where(encloses_family, -1, with_rule)
    working_op[~has_rule] = np.where(does_work_of_above, above, -1)
    return working_op


def _enclosing(rows: OpRows, parent: OpRows) -> Bool:
    """Returns which ops enclose one of these rows, directly or not."""
    encloses = np.zeros(len(parent), np.bool_)
    above = parent[rows]
    while (above := np.unique(above[above >= 0])).size:
        above = above[~encloses[above]]
        encloses[above] = True
        above = parent[above]
    return encloses


def shares(total: int, times: Sequence[int]) -> list[int]:
    """Returns the total divided in proportion to the times, in whole numbers; a time of 0 counts as 1 ns.

    >>> shares(10, [1, 1, 1])
    [3, 3, 4]
    """
    weights = [max(time, 1) for time in times]
    whole, before, given_before, parts = sum(weights), 0, 0, []
    for weight in weights:
        before += weight
        until = total * before // whole
        parts.append(until - given_before)
        given_before = until
    return parts
