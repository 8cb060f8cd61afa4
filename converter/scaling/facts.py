"""What scaling has to know of each rank: its communication, when in a training step the host issued it, its
computation; and the facts of ranks that were not traced.

Autograd runs a node for each function of the forward pass, and the node AccumulateGrad for each parameter, when its
gradient is complete. What is issued there concerns the gradient of a parameter; what a function's node issues may as
well be the gradient of an activation. The traced ranks are taken for a pattern that repeats, as the replicas of a job
do: a missing rank does what the rank at the same position of the pattern does, in its groups that contain it, and in
place of the others in those at the same distance. Where that does not fit what was traced, nothing is assumed.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, NodeNumbers, nearest, rows_in_circles, rows_of
from ...schema.comm_groups import RankList
from ...schema.errors import DataError, Remedy
from ...schema.graph import DependencyKind, ExecutionGraph, NodeType
from ..device_only import COMMUNICATION
from ..ranks import Calls, Group, graph_calls, ranks_of, ranks_text
from ..rewiring import data_edges

ENGINE = "autograd::engine::evaluate_function"
BACKWARD_SCOPE = 1
PARAMETER_NODES = ("AccumulateGrad", "RegisterPostBackwardFunction")
"""Autograd's node of a parameter, at which DDP, FSDP, DeepSpeed and Megatron hook in; and the node of FSDP2."""
ALL_NEEDED = "trace all ranks of the job, or leave the missing ones out with ", Remedy.REMOVE_RANKS
TRIED = 32
"""So many traced ranks are tried in place of the first missing one."""


class Phase(IntEnum):
    """Where a collective is issued: not in the backward pass as far as known; in the backward of a function; on a
    thread of the backward pass, in no function; or when the gradient of a parameter is complete.
    """

    OTHER = 0
    FUNCTION = 1
    THREAD = 2
    PARAMETER = 3


def phases(graph: ExecutionGraph, rows: Int64) -> Int64:
    """Returns the Phase of each node, by the enclosing ops of its issuer and by the thread of that."""
    caller = _callers(graph)
    is_backward: Bool = graph.name.where(lambda name: name.startswith(ENGINE))
    is_backward = is_backward | (graph.integers("scope") == BACKWARD_SCOPE) | (graph.integers("fw_tid") > 0)
    of_parameter: Bool = graph.name.where(lambda name: any(node in name for node in PARAMETER_NODES))
    enclosing = nearest(is_backward, caller)
    issuer = _issued_by(graph, rows, caller)
    frame = np.where(issuer >= 0, enclosing[issuer], -1)
    on_thread = (issuer >= 0) & np.isin(graph.integers("tid", -1)[issuer], _backward_threads(graph, enclosing))
    conditions = [(frame >= 0) & of_parameter[frame], frame >= 0, on_thread]
    return np.select(conditions, [Phase.PARAMETER, Phase.FUNCTION, Phase.THREAD], Phase.OTHER).astype(np.int64)


def _backward_threads(graph: ExecutionGraph, enclosing: Int64) -> Int64:
    """Returns the threads that run nothing but the backward pass, while another one runs ops that autograd records."""
    thread = graph.integers("tid", -1)
    forward = np.unique(thread[(enclosing < 0) & (graph.integers("seq_id", -1) >= 0)])
    # without recorded sequence numbers the main thread, too, would seem to run no forward op
    return np.setdiff1d(thread[enclosing >= 0], forward) if len(forward) else forward


def _callers(graph: ExecutionGraph) -> Int64:
    """Returns the slice of the calling op for each node, -1 for none.

    A graph from elsewhere may have circles of callers: these nodes have none.
    """
    row, caller = np.arange(len(graph)), np.full(len(graph), -1, np.int64)
    caller[graph.ctrl_deps.rows()] = rows_of(graph.id, graph.ctrl_deps.values)
    caller[caller == row] = -1
    caller[rows_in_circles(row, caller)] = -1
    return caller


def _issued_by(graph: ExecutionGraph, rows: Int64, caller: Int64) -> Int64:
    """Returns the slice that launched each node, or handed it to a communicating thread (gloo); -1 where neither is
    known.
    """
    edges = data_edges(graph)
    handed = edges.kind & DependencyKind.HANDOFF != 0
    giver = np.full(len(graph), -1, np.int64)
    giver[edges.target[handed]] = edges.source[handed]
    return np.where(caller[rows] >= 0, caller[rows], giver[_begun_at(graph, rows, giver >= 0)])


