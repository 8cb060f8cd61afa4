"""Where the critical path goes from one rank to another: through a collective or a message that both shared."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from ...schema.columns import Categorical, Int64, Rows
from .critical_path import critical_path
from .execution import Replay


class Crossings(NamedTuple):
    """The crossings in order of time: the communicating node, and the positions of the ranks before and after it."""

    node: Rows
    source: Int64
    target: Int64


def path_nodes(replay: Replay) -> tuple[Rows, Rows]:
    """Returns the rows of the schedule on the critical path, and the node of each.

    A transfer between ranks is of the node that came last to it.
    """
    schedule, count = replay.schedule, len(replay.work)
    node_of = np.full(len(schedule.end_ns), -1)
    shared = np.bincount(schedule.finish_row, minlength=len(node_of)) > 1
    node_of[schedule.finish_row] = np.arange(count)
    node_of[shared] = -1
    node_of[:count] = np.arange(count)
    path = critical_path(replay).row
    last_known = np.maximum.accumulate(np.where(node_of[path] >= 0, np.arange(len(path)), 0))
    return path, node_of[path[last_known]]


def crossings(replay: Replay) -> Crossings:
    """Returns where the critical path goes from rank to rank. O(n + e)."""
    work, (path, node) = replay.work, path_nodes(replay)
    rank = work.ranks_of(node)
    before = np.flatnonzero(np.diff(rank))
    # on devices a rank goes on after the transfer; on hosts each member takes its own time after the last arrival
    ends_itself = (path[before + 1] >= len(work)) & (replay.schedule.cost_ns[path[before + 1]] > 0)
    return Crossings(np.where(ends_itself, node[before + 1], node[before]), rank[before], rank[before + 1])


def crossing_names(replay: Replay) -> dict[str, int]:
    """Returns how often the critical path goes from rank to rank by the name of what both shared, most often first."""
    names = Categorical.joined([graph.name for graph in replay.work.graphs])
    return dict(Counter(map(names.__getitem__, crossings(replay).node.tolist())).most_common())
