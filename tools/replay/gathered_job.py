"""The graphs of a job's ranks as one workload: matched over ranks, on one clock, and checked to be of one job.

Nodes that are one collective or message are matched; those without a counterpart are left out. How much later than the
first one a rank began, its start offset, is known from what the ranks share. Why is not: its recording may have begun
later, or the rank was late. No change scales it, so that a changed run says how long it takes without.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...converter.ranks import Calls, MatchedTimes, begin_of_ranks, graph_calls, match, ranks_of
from ...converter.rewiring import COMMUNICATION
from ...schema.columns import ABSENT, Bool, Int64, NodeNumbers, Ns
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph, NodeType
from ..terminal import absent_in_words
from .workload import Graphs, NodeClass, Workload, gather, given_graphs

log = logging.getLogger("execgraph")

NOTEWORTHY_PCT = 1.0
"""A smaller share of the run hardly changes an answer."""
WHY = "recording began later, or the rank was late: not known"


@dataclass(slots=True)
class MatchedNodes:
    """A row for each member of each match, sorted by match: the row of its node, the number of its match, and its type
    and CollectiveType (-1 of messages); `count` is the number of matches.

    Rows of nodes are numbered over all graphs, one after the other.
    """

    row: Int64
    matched: Int64
    type: Int64
    kind: Int64
    count: int

    def take(self, chosen: Bool) -> "MatchedNodes":
        """Returns some of the members, of as many matches."""
        return MatchedNodes(self.row[chosen], self.matched[chosen], self.type[chosen], self.kind[chosen], self.count)

    def shortest(self, duration_ns: Ns) -> Ns:
        """Returns how long each match takes, given the durations of all rows: as long as its shortest member, as the
        others also wait for it. A match without members takes no time.
        """
        shortest = np.full(self.count, np.iinfo(np.int64).max)
        np.minimum.at(shortest, self.matched, duration_ns[self.row])
        return np.where(np.bincount(self.matched, minlength=self.count) > 0, shortest, 0)


def match_nodes(graphs: Sequence[ExecutionGraph]) -> MatchedNodes:
    """Matches collectives and messages over ranks; O(n log n) in the communication nodes."""
    calls = [communication_of(graph, position) for position, graph in enumerate(graphs)] if len(graphs) > 1 else []
    rank, call, matched = match(calls).met()
    first_call, first_row = (np.cumsum([0, *map(len, parts)]) for parts in (calls, graphs))
    row, type_, kind = (
        np.concatenate([np.empty(0, np.int64), *(getattr(of_rank, name) for of_rank in calls)])[first_call[rank] + call]
        for name in ("row", "type", "kind")
    )
    return MatchedNodes(row + first_row[rank], matched, type_, kind, int(matched.max(initial=-1)) + 1)


def communication_of(graph: ExecutionGraph, position: int) -> Calls:
    """Returns the collectives and messages of the graph at this position, in the order in which they were issued."""
    # of a kernel that carries several messages only the last one has the kernel's duration, the others last 0 ns
    instant = (graph.type == NodeType.COMM_SEND) & (graph.duration_ns == 0)
    rows = np.flatnonzero(np.isin(graph.type, COMMUNICATION) & ~instant)
    by_id = rows[np.argsort(graph.id[rows], kind="stable")]
    return graph_calls(graph, NodeNumbers(by_id), graph.number("rank", position))


def on_one_clock(work: Workload, nodes: MatchedNodes) -> Workload:
    """Returns the workload with each rank's measured times, and waits from its start, moved to when the rank began.

    O(m log m) in the m matched nodes, plus O(n).
    """
    members, timed = nodes.take(work.is_timed[nodes.row]), work.is_timed
    row, is_message = members.row, members.type != NodeType.COMM_COLL
    times = work.ranks_of(row), members.matched, work.measured_start_ns[row], work.measured_end_ns[row]
    offset = begin_of_ranks(len(work.graphs), MatchedTimes(*times, is_message, members.kind))
    begin = offset[work.ranks_of(np.arange(len(work)))]
    return replace(
        work,
        measured_start_ns=np.where(timed, work.measured_start_ns + begin, ABSENT),
        measured_end_ns=np.where(timed, work.measured_end_ns + begin, ABSENT),
        wait_ns=work.wait_ns + np.where(is_rooted(work), begin, 0),
        start_offset_ns=offset,
    )


def late_rank(work: Workload, makespan_ns: int) -> tuple[str, int] | None:
    """Returns the rank that began last, and how many ns later than the first one; None where that changes no answer."""
    last = int(work.start_offset_ns.argmax())
    offset_ns = int(work.start_offset_ns[last])
    is_noteworthy = offset_ns >= NOTEWORTHY_PCT / 100 * max(makespan_ns, 1)
    return (work.rank_labels()[last], offset_ns) if is_noteworthy else None


def is_rooted(work: Workload) -> Bool:
    """Returns which nodes depend on nothing."""
    return np.asarray(np.bincount(work.target, minlength=len(work)) == 0)


class GatheredJob(NamedTuple):
    """The columns of all ranks of a job on one clock, and the nodes that meet."""

    work: Workload
    members: MatchedNodes


def gather_job(graphs: Sequence[ExecutionGraph]) -> GatheredJob:
    """Gathers the graphs of a job's ranks; O(n + e), and O(m log m) in their communication."""
    members = match_nodes(graphs)
    work = on_one_clock(gather(graphs), members)
    if work.missing_dependencies:
        log.warning("warning: ignored dependencies on nodes that the graph lacks: %d", work.missing_dependencies)
    return GatheredJob(work, members)


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
    """Returns the first rank of whose collectives with other given ranks none matches, "" if there is none."""
    if len(graphs) < 2 or -1 in ranks:
        return ""
    matches = match([communication_of(graph, position) for position, graph in enumerate(graphs)])
    members = [set(ranks_of(group.ranks)) for group in matches.groups]
    # the last one stands for communication without a group
    shared = np.array([*(len(group.intersection(ranks)) > 1 for group in members), False], np.bool_)
    rank_of_match = [np.unique(matched) for matched in matches.matched]
    met = np.bincount(np.concatenate(rank_of_match), minlength=len(matches)) > 1
    silent = {rank for rank, group in zip(ranks, matches.group, strict=True) if not (group >= 0).any()}
    for rank, group, matched in zip(ranks, matches.group, matches.matched, strict=True):
        issued = matched[shared[group]]
        if not len(issued) or met[issued].any():
            continue
        others = set[int]().union(*(members[number] for number in np.unique(group[shared[group]]).tolist()))
        if without := sorted(silent & others):
            return f"rank {without[0]} has none of the collectives that rank {rank} has with it, so its trace may be incomplete"
        return f"of {len(issued):,} collectives of rank {rank} with other ranks that are given none meets theirs"
    return ""
