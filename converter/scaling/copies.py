"""The graphs of the scaled job's ranks, each made from the graph of the rank that it copies.

`resized` is common to all copies of a rank; `copied` shares its columns, except the numbers of ranks and groups.
"""

import dataclasses

import numpy as np

from ...schema.arguments import ASTRA_SIM
from ...schema.columns import Categorical, Int32, Int64, Ragged
from ...schema.graph import (
    DATA_WAIT_WITHOUT_PROFILER_NS,
    RANKS_OF_GROUP,
    STEP_WITHOUT_PROFILER_NS,
    STEPS,
    Column,
    ExecutionGraph,
    NodeType,
)
from ..ranks import ranks_text
from .plan import RankPlan, ScalePlan

ENDS = ("comm_src", "comm_dst")
COALESCED_ENDS = ("coalesced_src", "coalesced_dst")
ALL_RANKS = ""


def resized(graph: ExecutionGraph, plan: RankPlan) -> ExecutionGraph:
    """Returns the graph with the sizes and lengths of its collectives in the scaled job; measured starts stay.

    The graph of a rank that stands in for another becomes that one's.
    """
    longer = np.zeros(len(graph), np.int64)
    longer[plan.row] = plan.longer_ns
    size = graph.integers("comm_size")
    size[plan.row] = plan.size
    if plan.source != plan.rank:
        graph = _stood_in(graph, plan)
    attributes: dict[str, Column] = {**graph.attributes, "duration_ns": graph.duration_ns + longer}
    if len(plan.row):
        attributes["comm_size"] = size
    # rounding errors are passed on to the next node, so that sums stay right to 1 µs
    added = np.diff(np.rint(np.cumsum(longer) / 1000).astype(np.int64), prepend=0)
    micros = np.maximum(graph.duration_micros + added, 0)
    return dataclasses.replace(graph, attributes=attributes, duration_micros=micros)


def _stood_in(graph: ExecutionGraph, plan: RankPlan) -> ExecutionGraph:
    """Returns the graph of a rank as that of the missing one for which it stands in."""
    distance = plan.rank - plan.source
    moved_by = np.full(len(graph), distance, np.int64)
    moved_by[plan.row] = plan.moved_by
    attributes = dict(graph.attributes)
    for name in ENDS:
        if name in attributes:
            column = graph.integers(name)
            attributes[name] = np.where(column >= 0, column + moved_by, column)
    for name in COALESCED_ENDS:
        if isinstance(ends := attributes.get(name), Ragged):
            attributes[name] = Ragged(ends.starts, ends.values + distance)
    return dataclasses.replace(graph, attributes=attributes, metadata={**graph.metadata, "rank": plan.rank})


def copied(graph: ExecutionGraph, plan: ScalePlan, copy: int) -> ExecutionGraph:
    """Returns the graph of a copy of a rank from its `resized` graph: ranks, roots, sources, destinations and groups
    are renumbered.

    The metadata lists the ranks of a group once, and not how long a step of the smaller job takes. Tags stay, as they
    distinguish messages between two ranks.
    """
    rank_plan = plan.ranks[graph.number("rank", -1)]
    rank_copies, renumbered = plan.rank_copies, plan.rank_copies.renumbered(copy)
    names, lists = list[str](), dict[str, str]()
    for ranks, is_joined in rank_plan.groups:
        members = rank_copies.joined(ranks) if is_joined else rank_copies.of(ranks, copy)
        is_world = len(members) == rank_copies.ranks and graph.metadata.get("target") == ASTRA_SIM
        names.append(ALL_RANKS if is_world else str(plan.numbering.number(ranks, is_joined, copy)))
        lists[RANKS_OF_GROUP + names[-1]] = ranks_text(members)
    attributes = {name: column for name, column in graph.attributes.items() if name != "pg_ranks"}
    group = np.full(len(graph), -1, np.int64)
    group[rank_plan.row] = rank_plan.group
    attributes["pg_name"] = _names(graph, group, names)
    of_first = np.array([is_joined for _, is_joined in rank_plan.groups] + [False], np.bool_)[group]
    for name in ENDS:
        if name in attributes:
            column = graph.integers(name)
            # all copies share one root
            attributes[name] = np.where(
                of_first, _renumbered(column, rank_copies.renumbered(0)), _renumbered(column, renumbered)
            )
    for name in COALESCED_ENDS:
        if isinstance(ends := attributes.get(name), Ragged):
            attributes[name] = Ragged(ends.starts, renumbered[ends.values])
    metadata = {**graph.metadata, "rank": int(renumbered[rank_plan.rank]), "world_size": rank_copies.ranks, **lists}
    for key in (STEPS, STEP_WITHOUT_PROFILER_NS, DATA_WAIT_WITHOUT_PROFILER_NS):
        metadata.pop(key, None)
    return dataclasses.replace(graph, attributes=attributes, metadata=metadata)


def _renumbered(column: Int64, numbers: Int64) -> Int64:
    is_rank = (column >= 0) & (column < len(numbers))
    return np.where(is_rank, numbers[np.where(is_rank, column, 0)], column)


def _names(graph: ExecutionGraph, group: Int64, names: list[str]) -> Categorical:
    """Returns the name of each collective's group; messages need none."""
    table = Categorical.of([*names, ALL_RANKS])
    codes: Int32 = np.where(group >= 0, table.codes[group], -1).astype(np.int32)
    codes[np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))] = table.codes[-1]
    return Categorical(codes, table.table)
