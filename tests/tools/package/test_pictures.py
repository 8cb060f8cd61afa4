"""A graph shows in notebooks when each of its lanes is busy.

Charts show the nodes of a part of a run, by lane, and the work of each rank.
"""

import re
from typing import Any

import pytest
from execgraph import build, replay
from execgraph.pictures import COLUMNS, lane_strips
from support.graphs import PROGRAM_ORDER, GraphBuilder, rank_with_collective, training_step


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


pytest.importorskip("altair")
GRAPH = training_step()


def drawn(chart: Any) -> list[dict[str, Any]]:
    """The rows of a chart, which its JSON holds."""
    [rows] = chart.to_dict()["datasets"].values()
    return [*rows]


def test_a_graph_has_a_bar_for_each_node_that_takes_time() -> None:
    assert sorted(bar["name"] for bar in drawn(GRAPH.plot())) == sorted(node.name for node in GRAPH)


def test_one_stream_a_time_and_the_longest_nodes_are_chosen() -> None:
    assert {bar["lane"] for bar in drawn(GRAPH.plot(stream=7))} == {"device 0 stream 7"}
    assert [bar["name"] for bar in drawn(GRAPH.plot(time_us=(0.0, 0.004)))] == ["aten::mm"]
    chart = GRAPH.plot(max_nodes=1)
    assert [bar["name"] for bar in drawn(chart)] == ["sgemm"]
    assert chart.to_dict()["title"] == "the 1 longest of 7 nodes"


def test_a_part_that_holds_nothing_or_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no node in this part of the run, which has the streams \[7, "):
        GRAPH.plot(stream=99)
    with pytest.raises(TypeError, match="takes start and end in µs"):
        GRAPH.plot(time_us=5)  # type: ignore[arg-type]


def test_a_run_shows_what_is_on_its_critical_path() -> None:
    bars = {bar["name"]: bar["critical"] for bar in drawn(replay(GRAPH).plot())}
    assert bars["sgemm"] and not bars["aten::add"]


def test_lanes_of_several_ranks_are_told_apart() -> None:
    ranks = [rank_with_collective(rank, work=10, collective=5, clock=0) for rank in (0, 1)]
    assert {bar["lane"].split(" · ")[0] for bar in drawn(replay(ranks).plot())} == {"rank 0", "rank 1"}


def test_a_job_has_a_bar_for_each_rank_by_class() -> None:
    bars = drawn(build("tests/data/training").plot())
    assert {(bar["rank"], bar["class"]) for bar in bars} >= {("0", "computation"), ("1", "communication")}
    assert all(bar["time"] > 0 for bar in bars)


def test_a_job_without_a_device_has_bars_of_its_threads() -> None:
    bars = drawn(build("tests/data/gloo_slow").plot())
    assert {(bar["rank"], bar["class"]) for bar in bars} >= {("0", "host"), ("1", "host")}
