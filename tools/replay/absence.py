"""Ranks of a job that are not replayed: communication with them keeps the time in which it waited for them."""

import numpy as np

from ..rank_rows import absent_ranks
from .node_class import NodeClass
from .workload import Workload

NAMED = 4


def absence(work: Workload) -> str:
    """Returns how many ranks are absent and what that means, "" if none are or the others communicate nothing."""
    world = max(graph.number("world_size", 0) for graph in work.graphs)
    absent = world - len(work.graphs)
    if absent <= 0 or not bool(np.any(work.node_class == NodeClass.COMMUNICATION)):
        return ""
    runs = [*absent_ranks((graph.number("rank", -1) for graph in work.graphs), world)]
    named = ", ".join(runs[:NAMED]) + (", …" if len(runs) > NAMED else "")
    verb, pronoun = ("are", "them") if absent > 1 else ("is", "it")
    return f"{absent:,} of {world:,} ranks {verb} absent ({named}): communication includes waiting for {pronoun}"
