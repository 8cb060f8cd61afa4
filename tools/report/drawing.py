"""Draws charts in Vega-Lite: kinds of charts that several analyses share, and the encodings of their fields.

A field is written with its unit, as in `time [µs]`, `flops []`; a text has no brackets. The page shows quantities in
the unit that suits each value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from ...schema.columns import shortened
from ..analyses import Table
from .cells import Row, cell, heading, sums

Chart = dict[str, Any]
Encoding = dict[str, Any]
Draw = Callable[[Table], list[Chart]]

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
UNLABELLED = {"labels": False, "ticks": False}
BAR = {"type": "bar", "height": {"band": 0.7}}
TICK = {"type": "tick", "color": "var(--ink)", "thickness": 2}
SHOWN_CURVES, SHOWN_POINTS, SHOWN_STEPS = 4, 1500, 40
FLAT = 0.01
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
HOST = -1
OVER_TIME = {"tickCount": 8, "grid": False}


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


def number(name: str, **more: Any) -> Encoding:
    """Returns the encoding of a number that has no axis of its own."""
    return {"field": name, "type": "quantitative", **more}


def names(field: str, **more: Any) -> Encoding:
    """Returns the encoding of names from top to bottom, in the order of the rows unless `sort` says otherwise."""
    return {"field": field, "type": "nominal", "title": None, "sort": None, **more}


def by_label(labels: Iterable[str]) -> Encoding:
    """Returns the colour of `part`: `--host-wait` of the style for `host wait`, one for all overlaps (`a + b`)."""
    domain = list(labels)
    colours = [f"var(--{'overlap' if '+' in label else label.replace(' ', '-')})" for label in domain]
    scale, legend = {"domain": domain, "range": colours}, {"title": None, "orient": "top"}
    return {"field": "part", "type": "nominal", "scale": scale, "legend": legend}


def by_series(field: str, title: str | None = None) -> Encoding:
    """Returns the colour of a field whose values have no fixed colours."""
    legend = {"title": title, "orient": "top"}
    return {"field": field, "type": "nominal", "scale": {"range": SERIES}, "legend": legend}


def hover(*fields: str) -> list[Encoding]:
    """Returns what hovering tells of these fields."""
    told = []
    for name, unit in map(_name_and_unit, fields):
        if unit is None:
            told.append({"field": name, "type": "nominal", "title": heading(name, "")})
        else:
            title = heading(name, "" if unit in QUANTITIES else unit)
            told.append(number(name, title=title, format=",.1f") | _labels(unit))
    return told


def marks(look: dict[str, Any], tooltip: list[Encoding], **channels: Encoding) -> Chart:
    """Returns a mark for each row, in one colour unless a channel tells it; `channels` are encodings by their names."""
    look = look if "color" in channels else {"color": COLOUR} | look
    return {"mark": look, "encoding": {**channels, "tooltip": tooltip}}


def drawn(rows: Sequence[Row], *layers: Chart, also: Sequence[str] = ()) -> Chart:
    """Returns layers of marks, one upon another, with the fields of the rows that they show and those `also`."""
    shown = [encoding for layer in layers if "data" not in layer for encoding in layer["encoding"].values()]
    encodings = [one for encoding in shown for one in (encoding if isinstance(encoding, list) else [encoding])]
    fields = dict.fromkeys([*(one["field"] for one in encodings if "field" in one), *also])

    def short(value: Any) -> Any:
        if isinstance(value, str):
            return shortened(value, LONGEST)
        if not isinstance(value, float):
            return value
        return round(value, 4) if abs(value) >= 1 else float(f"{value:.4g}")

    data = {"values": [{key: short(row[key]) for key in fields} for row in rows]}
    return {"data": data, **(layers[0] if len(layers) == 1 else {"layer": [*layers]})}


def chart(
    height: int, rows: Sequence[Row], *layers: Chart, per: str = "", also: Sequence[str] = (), **more: Any
) -> Chart:
    """Returns a chart as wide as its element on the page and `height` px high, or so high for each value of `per`."""
    size = {"width": "container", "height": height * (len({row[per] for row in rows}) if per else 1)}
    return size | {"autosize": {"type": "fit-x", "contains": "padding"}, **more} | drawn(rows, *layers, also=also)


def track_label(row: Row) -> str:
    """Returns a label of the row's rank, device and stream, as far as it has them."""
    return " · ".join(f"{name} {row[name]}" for name in ("rank", "device", "stream") if name in row)


