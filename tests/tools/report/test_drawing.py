"""Charts as Vega-Lite: units, curves and lanes of values; and the scripts that draw them."""

from pathlib import Path

import numpy as np
import pytest
from execgraph.tools.report.curves import MOST_STEPS, memory_timeline, value_lanes
from execgraph.tools.report.drawing import axis, hover
from support.reports import needs_page, table


def test_units_become_the_format_of_axes_and_tooltips_where_the_page_chooses_them() -> None:
    time = axis("time [µs]", "time, logarithmic", axis={"tickCount": 6})
    assert time["title"] == "time, logarithmic"
    assert time["axis"] == {"tickCount": 6, "formatType": "quantity", "format": "µs"}
    assert axis("size [B]", "size")["axis"] == {"formatType": "quantity", "format": "B"}
    assert axis("share [%]", "share")["title"] == "share [%]"
    name, ops, share = hover("name", "ops []", "idle_pct [%]")
    assert (name["title"], "format" in name) == ("name", False)
    assert (ops["title"], ops["formatType"], ops["format"]) == ("ops", "quantity", "count")
    assert (share["title"], share["format"]) == ("idle [%]", ",.1f")


def test_a_long_series_is_drawn_by_its_highest_values() -> None:
    time, value = np.arange(50_000.0), np.zeros(50_000)
    value[1::2], value[70] = 1, 9
    lanes = {"short": (np.array([0.0, 2.0, 3.0]), np.array([4.0, 0.0, 0.0])), "long": (time, value)}
    rows = value_lanes(lanes, "work in the queue", "")["data"]["values"]
    assert [(row["from"], row["to"], row["value"]) for row in rows if row["lane"] == "short"] == [(0, 2, 4)]
    own = [row for row in rows if row["lane"] == "long"]
    assert len(own) <= MOST_STEPS / 2 and max(row["value"] for row in own) == 9
    assert all(1 <= row["top"] < row["base"] == 2 and row["from"] < row["to"] for row in own)


@pytest.mark.parametrize(
    ("allocated", "label", "align"),
    [
        ([16 << 10, 48 << 10, 16 << 10, 16 << 10], "peak 48.0 KiB", "left"),
        ([16 << 10, 16 << 10, 16 << 10, 48 << 10], "peak 48.0 KiB", "right"),
        ([1 << 20, 3 << 20, 1 << 20, 1 << 20], "peak 3.0 MiB", "left"),
        ([100, 100, 200, 100], "peak 0.2 KiB", "right"),
    ],
)
def test_the_peak_of_memory_is_given_in_a_unit_that_suits_it_beside_the_curve(
    allocated: list[object], label: str, align: str
) -> None:
    of_rank = table(
        "memory", rank=[0] * 4, device=[-1] * 4, ts=[0.0, 10.0, 20.0, 30.0], allocated=allocated,
        reserved=[float("nan")] * 4, step=["a"] * 4,
    )  # fmt: skip
    (chart,) = memory_timeline(of_rank["memory"])
    peaks = [layer for layer in chart["layer"] if "data" in layer]
    assert [row["label"] for layer in peaks for row in layer["data"]["values"]] == [label, label]
    assert [layer["mark"]["align"] for layer in peaks if layer["mark"]["type"] == "text"] == [align]


@needs_page
def test_scripts_that_draw_charts_are_bundled_once_and_again_where_they_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vl_convert
    from execgraph.tools.report.page import drawing_library

    bundled: list[str] = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda script: bundled.append(script) or "drawn")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    assert [drawing_library(), drawing_library()] == ["drawn", "drawn"] and len(bundled) == 1
    [kept] = tmp_path.rglob("*.js")
    kept.write_text("alert(1)")
    assert drawing_library() == "drawn" and kept.read_text() == "drawn"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert drawing_library() == "drawn" and len(bundled) == 3
