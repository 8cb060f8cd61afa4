"""Reads one rank's graph, for its facts or to write some of its copies, in a process of its own."""

from pathlib import Path
from typing import NamedTuple

from ...converter.scaling import RankFacts, ScalePlan, copied, rank_facts, resized
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from .building import GRAPHS


class WrittenCopies(NamedTuple):
    """How many nodes and bytes the files of some copies have."""

    nodes: int
    bytes: int


class CopyTask(NamedTuple):
    """The graph of a rank, the copies of it to write into a folder, and the plan, which is that of this rank alone."""

    source: Path
    rank: int
    folder: Path
    copies: range
    plan: ScalePlan


def survey_rank(source: Path) -> RankFacts:
    """Returns the facts of a graph file. Raises DataError, naming it, where it is none."""
    graph = ExecutionGraph.read(str(source), tensors=False)
    number = int(source.name.split(".")[1])
    if graph.metadata.get("rank") != number:
        raise DataError(
            f"{source}: its graph is of rank {graph.metadata.get('rank', 'unknown')}; build the whole job again"
        )
    return rank_facts(graph)


def write_copies(task: CopyTask) -> WrittenCopies:
    """Writes the graphs of a rank's copies, one after the other; the rank's own is read once."""
    graph = resized(ExecutionGraph.read(str(task.source)), task.plan.ranks[task.rank])
    size = 0
    for copy in task.copies:
        copied_graph = copied(graph, task.plan, copy)
        path = task.folder / f"{GRAPHS}.{copied_graph.metadata['rank']}.et"
        copied_graph.write(str(path))
        size += path.stat().st_size
    return WrittenCopies(len(graph) * len(task.copies), size)
