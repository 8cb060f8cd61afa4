"""The collectives and messages of a job for GOAL: which calls of all ranks are one, who takes part, and by which
algorithm.

`rank_communication` is what the job needs of each rank's graph before any of them is written.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, get_args

import numpy as np

from ...schema.arguments import Algorithm as GivenAlgorithm, Simulator
from ...schema.columns import ABSENT, Bool, Int64, NodeNumbers, Ragged
from ...schema.errors import DataError
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
from ..device_only import COMMUNICATION
from ..ranks import Calls, MatchedTimes, begin_of_ranks, graph_calls, match, measured_times, positions_in, ranks_of
from .algorithms import Algorithm, CollectiveMember
from .goal_network import Collective, MessageNetwork, excess_times, fitted_messages, links_of

RING: dict[int, Algorithm] = {
    CollectiveType.ALL_REDUCE: Algorithm.ALL_REDUCE_RING,
    CollectiveType.ALL_GATHER: Algorithm.ALL_GATHER_RING,
    CollectiveType.REDUCE_SCATTER: Algorithm.REDUCE_SCATTER_RING,
    CollectiveType.REDUCE_SCATTER_BLOCK: Algorithm.REDUCE_SCATTER_RING,
    CollectiveType.BROADCAST: Algorithm.BROADCAST,
    CollectiveType.REDUCE: Algorithm.REDUCE,
    CollectiveType.GATHER: Algorithm.GATHER,
    CollectiveType.SCATTER: Algorithm.SCATTER,
    CollectiveType.ALL_TO_ALL: Algorithm.ALL_TO_ALL,
}
"""All other types are barriers."""
DOUBLING: dict[int, Algorithm] = {
    CollectiveType.ALL_REDUCE: Algorithm.ALL_REDUCE_DOUBLING,
    CollectiveType.ALL_GATHER: Algorithm.ALL_GATHER_DOUBLING,
}

ISOLATED = "collectives that no other rank recorded, as calc of the measured time"
UNANSWERED = "messages of which the other end is not there, as calc of the measured time"
MEASURED = "collectives and messages that meet, then take their measured time"
APART = "collectives that ran beside others as fast as alone, through other nics"
PARTIAL = "collectives without some members of their group, of those that are there"
WITHOUT_BYTES = "communications without a recorded size, as barriers"
NO_SPLITS = "all-to-alls without recorded splits, taken as even"
NOT_DOUBLED = "all-reduces and all-gathers of members that are no power of two, by ring"


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """How to write a job in GOAL, as the options of `trace-build --target goal`.

    >>> import execgraph as eg
    >>> job = eg.build("tests/data/training", target=eg.GoalOptions(measured_communication=True))
    >>> (job.folder / "job.goal").is_file()
    True

    Args:
        algorithm: With "recursive-doubling" all-reduces and all-gathers of 2^n members use it, all others a ring.
        chunk_bytes: The longest message; longer ones are cut.
        gpus_per_node: How many consecutive ranks share a node, within which messages have a nic of their own; 0 is one
            rank per node.
        measured_communication: Whether members of a collective only wait for each other and then take their measured
            time.
        simulator: Who runs the file: "loggopsim" gets the time of other cpus by messages of the rank to itself,
            "atlahs" by `requires`.

    Raises:
        ValueError: An option has a value that does not exist.
    """

    algorithm: GivenAlgorithm = "ring"
    chunk_bytes: int = 512 * 1024
    gpus_per_node: int = 0
    measured_communication: bool = False
    simulator: Simulator = "loggopsim"

    def __post_init__(self) -> None:
        for name, choices in (("algorithm", get_args(GivenAlgorithm)), ("simulator", get_args(Simulator))):
            if getattr(self, name) not in choices:
                raise ValueError(f"GoalOptions: {name} is {getattr(self, name)!r}, not one of {choices}")
        if self.chunk_bytes < 1 or self.gpus_per_node < 0:
            raise ValueError("GoalOptions: chunk_bytes and gpus_per_node are numbers from 1 on")


class RankCommunication(NamedTuple):
    """The calls of a rank, with a row for each: times in ns since the rank's first node, whether a host thread
    communicates, the root, and the bytes of an all-to-all for each member of its group (empty if not known).

    `last_end_ns` is when the rank's last node ended.
    """

    rank: int
    calls: Calls
    start_ns: Int64
    duration_ns: Int64
    on_host: Bool
    root: Int64
    splits: list[tuple[int, ...]]
    last_end_ns: int


def rank_communication(graph: ExecutionGraph, position: int) -> RankCommunication:
    """Returns the communication of a graph; its rank is `position` where the graph has none. O(n log n)."""
    rank = graph.number("rank", position)
    rows = np.flatnonzero(np.isin(graph.type, COMMUNICATION))
    calls = graph_calls(graph, NodeNumbers(rows[np.argsort(graph.id[rows], kind="stable")]), rank)
    times, splits = measured_times(graph), graph.attributes.get("comm_split")
    source, target = (graph.integers(name)[calls.row] for name in ("comm_src", "comm_dst"))
    timed = graph.type != NodeType.METADATA
    return RankCommunication(
        rank=rank,
        calls=calls,
        start_ns=times.start_ns[calls.row],
        duration_ns=graph.duration_ns[calls.row],
        on_host=~graph.is_activity[calls.row],
        root=np.where(source == ABSENT, target, source),
        splits=[tuple(splits[row].tolist()) if isinstance(splits, Ragged) else () for row in calls.row.tolist()],
        last_end_ns=int(times.end_ns[timed].max(initial=0)),
    )


class MatchedNode(NamedTuple):
    """The row of a graph's node, and the number of the collective in which it takes part."""

    row: int
    collective: int


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """The ranks of a job as recorded, by position; when each began and ended, in ns on one clock; their collectives;
    for each rank the nodes that take part in these, in an order that all ranks share; the network that the measured
    times of the messages fit; the link of each collective; and by how many ns each of its members took longer than in
    this network.
    """

    ranks: tuple[int, ...]
    begin_ns: Int64
    end_ns: Int64
    collectives: list[Collective]
    nodes: list[list[MatchedNode]]
    counts: Counter[str]
    network: MessageNetwork | None
    links: list[int]
    excess_ns: list[tuple[int, ...]]

    def excess_of(self, position: int) -> tuple[int, int]:
        """Returns how many ns the collectives of a rank took beyond the fitted network, and how many in all."""
        excess = taken = 0
        for _, number in self.nodes[position]:
            collective = self.collectives[number]
            if not collective.algorithm.is_message:
                member = collective.members.index(position)
                excess += self.excess_ns[number][member]
                taken += collective.duration_ns[member]
        return excess, taken


