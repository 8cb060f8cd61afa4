"""The curve of memory in use: its unit and its peak."""

import json
from typing import Any

import orjson
import pytest
from support.reports import needs_page, table


@needs_page
@pytest.mark.parametrize(
    ("allocated", "label", "align"),
    [
        ([16 << 10, 48 << 10, 16 << 10, 16 << 10], "peak 48.0 KiB", "left"),
        ([16 << 10, 16 << 10, 16 << 10, 48 << 10], "peak 48.0 KiB", "right"),
        ([1 << 20, 3 << 20, 1 << 20, 1 << 20], "peak 3.0 MiB", "left"),
        ([100, 100, 200, 100], "peak 0.2 KiB", "right"),
    ],
)
def test_the_peak_is_given_in_a_unit_that_suits_it_beside_the_curve(
    allocated: list[object], label: str, align: str
) -> None:
    from altair.utils.schemapi import debug_mode
    from execgraph.tools.report.memory_chart import memory_timeline

    of_rank = table(
        "memory", rank=[0] * 4, device=[-1] * 4, ts=[0.0, 10.0, 20.0, 30.0], allocated=allocated,
        reserved=[float("nan")] * 4, step=["a"] * 4,
    )  # fmt: skip
    with debug_mode(False):
        (chart,) = memory_timeline(of_rank["memory"])
        layers: list[dict[str, Any]] = json.loads(orjson.dumps(chart.to_dict(validate=False)))["layer"]
    assert [row["label"] for layer in layers for row in layer["data"]["values"] if "label" in row] == [label, label]
    assert [layer["mark"]["align"] for layer in layers if layer["mark"]["type"] == "text"] == [align]
