"""Turns communication on which ASTRA-sim would stop or hang into computation of the measured duration."""

from collections import Counter

import numpy as np

from ...schema.columns import ABSENT, Bool
from ...schema.comm_groups import INT32_MAX, RankList
from ...schema.graph import ExecutionGraph, NodeType
from ..ranks import Groups
from .collectives import PLAYED

Reasons = list[tuple[str, Bool]]


def compute_unplayable(graph: ExecutionGraph, groups: Groups, world: RankList | None) -> Counter[str]:
    """Sets the type of such nodes to COMP, in place; returns their number by the first reason that applies.

    Without `world` no rank counts as outside it.
    """
    rank, counts = graph.number("rank", -1), Counter[str]()
    for reason, rows in _collective_reasons(graph, groups, rank, world) + _message_reasons(graph, rank, world):
        rows = rows & (graph.type != NodeType.COMP)
        graph.type[rows] = NodeType.COMP
        counts[reason] += int(rows.sum())
    return +counts


def _collective_reasons(graph: ExecutionGraph, groups: Groups, rank: int, world: RankList | None) -> Reasons:
    collective, simulated = graph.type == NodeType.COMM_COLL, set(world or ())

    def in_group(facts: list[bool], unknown: bool) -> Bool:
        return np.asarray(collective & np.array([*facts, unknown])[groups.of_node])

    single, foreign = [len(ranks) < 2 for ranks in groups.lists], [-1 < rank not in ranks for ranks in groups.lists]
    outside = [world is not None and not simulated.issuperset(ranks) for ranks in groups.lists]
    return [
        ("in a group of one", in_group(single, world is not None and len(world) < 2)),
        ("in a group without this rank", in_group(foreign, False)),
        ("in a group with ranks that are not simulated", in_group(outside, False)),
        ("of an unknown type", collective & ~np.isin(graph.integers("comm_type"), PLAYED)),
        ("without data", collective & (graph.integers("comm_size") <= 0)),
    ]


def _message_reasons(graph: ExecutionGraph, rank: int, world: RankList | None) -> Reasons:
    is_send, is_receive = graph.type == NodeType.COMM_SEND, graph.type == NodeType.COMM_RECV
    message, tag = is_send | is_receive, graph.integers("comm_tag", 0)
    source, destination = graph.integers("comm_src"), graph.integers("comm_dst")
    # the side that is not recorded is the node's own rank
    own_side = np.where(is_send, source, destination)
    own_side = np.where(own_side == ABSENT, rank, own_side)
    peer = np.where(is_send, destination, source)
    simulated = np.ones(len(graph), np.bool_) if world is None else np.isin(peer, world)
    return [
        ("to or from a rank that is unknown or not simulated", message & ((peer < 0) | (own_side < 0))),
        ("of another rank", message & (own_side != rank)),
        ("to the rank itself", message & (peer == rank)),
        ("to or from a rank that is unknown or not simulated", message & ~simulated),
        ("with a tag out of range", message & ((tag < 0) | (tag > INT32_MAX))),
        ("without data", message & (graph.integers("comm_size") <= 0)),
    ]


def complete_messages(graph: ExecutionGraph) -> None:
    """Writes the own rank and tag 0 on sends and receives that lack them, in place: v3 stops at a missing attribute."""
    sends, receives = graph.type == NodeType.COMM_SEND, graph.type == NodeType.COMM_RECV
    rank = graph.number("rank", -1)
    for name, rows, value in (
        ("comm_src", sends, rank),
        ("comm_dst", receives, rank),
        ("comm_tag", sends | receives, 0),
    ):
        column = graph.integers(name)
        if rows.any():
            graph.attributes[name] = np.where(rows & (column == ABSENT), value, column)
