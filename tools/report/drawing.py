"""Draws charts in Vega-Lite: kinds of charts that several analyses share, and the encodings of their fields.

A field is written with its unit, as in `time [µs]`, `flops []`; a text has no brackets. Times, bytes and counts are
shown in the unit that suits each value, `684 ms`, `309 G`. Colours are variables of the page's style.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..analyses import Table
from .cells import Row, cell, heading, shortened, sums

Chart = dict[str, Any]
Encoding = dict[str, Any]

SHOWN_NAMES, LONGEST, LONGEST_NAME = 12, 240, 64
COLOUR = "var(--computation)"
SERIES = [f"var(--series-{number})" for number in range(1, 9)]
QUANTITIES = {"µs", "B", ""}
"""The units that the page replaces by one that suits the value."""
LOGARITHMIC: Encoding = {
    "scale": {"type": "symlog", "constant": 1},
    "axis": {"values": [0, *(10**power for power in range(10))]},
}
"""A logarithmic axis that includes 0, and its labels."""
NUMBER = ",.1f"
UNLABELLED = {"labels": False, "ticks": False}


def data(rows: Sequence[Row], *fields: str, name: str = "rows") -> dict[str, Any]:
    """Returns these fields of the rows for a chart, or all fields.

    Texts have at most LONGEST letters, numbers four decimals, or four significant digits below 1.
    """
    return {"name": name, "values": [{key: _short(row[key]) for key in fields or row} for row in rows]}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return shortened(value, LONGEST)
    if not isinstance(value, float):
        return value
    return round(value, 4) if abs(value) >= 1 else float(f"{value:.4g}")


def _name_and_unit(field: str) -> tuple[str, str | None]:
    name, bracket, unit = field.removesuffix("]").partition(" [")
    return name, unit if bracket else None


def _labels(unit: str | None) -> dict[str, str]:
    """Returns the format of numbers in a unit that the page chooses; nothing for other units."""
    return {"formatType": "quantity", "format": unit or "count"} if unit in QUANTITIES else {}


def axis(field: str, title: str | list[str], kind: str = "quantitative", **more: Any) -> Encoding:
    """Returns the encoding of a number along an axis; `more` is what Vega-Lite knows of encodings."""
    name, unit = _name_and_unit(field)
    title = f"{title} [{unit}]" if unit and unit not in QUANTITIES else title
    return {"field": name, "type": kind, "title": title, **more, "axis": more.get("axis", {}) | _labels(unit)}


def names(field: str, **more: Any) -> Encoding:
    """Returns the encoding of names from top to bottom, in the order of the rows unless `sort` says otherwise."""
    return {"field": field, "type": "nominal", "title": None, "sort": None, **more}


def by_label(labels: Iterable[str]) -> Encoding:
    """Returns the colour of `part`: a variable of the style per label, `--host-wait` for `host wait`.

    All overlaps of classes (`a + b`) have the same colour.
    """
    domain = list(labels)
    variables = ["overlap" if "+" in label else label.replace(" ", "-") for label in domain]
    return {
        "field": "part",
        "type": "nominal",
        "scale": {"domain": domain, "range": [f"var(--{variable})" for variable in variables]},
        "legend": {"title": None, "orient": "top"},
    }


def by_series(field: str, title: str | None = None) -> Encoding:
    """Returns the colour of a field whose values have no fixed colours."""
    legend = {"title": title, "orient": "top"}
    return {"field": field, "type": "nominal", "scale": {"range": SERIES}, "legend": legend}


def hover(*fields: str) -> list[Encoding]:
    """Returns what hovering tells of these fields."""
    return [_hover(*_name_and_unit(field)) for field in fields]


def _hover(name: str, unit: str | None) -> Encoding:
    if unit is None:
        return {"field": name, "type": "nominal", "title": heading(name, "")}
    title = heading(name, "" if unit in QUANTITIES else unit)
    return {"field": name, "type": "quantitative", "title": title, "format": NUMBER} | _labels(unit)


def fields_of(tooltip: list[Encoding]) -> list[str]:
    """Returns the fields that a hover shows."""
    return [field["field"] for field in tooltip]


def chart(height: int, **more: Any) -> Chart:
    """Returns a chart as wide as its element on the page and `height` px high."""
    return {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}, **more}


def mark(kind: str, **look: Any) -> dict[str, Any]:
    """Returns a mark with its look."""
    return {"type": kind, **look}


def marks(look: dict[str, Any], rows: Sequence[Row], tooltip: list[Encoding], **channels: Encoding) -> dict[str, Any]:
    """Returns a mark for each row, in one colour unless a channel tells it; `channels` are encodings by their names."""
    fields = dict.fromkeys(encoding["field"] for encoding in (*channels.values(), *tooltip) if "field" in encoding)
    look = look if "color" in channels else {"color": COLOUR} | look
    return {"data": data(rows, *fields), "mark": look, "encoding": {**channels, "tooltip": tooltip}}


def per_value(rows: Sequence[Row], field: str, step: int) -> int:
    """Returns the height that gives each value of a field `step` px."""
    return step * len({row[field] for row in rows})


def track_label(row: Row) -> str:
    """Returns a label of the row's rank, device and stream, as far as it has them."""
    return " · ".join(f"{name} {row[name]}" for name in ("rank", "device", "stream") if name in row)


