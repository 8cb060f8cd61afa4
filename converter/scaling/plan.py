"""Plans what happens to every rank, group and collective of a job when its data-parallel degree changes. The scaled job
has copy after copy of the kept ranks; groups that all copies share are numbered first.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.arguments import ASTRA_SIM
from ...schema.columns import Categorical, Int32, Int64, positions
from ...schema.comm_groups import LARGEST_JOB, RankList
from ...schema.errors import DataError, Remedy, RequestError
from ...schema.graph import MEASURED_BESIDE, RANKS_OF_GROUP, STEPS, Column, ExecutionGraph, NodeType
from ..ranks import GIB, Transfer, match, ranks_text, renumbered_ends
from .facts import Assumed, RankFacts, completed
from .lengths import LINKS, Fits, Grown, longer, measured_collectives, sizes
from .roles import GroupUse, NamedGroup, group_uses, separated, with_roles

GONE = -1
ANOTHER = "that is another program"
ALL_RANKS = ""


class RankCopies(NamedTuple):
    """`copies` copies of the `kept_ranks` of a job of `world_size`.

    >>> copies = RankCopies((0, 1, 4, 5), 2, 6)
    >>> copies.ranks, copies.members((4, 1), False, 1), copies.members((0, 4), True, 0)
    (8, (6, 5), (0, 2, 4, 6))
    """

    kept_ranks: RankList
    copies: int
    world_size: int

    @property
    def ranks(self) -> int:
        """How many ranks the scaled job has."""
        return len(self.kept_ranks) * self.copies

    def renumbered(self, copy: int) -> Int64:
        """Returns the number of each rank in a copy, GONE for those that are not kept."""
        position = positions(np.array(self.kept_ranks, np.int64), self.world_size)
        return np.where(position >= 0, copy * len(self.kept_ranks) + position, GONE)

    def members(self, ranks: Iterable[int], is_joined: bool, copy: int) -> RankList:
        """Returns a group's members in a copy, in its order, or in all copies if these join it."""
        numbers = self.renumbered(0 if is_joined else copy)[list(ranks)]
        kept = numbers[numbers != GONE]
        copies = np.arange(self.copies if is_joined else 1)
        return tuple((kept + len(self.kept_ranks) * copies[:, None]).reshape(-1).tolist())


class GroupNumbering(NamedTuple):
    """The distinct rank lists of the job's groups, sorted: those that the copies join, and those that each copy has."""

    joined: tuple[RankList, ...]
    separate: tuple[RankList, ...]

    @staticmethod
    def of(rank_copies: RankCopies, groups: Iterable[tuple[RankList, bool]]) -> "GroupNumbering":
        """Returns the numbering of groups, (ranks, is joined); with one copy nothing is joined."""
        kept_ranks = {*rank_copies.kept_ranks}
        kept_groups = {
            (ranks, is_joined and rank_copies.copies > 1)
            for ranks, is_joined in groups
            if not kept_ranks.isdisjoint(ranks)
        }
        lists = (sorted(ranks for ranks, is_joined in kept_groups if is_joined is joined) for joined in (True, False))
        return GroupNumbering(*map(tuple, lists))

    def number(self, ranks: RankList, is_joined: bool, copy: int) -> int:
        """Returns the number of a group of a copy, from 1 on."""
        if is_joined and ranks in self.joined:
            return 1 + self.joined.index(ranks)
        return 1 + len(self.joined) + copy * len(self.separate) + self.separate.index(ranks)


def all_groups(numbering: GroupNumbering, rank_copies: RankCopies) -> Iterator[tuple[RankList, int]]:
    """Yields every group of the scaled job that has several members, with its number."""
    for ranks in numbering.joined:
        yield rank_copies.members(ranks, True, 0), numbering.number(ranks, True, 0)
    for copy in range(rank_copies.copies):
        for ranks in numbering.separate:
            if len(members := rank_copies.members(ranks, False, copy)) > 1:
                yield members, numbering.number(ranks, False, copy)


class Growth(NamedTuple):
    """The copies of a job without the ranks `removed`; `groups` are the data-parallel ones, recognised if empty. A
    given bandwidth (2**30 bytes/s) and latency (ns) of a link replace fitted ones.
    """

    copies: int = 1
    removed: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    bandwidth_gib_s: float | None = None
    latency_ns: float | None = None


class RankPlan(NamedTuple):
    """The changes to the graph of the rank `source`: its groups, whether copies join them, and its collectives."""

    rank: int
    source: int
    groups: tuple[tuple[RankList, bool], ...]
    row: Int64
    group: Int64
    size: Int64
    longer_ns: Int64
    moved_by: Int64


