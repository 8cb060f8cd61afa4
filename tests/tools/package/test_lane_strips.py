"""A graph shows in notebooks when each of its lanes is busy."""

import re

from execgraph.pictures import COLUMNS, lane_strips
from support.graphs import PROGRAM_ORDER, GraphBuilder, training_step


def test_every_lane_has_a_strip_as_high_as_it_is_busy() -> None:
    g = GraphBuilder()
    g.activity("first", 0, 100)
    g.activity("last", 300, 100)
    heights = [float(height) for height in re.findall(r"V([\d.]+)", lane_strips(g.build()))]
    quarter = COLUMNS // 4
    assert heights[:quarter] == [0.0] * quarter and heights[quarter : 3 * quarter] == [16.0] * 2 * quarter


def test_overlaps_count_once_and_idle_time_not() -> None:
    g = GraphBuilder()
    op = g.host("aten::mm", 0, 50)
    idle = g.host("host idle", 50, 30, after=[(op, PROGRAM_ORDER)])
    g.host("aten::add", 40, 60, after=[(idle, PROGRAM_ORDER)])
    heights = [float(height) for height in re.findall(r"V([\d.]+)", lane_strips(g.build()))]
    assert heights[:COLUMNS] == [0.0] * COLUMNS


def test_notebooks_show_the_picture_below_the_figures() -> None:
    html = training_step()._repr_html_()
    assert html.startswith("<table>") and html.count("<path") == 3 and html.endswith("</svg>")
    assert lane_strips(GraphBuilder().build()) == ""