def stacked_bars(rows: Sequence[Row], labels: Iterable[str], y: str, x: str, *more: str, title: str = "time") -> Chart:
    """Returns horizontal bars of parts, stacked in the order of `labels`; rows have the fields `y`, `x` and `part`."""
    present = {row["part"] for row in rows}
    order = {label: number for number, label in enumerate(label for label in labels if label in present)}
    tooltip = hover(y, "part", *more)
    ordered = [{**row, "order": order[row["part"]]} for row in rows]
    channels = {
        "x": axis(x, title, stack="zero", axis={"tickCount": 6}),
        "y": names(y),
        "color": by_label(order),
        "order": {"field": "order", "type": "quantitative"},
    }
    return chart(per_value(rows, y, 34), **marks(mark("bar", height={"band": 0.72}), ordered, tooltip, **channels))


@dataclass(frozen=True, slots=True)
class StackedBars:
    """A bar for each track of a table: its parts are rows, labelled by the column `part`, or the columns `parts`, with
    their labels. `order` tells from a row where its part comes; by default `parts` are in their order.
    """

    x: str
    more: tuple[str, ...]
    parts: Mapping[str, str] = field(default_factory=dict)
    part: str = ""
    order: Callable[[Row], Any] | None = None
    title: str = "time"

    def __call__(self, table: Table) -> list[Chart]:
        """Returns the chart of a table."""
        rows = [{**row, "track": track_label(row)} for row in table.rows()]
        if self.part:
            rows = [{**row, "part": row[self.part]} for row in rows]
        else:
            rows = [
                {**row, "part": label, "time": row[name], "share": row.get(f"{name}_pct")}
                for row in rows
                for name, label in self.parts.items()
            ]
        in_order = sorted(rows, key=self.order) if self.order else rows
        labels = dict.fromkeys(row["part"] for row in in_order)
        return [stacked_bars(rows, labels, "track", self.x, *self.more, title=self.title)]


def largest_names(rows: Sequence[Row], by: str) -> list[Row]:
    """Returns the rows of the names with the largest totals, with a unique short form of the name as `short`."""
    short: dict[str, str] = {}
    for name in [*sums(rows, "name", by)][:SHOWN_NAMES]:
        text = shortened(cell(name), LONGEST_NAME)
        short[name] = text if text not in short.values() else f"{text} ({len(short) + 1})"
    return [{**row, "short": short[row["name"]]} for row in rows if row["name"] in short]


def ranked_bars(rows: Sequence[Row], x: str, title: str, *more: str, labels: Iterable[str] = ()) -> Chart:
    """Returns horizontal bars by name, the longest on top: the mean over ranks, and of several ranks a tick for each.

    Rows without a `rank` are of all ranks, and have a bar each.
    """
    field, ranks = _name_and_unit(x)[0], len({row.get("rank") for row in rows})
    tooltip = hover("name", *(["rank"] if any("rank" in row for row in rows) else []), x, *more)
    y = names("short", sort={"field": field, "op": "max", "order": "descending"})
    colour = {"color": by_label(labels)} if labels else {}
    bar = mark("bar", height={"band": 0.7}, color=COLOUR)
    drawn = data(rows, "short", *(["part"] if labels else []), *fields_of(tooltip))
    height = per_value(rows, "short", 22)
    if ranks == 1:
        encoding = {"x": axis(x, title), "y": y, **colour, "tooltip": tooltip}
        return chart(height, data=drawn, mark=bar, encoding=encoding)
    mean: Encoding = {"aggregate": "mean", "stack": None, "axis": {"tickCount": 6}}
    of_mean = hover(x)[0] | {"aggregate": "mean", "title": f"{title}, mean of {ranks} ranks"}
    lines = [title, f"mean of {ranks} ranks, ticks are single ranks"]
    bars = {"x": axis(x, lines, **mean), "y": y, **colour, "tooltip": [*hover("name"), of_mean]}
    single = {"x": {"field": field, "type": "quantitative"}, "y": y, "tooltip": tooltip}
    tick = mark("tick", color="var(--ink)", thickness=2, height=12)
    return chart(height, data=drawn, layer=[{"mark": bar, "encoding": bars}, {"mark": tick, "encoding": single}])


@dataclass(frozen=True, slots=True)
class RankedBars:
    """Bars of the largest names in a table, which are made of its columns; `part` is the column that tells colours.

    Rows without the value, and of the name `skip`, are left out.
    """

    name: str
    x: str
    title: str
    more: tuple[str, ...]
    part: str = ""
    skip: str = ""

    def __call__(self, table: Table) -> list[Chart]:
        """Returns the chart of a table, none without a row to draw."""
        value = _name_and_unit(self.x)[0]
        named = [{**row, "name": self.name.format(**row), "part": row.get(self.part)} for row in table.rows()]
        rows = largest_names([row for row in named if row[value] is not None and row["name"] != self.skip], value)
        labels = sorted({row["part"] for row in rows}) if self.part else ()
        return [ranked_bars(rows, self.x, self.title, *self.more, labels=labels)] if rows else []