class _Member(NamedTuple):
    """A call that other ranks match: the position of its rank and the rank, the row of its node, what it is, by the
    job's clock when, and the ranks of its group as text.
    """

    position: int
    rank: int
    row: int
    type: int
    kind: int
    size: int
    start_ns: int
    duration_ns: int
    on_host: bool
    root: int
    split: tuple[int, ...]
    group: str


def job_of(ranks: Sequence[RankCommunication], options: GoalOptions, *, excess_time: bool = True) -> RecordedJob:
    """Matches the calls of all ranks and chooses an algorithm for each match. With `excess_time` collectives keep the
    time that they took beyond the fitted network. O(n log n) in the calls, and quadratic in the members of an
    all-to-all.

    Raises DataError for a rank that is there twice.
    """
    numbers = tuple(rank.rank for rank in ranks)
    if len(set(numbers)) < len(numbers):
        raise DataError(f"several graphs are of one rank, among {', '.join(map(str, numbers))}; give each rank once")
    begin, matches = _matches(ranks)
    counts = Counter[str]()
    for rank in ranks:
        counts[ISOLATED] += int((rank.calls.type == NodeType.COMM_COLL).sum())
        counts[UNANSWERED] += int((rank.calls.type != NodeType.COMM_COLL).sum())
    collectives: list[Collective] = []
    nodes: list[list[MatchedNode]] = [[] for _ in ranks]
    for members in matches:
        counts[ISOLATED if members[0].type == NodeType.COMM_COLL else UNANSWERED] -= len(members)
        collective, ordered = _Chooser(numbers, options, counts).collective(members)
        for member in ordered:
            nodes[member.position].append(MatchedNode(member.row, len(collectives)))
        collectives.append(collective)
    ends = begin + np.array([rank.last_end_ns for rank in ranks], np.int64)
    network = fitted_messages(collectives)
    links, waited = links_of(collectives, network)
    counts[APART] = sum(link > 0 for link in links)
    if excess_time and network and not options.measured_communication:
        excess = excess_times(collectives, waited, network)
    else:
        excess = [(0,) * len(collective.members) for collective in collectives]
    return RecordedJob(numbers, begin, ends, collectives, nodes, +counts, network, links, excess)


