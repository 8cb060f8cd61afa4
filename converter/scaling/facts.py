"""What scaling has to know of each rank: its communication, when in a step the host issued it, and its computation.
Autograd's AccumulateGrad runs when the gradient of a parameter is complete: what is issued there concerns parameters. A
rank that was not traced does what the rank at the same position of the traced pattern does.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, NodeNumbers, RowMap, nearest, rows_in_circles, rows_of
from ...schema.comm_groups import RankList
from ...schema.errors import DataError, Remedy
from ...schema.graph import STEP_WITHOUT_PROFILER_NS, DependencyKind, ExecutionGraph, NodeType
from ...schema.linked import AUTOGRAD
from ..ranks import Calls, Group, graph_calls, ranks_of, ranks_text
from ..rewiring import COMMUNICATION, data_edges

BACKWARD_SCOPE = 1
PARAMETER_NODES = ("AccumulateGrad", "RegisterPostBackwardFunction")
"""Autograd's node of a parameter, at which DDP, FSDP, DeepSpeed and Megatron hook in; and the node of FSDP2."""
ALL_NEEDED = "trace all ranks of the job, or leave the missing ones out with ", Remedy.REMOVE_RANKS
TRIED = 32
"""So many traced ranks are tried in place of the first missing one."""


class Phase(IntEnum):
    """Where a collective is issued: not in the backward pass as far as known, in the backward of a function, on a
    thread of the backward pass, in no function, or when the gradient of a parameter is complete.
    """

    OTHER = 0
    FUNCTION = 1
    THREAD = 2
    PARAMETER = 3


def phases(graph: ExecutionGraph, rows: Int64) -> Int64:
    """Returns the Phase of each node, by the enclosing ops of its issuer and by the thread of that."""
    caller, thread = _callers(graph), graph.integers("tid", -1)
    is_backward: Bool = graph.name.where(lambda name: name.startswith(AUTOGRAD))
    is_backward = is_backward | (graph.integers("scope") == BACKWARD_SCOPE) | (graph.integers("fw_tid") > 0)
    of_parameter: Bool = graph.name.where(lambda name: any(node in name for node in PARAMETER_NODES))
    enclosing, issuer = nearest(is_backward, caller), _issuers(graph, rows, caller)
    frame = RowMap(enclosing)[issuer]
    # threads of the backward pass run nothing else, while another one runs ops that autograd records; without recorded
    # sequence numbers the main thread, too, would seem to run no forward op
    forward = np.unique(thread[(enclosing < 0) & (graph.integers("seq_id", -1) >= 0)])
    backward = np.setdiff1d(thread[enclosing >= 0], forward) if len(forward) else forward
    on_thread = (issuer >= 0) & np.isin(thread[issuer], backward)
    conditions = [(frame >= 0) & of_parameter[frame], frame >= 0, on_thread]
    return np.select(conditions, [Phase.PARAMETER, Phase.FUNCTION, Phase.THREAD], Phase.OTHER).astype(np.int64)


def _callers(graph: ExecutionGraph) -> Int64:
    """Returns the slice of the calling op for each node, -1 for none, and where callers go round in a circle."""
    row, caller = np.arange(len(graph)), np.full(len(graph), -1, np.int64)
    caller[graph.ctrl_deps.rows()] = rows_of(graph.id, graph.ctrl_deps.values)
    caller[caller == row] = -1
    caller[rows_in_circles(row, caller)] = -1
    return caller


def _issuers(graph: ExecutionGraph, rows: Int64, caller: Int64) -> Int64:
    """Returns the slice that launched each node, or handed it to a communicating thread (gloo); -1 if not known."""
    edges, giver = data_edges(graph), np.full(len(graph), -1, np.int64)
    handed = edges.kind & DependencyKind.HANDOFF != 0
    giver[edges.target[handed]] = edges.source[handed]
    thread, position = graph.integers("tid", -1), np.arange(len(graph))
    order = np.argsort(thread, kind="stable")
    communicates = np.isin(order, rows)
    is_first = np.append(True, (np.diff(thread[order]) != 0) | communicates[:-1])[: len(order)]
    first = np.maximum.accumulate(np.where(is_first, position, 0))
    taken_over = np.maximum.accumulate(np.where(giver[order] >= 0, position, -1))
    begun = np.empty_like(order)
    begun[order] = order[np.where(taken_over >= first, taken_over, position)]
    return np.where(caller[rows] >= 0, caller[rows], giver[begun[rows]])


@dataclass(frozen=True, slots=True)
class StepCalls(Calls):
    """Calls with the Phase of each; `moved_by` is added to recorded ranks where a rank stands in for another one."""

    phase: Int64
    moved_by: Int64


class RankFacts(NamedTuple):
    """What is known of a rank: `work` is a digest of its kernels, `source` the rank of the graph, maybe another one."""

    rank: int
    world_size: int
    target: str
    calls: StepCalls
    has_host: bool
    work: str
    notes: list[str]
    source: int
    is_timed: bool = False
    """Whether steps were timed without a profiler, of which the graph has the recorded ones."""


