"""Values over time as lanes: a long series is drawn by its highest values."""

import json

import numpy as np
import orjson
from support.reports import needs_page


@needs_page
def test_a_long_series_is_drawn_by_its_highest_values() -> None:
    from altair.utils.schemapi import debug_mode
    from execgraph.tools.report.lanes_of_values import SHOWN_STEPS, series

    time, value = np.arange(50_000.0), np.zeros(50_000)
    value[1::2], value[70] = 1, 9
    lanes = {"short": (np.array([0.0, 2.0, 3.0]), np.array([4.0, 0.0, 0.0])), "long": (time, value)}
    with debug_mode(False):
        chart = orjson.dumps(series(lanes, "work in the queue", "").to_dict(validate=False))
    rows = json.loads(chart)["data"]["values"]
    assert [(row["from"], row["to"], row["value"]) for row in rows if row["lane"] == "short"] == [(0, 2, 4)]
    own = [row for row in rows if row["lane"] == "long"]
    assert len(own) <= SHOWN_STEPS / 2 and max(row["value"] for row in own) == 9
    assert all(1 <= row["top"] < row["base"] == 2 and row["from"] < row["to"] for row in own)
