"""Plans what happens to every rank, group and collective of a job when its data-parallel degree changes.

The scaled job has copy after copy of the kept ranks. Groups that all copies share are numbered first, then those of
each copy.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64
from ...schema.comm_groups import LARGEST_JOB, RankList
from ...schema.errors import DataError, Remedy, RequestError
from ...schema.graph import NodeType
from ..ranks import GIB, Transfer, match, ranks_text
from .facts import Assumed, RankFacts, completed
from .lengths import Fits, Grown, longer, measured, sizes
from .roles import GroupRole, NamedGroup, group_uses, roles_of, separated

GONE = -1
ANOTHER = "that is another program"


class RankCopies(NamedTuple):
    """`copies` copies of the `kept_ranks` of a job of `world_size`.

    >>> copies = RankCopies((0, 1, 4, 5), 2, 6)
    >>> copies.ranks, copies.of((4, 1), 1), copies.joined((0, 4))
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
        numbers = np.full(self.world_size, GONE, np.int64)
        numbers[list(self.kept_ranks)] = copy * len(self.kept_ranks) + np.arange(len(self.kept_ranks))
        return numbers

    def of(self, ranks: Iterable[int], copy: int) -> RankList:
        """Returns a group's members in a copy, in its order."""
        numbers = self.renumbered(copy)[list(ranks)]
        return tuple(numbers[numbers != GONE].tolist())

    def joined(self, ranks: RankList) -> RankList:
        """Returns the members of a group that all copies join."""
        first = np.array(self.of(ranks, 0), np.int64)
        return tuple((first + len(self.kept_ranks) * np.arange(self.copies)[:, None]).reshape(-1).tolist())


