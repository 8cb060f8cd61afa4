"""Graphs are given one or several, as objects or files; anything else is named."""

import re
from pathlib import Path
from typing import Any

import pytest
from execgraph import what_if
from execgraph.schema.errors import DataError
from execgraph.tools.replay import replay
from support.graphs import rank_with_collective, training_step


def test_a_file_replays_as_the_graph_in_it(tmp_path: Path) -> None:
    graph = training_step()
    graph.write(str(tmp_path / "graph.0.et"))
    assert replay(tmp_path / "graph.0.et").makespan_ns == replay(graph).makespan_ns == 50


def test_json_and_an_open_file_replay_as_the_graph_in_them(tmp_path: Path) -> None:
    for name in ("graph.json.gz", "graph.et"):
        training_step().write(tmp_path / name)
        assert replay(tmp_path / name).makespan_ns == 50
    with (tmp_path / "graph.et").open("rb") as stream:
        assert replay(stream).makespan_ns == 50


def test_a_folder_stands_for_the_graphs_in_it(tmp_path: Path) -> None:
    for rank in (1, 0):
        rank_with_collective(rank, work=10 + rank, collective=5, clock=0).write(tmp_path / f"graph.{rank}.et")
    assert replay(tmp_path).work.rank_labels() == ["0", "1"]


def test_one_rank_twice_is_no_job() -> None:
    graph = rank_with_collective(0, work=10, collective=5, clock=0)
    with pytest.raises(DataError, match=r"replay\(graph\): 2 graphs are of rank 0; give the graphs of one job"):
        replay([graph, graph])


def test_changes_go_into_a_replay_and_a_text_does_not() -> None:
    assert replay(training_step(), {"class:computation": 1}).makespan_ns == 50
    with pytest.raises(TypeError, match=r"takes changes such as .*, not str"):
        replay(training_step(), "class:host=0.5")


def test_one_graph_and_a_list_go_into_either_function() -> None:
    ranks = [rank_with_collective(rank, work=10 + rank, collective=5, clock=0) for rank in (0, 1)]
    assert len(replay(ranks).work.graphs) == 2
    assert what_if(training_step(), {"class:computation": 1}).saved_us == 0


ONE = "an ExecutionGraph (trace.to_graph() makes one), a Job, a .et file, a folder of these, or a list"


@pytest.mark.parametrize(
    ("given", "expected"), [(3, ONE), (None, ONE), ([3], "ExecutionGraphs and .et files in a list, not int")]
)
def test_what_is_no_graph_is_named(given: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"replay(graph) takes {expected}")):
        replay(given)


def test_no_graph_at_all_and_changes_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="takes at least one graph"):
        what_if([], {})
    with pytest.raises(TypeError, match="takes changes such as"):
        what_if(training_step(), 0.5)  # type: ignore[arg-type]
