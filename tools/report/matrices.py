"""Draws pairs of ranks as a matrix."""

from collections.abc import Sequence

import altair as alt

from ..analyses import Table
from .cells import Row
from .drawing import Chart, data, hover

MOST_RANKS, LARGEST, CELL = 64, 416, 40
"""The most ranks that are drawn, and the largest sizes of the matrix and of a cell in px."""


def collectives_over_ranks_waits(table: Table) -> list[Chart]:
    """Returns how long the ranks of rows wait for those of columns."""
    return _square(table.rows(), ("rank", "rank that waits"), ("waits_for", "for rank"), "time [µs]", "collectives")


def collectives_over_ranks_all_to_all(table: Table) -> list[Chart]:
    """Returns for each group what the ranks of rows send to those of columns."""
    rows = table.rows()
    return [
        chart
        for group in dict.fromkeys(row["group"] for row in rows)
        for chart in _square(
            [row for row in rows if row["group"] == group],
            ("source", "from rank"),
            ("destination", "to rank"),
            "size [B]",
            "group",
        )
    ]


def _square(rows: Sequence[Row], line: tuple[str, str], column: tuple[str, str], value: str, *more: str) -> list[Chart]:
    lines, columns = (sorted({row[name] for row in rows}) for name, _ in (line, column))
    if not 1 < len(columns) <= MOST_RANKS:
        return []
    cell, field = min(LARGEST // len(columns), CELL), value.partition(" ")[0]
    cells = (
        alt.Chart(data(rows))
        .mark_rect(stroke="var(--paper)")
        .encode(
            alt.X(f"{column[0]}:O", title=column[1], scale=alt.Scale(domain=columns), axis=alt.Axis(orient="top")),
            alt.Y(f"{line[0]}:O", title=line[1], scale=alt.Scale(domain=lines)),
            alt.Opacity(f"{field}:Q", title=value, scale=alt.Scale(range=[0.05, 1])),
            color=alt.value("var(--communication)"),
            tooltip=hover(line[0], column[0], value, *more),
        )
    )
    return [cells.properties(width=cell * len(columns), height=cell * len(lines))]