class GroupNumbering(NamedTuple):
    """The distinct rank lists of the job's groups, sorted: those that the copies join, and those that each copy has."""

    joined: tuple[RankList, ...]
    separate: tuple[RankList, ...]

    @staticmethod
    def of(rank_copies: RankCopies, groups: Iterable[tuple[RankList, bool]]) -> "GroupNumbering":
        """Returns the numbering of groups, (ranks, is joined); with one copy nothing is joined."""
        kept_groups = {
            (ranks, is_joined and rank_copies.copies > 1) for ranks, is_joined in groups if rank_copies.of(ranks, 0)
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
        yield rank_copies.joined(ranks), numbering.number(ranks, True, 0)
    for copy in range(rank_copies.copies):
        for ranks in numbering.separate:
            if len(members := rank_copies.of(ranks, copy)) > 1:
                yield members, numbering.number(ranks, False, copy)


class Growth(NamedTuple):
    """The number of copies of a job, without the ranks `removed`.

    `groups` are the data-parallel groups, by name, description or ranks, with =TYPE,TYPE only these types of their
    collectives; recognised if empty. A given bandwidth (2**30
    bytes/s) and latency (ns per step) replace fitted ones.
    """

    copies: int = 1
    removed: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    bandwidth_gib_s: float | None = None
    latency_ns: float | None = None


class OwnGroup(NamedTuple):
    """A group of a rank's graph, and whether the copies join theirs."""

    ranks: RankList
    is_joined: bool


class RankPlan(NamedTuple):
    """The changes to the graph of the rank `source`, which may stand in for a rank that was not traced: for the
    collectives at `row` the size, how many ns longer they take, the position of their group in `groups`, and what is
    added to recorded ranks.
    """

    rank: int
    source: int
    groups: tuple[OwnGroup, ...]
    row: Int64
    group: Int64
    size: Int64
    longer_ns: Int64
    moved_by: Int64


class ScalePlan(NamedTuple):
    """Where the ranks go (`rank_copies`), how groups are numbered, the plan of each kept rank, the role of each group,
    what grew, the measured transfers, how many collectives gather data that may not be shards (`undivided`), and what
    is assumed of ranks that were not traced.
    """

    rank_copies: RankCopies
    numbering: GroupNumbering
    ranks: dict[int, RankPlan]
    roles: list[GroupRole]
    grown: list[Grown]
    measured: list[Transfer]
    undivided: int
    assumed: Assumed

    def for_rank(self, rank: int) -> "ScalePlan":
        """Returns the part of the plan that the copies of one rank need."""
        return self._replace(ranks={rank: self.ranks[rank]}, roles=[], grown=[], measured=[])


def plan_scaling(facts: Sequence[RankFacts], growth: Growth) -> ScalePlan:
    """Returns the plan, from the facts of the traced ranks by rank. O(n log n) in the calls of all.

    Raises DataError where the scaled job would be another program, or missing ranks are not like those traced.
    """
    rank_copies = _rank_copies(facts, growth)
    facts, assumed = completed(facts, rank_copies.world_size, growth.removed)
    named = [NamedGroup.of(text) for text in growth.groups]
    matching = separated(facts, match([rank.calls for rank in facts]), named)
    has_messages = any((rank.calls.type != NodeType.COMM_COLL).any() for rank in facts)
    roles = roles_of(group_uses(facts, matching), rank_copies.world_size, named, has_messages)
    _check_groups(roles, rank_copies)
    _check_messages(facts, rank_copies)
    new_members = [
        len(rank_copies.joined(role.use.members) if role.joined else rank_copies.of(role.use.members, 0))
        for role in roles
    ]
    transfers = measured(facts, matching, roles)
    byte_ns = None if growth.bandwidth_gib_s is None else 1e9 / GIB / growth.bandwidth_gib_s
    added, grown = longer(transfers, roles, new_members, Fits(transfers.values(), growth.latency_ns, byte_ns))
    ranks, undivided = dict[int, RankPlan](), 0
    for rank, group, matched in zip(facts, matching.group, matching.matched, strict=True):
        if rank.rank in rank_copies.kept_ranks:
            size, whole = sizes(rank, group, roles, new_members)
            undivided += whole
            longer_ns = np.array([added.get(number, 0) for number in matched.tolist()], np.int64)
            ranks[rank.rank] = _in_own_groups(
                RankPlan(rank.rank, rank.source, (), rank.calls.row, group, size, longer_ns, rank.moved_by), roles
            )
    numbering = GroupNumbering.of(rank_copies, (group for plan in ranks.values() for group in plan.groups))
    measured_transfers = [
        transfer._replace(ranks=tuple(roles[group].use.members)) for transfer, group in transfers.values()
    ]
    return ScalePlan(rank_copies, numbering, ranks, roles, grown, measured_transfers, undivided, assumed)


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


def _check_groups(roles: Sequence[GroupRole], rank_copies: RankCopies) -> None:
    """Raises DataError unless each group keeps all its members or none, and data-parallel ones at least two."""
    for use, joined in roles:
        if not use.members:
            raise DataError(
                f"it is not recorded which ranks are in {use.text}; record the job with all arguments of collectives"
            )
        if not 0 <= min(use.members) <= max(use.members) < rank_copies.world_size:
            raise DataError(
                f"{use.group.text} has ranks that are not of the job, which has "
                f"{rank_copies.world_size}; build the whole job"
            )
        kept_count, members = len(rank_copies.of(use.members, 0)), len(use.members)
        if 0 < kept_count < members and not joined:
            raise DataError(f"{use.group.text} would lose members and is no data-parallel one; {ANOTHER}")
        if 0 < kept_count * rank_copies.copies < 2 <= members:
            raise DataError(
                f"{use.group.text} would have one member left, which exchanges nothing; keep two of its ranks"
            )


def _check_messages(facts: Sequence[RankFacts], rank_copies: RankCopies) -> None:
    """Raises DataError unless both ends of each message are known, and both are kept or removed."""
    renumbered = rank_copies.renumbered(0)
    for rank in facts:
        ends = np.stack((rank.calls.source, rank.calls.target))[:, rank.calls.type != NodeType.COMM_COLL]
        if ends.size and not 0 <= ends.min() <= ends.max() < rank_copies.world_size:
            raise DataError(
                f"rank {rank.rank} has a message with a rank that is not one of the job's; build the whole job"
            )
        gone = renumbered[ends] == GONE
        if (cut := np.flatnonzero(gone.any(axis=0) & ~gone.all(axis=0))).size:
            source, target = ends[:, cut[0]].tolist()
            raise DataError(f"the messages from rank {source} to rank {target} would lose one end; {ANOTHER}")


def _in_own_groups(plan: RankPlan, roles: Sequence[GroupRole]) -> RankPlan:
    """Returns the plan without messages, its groups numbered by those of the rank instead of those of the job."""
    rows = np.flatnonzero(plan.group >= 0)
    used, group = np.unique(plan.group[rows], return_inverse=True)
    groups = tuple(OwnGroup(roles[number].use.members, bool(roles[number].joined)) for number in used.tolist())
    return plan._replace(
        groups=groups,
        row=plan.row[rows],
        group=group.reshape(-1),
        size=plan.size[rows],
        longer_ns=plan.longer_ns[rows],
        moved_by=plan.moved_by[rows],
    )
