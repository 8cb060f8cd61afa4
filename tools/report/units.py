"""Gives the axes and tooltips of a chart the units that suit each value: the page formats them, `684 ms`, `309 G`.

Titles name the unit in brackets, as headings of tables do. Here it becomes the format of the labels.
"""

import re
from typing import Any

BRACKETS = re.compile(r" \[(µs|B|)\]")
LABELLED_BY = {"x": "axis", "y": "axis", "opacity": "legend", "tooltip": ""}
"""The channels whose values people read, and what has their labels; a tooltip is its own."""


def in_suitable_units(spec: dict[str, Any]) -> dict[str, Any]:
    """Changes and returns the specification of a chart, its layers included."""
    for layer in spec.get("layer", []):
        in_suitable_units(layer)
    for channel, encoding in spec.get("encoding", {}).items():
        if channel in LABELLED_BY:
            for field in encoding if isinstance(encoding, list) else [encoding]:
                _format(field, LABELLED_BY[channel])
    return spec


def _format(field: dict[str, Any], labelled_by: str) -> None:
    """Sets the format of a field by the unit in its title, which goes."""
    lines = field.get("title") or ""
    first, *more = lines if isinstance(lines, list) else [lines]
    unit = BRACKETS.search(first)
    labels = field.setdefault(labelled_by, {}) if labelled_by else field
    if unit is None or labels is None:
        return
    title = BRACKETS.sub("", first)
    field["title"] = [title, *more] if more else title
    labels |= {"formatType": "quantity", "format": unit[1] or "count"}
