"""The table of modules as a tree, whose branches a reader can open and close, and as an icicle graph: each module below
the one that calls it, as wide as its time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..analyses import Table
from .cells import Row, cell
from .drawing import SERIES, Chart, axis, chart, data, fields_of, hover, mark

MOST = 2000
OPEN_TO = 2
"""Branches of less depth are open from the start."""
NARROWEST, MOST_RANKS = 0.001, 4
MODULE, LETTER = 22, 6.4
"""Sizes in px: the height of a module in the graph, the width of a letter."""


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


def _time_shown(table: Table) -> str:
    """Returns which time of a table of modules to show: `device`, or `host` if nothing ran on a device."""
    return "device" if np.asarray(table["device_subtree"], np.float64).any() else "host"


def module_tree(table: Table) -> ModuleTree:
    """Returns the tree of a table of modules, rank after rank; of a very long table only the largest modules."""
    time = _time_shown(table)
    columns = {
        f"{time} [µs]": (f"{time}_subtree", "µs"), "self [µs]": (f"{time}_self", "µs"), "of all [%]": ("share", "%"),
        "critical path [%]": ("critical_pct", "%"), "GFLOP": ("gflop", ""),
    }  # fmt: skip
    rows = table.rows()
    total_of_rank = dict.fromkeys((row["rank"] for row in rows), 0.0)
    for row in rows:
        total_of_rank[row["rank"]] += 0.0 if row["depth"] else row[f"{time}_subtree"] or 0.0
    for row in rows:
        total = total_of_rank[row["rank"]]
        row["share"] = 100 * (row[f"{time}_subtree"] or 0.0) / total if total else 0.0
        row["gflop"] = None if row["operations_subtree"] is None else row["operations_subtree"] / 1e9
    largest = _largest(rows, f"{time}_subtree")
    columns = {
        title: column
        for title, column in columns.items()
        if any(cell(row[column[0]]) for row in largest if not row["depth"])
    }
    several = len(total_of_rank) > 1
    above: list[list[Branch]] = [[]]
    for row in largest:
        depth = row["depth"]
        name = f"rank {row['rank']} · {row['name']}" if several and not depth else row["name"]
        texts = [cell(row[column], column, unit) for column, unit in columns.values()]
        branch = Branch(name, row["path"], row["share"], texts, depth < OPEN_TO and not several, [])
        above[depth].append(branch)
        above[depth + 1 :] = [branch.inner]
    return ModuleTree([*columns], above[0])


def _largest(rows: list[Row], column: str) -> list[Row]:
    """Returns the MOST largest rows in their order; a module's parent is at least as large and comes before it."""
    sizes = np.array([row[column] or 0.0 for row in rows], np.float64)
    return [rows[position] for position in sorted(np.argsort(-sizes, kind="stable")[:MOST].tolist())]


def modules(table: Table) -> list[Chart]:
    """Returns a graph of device time, or of host time without a device, for each of the first ranks."""
    time, of_rank = _time_shown(table), dict[int, list[Row]]()
    for row in table.rows():
        of_rank.setdefault(row["rank"], []).append(row)
    charts = []
    for rank, rows in [*of_rank.items()][:MOST_RANKS]:
        title = f"rank {rank}, time on the {time}" if len(of_rank) > 1 else f"time on the {time}"
        charts += _icicles(rows, time, title)
    return charts


def _icicles(rows: list[Row], time: str, title: str) -> list[Chart]:
    """Returns the graph of one rank, none if its modules take no time."""
    bars = list(_bars(rows, time))
    whole = sum(bar["time"] for bar in bars if bar["depth"] == 0)
    longest = sorted(bars, key=lambda bar: bar["from"] - bar["to"])[:MOST]
    drawn = [{**bar, "of_all": 100 * bar["time"] / whole} for bar in longest if bar["time"] > NARROWEST * whole]
    if not drawn:
        return []
    tooltip = hover("path", "time [µs]", "of_all [%]", "self [µs]", "critical_pct [%]", "ops []", "activities []")
    scale = {"domain": [0, whole], "nice": False}
    shared = {
        "x": axis("from [µs]", "time", scale=scale, axis={"tickCount": 6, "grid": False}),
        "y": {"field": "depth", "type": "ordinal", "title": None, "axis": None},
        "tooltip": tooltip,
    }
    kinds = {"field": "kind", "type": "nominal", "scale": {"range": SERIES}, "legend": None}
    boxes = {
        "mark": mark("rect", stroke="var(--paper)", fillOpacity=0.45),
        "encoding": shared | {"x2": {"field": "to"}, "color": kinds},
    }
    letters = f"(datum.to - datum.from) / {whole} * width / {LETTER} - 2"
    names = {
        "transform": [{"calculate": f"{letters} > 2 ? truncate(datum.name, {letters}) : ''", "as": "label"}],
        "mark": mark("text", align="left", dx=4, fontSize=11.5, color="var(--ink)", clip=True),
        "encoding": shared | {"text": {"field": "label", "type": "nominal"}},
    }
    return [
        chart(
            MODULE * (1 + max(bar["depth"] for bar in drawn)),
            title={"text": title, "anchor": "start", "color": "var(--muted)", "fontSize": 12},
            data=data(drawn, "name", "kind", "depth", "from", "to", *fields_of(tooltip)),
            layer=[boxes, names],
        )
    ]


def _bars(rows: list[Row], time: str) -> Iterator[Row]:
    """Yields each module with its begin and end: after its earlier siblings, within its parent."""
    ends = [0.0]
    for row in rows:
        depth, lasts = row["depth"], row[f"{time}_subtree"] or 0.0
        begin = ends[depth]
        ends[depth:] = [begin + lasts, begin]
        kind, own = row["name"].rpartition("_")[0] or row["name"], row[f"{time}_self"]
        yield {**row, "kind": kind, "time": lasts, "self": own, "from": begin, "to": begin + lasts}
