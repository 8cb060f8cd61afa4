"""Graphs are given one or several, as objects or files; anything else is named."""

from pathlib import Path
from typing import Any

import pytest
from execgraph.tools.replay import replay, what_if
from support.graphs import rank_with_collective, training_step


def test_a_file_replays_as_the_graph_in_it(tmp_path: Path) -> None:
    graph = training_step()
    graph.write(str(tmp_path / "graph.0.et"))
    assert replay(tmp_path / "graph.0.et").makespan_ns == replay(graph).makespan_ns == 50


def test_one_graph_and_a_list_go_into_either_function() -> None:
    ranks = [rank_with_collective(rank, work=10 + rank, collective=5, clock=0) for rank in (0, 1)]
    assert len(replay(ranks).work.graphs) == 2
    assert what_if(training_step(), {"class:computation": 1}).saved_us == 0


@pytest.mark.parametrize("given", [3, None, [3]])
def test_what_is_no_graph_is_named(given: Any) -> None:
    with pytest.raises(TypeError, match=r"replay\(graph\) takes an ExecutionGraph, the path of a .et file, or a list"):
        replay(given)


def test_no_graph_at_all_and_changes_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="takes at least one graph"):
        what_if([], {})
    with pytest.raises(TypeError, match="takes changes such as"):
        what_if(training_step(), 0.5)  # type: ignore[arg-type]
