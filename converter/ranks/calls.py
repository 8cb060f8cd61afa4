"""The communication of one rank as columns, and which calls of several ranks are one collective or message. Collectives
match by group, type and sequence number, or by order where numbers are missing or cannot be the same. A send matches
the receive of the same source, target and tag, in order.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Interner, NodeNumbers, Ragged, cumcount, group_ids, groupby
from ...schema.graph import STEP_START, CollectiveType, ExecutionGraph, NodeType
from ...schema.linked import FOREVER, Communication
from ..communication import COALESCED, meaning, peers
from ..rewiring import data_edges
from .groups import Group, GroupNames, recognised, recorded_groups

SAME_SIZE = (
    CollectiveType.ALL_REDUCE, CollectiveType.REDUCE, CollectiveType.BROADCAST, CollectiveType.REDUCE_SCATTER,
    CollectiveType.BARRIER,
)  # fmt: skip
"""Collectives of which every member records the same bytes; the shards of other types may differ."""
ROOTED = (CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER)
DIGEST_BYTES = 8
EVER = np.iinfo(np.int64).max
STEP = re.compile(rf"{STEP_START}(\d+)", re.ASCII)
FEW = 4
"""So few matches prove nothing."""
AnyCalls = TypeVar("AnyCalls", bound="Calls")


class Call(NamedTuple):
    """A row of Calls, with its group instead of the position of that."""

    row: int
    type: NodeType
    group: Group | None = None
    kind: int = -1
    size: int = 0
    sequence: int = -1
    source: int = -1
    target: int = -1
    tag: int = 0
    start_ns: int = 0
    end_ns: int = 0
    on_host: bool = False
    rank: int = 0
    matched: int = 0
    occurrence: int = 0


@dataclass(frozen=True, slots=True)
class Calls:
    """Collectives and ends of messages, a row each: of a rank in the order of issue, or of all ranks by `match`. A
    message has no group (-1) but a source, target and tag; of a collective with a root that is the source or target.
    `size` is in bytes, -1 if not known. `match` fills in the `occurrence` among calls that are otherwise alike, and the
    `sequence` that matched, -1 for by order.
    """

    groups: list[Group]
    row: Int64
    type: Int64
    group: Int64
    kind: Int64
    size: Int64
    sequence: Int64
    source: Int64
    target: Int64
    tag: Int64
    start_ns: Int64
    end_ns: Int64
    on_host: Bool
    rank: Int64
    matched: Int64
    occurrence: Int64
    steps: tuple[int, ...] = field(default=(), kw_only=True)
    decisions: tuple[str, ...] = field(default=(), kw_only=True)
    disagreements: tuple[str, ...] = field(default=(), kw_only=True)
    SHARED: ClassVar[tuple[str, ...]] = ("groups", "steps", "decisions", "disagreements")
    """The fields that are no columns with a value for each call."""

    def __len__(self) -> int:
        return len(self.row)

    @staticmethod
    def of(calls: Iterable[Call]) -> "Calls":
        """Returns the calls as columns; groups are numbered in the order in which they come first."""
        numbers = Interner[Group]()
        rows = [(row, type_, numbers[group] if group else -1, *facts) for row, type_, group, *facts in calls]
        columns = dict[str, Any](
            zip(Call._fields, np.array(rows, np.int64).reshape(-1, len(Call._fields)).T, strict=True)
        )
        return Calls(list(numbers), **columns | {"on_host": columns["on_host"] > 0})

    def rows(self) -> list[Call]:
        """Returns the calls one by one."""
        types, groups = [*map(NodeType, self.type.tolist())], [*self.groups, None]
        columns = [getattr(self, name).tolist() for name in Call._fields[3:]]
        of_calls = [groups[number] for number in self.group.tolist()]
        return [*map(Call._make, zip(self.row.tolist(), types, of_calls, *columns, strict=True))]

    @property
    def columns(self) -> dict[str, Any]:
        """The columns by name."""
        return {name.name: getattr(self, name.name) for name in fields(self) if name.name not in self.SHARED}

    @property
    def is_message(self) -> Bool:
        """Whether each call is one end of a message."""
        return np.asarray(self.type != NodeType.COMM_COLL)

    @property
    def is_placed(self) -> Bool:
        """Whether it is known who takes part: by the ranks or name of the group, or by both ends of the message."""
        is_known = np.array([*(bool(group.ranks or group.name) for group in self.groups), False])
        return np.asarray(np.where(self.is_message, np.minimum(self.source, self.target) >= 0, is_known[self.group]))

    def take(self: AnyCalls, rows: Int64 | Bool | slice) -> AnyCalls:
        """Returns the calls at these positions."""
        return replace(self, **{name: column[rows] for name, column in self.columns.items()})

    def of_ranks(self: AnyCalls, ranks: int) -> list[AnyCalls]:
        """Returns the matched calls of each of so many ranks."""
        bounds = np.searchsorted(self.rank, np.arange(ranks + 1)).tolist()
        return [self.take(slice(*ends)) for ends in pairwise(bounds)]

    @property
    def is_met(self) -> Bool:
        """Whether several ranks took part in the match of each call."""
        ranks = int(self.rank.max(initial=0)) + 1
        members = np.bincount(np.unique(self.matched * ranks + self.rank) // ranks)
        return np.asarray(members[self.matched] > 1)

    def met(self: AnyCalls) -> AnyCalls:
        """Returns the calls of the matches in which several ranks took part, sorted by match, these numbered from 0."""
        calls = self.take(self.is_met)
        calls = calls.take(np.argsort(calls.matched, kind="stable"))
        return replace(calls, matched=group_ids(calls.matched))

    def matches(self) -> list[list[Call]]:
        """Returns the calls of each match, by rank."""
        calls = self.rows()
        return [[calls[row] for row in rows.tolist()] for rows in groupby(self.matched).rows()]

    def done(self) -> dict[Group, str]:
        """Returns a digest of the collectives of each group, by what all members have in common."""
        import hashlib  # slow to load

        size = np.where(np.isin(self.kind, SAME_SIZE), self.size, 0)
        order = np.argsort(self.group, kind="stable")
        starts = np.searchsorted(self.group[order], np.arange(len(self.groups) + 1))
        facts = np.stack((self.kind, size), axis=1)[order]
        return {
            group: hashlib.blake2b(facts[begin:end].tobytes(), digest_size=DIGEST_BYTES).hexdigest()
            for group, begin, end in zip(self.groups, starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        }


def awaits_all(kind: Int64) -> Bool:
    """Returns for which kinds no member ends before all have begun: those without a root; not for -1 (unknown)."""
    return np.asarray((kind >= 0) & ~np.isin(kind, ROOTED))


def issued_at(time: Int64, number: Int64) -> Int64:
    """Returns times by which communications sort as they were issued: those with a number (not 0) exchange their times.

    >>> issued_at(np.array([50, 10, 20, 30]), np.array([0, 8, 0, 7])).tolist()
    [50, 30, 20, 10]
    """
    known, times = np.flatnonzero(number > 0), time.copy()
    times[known[np.argsort(number[known], kind="stable")]] = np.sort(time[known])
    return times


def recorded_calls(recorded: Sequence[Communication], kernels: Sequence[str], own_rank: int) -> Calls:
    """Returns the calls of a rank (coalesced messages as one) from recorded arguments, else from kernels' names."""
    names = GroupNames()

    def call(row: int, arguments: Communication, kernel: str) -> Call:
        decoded = meaning(arguments, kernel)
        if decoded is not None and decoded.type is None:
            source, target = peers(arguments, decoded.node, own_rank)
            return Call(row, decoded.node, size=decoded.size, source=source, target=target, tag=arguments.tag)
        group = names.group_of(arguments.ranks, arguments.group, arguments.description)
        kind, size = (-1, 0) if decoded is None or decoded.type is None else (int(decoded.type), decoded.size)
        return Call(row, NodeType.COMM_COLL, group, kind, size, arguments.sequence, arguments.source, arguments.target)

    return Calls.of(call(row, *pair) for row, pair in enumerate(zip(recorded, kernels, strict=True)))


