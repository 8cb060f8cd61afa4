"""What nodes of a graph say that the schema has no room for: it is told, as it may decide what comes out, and not mended."""

import numpy as np

from ..columns import Bool, NodeIds, NumberPieces, rows_of
from .nodes import Misfit, NodeColumns

NEGATIVE = "durations below 0; a node cannot end before it starts, write the graph again"
NO_TYPE = "collectives of a comm_type that is none; they are taken as of an unknown type, write the graph again"
DANGLING = "ctrl_deps on nodes that the graph lacks; they are ignored, write the graph again"


class Misfits:
    """Those of the nodes that were added so far, a block of a file at a time; a few bytes for each node."""

    def __init__(self) -> None:
        self._found: dict[str, Misfit] = {}
        self._ids, self._called, self._callers = (NumberPieces() for _ in range(3))

    def add(self, nodes: NodeColumns) -> None:
        """Takes the next block."""
        for what, found in nodes.misfits.items():
            self._note(what, found)
        self._note(NEGATIVE, misfit(nodes.id, (nodes.duration_ns < 0) | (nodes.duration_micros < 0)))
        recorded = nodes.integers("comm_type", -1)
        self._note(NO_TYPE, misfit(nodes.id, (recorded >= 0) & (nodes.collective_types() != recorded)))
        self._ids.add(nodes.id)
        self._called.add(nodes.id[nodes.ctrl_deps.rows()])
        self._callers.add(nodes.ctrl_deps.values)

    def remarks(self, path: str) -> list[str]:
        """A sentence for each kind, when all blocks were added."""
        self._note(DANGLING, misfit(self._called.column(), rows_of(self._ids.column(), self._callers.column()) < 0))
        return [
            f"{path}: {found.times} {what.replace(';', f' (the first: node {found.node});', 1)}"
            for what, found in self._found.items()
        ]

    def _note(self, what: str, found: Misfit) -> None:
        if found.times:
            known = self._found.get(what, Misfit(0, found.node))
            self._found[what] = Misfit(known.times + found.times, known.node)


def misfit(nodes: NodeIds, is_so: Bool) -> Misfit:
    """Of how many of the nodes something is so."""
    rows = np.flatnonzero(is_so)
    return Misfit(len(rows), int(nodes[rows[0]]) if len(rows) else -1)