def _begun_at(graph: ExecutionGraph, rows: Int64, is_handed: Bool) -> Int64:
    """Returns the node with which each node's thread took its work over, the node itself where that is not known.

    A thread of gloo may wait for a copy from the device before it communicates; it took that over, too, unless another
    communication lies between.
    """
    thread, position = graph.integers("tid", -1), np.arange(len(graph))
    order = np.argsort(thread, kind="stable")
    communicates = np.isin(order, rows)
    is_first = np.append(True, (np.diff(thread[order]) != 0) | communicates[:-1])[: len(order)]
    first = np.maximum.accumulate(np.where(is_first, position, 0))
    handed = np.maximum.accumulate(np.where(is_handed[order], position, -1))
    begun = np.empty_like(order)
    begun[order] = order[np.where(handed >= first, handed, position)]
    return begun[rows]


class RankFacts(NamedTuple):
    """A rank of a job of `world_size`, the target of its graph, and its `calls`, whose `row` is that of the node.

    For each call, how long its node took, and the Phase in which it was issued; `has_host` is whether the graph holds
    host ops, which tell phases. `work` is a digest of the names and numbers of kernels. `notes` are about the graph's
    file.

    `source` is the rank of the graph: another one for a rank that was not traced. Then `moved_by` is what is added to
    the ranks that are recorded with each call.
    """

    rank: int
    world_size: int
    target: str
    calls: Calls
    length_ns: Int64
    phase: Int64
    has_host: bool
    work: str
    notes: list[str]
    source: int
    moved_by: Int64


def rank_facts(graph: ExecutionGraph) -> RankFacts:
    """Returns the facts of a graph; O(n log n + ranks recorded)."""
    rank = graph.number("rank", -1)
    rows = NodeNumbers(np.flatnonzero(np.isin(graph.type, COMMUNICATION)))
    calls = graph_calls(graph, rows, rank)
    return RankFacts(
        rank=rank,
        world_size=graph.number("world_size", -1),
        target=str(graph.metadata.get("target", "")),
        calls=calls,
        length_ns=graph.duration_ns[calls.row],
        phase=phases(graph, calls.row),
        has_host=bool(graph.integers("is_cpu_op", 0).any()),
        work=_work(graph),
        notes=graph.notes,
        source=rank,
        moved_by=np.zeros(len(calls), np.int64),
    )


def _work(graph: ExecutionGraph) -> str:
    computing = graph.is_activity & (graph.type == NodeType.COMP) & graph.texts("cat").equal("kernel")
    count = np.bincount(graph.name.codes[computing], minlength=len(graph.name.table)).tolist()
    kernels = sorted((name, often) for name, often in zip(graph.name.table, count, strict=True) if often)
    return hashlib.blake2b(repr(kernels).encode(), digest_size=8).hexdigest()


class Assumed(NamedTuple):
    """What is assumed of the missing ranks: which rank stands in for each, and their groups that no traced rank is in.

    `same_work` is whether all traced ranks run the same kernels.
    """

    source: dict[int, int]
    groups: list[RankList]
    same_work: bool


def completed(facts: Sequence[RankFacts], ranks: int, removed: Collection[int]) -> tuple[Sequence[RankFacts], Assumed]:
    """Returns the facts of all ranks of a job of so many, but those removed, by rank; and what is assumed.

    Raises DataError where what was traced contradicts it.
    """
    traced = {rank.rank: rank for rank in facts}
    missing = sorted(set(range(ranks)) - set(traced) - set(removed))
    same_work = len({rank.work for rank in facts}) == 1
    if not missing:
        return facts, Assumed({}, [], same_work)
    errors = []
    for first in sorted(traced)[:TRIED]:
        source = _sources(sorted(traced), missing, first)
        try:
            stand_ins = [_stand_in(traced[traced_rank], rank) for rank, traced_rank in source.items()]
            whole = sorted([*facts, *stand_ins], key=lambda rank: rank.rank)
            groups = list(_new_groups(whole, source, removed))
            _check_messages(whole, source)
        except DataError as error:
            errors.append(error)
        else:
            return whole, Assumed(source, groups, same_work)
    raise errors[0]