def graph_calls(graph: ExecutionGraph, rows: NodeNumbers, own_rank: int) -> Calls:
    """Returns the calls in these rows of a rank's graph, one for each message, with times since its first node."""
    number = np.where(graph.is_activity, 0, graph.integers("rf_id", 0))[rows]
    rows = NodeNumbers(rows[np.argsort(issued_at(np.arange(len(rows)), number))])
    lists = [graph.attributes.get(name) for name in COALESCED.values()]
    ends = [values for values in lists[:3] if isinstance(values, Ragged)]
    is_collective = graph.type[rows] == NodeType.COMM_COLL
    count = np.where(is_collective, 0, ends[0].lengths()[rows] if len(ends) == 3 else 0)
    row, is_message, is_part = (np.repeat(column, np.maximum(count, 1)) for column in (rows, ~is_collective, count > 0))
    # the side of a message that is not recorded is the node's own rank
    unknown_end, zero, columns = np.where(is_message, own_rank, -1), np.zeros(len(row), np.int64), list[Int64]()
    for name, unknown, values in zip(COALESCED, (unknown_end, unknown_end, zero, zero), lists, strict=True):
        column = graph.integers(name)[row]
        columns.append(np.where(column == ABSENT, unknown, column))
        columns[-1][is_part] = values.take(rows[count > 0]).values if isinstance(values, Ragged) else 0
    source, target, tag, size = columns
    sent_or_received = np.where(source == own_rank, NodeType.COMM_SEND, NodeType.COMM_RECV)
    groups, group = _groups_in(graph, row, ~is_message)
    times = measured_times(graph)
    return Calls(
        groups, row, type=np.where(is_part, sent_or_received, graph.type[row]).astype(np.int64), group=group,
        kind=np.where(is_message, -1, graph.collective_types()[row]), size=size,
        sequence=np.where(is_message, -1, graph.integers("comm_seq", -1)[row]), source=source, target=target, tag=tag,
        start_ns=times.start_ns[row], end_ns=times.start_ns[row] + graph.duration_ns[row],
        on_host=~graph.is_activity[row], rank=zero, matched=np.arange(len(row)), occurrence=zero,
        steps=tuple(sorted(int(name[1]) for name in map(STEP.fullmatch, graph.metadata) if name)),
    )  # fmt: skip


