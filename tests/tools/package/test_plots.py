"""Charts show the nodes of a part of a run, by lane, and the work of each rank."""

from typing import Any

import pytest
from execgraph import build, replay
from support.graphs import rank_with_collective, training_step

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
