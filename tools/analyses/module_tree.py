"""Paths of modules as a tree, depth first, siblings in the order in which they are given."""

from collections.abc import Sequence
from typing import NamedTuple

from ...linker.modules import SEPARATOR
from .table import Floats

OUTSIDE = "outside of modules"
"""The name of the row for everything outside of modules; its path is empty."""


class ModuleTree(NamedTuple):
    """Modules, each after its parent: their paths, the rows of their parents (-1 for none) and their depths."""

    path: list[str]
    parent: list[int]
    depth: list[int]

    @property
    def names(self) -> list[str]:
        """The last parts of the paths."""
        return [path.rpartition(SEPARATOR)[2] or OUTSIDE for path in self.path]

    def subtree(self, self_values: Floats) -> Floats:
        """Returns for each module the sum over itself and all modules in it."""
        total = self_values.copy()
        for row in reversed(range(len(total))):
            if self.parent[row] >= 0:
                total[self.parent[row]] += total[row]
        return total


def module_tree(paths: Sequence[str]) -> tuple[ModuleTree, list[int]]:
    """Returns the tree of these paths and of all their parents, and the row of each path in it."""
    below: dict[str, list[str]] = {"": []}
    seen: set[str] = set()
    for path in paths:
        above = ""
        for end in (
            [*(position for position, letter in enumerate(path) if letter == SEPARATOR), len(path)] if path else []
        ):
            prefix = path[:end]
            if prefix and prefix not in seen:
                seen.add(prefix)
                below.setdefault(above, []).append(prefix)
            above = prefix
    tree, row = ModuleTree([], [], []), dict[str, int]()
    pending = [("", -1, 0)] if "" in paths else []
    pending += [(path, -1, 0) for path in reversed(below[""])]
    while pending:
        path, parent, depth = pending.pop()
        row[path] = len(tree.path)
        tree.path.append(path)
        tree.parent.append(parent)
        tree.depth.append(depth)
        pending += [(inner, row[path], depth + 1) for inner in reversed(below.get(path, ()))] if path else []
    return tree, [row[path] for path in paths]
