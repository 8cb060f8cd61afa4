"""Draws a tree of modules as an icicle graph: each module below the one that calls it, as wide as its time."""

from collections.abc import Iterator

import altair as alt
import numpy as np

from ..analyses import Table
from .cells import Row
from .drawing import SERIES, Chart, data, hover, sized
from .module_tree import module_time

MODULE = 22
"""Height of a module in px."""
NARROWEST, MOST_RANKS, MOST_MODULES = 0.001, 4, 2000
LETTER = 6.4
"""Width of a letter in px."""


def modules(table: Table) -> list[Chart]:
    """Returns a graph of device time, or of host time without a device, for each of the first ranks."""
    ranks = list(dict.fromkeys(np.asarray(table["rank"]).tolist()))
    rows = table.rows()
    time = module_time(table)
    charts = [_rank_chart([row for row in rows if row["rank"] == rank], time) for rank in ranks[:MOST_RANKS]]
    titles = [f"rank {rank}, " if len(ranks) > 1 else "" for rank in ranks]
    what = f"time on the {time}"
    return [
        chart.properties(title=alt.TitleParams(f"{title}{what}", anchor="start", color="var(--muted)", fontSize=12))
        for chart, title in zip(charts, titles, strict=False)
        if chart is not None
    ]


def _rank_chart(rows: list[Row], time: str) -> Chart | None:
    """Returns the graph of one rank, None if its modules take no time."""
    bars = list(_bars(rows, f"{time}_subtree"))
    whole = sum(bar["to"] - bar["from"] for bar in bars if bar["depth"] == 0)
    drawn_bars = sorted(bars, key=lambda bar: bar["from"] - bar["to"])[:MOST_MODULES]
    drawn_bars = [bar for bar in drawn_bars if bar["to"] - bar["from"] > NARROWEST * whole]
    if not drawn_bars:
        return None
    tooltip = hover("path", "time [µs]", "of_all [%]", "self [µs]", "critical_pct [%]", "ops []", "activities []")
    base = alt.Chart(
        data(
            [{**bar, "of_all": 100 * bar["time"] / whole, "self": bar[f"{time}_self"]} for bar in drawn_bars],
            "name",
            "kind",
            "depth",
            "from",
            "to",
            "path",
            "time",
            "of_all",
            "self",
            "critical_pct",
            "ops",
            "activities",
        )
    )
    y = alt.Y("depth:O", title=None, axis=None)
    scale = alt.Scale(domain=[0, whole], nice=False)
    boxes = base.mark_rect(stroke="var(--paper)", fillOpacity=0.45).encode(
        alt.X("from:Q", title="time [µs]", scale=scale, axis=alt.Axis(tickCount=6, grid=False)),
        y,
        alt.Color("kind:N", scale=alt.Scale(range=SERIES), legend=None),
        x2="to:Q",
        tooltip=tooltip,
    )
    letters = f"(datum.to - datum.from) / {whole} * width / {LETTER} - 2"
    names = (
        base.transform_calculate(label=f"{letters} > 2 ? truncate(datum.name, {letters}) : ''")
        .mark_text(align="left", dx=4, fontSize=11.5, color="var(--ink)", clip=True)
        .encode(alt.X("from:Q", title="time [µs]", scale=scale), y, alt.Text("label:N"), tooltip=tooltip)
    )
    return sized(alt.layer(boxes, names), MODULE * (1 + max(bar["depth"] for bar in drawn_bars)))


def _bars(rows: list[Row], column: str) -> Iterator[Row]:
    """Yields each module with its begin and end: after its earlier siblings, within its parent."""
    ends = [0.0]
    for row in rows:
        depth, time = row["depth"], row[column] or 0.0
        begin = ends[depth]
        ends[depth:] = [begin + time, begin]
        kind = row["name"].rpartition("_")[0] or row["name"]
        yield {**row, "kind": kind, "time": time, "from": begin, "to": begin + time}