class ScalePlan(NamedTuple):
    """What becomes of ranks, groups and collectives; `undivided` counts gathered data that may be no shards."""

    rank_copies: RankCopies
    numbering: GroupNumbering
    ranks: dict[int, RankPlan]
    uses: list[GroupUse]
    grown: list[Grown]
    measured: list[Transfer]
    undivided: int
    assumed: Assumed

    def for_rank(self, rank: int) -> "ScalePlan":
        """Returns the part of the plan that the copies of one rank need."""
        return self._replace(ranks={rank: self.ranks[rank]}, uses=[], grown=[], measured=[])


def plan_scaling(facts: Sequence[RankFacts], growth: Growth) -> ScalePlan:
    """Returns the plan for the traced ranks; DataError where others are not like them or the program changes."""
    rank_copies = _rank_copies(facts, growth)
    facts, assumed = completed(facts, rank_copies.world_size, growth.removed)
    named = [NamedGroup.of(text) for text in growth.groups]
    calls = separated(match([rank.calls for rank in facts]), named)
    uses = with_roles(group_uses(facts, calls), rank_copies.world_size, named, bool(calls.is_message.any()))
    _check_groups(uses, rank_copies)
    _check_messages(facts, rank_copies)
    new_members = [len(rank_copies.members(use.members, bool(use.joined), 0)) for use in uses]
    measured = measured_collectives(facts, calls, uses)
    byte_ns = None if growth.bandwidth_gib_s is None else 1e9 / GIB / growth.bandwidth_gib_s
    step_ns = None if growth.latency_ns is None else LINKS * growth.latency_ns
    fits = Fits(measured, step_ns, byte_ns)
    longer_ns, grown = longer(measured, int(calls.matched.max(initial=-1)) + 1, uses, new_members, fits)
    ranks, undivided = dict[int, RankPlan](), 0
    # messages, whose group is -1, stay as they are
    collectives = calls.take(calls.group >= 0)
    for rank, of_rank in zip(facts, collectives.of_ranks(len(facts)), strict=True):
        if rank.rank in rank_copies.kept_ranks:
            size, whole = sizes(of_rank, rank.target, uses, new_members)
            undivided += whole
            used, group = np.unique(of_rank.group, return_inverse=True)
            groups = tuple((uses[number].members, bool(uses[number].joined)) for number in used.tolist())
            columns = of_rank.row, group.reshape(-1), size, longer_ns[of_rank.matched], of_rank.moved_by
            ranks[rank.rank] = RankPlan(rank.rank, rank.source, groups, *columns)
    numbering = GroupNumbering.of(rank_copies, (group for plan in ranks.values() for group in plan.groups))
    columns = (measured.kind, measured.members, measured.size, measured.ns, measured.group)
    transfers = [
        Transfer(kind, members, size, ns, uses[group].members)
        for kind, members, size, ns, group in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return ScalePlan(rank_copies, numbering, ranks, uses, grown, transfers, undivided, assumed)


def _rank_copies(facts: Sequence[RankFacts], growth: Growth) -> RankCopies:
    traced = [rank.rank for rank in facts]
    rank_of_world = {rank.world_size: rank.rank for rank in facts if rank.world_size > 0}
    if len(rank_of_world) > 1:
        (size, first), (other_size, other), *_ = rank_of_world.items()
        raise DataError(
            f"rank {first} is of a job of {size} ranks, rank {other} of one of {other_size}: build each job by itself"
        )
    size = max([len(facts), *(rank.world_size for rank in facts)])
    if len({*traced}) < len(traced) or not 0 <= min(traced) <= max(traced) < size:
        raise DataError(
            f"the ranks of the graphs, {ranks_text(traced)}, are no ranks of a job of {size}: build the whole job again"
        )
    if outside := sorted(set(growth.removed) - set(range(size))):
        raise RequestError(
            f"rank {outside[0]} cannot be removed: the job has the ranks {ranks_text(tuple(range(size)))}"
        )
    kept_ranks = tuple(rank for rank in range(size) if rank not in growth.removed)
    if not kept_ranks:
        raise DataError("no rank is left")
    if growth.copies == 1 and len(kept_ranks) == len(facts) == size:
        raise RequestError(
            "the scaled job would be the same; give ", Remedy.DATA_PARALLEL, " above 1 or ", Remedy.REMOVE_RANKS
        )
    if len(kept_ranks) * growth.copies > LARGEST_JOB:
        raise DataError(f"{growth.copies} copies of {len(kept_ranks)} ranks are more than {LARGEST_JOB}; make fewer")
    return RankCopies(kept_ranks, growth.copies, size)


def _check_groups(uses: Sequence[GroupUse], rank_copies: RankCopies) -> None:
    """Raises DataError unless each group keeps all its members or none, and data-parallel ones at least two."""
    for use in uses:
        if not use.members:
            raise DataError(
                f"it is not recorded which ranks are in {use.text}; record the job with all arguments of collectives"
            )
        if not 0 <= min(use.members) <= max(use.members) < rank_copies.world_size:
            raise DataError(
                f"{use.group.text} has ranks that are not of the job, which has "
                f"{rank_copies.world_size}; build the whole job"
            )
        kept_count, members = len(rank_copies.members(use.members, False, 0)), len(use.members)
        if 0 < kept_count < members and not use.joined:
            raise DataError(f"{use.group.text} would lose members and is no data-parallel one; {ANOTHER}")
        if 0 < kept_count * rank_copies.copies < 2 <= members:
            raise DataError(
                f"{use.group.text} would have one member left, which exchanges nothing; keep two of its ranks"
            )


def _check_messages(facts: Sequence[RankFacts], rank_copies: RankCopies) -> None:
    """Raises DataError unless both ends of each message are known, and both are kept or removed."""
    renumbered = rank_copies.renumbered(0)
    for rank in facts:
        ends = np.stack((rank.calls.source, rank.calls.target))[:, rank.calls.is_message]
        if ends.size and not 0 <= ends.min() <= ends.max() < rank_copies.world_size:
            raise DataError(
                f"rank {rank.rank} has a message with a rank that is not one of the job's; build the whole job"
            )
        gone = renumbered[ends] == GONE
        if (cut := np.flatnonzero(gone.any(axis=0) & ~gone.all(axis=0))).size:
            source, target = ends[:, cut[0]].tolist()
            raise DataError(f"the messages from rank {source} to rank {target} would lose one end; {ANOTHER}")


def resized(graph: ExecutionGraph, plan: RankPlan) -> ExecutionGraph:
    """Returns the graph with the sizes and lengths of the scaled job, as that of the rank that it stands in for."""
    longer = np.zeros(len(graph), np.int64)
    longer[plan.row] = plan.longer_ns
    attributes: dict[str, Column] = {**graph.attributes, "duration_ns": graph.duration_ns + longer}
    if len(plan.row):
        size = graph.integers("comm_size")
        size[plan.row] = plan.size
        attributes["comm_size"] = size
    metadata = graph.metadata
    if distance := plan.rank - plan.source:
        metadata = {**metadata, "rank": plan.rank}
        moved_by = np.full(len(graph), distance, np.int64)
        moved_by[plan.row] = plan.moved_by
        attributes |= renumbered_ends(graph, lambda ends, rows: np.where(ends >= 0, ends + moved_by[rows], ends))
    # rounding errors are passed on to the next node, so that sums stay right to 1 µs
    added = np.diff(np.rint(np.cumsum(longer) / 1000).astype(np.int64), prepend=0)
    micros = np.maximum(graph.duration_micros + added, 0)
    return dataclasses.replace(graph, attributes=attributes, metadata=metadata, duration_micros=micros)


def copied(graph: ExecutionGraph, plan: ScalePlan, copy: int) -> ExecutionGraph:
    """Returns the graph of a copy of a rank from its `resized` graph: ranks and groups are renumbered, tags stay."""
    rank_plan = plan.ranks[graph.number("rank", -1)]
    rank_copies = plan.rank_copies
    first, renumbered = rank_copies.renumbered(0), rank_copies.renumbered(copy)
    names, lists = list[str](), dict[str, str]()
    for ranks, is_joined in rank_plan.groups:
        members = rank_copies.members(ranks, is_joined, copy)
        is_world = len(members) == rank_copies.ranks and graph.metadata.get("target") == ASTRA_SIM
        names.append(ALL_RANKS if is_world else str(plan.numbering.number(ranks, is_joined, copy)))
        lists[RANKS_OF_GROUP + names[-1]] = ranks_text(members)
    attributes = {name: column for name, column in graph.attributes.items() if name != "pg_ranks"}
    group = np.full(len(graph), -1, np.int64)
    group[rank_plan.row] = rank_plan.group
    table = Categorical.of([*names, ALL_RANKS])
    codes: Int32 = np.where(group >= 0, table.codes[group], -1).astype(np.int32)
    # messages need no name
    codes[np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))] = table.codes[-1]
    attributes["pg_name"] = Categorical(codes, table.table)
    of_first = np.array([is_joined for _, is_joined in rank_plan.groups] + [False], np.bool_)[group]
    # all copies share one root
    attributes |= renumbered_ends(
        graph, lambda ends, rows: np.where(of_first[rows], _renumbered(ends, first), _renumbered(ends, renumbered))
    )
    metadata = {**graph.metadata, "rank": int(renumbered[rank_plan.rank]), "world_size": rank_copies.ranks, **lists}
    for key in (STEPS, *MEASURED_BESIDE):
        metadata.pop(key, None)
    return dataclasses.replace(graph, attributes=attributes, metadata=metadata)


def _renumbered(column: Int64, numbers: Int64) -> Int64:
    is_rank = (column >= 0) & (column < len(numbers))
    return np.where(is_rank, numbers[np.where(is_rank, column, 0)], column)
