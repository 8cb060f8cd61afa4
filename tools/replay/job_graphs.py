"""The graphs of a job, given as objects, files or folders: read, and checked to be of one job."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ...converter.ranks import match, ranks_of, share_no_step, spans_of
from ...schema.arguments import ASTRA_SIM, InputFile, is_file, is_path, path_of, wrong_argument
from ...schema.errors import DataError, Remedy
from ...schema.graph import CHANGED_BY, LOSSES, RANKS_OF_GROUP, ExecutionGraph, NodeType, json_to_graph, read_et
from ...schema.io import path_is
from ...schema.progress import unseen
from ...schema.reasons import Counts, Reason, in_words
from ..recognise import InputKind, file_for_folder, instead_of_folder, kind_of, reading, why_two_jobs, why_two_runs
from ..terminal import absent_in_words
from .workload import NodeClass, Workload, communication_of

Graphs = ExecutionGraph | InputFile | Iterable[ExecutionGraph | InputFile]
"""The graph of one rank, or one for each rank of a job; a folder stands for the graphs in it."""
KINDS = "an ExecutionGraph (trace.to_graph() makes one), a Job, a .et file, a folder of these, or a list"
IN_A_LIST = "ExecutionGraphs and .et files in a list"
BUILT = re.compile(r"graph\.(\d+)\.et")


def why_not_one_job(graphs: Sequence[ExecutionGraph]) -> str:
    """Returns why the graphs cannot be of one job, "" if they can. O(n log n) in the communication nodes."""
    ranks = [graph.number("rank", -1) for graph in graphs]
    rank, count = max(Counter(rank for rank in ranks if rank >= 0).items(), key=lambda item: item[1], default=(-1, 0))
    if count > 1:
        return f"{count} graphs are of rank {rank}"
    if jobs := why_two_jobs((rank, graph.number("world_size", -1)) for graph, rank in zip(graphs, ranks, strict=True)):
        return jobs
    changes = sorted({str(graph.metadata.get(CHANGED_BY, "nothing")) for graph in graphs})
    if len(changes) > 1:
        return f"some graphs are of a run changed by {', others by '.join(changes)}"
    copies = dict[tuple[int, bytes], int]()
    # the copies of a scaled job are meant to be alike
    is_scaled = any(name.startswith(RANKS_OF_GROUP) for graph in graphs for name in graph.metadata)
    for graph, rank in zip(graphs, ranks, strict=True) if not is_scaled and min(ranks) >= 0 else ():
        if (first := copies.setdefault((graph.number("pid", -1 - rank), graph.start_ns.tobytes()), rank)) != rank:
            return f"ranks {first} and {rank} have the same process and times, so they are copies of one rank"
    times = zip(graphs, ranks, strict=True)
    apart = why_two_runs({f"rank {rank}": _recorded_ns(graph) for graph, rank in times if rank >= 0})
    return apart or _never_meeting(graphs, ranks)


def _recorded_ns(graph: ExecutionGraph) -> int | None:
    """Returns when a graph was recorded, about; None where that is not known."""
    base, times = graph.number("base_time_ns", -1), graph.host_clock_start_ns[graph.type != NodeType.METADATA]
    return base + int(np.median(times)) if base >= 0 and len(times) else None


def absence(work: Workload) -> str:
    """Returns how many ranks are absent and what that means, "" if none are or the others communicate nothing."""
    world = max(graph.number("world_size", 0) for graph in work.graphs)
    absent = world - len(work.graphs)
    if absent <= 0 or not bool(np.any(work.node_class == NodeClass.COMMUNICATION)):
        return ""
    named = absent_in_words((graph.number("rank", -1) for graph in work.graphs), world)
    verb, pronoun = ("are", "them") if absent > 1 else ("is", "it")
    return f"{absent:,} of {world:,} ranks {verb} absent ({named}): communication with {pronoun} includes waiting for {pronoun}"


def losses(graph: ExecutionGraph) -> Counts:
    """Returns what the recording of a graph lacks, or has wrong, by reason."""
    counts = Counts({reason: graph.number(name, 0) for name, reason in LOSSES.items()})
    counts[Reason.OUT_OF_TURN] += len(graph.out_of_turn)
    # a simulator's graphs number the nodes of collectives alike on all ranks
    is_built = str(graph.metadata.get("tool")).startswith("execgraph") and len(graph) > 0
    if is_built and graph.metadata.get("target") != ASTRA_SIM:
        counts[Reason.NODES_REMOVED] = int(graph.id.max() - graph.id.min()) + 1 - len(graph)
    return counts.without_zeros()


def losses_in_words(work: Workload) -> str:
    """Returns what the recordings lack, or have wrong, and what that means; "" if nothing."""
    counts = Counts().add(*map(losses, work.graphs))
    texts = [f"the recording has {in_words(reason)}: {count:,}" for reason, count in counts.items()]
    if lost := counts.data.pop(Reason.LAUNCHES_NOT_RECORDED, 0):
        of = f"{lost:,} of {int(work.is_activity.sum()):,} activities"
        texts[0] = f"the launch calls of {of} were not recorded, so what they waited for is not known"
    return "; ".join(texts) + ", so idle times and waits are not those of the run" * bool(counts)


def _never_meeting(graphs: Sequence[ExecutionGraph], ranks: list[int]) -> str:
    """Returns the first rank whose collectives match none of given ranks, or steps if none is common, else ""."""
    if len(graphs) < 2 or -1 in ranks:
        return ""
    of_ranks = [communication_of(graph, position) for position, graph in enumerate(graphs)]
    calls = match(of_ranks)
    if share_no_step(of_ranks) and len(calls) and not (calls.is_met & (calls.sequence >= 0)).any():
        return f"ranks recorded different steps, {spans_of(rank.steps for rank in of_ranks)}, and no sequence number is common"
    members = [set(ranks_of(group.ranks)) for group in calls.groups]
    # the last one stands for communication without a group
    shared = np.array([*(len(group.intersection(ranks)) > 1 for group in members), False], np.bool_)[calls.group]
    chosen = shared, shared & calls.is_met, calls.group >= 0
    issued, met, collectives = (np.bincount(calls.rank[rows], minlength=len(ranks)) for rows in chosen)
    silent = {rank for rank, count in zip(ranks, collectives.tolist(), strict=True) if not count}
    for position in np.flatnonzero((issued > 0) & (met == 0)).tolist():
        rank, groups = ranks[position], np.unique(calls.group[shared & (calls.rank == position)])
        if without := sorted(silent & set[int]().union(*(members[number] for number in groups.tolist()))):
            return f"rank {without[0]} has none of the collectives that rank {rank} has with it, so its trace may be incomplete"
        return f"of {issued[position]:,} collectives of rank {rank} with other ranks that are given none meets theirs"
    return ""


def given_graphs(argument: Graphs, call: str, *, allow_mismatch: bool = False) -> list[ExecutionGraph]:
    """Returns a graph for each rank of a job, read where it is given as a file or in a folder.

    Raises TypeError for no graph, ValueError for none, and DataError for graphs of several jobs, unless allowed.
    """

    def graphs_of(item: object, expected: str) -> list[ExecutionGraph]:
        if isinstance(item, ExecutionGraph):
            return [item]
        if not is_file(item):
            raise wrong_argument(call, expected, item)
        if is_path(item) and path_is(item, Path.is_dir):
            return [read_graph_file(path) for path in graph_files(Path(item))]
        return [read_graph_file(item)]

    if isinstance(argument, ExecutionGraph) or is_file(argument) or not isinstance(argument, Iterable):
        graphs = graphs_of(argument, KINDS)
    else:
        graphs = [graph for item in argument for graph in graphs_of(item, IN_A_LIST)]
    if not graphs:
        raise ValueError(f"{call} takes at least one graph; the list is empty")
    if not allow_mismatch and (reason := why_not_one_job(graphs)):
        raise DataError(f"{call}: {reason}; give the graphs of one job, one for each rank")
    return graphs


def graph_files(folder: Path) -> list[str]:
    """Returns the graphs in a folder in the order of their ranks. Raises DataError where there is none."""
    if not folder.is_dir():
        raise DataError(file_for_folder(folder, InputKind.GRAPH))
    try:
        graphs = {int(match[1]): str(path) for path in folder.iterdir() if (match := BUILT.fullmatch(path.name))}
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error}); check the path") from error
    if not graphs:
        remedy = instead_of_folder(folder, InputKind.GRAPH) or f"give graphs or the folder that {Remedy.BUILD} wrote"
        raise DataError(f"{folder}: holds no graph.N.et; {remedy}")
    return [graphs[rank] for rank in sorted(graphs)]


def graph_paths(sources: Iterable[str]) -> list[str]:
    """Returns the files of graphs, of folders those in it. Raises DataError for a folder without any."""
    return [path for source in sources for path in (graph_files(Path(source)) if Path(source).is_dir() else [source])]


def read_graph_file(file: InputFile, tensors: bool = True) -> ExecutionGraph:
    """Reads a graph from a .et file, or from its JSON form; raises DataError for a file that is no graph."""
    with path_of(file) as path:
        named_json = path.removesuffix(".gz").endswith(".json")
        if not named_json or kind_of(Path(path)) is not InputKind.GRAPH_JSON:
            with reading(path, InputKind.GRAPH):
                return read_et(path, tensors)
        with TemporaryDirectory(prefix="execgraph-") as folder, reading(path, InputKind.GRAPH_JSON):
            encoded = str(Path(folder, "graph.et"))
            json_to_graph(path, encoded, unseen)
            return read_et(encoded, tensors)
