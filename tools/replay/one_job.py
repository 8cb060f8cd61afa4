"""Checks whether graphs can be of one job: different ranks of one world size, whose collectives match; and which of its
ranks are absent.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...converter.ranks import match, ranks_of
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from ..given_graphs import Graphs, given_graphs
from ..rank_rows import absent_in_words
from .node_class import NodeClass
from .rendezvous import communication_of
from .workload import Workload


def why_not_one_job(graphs: Sequence[ExecutionGraph]) -> str:
    """Returns why the graphs cannot be of one job, "" if they can. O(n log n) in the communication nodes."""
    ranks = [graph.number("rank", -1) for graph in graphs]
    twice = [rank for rank, count in Counter(ranks).items() if count > 1 and rank >= 0]
    if twice:
        return f"{len([rank for rank in ranks if rank == twice[0]])} graphs are of rank {twice[0]}"
    worlds = {graph.number("world_size", -1): rank for graph, rank in zip(graphs, ranks, strict=True)}
    sizes = sorted(set(worlds) - {-1})
    if len(sizes) > 1:
        return f"rank {worlds[sizes[0]]} is of {sizes[0]} ranks, rank {worlds[sizes[1]]} of {sizes[1]}"
    return _never_meeting(graphs, ranks)


def graphs_of_one_job(graphs_or_paths: Graphs, call: str, *, allow_mismatch: bool = False) -> list[ExecutionGraph]:
    """Returns a graph for each rank of a job, read where it is given as a file; `call` is what the caller wrote.

    Raises TypeError for what is no graph, ValueError for no graph, and DataError for graphs that are not of one job,
    without `allow_mismatch`.
    """
    graphs = given_graphs(graphs_or_paths, call)
    if not allow_mismatch and (reason := why_not_one_job(graphs)):
        raise DataError(f"{call}: {reason}; give the graphs of one job, one for each rank")
    return graphs


def absence(work: Workload) -> str:
    """Returns how many ranks are absent and what that means, "" if none are or the others communicate nothing."""
    world = max(graph.number("world_size", 0) for graph in work.graphs)
    absent = world - len(work.graphs)
    if absent <= 0 or not bool(np.any(work.node_class == NodeClass.COMMUNICATION)):
        return ""
    named = absent_in_words((graph.number("rank", -1) for graph in work.graphs), world)
    verb, pronoun = ("are", "them") if absent > 1 else ("is", "it")
    return f"{absent:,} of {world:,} ranks {verb} absent ({named}): communication with {pronoun} includes waiting for {pronoun}"


def _never_meeting(graphs: Sequence[ExecutionGraph], ranks: list[int]) -> str:
    """Returns the first rank of whose collectives with other given ranks none matches, and how many these are; "" if
    there is none.
    """
    if len(graphs) < 2 or -1 in ranks:
        return ""
    calls = [communication_of(graph, position) for position, graph in enumerate(graphs)]
    matches, ranks_read = match(calls), set(ranks)
    shared = np.array([len(ranks_read.intersection(ranks_of(group.ranks))) > 1 for group in matches.groups], np.bool_)
    rank_of_match = [np.unique(matched) for matched in matches.matched]
    met = np.bincount(np.concatenate(rank_of_match), minlength=len(matches)) > 1
    silent = {rank for rank, group in zip(ranks, matches.group, strict=True) if not (group >= 0).any()}
    for rank, group, matched in zip(ranks, matches.group, matches.matched, strict=True):
        in_shared = (group >= 0) & shared[np.maximum(group, 0)] if len(shared) else np.zeros(len(group), np.bool_)
        own_matches = matched[in_shared]
        if not len(own_matches) or met[own_matches].any():
            continue
        members = {
            member
            for number in np.unique(group[in_shared]).tolist()
            for member in ranks_of(matches.groups[number].ranks)
        }
        if without := sorted(silent & members):
            return f"rank {without[0]} has none of the collectives that rank {rank} has with it, so its trace may be incomplete"
        return f"of {len(own_matches):,} collectives of rank {rank} with other ranks that are given none meets theirs"
    return ""
