"""The parts of charts that several analyses share, drawn with Altair. Colours are variables of the page's style."""

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import orjson

from .cells import Row, cell, heading, shortened

Chart = alt.Chart | alt.LayerChart | alt.FacetChart

SHOWN_NAMES, LONGEST, LONGEST_NAME = 12, 240, 64
SERIES = [f"var(--series-{number})" for number in range(1, 9)]
FIT = alt.AutoSizeParams(type="fit-x", contains="padding")
"""Makes a chart as wide as its element on the page."""
LOGARITHMIC = alt.Scale(type="symlog", constant=1)
POWERS = alt.Axis(values=[0, *(10**power for power in range(10))], format=",.0f")
"""A logarithmic scale that includes 0, and its labels."""
NUMBER = ",.1f"


def data(rows: Sequence[Row], *fields: str, name: str = "rows") -> alt.InlineData:
    """Returns these fields of the rows for a chart, or all fields.

    Texts have at most LONGEST letters, numbers four decimals, or four significant digits below 1.
    """
    drawn_rows = [{key: row[key] for key in fields} for row in rows] if fields else rows
    values = [{key: _short(value) for key, value in row.items()} for row in drawn_rows]
    # Altair checks every value of data that is not yet JSON, which takes as long as several analyses
    json: Any = orjson.Fragment(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    return alt.InlineData(name=name, values=json)


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return shortened(value, LONGEST)
    if not isinstance(value, float):
        return value
    return round(value, 4) if abs(value) >= 1 else float(f"{value:.4g}")


def top_legend(title: str | None = None) -> alt.Legend:
    """Returns a legend above the chart."""
    return alt.Legend(title=title, orient="top")


def by_label(labels: Iterable[str]) -> alt.Color:
    """Returns the colour of `part`: a variable of the style per label, `--host-wait` for `host wait`.

    All overlaps of classes (`a + b`) have the same colour.
    """
    labels = list(labels)
    names = ["overlap" if "+" in label else label.replace(" ", "-") for label in labels]
    scale = alt.Scale(domain=labels, range=[f"var(--{name})" for name in names])
    return alt.Color("part:N", scale=scale, legend=top_legend())


def by_series(field: str, title: str | None = None) -> alt.Color:
    """Returns the colour of a field whose values have no fixed colours."""
    return alt.Color(f"{field}:N", scale=alt.Scale(range=SERIES), legend=top_legend(title))


def hover(*fields: str) -> list[alt.Tooltip]:
    """Returns tooltips for fields such as `name`, `time [µs]`, `flops []`: those with brackets are numbers."""
    return [_hover(*field.removesuffix("]").partition(" [")) for field in fields]


def _hover(field: str, bracket: str, unit: str) -> alt.Tooltip:
    title = heading(field, unit) if unit or not bracket else f"{heading(field, unit)} []"
    return alt.Tooltip(f"{field}:Q", title=title, format=NUMBER) if bracket else alt.Tooltip(f"{field}:N", title=title)


def fields_of(tooltips: list[alt.Tooltip]) -> list[str]:
    """Returns the fields that a hover shows."""
    return [str(tooltip["shorthand"]).partition(":")[0] for tooltip in tooltips]


def sized(chart: Chart, height: int) -> Chart:
    """Makes the chart as wide as its element and `height` px high, and returns it."""
    # Altair's `properties` checks them against its schema, which takes as long as several analyses
    chart.width, chart.height, chart.autosize = "container", height, FIT
    return chart


def per_value(rows: Sequence[Row], field: str, step: int) -> int:
    """Returns the height that gives each value of a field `step` px."""
    return step * len({row[field] for row in rows})


def stacked_bars(rows: Sequence[Row], labels: Iterable[str], y: str, x: str, title: str, *more: str) -> Chart:
    """Returns horizontal bars of parts, stacked in the order of `labels`; rows have the fields `y`, `x` and `part`."""
    present = {row["part"] for row in rows}
    order = {label: number for number, label in enumerate(label for label in labels if label in present)}
    tooltips = hover(y, "part", *more)
    ordered = [{**row, "order": order[row["part"]]} for row in rows]
    bars = (
        alt.Chart(data(ordered, x, "order", *fields_of(tooltips)))
        .mark_bar(height={"band": 0.72})
        .encode(
            alt.X(f"{x}:Q", title=title, stack="zero", axis=alt.Axis(tickCount=6)),
            alt.Y(f"{y}:N", title=None, sort=None),
            by_label(order),
            alt.Order("order:Q"),
            tooltip=tooltips,
        )
    )
    return sized(bars, per_value(rows, y, 34))


def ranked_bars(rows: Sequence[Row], x: str, title: str, *more: str, labels: Iterable[str] = ()) -> Chart:
    """Returns horizontal bars by name, the longest on top: the mean over ranks, and of several ranks a tick for each.

    Rows without a `rank` are of all ranks, and have a bar each.
    """
    order = alt.EncodingSortField(x, op="max", order="descending")
    tooltips = hover(
        "name", *(["rank"] if any("rank" in row for row in rows) else []), f"{x} [{title.rpartition('[')[2]}", *more
    )
    fields = ["short", *(["part"] if labels else []), *fields_of(tooltips)]
    base = alt.Chart(data(rows, *fields)).encode(alt.Y("short:N", title=None, sort=order))
    ranks = len({row.get("rank") for row in rows})
    bars = base.mark_bar(height={"band": 0.7}, color="var(--computation)").encode(
        alt.X(
            f"mean({x}):Q",
            title=[title, f"mean of {ranks} ranks, ticks are single ranks"],
            stack=None,
            axis=alt.Axis(tickCount=6),
        ),
        tooltip=[
            alt.Tooltip("name:N"),
            alt.Tooltip(f"mean({x}):Q", title=f"{title}, mean of {ranks} ranks", format=NUMBER),
        ],
    )
    if labels:
        bars = bars.encode(by_label(labels))
    if ranks == 1:
        return sized(bars.encode(alt.X(f"{x}:Q", title=title), tooltip=tooltips), per_value(rows, "short", 22))
    ticks = base.mark_tick(color="var(--ink)", thickness=2, height=12).encode(alt.X(f"{x}:Q"), tooltip=tooltips)
    return sized(alt.layer(bars, ticks), per_value(rows, "short", 22))


def track_label(row: Row) -> str:
    """Returns a label of the row's rank, device and stream."""
    stream = f" · stream {row['stream']}" if "stream" in row else ""
    return f"rank {row['rank']} · device {row['device']}{stream}"


def largest_names(rows: Sequence[Row], by: str) -> list[Row]:
    """Returns the rows of the names with the largest totals, with a unique short form of the name as `short`."""
    total: dict[str, float] = {}
    for row in rows:
        total[row["name"]] = total.get(row["name"], 0) + row[by]
    short: dict[str, str] = {}
    for name in sorted(total, key=lambda name: -total[name])[:SHOWN_NAMES]:
        text = shortened(cell(name), LONGEST_NAME)
        short[name] = text if text not in short.values() else f"{text} ({len(short) + 1})"
    return [{**row, "short": short[row["name"]]} for row in rows if row["name"] in short]
