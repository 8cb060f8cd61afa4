"""Which control dependencies say nothing that data dependencies do not: simulators obey them or not, and must run alike."""

import numpy as np

from ...schema.columns import Bool, Int64, previous_in_group
from ..context import Edges


def implied(control: Edges, data: Edges, lane: Int64) -> Bool:
    """The control edges that follow from data edges: directly, or along a lane's chain. Linear but for sorts.

    A lane's chain goes on where a row depends on the one before it, itself or through one other node. What takes a longer way counts
    as not implied.
    """
    count = len(lane)
    keys = np.sort(data.target * count + data.source)

    def is_edge(source: Int64, target: Int64) -> Bool:
        place = np.searchsorted(keys, target * count + source)
        return np.asarray((source >= 0) & (keys[np.minimum(place, len(keys) - 1)] == target * count + source))

    if not len(keys):
        return np.zeros(len(control.kind), np.bool_)
    order = np.argsort(lane, kind="stable")
    before = previous_in_group(order, lane)[data.target]
    chained = np.zeros(count, np.bool_)
    chained[data.target[(data.source == before) | is_edge(before, data.source)]] = True
    chain = np.empty(count, np.int64)
    chain[order] = np.cumsum(~chained[order])
    same = (chain[control.source] == chain[control.target]) & (control.source < control.target)
    return np.asarray(same | is_edge(control.source, control.target))
