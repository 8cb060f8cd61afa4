"""Finds control dependencies that data dependencies imply: with only these, all simulators run the graph alike.

With data dependencies a → b → c along one lane, a control dependency of c on a is implied.
"""

import numpy as np

from ...schema.columns import Bool, Int64, previous_in_group
from ..context import Edges


def implied(control: Edges, data: Edges, lane: Int64) -> Bool:
    """Returns the control edges that follow from a data edge, or from the chain of a lane. Linear, apart from sorts.

    An edge that follows only from a path over several lanes does not count as implied.
    """
    if not len(data.kind):
        return np.zeros(len(control.kind), np.bool_)
    keys = np.sort(_keys(data.source, data.target, len(lane)))
    chain = _chains(data, keys, lane)
    along = (chain[control.source] == chain[control.target]) & (control.source < control.target)
    return np.asarray(along | _contains(keys, _keys(control.source, control.target, len(lane))))


def _chains(data: Edges, keys: Int64, lane: Int64) -> Int64:
    """Returns a number for each row, equal for neighbours on a lane if one depends on the other, directly or through
    one node.
    """
    order = np.argsort(lane, kind="stable")
    before = previous_in_group(order, lane)[data.target]
    chained = np.zeros(len(lane), np.bool_)
    chained[data.target[(data.source == before) | _contains(keys, _keys(before, data.source, len(lane)))]] = True
    chain = np.empty(len(lane), np.int64)
    chain[order] = np.cumsum(~chained[order])
    return chain


def _keys(source: Int64, target: Int64, count: int) -> Int64:
    """Returns a number for each pair of rows, -1 for a pair whose source is missing (-1)."""
    return np.where(source >= 0, target * count + source, -1)


def _contains(keys: Int64, pairs: Int64) -> Bool:
    """Returns which of the pairs, by their keys, are among the sorted keys."""
    position = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
    return np.asarray(keys[position] == pairs)