def _matches(ranks: Sequence[RankCommunication]) -> tuple[Int64, list[list[_Member]]]:
    """Returns when each rank began, and the matches of several ranks, each with its members by rank."""
    matching = match([rank.calls for rank in ranks])
    position, call, matched = matching.met()
    at = np.cumsum([0, *(len(rank.calls) for rank in ranks)])[position] + call
    nothing = np.empty(0, np.int64)
    row, type_, kind, size = (
        np.concatenate([nothing, *(getattr(rank.calls, name) for rank in ranks)])[at]
        for name in ("row", "type", "kind", "size")
    )
    start, duration, on_host, root = (
        np.concatenate([nothing, *(getattr(rank, name) for rank in ranks)])[at]
        for name in ("start_ns", "duration_ns", "on_host", "root")
    )
    group = np.concatenate([nothing, *matching.group])[at]
    times = MatchedTimes(position, matched, start, start + duration, type_ != NodeType.COMM_COLL, kind)
    begin = begin_of_ranks(len(ranks), times)
    numbers, splits = np.array([rank.rank for rank in ranks], np.int64), [rank.splits for rank in ranks]
    lists = [*(group.ranks for group in matching.groups), ""]
    first = (position, numbers[position], row, type_, kind, np.maximum(size, 0), start + begin[position], duration)
    columns: list[list[Any]] = [column.tolist() for column in (*first, on_host != 0, root)]
    pairs = zip(position.tolist(), call.tolist(), strict=True)
    columns += [[splits[rank][of_rank] for rank, of_rank in pairs], [lists[number] for number in group.tolist()]]
    members = [_Member(*fact) for fact in zip(*columns, strict=True)]
    bounds = [*np.flatnonzero(np.diff(matched, prepend=-1)).tolist(), len(members)]
    return begin, [members[since:until] for since, until in pairwise(bounds)]


class _Chooser(NamedTuple):
    """Chooses how each match of the ranks is done, and counts in `counts` how many are done in which way."""

    ranks: tuple[int, ...]
    options: GoalOptions
    counts: Counter[str]

    def collective(self, members: Sequence[_Member]) -> tuple[Collective, list[_Member]]:
        """Returns the collective of a match, and the match's members by group rank."""
        first, kind = members[0], -1
        group: tuple[int, ...] = ()
        is_message = first.type != NodeType.COMM_COLL
        if is_message:
            # sends come before receives
            ordered = sorted(members, key=lambda member: member.type)
        else:
            group = ranks_of(first.group) if first.group else self.ranks
            place = positions_in(first.group) if first.group else {rank: at for at, rank in enumerate(group)}
            ordered = sorted(members, key=lambda member: place.get(member.rank, len(place)))
            kind = first.kind
            self.counts[PARTIAL] += len(ordered) < len(group)
        sizes = tuple(member.size for member in ordered)
        if is_message:
            sizes = (sizes[0] or sizes[1],) * len(sizes)
        numbers = [member.rank for member in ordered]
        root = next((numbers.index(member.root) for member in ordered if member.root in numbers), 0)
        shares = self._shares(ordered, group) if kind == CollectiveType.ALL_TO_ALL else ()
        described = CollectiveMember(0, len(ordered), sizes, shares, root, self.options.chunk_bytes)
        measured = self.options.measured_communication
        algorithm = Algorithm.BARRIER if measured else self._algorithm(is_message, kind, described)
        if algorithm == Algorithm.MESSAGE and _waited(*ordered):
            algorithm = Algorithm.AWAITED_MESSAGE
        self.counts[MEASURED if measured else algorithm] += 1
        last = max(member.start_ns for member in ordered)
        positions = tuple(member.position for member in ordered)
        return Collective(algorithm, positions, described, last, _durations(ordered, last)), ordered

    def _algorithm(self, is_message: bool, kind: int, member: CollectiveMember) -> Algorithm:
        moved = sum(map(sum, member.shares)) if member.shares else sum(member.sizes)
        if not moved:
            self.counts[WITHOUT_BYTES] += kind != CollectiveType.BARRIER
            return Algorithm.BARRIER
        if is_message:
            return Algorithm.MESSAGE
        if self.options.algorithm == "recursive-doubling" and kind in DOUBLING:
            if member.members & (member.members - 1) == 0:
                return DOUBLING[kind]
            self.counts[NOT_DOUBLED] += 1
        return RING.get(kind, Algorithm.BARRIER)

    def _shares(self, members: Sequence[_Member], group: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Returns the bytes of an all-to-all from each member to each.

        Splits are recorded for the whole group; only the members that are there exchange theirs.
        """
        place = {rank: position for position, rank in enumerate(group)}
        peers = [place.get(member.rank, 0) for member in members]
        is_split = [len(member.split) == len(group) for member in members]
        self.counts[NO_SPLITS] += not all(is_split)
        return tuple(
            tuple(member.split[peer] if split else member.size // len(group) for peer in peers)
            for member, split in zip(members, is_split, strict=True)
        )


def _waited(send: _Member, receive: _Member) -> bool:
    """Returns whether a send waited for its receiver: it ended nearer to the receive's end than to its begin.

    A send that did not wait ended before the receive began, but clocks agree to some µs only.
    """
    return 2 * (send.start_ns + send.duration_ns) > 2 * receive.start_ns + receive.duration_ns


def _durations(members: Sequence[_Member], last_ns: int) -> tuple[int, ...]:
    """Returns how long each member takes from the last arrival on.

    That is the time of the shortest member, as the others waited before. Host threads end independently.
    """
    if not all(member.on_host for member in members):
        return (min(member.duration_ns for member in members),) * len(members)
    return tuple(max(member.start_ns + member.duration_ns - last_ns, 0) for member in members)
