"""The graphs that a caller gives: one or several, as objects, files or folders."""

import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from ..schema.arguments import InputFile, is_file, is_path, path_of, wrong_argument
from ..schema.errors import DataError, Remedy
from ..schema.graph import ExecutionGraph, json_to_graph, read_et
from ..schema.progress import unseen
from .recognise import InputKind
from .wrong_kind import file_for_folder, instead_of_folder, reading

Graphs = ExecutionGraph | InputFile | Iterable[ExecutionGraph | InputFile]
"""The graph of one rank, or one for each rank of a job; a folder stands for the graphs in it."""
KINDS = "an ExecutionGraph (trace.to_graph() makes one), a Job, a .et file, a folder of these, or a list"
IN_A_LIST = "ExecutionGraphs and .et files in a list"
BUILT = re.compile(r"graph\.(\d+)\.et")


def given_graphs(argument: Graphs, call: str) -> list[ExecutionGraph]:
    """Returns a graph for each rank, read where it is given as a file or in a folder.

    Raises TypeError for anything else, and ValueError for no graph; `call` is what the caller wrote.
    """
    if isinstance(argument, ExecutionGraph) or is_file(argument):
        return _graphs(argument, call)
    if not isinstance(argument, Iterable):
        raise wrong_argument(call, KINDS, argument)
    graphs = [graph for item in argument for graph in _graphs(item, call, IN_A_LIST)]
    if not graphs:
        raise ValueError(f"{call} takes at least one graph; the list is empty")
    return graphs


def _graphs(argument: object, call: str, expected: str = KINDS) -> list[ExecutionGraph]:
    if isinstance(argument, ExecutionGraph):
        return [argument]
    if not is_file(argument):
        raise wrong_argument(call, expected, argument)
    if is_path(argument) and Path(argument).is_dir():
        return [read_graph_file(path) for path in graph_files(Path(argument))]
    return [read_graph_file(argument)]


def graph_files(folder: Path) -> list[str]:
    """Returns the graphs in a folder in the order of their ranks. Raises DataError where there is none."""
    if not folder.is_dir():
        raise DataError(file_for_folder(folder, InputKind.GRAPH))
    graphs = {int(match[1]): str(path) for path in folder.iterdir() if (match := BUILT.fullmatch(path.name))}
    if not graphs:
        remedy = instead_of_folder(folder, InputKind.GRAPH) or f"give graphs or the folder that {Remedy.BUILD} wrote"
        raise DataError(f"{folder}: holds no graph.N.et; {remedy}")
    return [graphs[rank] for rank in sorted(graphs)]


def read_graph_file(file: InputFile, tensors: bool = True) -> ExecutionGraph:
    """Reads a graph from a .et file, or from JSON where the name ends in .json; a further .gz makes no difference.

    Raises DataError for a file that is no graph, with what it is instead.
    """
    with path_of(file) as path:
        if not path.removesuffix(".gz").endswith(".json"):
            with reading(path, InputKind.GRAPH):
                return read_et(path, tensors)
        with TemporaryDirectory(prefix="execgraph-") as folder, reading(path, InputKind.GRAPH_JSON):
            encoded = str(Path(folder, "graph.et"))
            json_to_graph(path, encoded, unseen)
            return read_et(encoded, tensors)
