"""Paths are told from objects, and an argument of the wrong kind is named."""

from pathlib import Path

from execgraph.schema.given_files import is_path, wrong_argument


def test_text_and_paths_are_files_and_nothing_else_is() -> None:
    assert is_path("graph.0.et") and is_path(Path("graph.0.et"))
    assert not is_path(None) and not is_path(["graph.0.et"])


def test_the_answer_names_what_is_taken_and_what_was_given() -> None:
    assert str(wrong_argument("replay(graph)", "a graph", 3)) == "replay(graph) takes a graph, not int"