def rank_facts(graph: ExecutionGraph) -> RankFacts:
    """Returns the facts of a graph; O(n log n + ranks recorded)."""
    rank = graph.number("rank", -1)
    calls = graph_calls(graph, NodeNumbers(np.flatnonzero(np.isin(graph.type, COMMUNICATION))), rank)
    computing = graph.is_activity & (graph.type == NodeType.COMP) & graph.texts("cat").equal("kernel")
    count = np.bincount(graph.name.codes[computing], minlength=len(graph.name.table)).tolist()
    kernels = sorted((name, often) for name, often in zip(graph.name.table, count, strict=True) if often)
    work = hashlib.blake2b(repr(kernels).encode(), digest_size=8).hexdigest()
    phase, moved_by = phases(graph, calls.row), np.zeros(len(calls), np.int64)
    step_calls = StepCalls(calls.groups, **calls.columns, phase=phase, moved_by=moved_by)
    world_size, target = graph.number("world_size", -1), str(graph.metadata.get("target", ""))
    has_host = bool(graph.integers("is_cpu_op", 0).any())
    is_timed = STEP_WITHOUT_PROFILER_NS in graph.metadata
    return RankFacts(rank, world_size, target, step_calls, has_host, work, graph.notes, rank, is_timed)


class Assumed(NamedTuple):
    """Which traced rank stands in for each missing one, and their groups that no traced rank is in."""

    source: dict[int, int]
    groups: list[RankList]
    same_work: bool


def completed(facts: Sequence[RankFacts], ranks: int, removed: Collection[int]) -> tuple[Sequence[RankFacts], Assumed]:
    """Returns the facts of all ranks but those removed, and what is assumed; DataError if traces contradict that."""
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
    """Returns the traced rank that stands in for each missing one, as the pattern of traced ranks repeats.

    >>> _sources([0, 1], [2, 3, 4], 0)
    {2: 0, 3: 1, 4: 0}
    """
    source: dict[int, int] = {}
    for first in missing:
        if first not in source:
            at = {rank + first - first_traced: rank for rank in traced}
            source |= {rank: at[rank] for rank in missing if rank in at and rank not in source}
    return source


def _stand_in(traced: RankFacts, rank: int) -> RankFacts:
    """Returns the facts of a missing rank, which does what a traced one does. Raises DataError where it cannot."""
    distance, calls = rank - traced.rank, traced.calls
    groups, is_moved = list[Group](), list[bool]()
    for group in calls.groups:
        is_moved.append(bool(group.ranks) and rank not in _members(group.ranks))
        if is_moved[-1]:
            members = [member + distance for member in ranks_of(group.ranks)]
            if min(members) < 0:
                raise DataError(
                    f"rank {rank} was not traced and does not repeat rank {traced.rank}: there is no group in place of "
                    f"group {group.ranks}; ",
                    *ALL_NEEDED,
                )
            group = group._replace(ranks=ranks_text(members))
        groups.append(group)
    # the last is for messages, whose group is -1
    moved_by = np.where(np.array([*is_moved, True])[calls.group], distance, 0)
    source, target = (np.where(calls.is_message, column + distance, column) for column in (calls.source, calls.target))
    moved_calls = replace(calls, groups=groups, source=source, target=target, moved_by=moved_by)
    return traced._replace(rank=rank, calls=moved_calls)


@cache
def _members(ranks: str) -> frozenset[int]:
    return frozenset(ranks_of(ranks))


def _unlike(source: Mapping[int, int], what: str) -> DataError:
    few = "rank" if len(source) == 1 else "ranks"
    where = f"{few} {ranks_text(sorted(source))} not traced, and unlike those that were"
    return DataError(f"{where}: {what}; ", *ALL_NEEDED)


def _new_groups(whole: Sequence[RankFacts], source: Mapping[int, int], removed: Collection[int]) -> Iterator[RankList]:
    """Yields the groups that no traced rank is in. Raises DataError unless each group is used by all its members."""
    done = defaultdict[str, dict[int, list[str]]](lambda: defaultdict(list))
    for rank in whole:
        for group, digest in rank.calls.done().items():
            done[group.ranks][rank.rank].append(digest)
    for ranks, by_user in done.items():
        users, lacking = set(by_user), set(_members(ranks)) - set(by_user) - set(removed)
        if (lacking and not users.isdisjoint(source)) or not lacking.isdisjoint(source):
            raise _unlike(source, f"group {ranks} would lack rank {min(lacking)}")
        work = {user: tuple(sorted(digests)) for user, digests in by_user.items()}
        of_traced = {digests for user, digests in work.items() if user not in source}
        if odd := [user for user in sorted(users & set(source)) if of_traced and work[user] not in of_traced]:
            does = f"what rank {source[odd[0]]} does in another one"
            raise _unlike(source, f"rank {odd[0]} would do in group {ranks} {does}")
        if ranks and not of_traced:
            yield ranks_of(ranks)


def _check_messages(whole: Sequence[RankFacts], source: Mapping[int, int]) -> None:
    """Raises DataError unless each message from or to a missing rank has both its ends."""
    sent, received = Counter[tuple[int, int, int]](), Counter[tuple[int, int, int]]()
    for messages, kind in ((sent, NodeType.COMM_SEND), (received, NodeType.COMM_RECV)):
        for calls in (rank.calls for rank in whole):
            ends = np.stack((calls.source, calls.target, calls.tag))[:, calls.type == kind]
            messages.update(zip(*ends.tolist(), strict=True))
    for start, end, tag in sorted({*sent, *received}):
        if sent[start, end, tag] != received[start, end, tag] and not {start, end}.isdisjoint(source):
            raise _unlike(source, f"messages from rank {start} to rank {end} would lack an end")