def _groups_in(graph: ExecutionGraph, row: Int64, is_collective: Bool) -> tuple[list[Group], Int64]:
    """Returns the groups of the collectives among the rows, and the position of each row's group, -1 for messages."""
    names, recorded, numbers = GroupNames(), recorded_groups(graph), Interner[Group]()
    lists, collectives, group = [*recorded.lists, ()], row[is_collective], np.full(len(row), -1, np.int64)

    @cache
    def number_of(listed: int, recorded_name: str, name: str, description: str) -> int:
        # to find a list of very many ranks takes as long as it is
        return numbers[names.group_of(lists[listed], recorded_name or name, description)]

    texts = (graph.texts(name)[collectives] for name in ("pg_recorded", "pg_name", "pg_desc"))
    group[is_collective] = [*map(number_of, recorded.of_node[collectives].tolist(), *texts)]
    return list(numbers), group


def match(ranks: Sequence[AnyCalls]) -> AnyCalls:
    """Returns the calls of all ranks, rank after rank, and which are one collective or message."""
    numbers, of_ranks = Interner[Group](), list[AnyCalls]()
    for position, (rank, group_of) in enumerate(zip(ranks, recognised([rank.done() for rank in ranks]), strict=True)):
        # the last number is for messages, whose group is -1
        group = np.array([*(numbers[group_of[group]] for group in rank.groups), -1], np.int64)[rank.group]
        of_ranks.append(replace(rank, group=group, rank=np.full(len(rank), position)))
    names = [column.name for column in fields(of_ranks[0]) if column.name not in Calls.SHARED]
    columns: dict[str, Any] = {name: np.concatenate([getattr(rank, name) for rank in of_ranks]) for name in names}
    calls = replace(of_ranks[0], groups=list(numbers), **columns)
    ends = [np.where(calls.is_message, column, -1) for column in (calls.source, calls.target, calls.tag)]
    by_number, by_order = (
        (column, cumcount(calls.rank, calls.type, calls.group, calls.kind, column, *ends))
        for column in (calls.sequence, np.full(len(calls), -1))
    )
    steps = [rank.steps for rank in ranks]
    use_order = _order_matches_more(calls, by_number, by_order, same_steps=len({*steps}) == 1 and bool(steps[0]))
    number, nth = (np.where(use_order, second, first) for first, second in zip(by_number, by_order, strict=True))
    missed = np.where(number < 0, _missed(calls, ends, steps), 0)
    matched = group_ids(calls.group, calls.kind, number, *ends, nth + missed)
    of_groups = ", ".join(calls.groups[group].text for group in np.unique(calls.group[use_order]).tolist())
    said = [f"sequence numbers of {of_groups} are not the same on all ranks: calls are matched in their order"]
    decisions = said * bool(of_groups)
    if all(steps) and len({of_rank[0] for of_rank in steps}) > 1 and len(calls):
        way = "by step" if missed.any() else "in their order, whatever their step"
        how = f"calls without sequence numbers are matched {way}"
        if (number >= 0).all():
            by_number_alone = "calls are matched by their sequence numbers, as if these steps were the same"
            how = by_number_alone * share_no_step(ranks)
        decisions += [f"ranks recorded different steps, {spans_of(steps)}: {how}"] * bool(how)
    return replace(calls, sequence=number, matched=matched, occurrence=nth, decisions=tuple(decisions))


def share_no_step(ranks: Sequence[Calls]) -> bool:
    """Whether all ranks marked steps, and no step is one of all of them."""
    steps = [set(rank.steps) for rank in ranks]
    return all(steps) and not set.intersection(*steps)


def spans_of(steps: Iterable[tuple[int, ...]]) -> str:
    """Returns the steps that ranks recorded: "0 to 2 and 3"."""
    ends = ((numbers[0], numbers[-1]) for numbers in sorted({*steps}))
    return " and ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in ends)


