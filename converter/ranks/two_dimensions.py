"""Networks of two dimensions, within nodes and across them, and which numbers of ranks in a node a job's groups allow.

Ranks of a node are neighbours. The simulator sends between two ranks within the node unless they have the same place in
their nodes. So each group has to lie within a node, at one place of several nodes, or have all ranks.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ...schema.graph import CollectiveType
from .simulated_cost import step_cost
from .stages import stages
from .transfer_cost import Cost, Factors, Transfer

WITHIN, ACROSS, ALL = range(3)


def place(members: Sequence[int], node: int, ranks: int) -> int | None:
    """Returns whether members lie WITHIN a node of so many ranks, ACROSS nodes or are ALL ranks, None if neither.

    >>> place([4, 6], 4, 8) == WITHIN, place([1, 5], 4, 8) == ACROSS, place([0, 1, 4], 4, 8)
    (True, True, None)
    """
    if len(members) == ranks:
        return ALL
    if len({member // node for member in members}) == 1:
        return WITHIN
    return ACROSS if len({member % node for member in members}) == 1 else None


def node_sizes(groups: Iterable[Sequence[int]], ranks: int) -> list[int]:
    """Returns how many ranks a node may have so that groups are within nodes and across them, and nowhere else.

    >>> node_sizes([(0, 1, 2, 3), (4, 5, 6, 7), (0, 4)], 8)
    [4]
    """
    groups = list(groups)
    return [
        node
        for node in range(2, ranks)
        if ranks % node == 0
        and {WITHIN} < (places := {place(group, node, ranks) for group in groups}) - {None} == places
    ]


def has_neighbours_and_others(groups: Iterable[Sequence[int]], ranks: int) -> bool:
    """Returns whether some groups are neighbouring ranks and others are not: their networks may differ."""
    are_neighbours = {max(group) - min(group) == len(group) - 1 < ranks - 1 for group in groups}
    return len(are_neighbours) == 2


def costs(transfers: Sequence[Transfer], node: int, ranks: int, direct: bool) -> Factors:
    """Returns a row for each transfer: steps and bytes within nodes, then across them."""
    rows = np.zeros((len(transfers), 2, 2))
    for row, transfer in zip(rows, transfers, strict=True):
        where = place(transfer.ranks, node, ranks)
        if where == ALL:
            counts = node, ranks // node
            for dimension, kind, size in stages(transfer.kind, counts, transfer.size):
                row[dimension] += step_cost(kind, counts[dimension], size, direct)
        elif where is not None:
            row[where] += _cost_of_part(transfer)
    return rows.reshape(len(transfers), 4)


def _cost_of_part(transfer: Transfer) -> Cost:
    """Returns the cost in a group of some ranks, all of whose collectives are rings in a network of two dimensions."""
    return step_cost(transfer.kind, transfer.members, transfer.size, transfer.kind != CollectiveType.ALL_TO_ALL)