def stacked_bars(rows: Sequence[Row], labels: Iterable[str], y: str, x: str, *more: str, title: str = "time") -> Chart:
    """Returns horizontal bars of parts, stacked in the order of `labels`; rows have the fields `y`, `x` and `part`."""
    present = {row["part"] for row in rows}
    order = {label: number for number, label in enumerate(label for label in labels if label in present)}
    ordered = [{**row, "order": order[row["part"]]} for row in rows]
    along = axis(x, title, stack="zero", axis={"tickCount": 6})
    channels = {"x": along, "y": names(y), "color": by_label(order), "order": number("order")}
    return chart(34, ordered, marks(BAR, hover(y, "part", *more), **channels), per=y)


def bars_of_tracks(
    x: str,
    *more: str,
    parts: Mapping[str, str] = MappingProxyType({}),
    part: str = "",
    order: Callable[[Row], Any] | None = None,
    title: str = "time",
) -> Draw:
    """Returns what draws a bar for each track of a table: its parts are rows by column `part`, or columns `parts`."""

    def draw(table: Table) -> list[Chart]:
        rows = [{**row, "track": track_label(row), "part": row.get(part)} for row in table.rows()]
        if parts:
            rows = [
                {**row, "part": label, "time": row[name], "share": row.get(f"{name}_pct")}
                for row in rows
                for name, label in parts.items()
            ]
        labels = dict.fromkeys(row["part"] for row in (sorted(rows, key=order) if order else rows))
        return [stacked_bars(rows, labels, "track", x, *more, title=title)]

    return draw


def largest_names(rows: Sequence[Row], by: str) -> list[Row]:
    """Returns the rows of the names with the largest totals, with a unique short form of the name as `short`."""
    short: dict[str, str] = {}
    for name in [*sums(rows, "name", by)][:SHOWN_NAMES]:
        text = shortened(cell(name), LONGEST_NAME)
        short[name] = text if text not in short.values() else f"{text} ({len(short) + 1})"
    return [{**row, "short": short[row["name"]]} for row in rows if row["name"] in short]


def ranked_bars(rows: Sequence[Row], x: str, title: str, *more: str, labels: Iterable[str] = ()) -> Chart:
    """Returns horizontal bars by name, the longest on top: the mean over ranks, and a tick for each of several."""
    field, ranks = _name_and_unit(x)[0], len({row.get("rank") for row in rows})
    tooltip = hover("name", *(["rank"] if any("rank" in row for row in rows) else []), x, *more)
    y = names("short", sort={"field": field, "op": "max", "order": "descending"})
    colour = {"color": by_label(labels)} if labels else {}
    if ranks == 1:
        return chart(22, rows, marks(BAR, tooltip, x=axis(x, title), y=y, **colour), per="short")
    lines = [title, f"mean of {ranks} ranks, ticks are single ranks"]
    mean = axis(x, lines, aggregate="mean", stack=None, axis={"tickCount": 6})
    of_mean = hover(x)[0] | {"aggregate": "mean", "title": f"{title}, mean of {ranks} ranks"}
    bars = marks(BAR, [*hover("name"), of_mean], x=mean, y=y, **colour)
    return chart(22, rows, bars, marks(TICK | {"height": 12}, tooltip, x=number(field), y=y), per="short")


