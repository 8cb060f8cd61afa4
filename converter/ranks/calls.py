"""The communication of one rank as columns, small even for a large graph; which calls of several ranks are one
collective or message (nothing else decides this); and when each rank began, on one clock.

A collective matches those that other ranks recorded in the same group, of the same type, with the same sequence number;
or in the same order, where sequence numbers are not recorded or cannot be the same. A send matches the receive of the
same source, target and tag, in order. A call that a rank lacks, or that was not traced, is missing from its match; the
other calls match all the same.

Clocks of different machines differ, but a collective ends at the same time on all its ranks. The offset of two clocks
is the median of the differences between ends that two ranks share, within the possible range: no member ends a
collective that another one has not begun. Ranks that share nothing, not even through others, begin together.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, Interner, NodeNumbers, Ragged, cumcount, groupby
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
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
FEW = 4
"""So few matches prove nothing."""


class Call(NamedTuple):
    """A collective, or one end of a message, as a rank recorded it.

    `row` identifies it for the caller, `kind` is a CollectiveType, `size` is in bytes. A message has a source, target
    and tag instead of a group. -1 is not known.
    """

    row: int
    type: NodeType
    group: Group | None = None
    kind: int = -1
    size: int = 0
    sequence: int = -1
    source: int = -1
    target: int = -1
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of a rank as columns, in the order of issue; `group` is a position in `groups`, -1 for messages."""

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

    def __len__(self) -> int:
        return len(self.row)

    @staticmethod
    def of(calls: Iterable[Call]) -> "Calls":
        """Returns the calls as columns; groups are numbered in the order in which they come first."""
        numbers = Interner[Group]()
        rows = [(row, type_, numbers[group] if group else -1, *facts) for row, type_, group, *facts in calls]
        return Calls(list(numbers), *np.array(rows, np.int64).reshape(-1, len(Call._fields)).T)

    @property
    def is_placed(self) -> Bool:
        """Whether it is known who takes part: by the ranks or name of the group, or by both ends of the message."""
        is_known = np.array([*(bool(group.ranks or group.name) for group in self.groups), False])
        message = self.type != NodeType.COMM_COLL
        return np.asarray(np.where(message, np.minimum(self.source, self.target) >= 0, is_known[self.group]))

    def take(self, rows: Int64) -> "Calls":
        """Returns the calls at these positions."""
        columns = {name: getattr(self, name)[rows] for name in Call._fields}
        return replace(self, **columns)

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


def recorded_calls(recorded: Sequence[Communication], kernels: Sequence[str], own_rank: int) -> Calls:
    """Returns the calls of a rank from the recorded arguments of each; by the kernel's name where these do not tell.

    Coalesced messages are not separated.
    """
    names = GroupNames()

    def call(row: int, arguments: Communication, kernel: str) -> Call:
        decoded = meaning(arguments, kernel)
        if decoded is not None and decoded.type is None:
            source, target = peers(arguments, decoded.node, own_rank)
            return Call(row, decoded.node, size=decoded.size, source=source, target=target, tag=arguments.tag)
        group = names.group_of(arguments.ranks, arguments.group, arguments.description)
        kind, size = (-1, 0) if decoded is None or decoded.type is None else (int(decoded.type), decoded.size)
        return Call(row, NodeType.COMM_COLL, group, kind, size, arguments.sequence)

    return Calls.of(call(row, *pair) for row, pair in enumerate(zip(recorded, kernels, strict=True)))


