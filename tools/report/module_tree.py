"""The table of modules as a tree, whose branches a reader can open and close."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..analyses import Table
from .cells import Row, cell

MOST = 2000
OPEN_TO = 2
"""Branches of less depth are open from the start."""


class Branch(NamedTuple):
    """A module: its name and path, its share of the total in percent, the texts of its columns, and its children."""

    name: str
    path: str
    share: float
    cells: list[str]
    open: bool
    inner: "list[Branch]"


class ModuleTree(NamedTuple):
    """The headings of the columns, and the outermost modules."""

    headings: list[str]
    branches: list[Branch]


def module_time(table: Table) -> str:
    """Returns which time of a table of modules to show: `device`, or `host` if nothing ran on a device."""
    return "device" if np.asarray(table["device_subtree"], np.float64).any() else "host"


def module_tree(table: Table) -> ModuleTree:
    """Returns the tree of a table of modules, rank after rank; of a very long table only the largest modules."""
    time = module_time(table)
    columns = {
        f"{time} [µs]": (f"{time}_subtree", "µs"), "self [µs]": (f"{time}_self", "µs"), "of all [%]": ("share", "%"),
        "critical path [%]": ("critical_pct", "%"), "GFLOP": ("gflop", ""),
    }  # fmt: skip
    rows = table.rows()
    several = len({row["rank"] for row in rows}) > 1
    total_of_rank: dict[int, float] = {}
    for row in rows:
        if row["depth"] == 0:
            total_of_rank[row["rank"]] = total_of_rank.get(row["rank"], 0.0) + (row[f"{time}_subtree"] or 0.0)
    above: list[list[Branch]] = [[]]
    for row in _largest(rows, f"{time}_subtree"):
        depth, total = row["depth"], total_of_rank[row["rank"]]
        row["share"] = 100 * (row[f"{time}_subtree"] or 0.0) / total if total else 0.0
        row["gflop"] = None if row["operations_subtree"] is None else row["operations_subtree"] / 1e9
        cells = [cell(row[name], name, unit) for name, unit in columns.values()]
        name = f"rank {row['rank']} · {row['name']}" if several and not depth else row["name"]
        branch = Branch(name, row["path"], row["share"], cells, depth < OPEN_TO and not several, [])
        above[depth].append(branch)
        above[depth + 1 :] = [branch.inner]
    not_empty = [position for position, _ in enumerate(columns) if any(branch.cells[position] for branch in above[0])]
    return ModuleTree(
        [[*columns][position] for position in not_empty], [_only(branch, not_empty) for branch in above[0]]
    )


def _largest(rows: list[Row], column: str) -> Iterator[Row]:
    """Yields the MOST largest rows in their order; a module's parent is at least as large and comes before it."""
    sizes = np.array([row[column] or 0.0 for row in rows], np.float64)
    for position in sorted(np.argsort(-sizes, kind="stable")[:MOST].tolist()):
        yield rows[position]


def _only(branch: Branch, columns: list[int]) -> Branch:
    """Returns the branch with only the used columns."""
    inner = [_only(child, columns) for child in branch.inner]
    return branch._replace(cells=[branch.cells[position] for position in columns], inner=inner)
