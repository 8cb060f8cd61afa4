"""The graphs that a caller gives: one or several, as objects or files."""

from collections.abc import Sequence

from ..schema.given_files import FilePath, is_path, wrong_argument
from ..schema.graph import ExecutionGraph

Graphs = ExecutionGraph | FilePath | Sequence[ExecutionGraph | FilePath]
"""The graph of one rank, or one for each rank of a job."""
KINDS = "an ExecutionGraph, the path of a .et file, or a list of these"


def given_graphs(given: Graphs, call: str) -> list[ExecutionGraph]:
    """Returns a graph for each rank, read where it is given as a file.

    Raises TypeError for anything else, and ValueError for no graph; `call` is what the caller wrote.
    """
    several = given if isinstance(given, list | tuple) else [given]
    if not several:
        raise ValueError(f"{call} takes at least one graph; the list is empty")
    return [_graph(graph, call) for graph in several]


def _graph(given: object, call: str) -> ExecutionGraph:
    if isinstance(given, ExecutionGraph):
        return given
    if not is_path(given):
        raise wrong_argument(call, KINDS, given)
    return ExecutionGraph.read(given)