def graph_calls(graph: ExecutionGraph, rows: NodeNumbers, own_rank: int) -> Calls:
    """Returns the calls of a rank in these rows of its graph; a node with several messages comes once for each."""
    names, groups = GroupNames(), recorded_groups(graph)
    lists = [*groups.lists, ()]
    recorded, name, purpose = graph.texts("pg_recorded"), graph.texts("pg_name"), graph.texts("pg_desc")
    kind = graph.collective_types().tolist()
    size, sequence, tag = (
        graph.integers(f"comm_{what}", default).tolist() for what, default in (("size", 0), ("seq", -1), ("tag", 0))
    )
    # the side that is not recorded is the node's own rank
    source, target = graph.integers("comm_src", own_rank).tolist(), graph.integers("comm_dst", own_rank).tolist()
    coalesced = [graph.attributes.get(COALESCED[f"comm_{side}"]) for side in ("src", "dst", "tag")]
    sizes = graph.attributes.get(COALESCED["comm_size"])

    @cache
    def group_of(listed: int, name: str, purpose: str) -> Group:
        # to find a list of very many ranks takes as long as it is
        return names.group_of(lists[listed], name, purpose)

    def calls(row: int, node: NodeType) -> list[Call]:
        if node is NodeType.COMM_COLL:
            group = group_of(int(groups.of_node[row]), recorded[row] or name[row], purpose[row])
            return [Call(row, node, group, kind[row], size[row], sequence[row])]
        several = [column[row].tolist() for column in coalesced if isinstance(column, Ragged)]
        if len(several) < len(coalesced) or not several[0]:
            return [Call(row, node, size=size[row], source=source[row], target=target[row], tag=tag[row])]
        message_sizes = sizes[row].tolist() if isinstance(sizes, Ragged) else [0] * len(several[0])
        types = [(NodeType.COMM_RECV, NodeType.COMM_SEND)[start == own_rank] for start in several[0]]
        return [
            Call(row, type_, size=of_message, source=start, target=end, tag=label)
            for type_, start, end, label, of_message in zip(types, *several, message_sizes, strict=True)
        ]

    types = graph.type[rows].tolist()
    return Calls.of(call for row, node in zip(rows.tolist(), types, strict=True) for call in calls(row, NodeType(node)))