def _missed(calls: Calls, ends: Sequence[Int64], steps: Sequence[tuple[int, ...]]) -> Int64:
    """Returns for each call how many like it its rank issued before it recorded, in steps that another recorded."""
    if len({*steps}) < 2 or not set(steps[0]).intersection(*steps):
        return np.zeros(len(calls), np.int64)
    first, count = (np.array(values) for values in ([min(of_rank) for of_rank in steps], [*map(len, steps)]))
    kinds = calls.group, calls.kind, *ends
    alike, all_ranks = groupby(calls.rank, calls.type, *kinds), groupby(*kinds)
    of_step, rest = np.divmod(alike.count()[alike.number], count[calls.rank])
    is_regular = (all_ranks.smallest(of_step) == all_ranks.largest(of_step)) & (all_ranks.largest(rest) == 0)
    return np.where(is_regular[all_ranks.number], of_step * (first - first.min())[calls.rank], 0)


def _order_matches_more(
    calls: Calls, by_number: tuple[Int64, Int64], by_order: tuple[Int64, Int64], *, same_steps: bool
) -> Bool:
    """Returns the collectives that order matches better than numbers, which may differ between ranks."""
    # messages count for the last group
    count = len(calls.groups) + 1
    group_number = calls.group % count
    users = np.bincount(np.unique(calls.rank * count + group_number) % count, minlength=count)
    complete, alone = list[Int64](), list[Int64]()
    for key in (by_number, by_order):
        matches = groupby(calls.group, calls.kind, *key)
        of_match, members = group_number[matches.first], matches.count()
        complete.append(np.bincount(of_match[members == users[of_match]], minlength=count))
        alone.append(np.bincount(of_match[members < users[of_match]], minlength=count))
    use = complete[1] > 2 * complete[0] + FEW
    is_apart = _count_apart(calls, group_number, never_meet=complete[0] == 0)
    use |= (alone[1] == 0) & (users > 1) & (is_apart | ((complete[0] == 0) & same_steps))
    return np.asarray((calls.group >= 0) & use[calls.group])


def _count_apart(calls: Calls, group: Int64, never_meet: Bool) -> Bool:
    """Returns the groups whose ranks share a range of sequence numbers but never meet, or count in different steps."""
    of_rank, (first, last, least, most) = groupby(calls.rank, group), np.full((4, len(never_meet)), EVER)
    group, low = group[of_rank.first], of_rank.smallest(calls.sequence)
    np.minimum.at(first, group, -low)
    np.minimum.at(last, group, np.where(low < 0, -2, of_rank.largest(calls.sequence)))
    steps = np.array(
        [np.gcd.reduce(calls.sequence[rows] - calls.sequence[rows[0]]) for rows in of_rank.rows()], np.int64
    )
    known = (of_rank.count() >= FEW) & (steps > 0)
    np.minimum.at(least, group[known], steps[known])
    np.minimum.at(most, group[known], -steps[known])
    return np.asarray((never_meet & (-first <= last)) | (least < -most))


class MeasuredTimes(NamedTuple):
    """When the rank began, in ns on the host's clock, and when each node started and ended, in ns since then."""

    begin_ns: int
    start_ns: Int64
    end_ns: Int64


def measured_times(graph: ExecutionGraph) -> MeasuredTimes:
    """Returns when each node ran as measured, including the overlap that was cut off its duration."""
    start = graph.host_clock_start_ns
    delay = graph.integers("host_delay_ns", 0)
    # a graph without host begins with the host delay of its first activity
    before = np.where((graph.data_deps.lengths() == 0) & (delay > 0), graph.integers("gap_ns", 0) + delay, 0)
    timed = graph.type != NodeType.METADATA
    begin = int((start - before)[timed].min(initial=FOREVER)) if timed.any() else 0
    end = start + graph.duration_ns + graph.integers("overlap_ns", 0)
    return MeasuredTimes(begin, start - begin, end - begin)


def slack_ns(graph: ExecutionGraph, times: MeasuredTimes) -> Int64:
    """Returns how much later each node of a graph in topological order could end without its rank ending later."""
    edges, end = data_edges(graph), times.end_ns
    waited = graph.integers("gap_ns", 0) + graph.integers("host_delay_ns", 0)
    durations_ns = (times.end_ns - times.start_ns + waited).tolist()
    latest = np.full(len(graph), end.max(initial=0)).tolist()
    # sorted by target, so that a node is final before its dependencies are reached
    for source, target in zip(edges.source[::-1].tolist(), edges.target[::-1].tolist(), strict=True):
        latest[source] = min(latest[source], latest[target] - durations_ns[target])
    slack: Int64 = np.array(latest, np.int64) - end
    return slack.clip(min=0)