def _sources(traced: Sequence[int], missing: Sequence[int], first_traced: int) -> dict[int, int]:
    """Returns the traced rank that stands in for each missing one: the pattern is laid again and again, so that the
    first missing rank is in place of `first_traced`.

    >>> _sources([0, 1], [2, 3, 4], 0)
    {2: 0, 3: 1, 4: 0}
    >>> _sources([0, 2], [1, 3], 0)
    {1: 0, 3: 2}
    """
    source: dict[int, int] = {}
    for first in missing:
        if first not in source:
            at = {rank + first - first_traced: rank for rank in traced}
            source |= {rank: at[rank] for rank in missing if rank in at and rank not in source}
    return source


def _stand_in(traced: RankFacts, rank: int) -> RankFacts:
    """Returns the facts of a missing rank, which does what a traced one does."""
    distance = rank - traced.rank
    groups = [_moved(group, rank, distance) for group in traced.calls.groups]
    # the last is for messages, whose group is -1
    is_moved = np.array([moved != group for moved, group in zip(groups, traced.calls.groups, strict=True)] + [True])
    moved_by = np.where(is_moved[traced.calls.group], distance, 0)
    ends = {
        name: np.where(traced.calls.type == NodeType.COMM_COLL, column, column + distance)
        for name, column in (("source", traced.calls.source), ("target", traced.calls.target))
    }
    return traced._replace(rank=rank, calls=replace(traced.calls, groups=groups, **ends), moved_by=moved_by)


def _were_not_traced(source: Mapping[int, int]) -> str:
    few = "rank" if len(source) == 1 else "ranks"
    return f"{few} {ranks_text(sorted(source))} not traced, and unlike those that were"


@cache
def _members(ranks: str) -> frozenset[int]:
    return frozenset(ranks_of(ranks))


def _moved(group: Group, rank: int, distance: int) -> Group:
    """Returns the group of a missing rank that is in place of a traced one's."""
    if not group.ranks or rank in _members(group.ranks):
        return group
    members = tuple(member + distance for member in ranks_of(group.ranks))
    if min(members) < 0:
        raise DataError(
            f"rank {rank} was not traced and does not repeat rank {rank - distance}: there is no group in place of group "
            f"{group.ranks}; ",
            *ALL_NEEDED,
        )
    return group._replace(ranks=ranks_text(members))


def _new_groups(whole: Sequence[RankFacts], source: Mapping[int, int], removed: Collection[int]) -> Iterator[RankList]:
    """Yields the groups that no traced rank is in. Raises DataError unless each group is used by all its members."""
    done = defaultdict[str, dict[int, tuple[str, ...]]](dict)
    for rank in whole:
        of_ranks = defaultdict[str, list[str]](list)
        for group, digest in rank.calls.done().items():
            of_ranks[group.ranks].append(digest)
        for ranks, digests in of_ranks.items():
            done[ranks][rank.rank] = tuple(sorted(digests))
    for ranks, by_user in done.items():
        users, lacking = set(by_user), set(_members(ranks)) - set(by_user) - set(removed)
        if (lacking and not users.isdisjoint(source)) or not lacking.isdisjoint(source):
            raise DataError(f"{_were_not_traced(source)}: group {ranks} would lack rank {min(lacking)}; ", *ALL_NEEDED)
        of_traced = {digests for user, digests in by_user.items() if user not in source}
        if odd := [user for user in sorted(users & set(source)) if of_traced and by_user[user] not in of_traced]:
            raise DataError(
                f"{_were_not_traced(source)}: rank {odd[0]} would do in "
                f"group {ranks} what rank {source[odd[0]]} does in another one; ",
                *ALL_NEEDED,
            )
        if ranks and not of_traced:
            yield ranks_of(ranks)


def _check_messages(whole: Sequence[RankFacts], source: Mapping[int, int]) -> None:
    """Raises DataError unless each message from or to a missing rank has both its ends."""
    ends = {NodeType.COMM_SEND: Counter[tuple[int, int, int]](), NodeType.COMM_RECV: Counter[tuple[int, int, int]]()}
    for calls in (rank.calls for rank in whole):
        for type_, counts in ends.items():
            rows = np.flatnonzero(calls.type == type_)
            counts.update(
                zip(*(column[rows].tolist() for column in (calls.source, calls.target, calls.tag)), strict=True)
            )
    sent, received = ends.values()
    for start, end, tag in sorted({*sent, *received}):
        if sent[start, end, tag] != received[start, end, tag] and not {start, end}.isdisjoint(source):
            raise DataError(
                f"{_were_not_traced(source)}: messages from rank {start} to rank {end} would lack an end; ",
                *ALL_NEEDED,
            )