@dataclass(frozen=True, slots=True)
class Matching:
    """The matches of the calls of all ranks. A match is one collective or message as its members recorded it.

    For each rank, `group` is the position of each call's group in `groups` (-1 for messages) and `matched` the number
    of its match. Columns over matches: the sequence number by which the members were matched (-1 for by order), and the
    occurrence among those alike.
    """

    groups: list[Group]
    group: list[Int64]
    matched: list[Int64]
    sequence: Int64
    occurrence: Int64

    def __len__(self) -> int:
        return len(self.sequence)

    def met(self) -> tuple[Int64, Int64, Int64]:
        """Returns the calls of the matches in which several ranks took part, sorted by match: the position of the rank,
        that of the call among the rank's, and the number of the match, counted from 0 among these matches.
        """
        nothing, ranks = np.empty(0, np.int64), len(self.matched)
        rank = np.repeat(np.arange(ranks), [len(matched) for matched in self.matched])
        call = np.concatenate([nothing, *(np.arange(len(matched)) for matched in self.matched)])
        matched = np.concatenate([nothing, *self.matched])
        members = np.bincount(np.unique(matched * ranks + rank) // max(ranks, 1), minlength=len(self))
        order = np.argsort(matched, kind="stable")
        order = order[members[matched[order]] > 1]
        return rank[order], call[order], np.unique(matched[order], return_inverse=True)[1]


def match(ranks: Sequence[Calls]) -> Matching:
    """Matches the calls of all ranks, by columns; graphs are not needed. O(n log n) in the calls."""
    lengths = [len(calls) for calls in ranks]
    rank, numbers, nothing = np.repeat(np.arange(len(ranks)), lengths), Interner[Group](), np.empty(0, np.int64)
    columns = [nothing]
    for calls, group_of in zip(ranks, recognised([calls.done() for calls in ranks]), strict=True):
        # the last number is for messages, whose group is -1
        columns.append(np.array([*(numbers[group_of[group]] for group in calls.groups), -1], np.int64)[calls.group])
    group = np.concatenate(columns)
    type_, kind, sequence, source, target, tag = (
        np.concatenate([nothing, *(getattr(calls, name) for calls in ranks)])
        for name in ("type", "kind", "sequence", "source", "target", "tag")
    )
    message = type_ != NodeType.COMM_COLL
    ends = [np.where(message, column, -1) for column in (source, target, tag)]
    kind = np.where(message, -1, kind)
    by_number, by_order = (
        (column, cumcount(rank, type_, group, kind, column, *ends))
        for column in (np.where(message, -1, sequence), np.full(len(rank), -1))
    )
    use_order = _order_matches_more(rank, group, kind, by_number, by_order)
    number, nth = (np.where(use_order, second, first) for first, second in zip(by_number, by_order, strict=True))
    matches = groupby(group, kind, number, *ends, nth)
    until = np.cumsum(lengths, dtype=np.int64).tolist()
    of_ranks = [slice(end - length, end) for end, length in zip(until, lengths, strict=True)]
    return Matching(
        list(numbers),
        [group[rows] for rows in of_ranks],
        [matches.number[rows] for rows in of_ranks],
        number[matches.first],
        nth[matches.first],
    )


def _order_matches_more(
    rank: Int64, group: Int64, kind: Int64, by_number: tuple[Int64, Int64], by_order: tuple[Int64, Int64]
) -> Bool:
    """Returns the collectives of groups in which order finds many more complete matches, of all ranks of the group,
    than sequence numbers do. A row for each call of all ranks; the group of messages is -1.

    Sequence numbers are more reliable, as ranks may have begun to record at different calls; but they differ between
    ranks where messages count too.
    """
    # messages count for the last group
    count = int(group.max(initial=-1)) + 2
    group_number = group % count
    users = np.bincount(np.unique(rank * count + group_number) % count, minlength=count)
    complete = []
    for key in (by_number, by_order):
        matches = groupby(group, kind, *key)
        of_match = group_number[matches.first]
        complete.append(np.bincount(of_match[matches.count() == users[of_match]], minlength=count))
    return np.asarray((group >= 0) & (complete[1] > 2 * complete[0] + FEW)[group])


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


class MatchedTimes(NamedTuple):
    """A row for each member of each match: the position of its rank, its times since that rank's first node, and its
    CollectiveType, -1 where none is known.
    """

    rank: Int64
    matched: Int64
    start_ns: Int64
    end_ns: Int64
    is_message: Bool
    kind: Int64


def begin_of_ranks(ranks: int, times: MatchedTimes) -> Int64:
    """Returns when each rank began, in ns; the earliest of those that share matches is 0. O(m log m) in the rows."""
    begin, component = np.zeros(ranks, np.int64), np.arange(ranks)
    for rank, peer, later in _differences(times):
        if component[rank] != component[peer]:
            # joining two components moves one of them
            moved = component == component[peer]
            begin[moved] += begin[rank] + later - begin[peer]
            component[moved] = component[rank]
    earliest = np.zeros(ranks, np.int64)
    np.minimum.at(earliest, component, begin)
    return begin - earliest[component]


def _differences(times: MatchedTimes) -> list[tuple[int, int, int]]:
    """Returns by how many ns each first member of a match began to record before each other member of it, by all their
    matches: (rank, peer, ns). Differences by collectives come first, as a send may end before its receive.
    """
    order = np.argsort(times.matched, kind="stable")
    rank, matched, start, end = (column[order] for column in times[:4])
    is_message = times.is_message[order]
    first, mutual = np.searchsorted(matched, matched), awaits_all(times.kind[order]) & ~is_message
    low, high = np.where(mutual, start[first] - end, -EVER), np.where(mutual, end[first] - start, EVER)
    bounds: dict[tuple[bool, int, int], list[list[int]]] = defaultdict(list)
    columns = (is_message, rank[first], rank, end[first] - end, low, high)
    for of_messages, of_first, peer, *bound in zip(*(column.tolist() for column in columns), strict=True):
        if of_first != peer:
            bounds[of_messages, of_first, peer].append(bound)
    differences = []
    for (_, of_first, peer), rows in sorted(bounds.items()):
        differences_ns, lowest, highest = np.array(rows).T
        later, least, most = int(np.median(differences_ns)), int(lowest.max()), int(highest.min())
        # bounds that contradict each other leave the median
        differences.append((of_first, peer, min(max(later, least), most) if least <= most else later))
    return differences


def slack_ns(graph: ExecutionGraph, times: MeasuredTimes) -> Int64:
    """Returns the slack of each node of a graph in topological order, if all else takes as long as measured. O(n + e).

    A node may end as late as the first of those that depend on it may start.
    """
    edges, end = data_edges(graph), times.end_ns
    waited = graph.integers("gap_ns", 0) + graph.integers("host_delay_ns", 0)
    durations_ns = (times.end_ns - times.start_ns + waited).tolist()
    latest = np.full(len(graph), end.max(initial=0)).tolist()
    # sorted by target, so that a node is final before its dependencies are reached
    for source, target in zip(edges.source[::-1].tolist(), edges.target[::-1].tolist(), strict=True):
        latest[source] = min(latest[source], latest[target] - durations_ns[target])
    slack: Int64 = np.array(latest, np.int64) - end
    return slack.clip(min=0)
