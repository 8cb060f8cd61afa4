"""Formats a value of a table for people, the same on the page and on the terminal."""

import math
from typing import Any

from ..analyses import Column
from ..view import short_name

BYTES = "B"
ARROW = " → "
IDENTITIES = frozenset(
    (
        "rank",
        "device",
        "on_device",
        "stream",
        "tid",
        "thread",
        "node",
        "op",
        "correlation",
        "sequence",
        "repetition",
        "straggler",
        "depth",
    )
)
"""Columns whose numbers name something; -1 names nothing."""
NOTHING = "–"
LONGEST = 1000
"""Letters of a text that a page holds."""


def heading(name: str, unit: str) -> str:
    """Returns a column's name as people read it, with its unit.

    >>> heading("start_skew", "µs"), heading("idle_pct", "%"), heading("pct", "%"), heading("count", "")
    ('start skew [µs]', 'idle [%]', '%', 'count')
    """
    label = name.removesuffix("pct").replace("_", " ").strip()
    return f"{label} [{unit}]" if label and unit else label or unit


def kind(column: Column) -> str:
    """Returns how the values of a column are formatted: `text`, `identity`, `whole` or `number`."""
    if isinstance(column.values, list):
        return "text"
    if column.name in IDENTITIES and not column.unit:
        return "identity"
    return "whole" if column.values.dtype.kind in "iub" or column.unit == BYTES else "number"


def cell(value: Any, column: str = "", unit: str = "") -> str:
    """Returns numbers with separators and a fraction that still tells something, identities as they are, names in
    short.

    >>> cell(1234.56, "time", "µs"), cell(0.0363, "share", "%"), cell(1234, "count"), cell(41000, "tid"), cell(-1, "stream"), cell(None)
    ('1,234.6', '0.036', '1,234', '41000', '–', '')
    """
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        return ARROW.join(map(short_name, value.split(ARROW)))
    if column in IDENTITIES and not unit:
        return NOTHING if value == -1 else f"{value:.0f}"
    if isinstance(value, int) or unit == BYTES:
        return f"{value:,.0f}"
    return f"{value:.2g}" if math.isfinite(value) and 0 < abs(value) < 0.1 else f"{value:,.1f}"


def short_and_full(text: str) -> str | list[str]:
    """Returns a text of at most LONGEST letters as it is shown and in full, or once where that is the same."""
    short, full = shortened(cell(text), LONGEST), shortened(text, LONGEST)
    return full if short == full else [short, full]


def shortened(text: str, letters: int) -> str:
    """Returns at most so many letters, the last one an ellipsis where some are left out."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
