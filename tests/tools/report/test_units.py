"""The units of charts: titles that name one give labels and tooltips their format."""

from execgraph.tools.report.units import in_suitable_units


def test_units_in_titles_become_the_format_of_axes_legends_and_tooltips() -> None:
    encoding = {
        "x": {"field": "time", "title": "time [µs], logarithmic", "axis": {"tickCount": 6}},
        "y": {"field": "share", "title": "share [%]"},
        "opacity": {"field": "size", "title": "size [B]"},
        "tooltip": [{"field": "name", "title": "name"}, {"field": "ops", "title": "ops []", "format": ",.1f"}],
    }
    spec = in_suitable_units({"layer": [{"encoding": encoding}]})
    made = spec["layer"][0]["encoding"]
    assert made["x"]["title"] == "time, logarithmic"
    assert made["x"]["axis"] == {"tickCount": 6, "formatType": "quantity", "format": "µs"}
    assert made["y"]["title"] == "share [%]"
    assert made["opacity"]["legend"] == {"formatType": "quantity", "format": "B"}
    assert made["tooltip"][0] == {"field": "name", "title": "name"}
    assert made["tooltip"][1] == {"field": "ops", "title": "ops", "formatType": "quantity", "format": "count"}
