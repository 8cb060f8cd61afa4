"""Counts nodes that contradict the schema. They are reported, as they may change results, and not corrected."""

import numpy as np

from ..columns import Bool, IntegerBuilder, NodeIds, rows_of
from .nodes import NodeColumns, NodeProblem

NEGATIVE = "durations below 0; a node cannot end before it starts, write the graph again"
NO_TYPE = "collectives of a comm_type that is none; they are taken as of an unknown type, write the graph again"
DANGLING = "ctrl_deps on nodes that the graph lacks; they are ignored, write the graph again"


class NodeProblems:
    """Collects the problems of nodes block by block, in a few bytes per node."""

    def __init__(self) -> None:
        self._problems: dict[str, NodeProblem] = {}
        self._ids, self._called, self._callers = (IntegerBuilder() for _ in range(3))

    def add(self, nodes: NodeColumns) -> None:
        """Takes the next block."""
        for what, problem in nodes.problems.items():
            self._note(what, problem)
        self._note(NEGATIVE, node_problem(nodes.id, (nodes.duration_ns < 0) | (nodes.duration_micros < 0)))
        recorded = nodes.integers("comm_type", -1)
        self._note(NO_TYPE, node_problem(nodes.id, (recorded >= 0) & (nodes.collective_types() != recorded)))
        self._ids.add(nodes.id)
        self._called.add(nodes.id[nodes.ctrl_deps.rows()])
        self._callers.add(nodes.ctrl_deps.values)

    def notes(self, path: str) -> list[str]:
        """Returns a sentence for each kind of problem, after all blocks were added."""
        self._note(
            DANGLING,
            node_problem(NodeIds(self._called.column()), rows_of(self._ids.column(), self._callers.column()) < 0),
        )
        return [
            f"{path}: {problem.affected} {what.replace(';', f' (the first: node {problem.first_node});', 1)}"
            for what, problem in self._problems.items()
        ]

    def _note(self, what: str, problem: NodeProblem) -> None:
        if problem.affected:
            total = self._problems.get(what, NodeProblem(0, problem.first_node))
            self._problems[what] = NodeProblem(total.affected + problem.affected, total.first_node)


def node_problem(nodes: NodeIds, is_so: Bool) -> NodeProblem:
    """Returns the number of nodes that have a problem, and the first of them."""
    rows = np.flatnonzero(is_so)
    return NodeProblem(len(rows), int(nodes[rows[0]]) if len(rows) else -1)