def bars_of_names(name: str, x: str, title: str, *more: str, part: str = "", skip: str = "") -> Draw:
    """Returns what draws bars of the largest names in a table, coloured by `part`, without the name `skip`."""
    value = _name_and_unit(x)[0]

    def draw(table: Table) -> list[Chart]:
        named = [{**row, "name": name.format(**row), "part": row.get(part)} for row in table.rows()]
        rows = largest_names([row for row in named if row[value] is not None and row["name"] != skip], value)
        labels = sorted({row["part"] for row in rows}) if part else ()
        return [ranked_bars(rows, x, title, *more, labels=labels)] if rows else []

    return draw


def memory_timeline(table: Table) -> list[Chart]:
    """Returns a curve for each of the devices with the highest peaks, except those that would look flat."""
    devices, curve = np.unique(np.stack([table["rank"], table["device"]], axis=1), axis=0, return_inverse=True)
    curve = curve.reshape(-1)
    peaks = np.zeros(len(devices), np.int64)
    np.maximum.at(peaks, curve, np.asarray(table["allocated"]))
    highest = [row for row in np.argsort(-peaks, kind="stable")[:SHOWN_CURVES] if peaks[row] >= FLAT * peaks.max()]
    return [_curve(table.take(curve == row), *devices[row].tolist()) for row in highest]


def _curve(table: Table, rank: int, device: int) -> Chart:
    """Draws the bytes of a device; a long curve is reduced to the highest value of each stretch, and the last value."""
    label, used = f"rank {rank} · {'host' if device == HOST else f'device {device}'}", np.asarray(table["allocated"])
    if len(used) > SHOWN_POINTS:
        stretch = np.arange(len(used)) * SHOWN_POINTS // len(used)
        order = np.lexsort((-used, stretch))
        highest = order[np.unique(stretch[order], return_index=True)[1]]
        table = table.take(np.unique(np.append(highest, len(used) - 1)))
    unit = next((name for name, size in UNITS.items() if used.max() >= size), "KiB")
    points = table.rows()
    for row in points:
        row |= {name: row[name] and row[name] / UNITS[unit] for name in ("allocated", "reserved")} | {"track": label}
    tooltip = hover("track", "ts [µs]", f"allocated [{unit}]", f"reserved [{unit}]", "step")
    x, y = axis("ts [µs]", "time", axis=OVER_TIME), axis(f"allocated [{unit}]", label, axis={"tickCount": 5})
    area = {"type": "area", "interpolate": "step-after", "fillOpacity": 0.35, "line": {"color": COLOUR}}
    layers = [marks(area, tooltip, x=x, y=y)]
    if any(row["reserved"] is not None for row in points):
        line = {"type": "line", "interpolate": "step-after", "color": "var(--muted)"}
        layers.append(marks(line, tooltip, x=x, y=number("reserved")))
    steps = [row for last, row in pairwise([{"step": ""}, *points]) if row["step"] != last["step"]]
    if 1 < len(steps) <= SHOWN_STEPS:
        rule = {"type": "rule", "color": "var(--muted)", "strokeDash": [3, 3]}
        layers.append(drawn(steps, marks(rule, hover("step", "ts [µs]"), x=number("ts"))))
    return chart(170, points, *layers, _peak(points, unit, tooltip))


def _peak(points: list[Row], unit: str, tooltip: list[Encoding]) -> Chart:
    """Returns a point at the highest value with its label, which lies on the side with more room."""
    highest = max(points, key=lambda row: row["allocated"])
    is_late = 2 * highest["ts"] > points[0]["ts"] + points[-1]["ts"]
    side = {"align": "right", "dx": -8} if is_late else {"align": "left", "dx": 8}
    text = {"type": "text", **side, "dy": -6, "color": "var(--ink)"}
    point = {"type": "point", "color": "var(--ink)", "filled": True, "size": 60}
    place, label = {"x": number("ts"), "y": number("allocated")}, {"field": "label", "type": "nominal"}
    peak = highest | {"label": f"peak {highest['allocated']:,.1f} {unit}"}
    return drawn([peak], marks(point, tooltip, **place), marks(text, tooltip, **place, text=label))
