"""The collectives and messages of a job: which calls of all ranks are one, who takes part, and by which algorithm.

The communication of one rank's graph, which the job needs from all ranks before any of them is written.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, get_args

import numpy as np

from ...schema.arguments import Algorithm, Simulator
from ...schema.columns import ABSENT, Bool, Int64, NodeNumbers, Ragged
from ...schema.errors import DataError
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
from ..device_only import COMMUNICATION
from ..ranks import (
    Calls,
    MatchedTimes,
    Matching,
    begin_of_ranks,
    graph_calls,
    match,
    measured_times,
    positions_in,
    ranks_of,
)
from .algorithms import (
    ALL_TO_ALL,
    AWAITED,
    MESSAGE,
    CollectiveMember,
    MessageNetwork,
    Timed,
    fitted_messages,
    is_message,
)
from .goal_network import Collective, excess_times, links_of


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

    algorithm: Algorithm = "ring"
    chunk_bytes: int = 512 * 1024
    gpus_per_node: int = 0
    measured_communication: bool = False
    simulator: Simulator = "loggopsim"

    def __post_init__(self) -> None:
        for name, choices in (("algorithm", get_args(Algorithm)), ("simulator", get_args(Simulator))):
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


BARRIER = "barrier by dissemination"
RING = {
    CollectiveType.ALL_REDUCE: "all-reduce by ring",
    CollectiveType.ALL_GATHER: "all-gather by ring",
    CollectiveType.REDUCE_SCATTER: "reduce-scatter by ring",
    CollectiveType.REDUCE_SCATTER_BLOCK: "reduce-scatter by ring",
    CollectiveType.BROADCAST: "broadcast along the ring",
    CollectiveType.REDUCE: "reduce along the ring",
    CollectiveType.GATHER: "gather, each to the root",
    CollectiveType.SCATTER: "scatter, from the root to each",
    CollectiveType.ALL_TO_ALL: ALL_TO_ALL,
}
DOUBLING = {
    CollectiveType.ALL_REDUCE: "all-reduce by recursive doubling",
    CollectiveType.ALL_GATHER: "all-gather by recursive doubling",
}

ISOLATED = "collectives that no other rank recorded, as calc of the measured time"
UNANSWERED = "messages of which the other end is not there, as calc of the measured time"
MEASURED = "collectives and messages that meet, then take their measured time"
APART = "collectives that ran beside others as fast as alone, through other nics"
PARTIAL = "collectives without some members of their group, of those that are there"
WITHOUT_BYTES = "communications without a recorded size, as barriers"
NO_SPLITS = "all-to-alls without recorded splits, taken as even"
NOT_DOUBLED = "all-reduces and all-gathers of members that are no power of two, by ring"


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
            if not is_message(collective.algorithm):
                member = collective.members.index(position)
                excess += self.excess_ns[number][member]
                taken += collective.duration_ns[member]
        return excess, taken


class _MatchedCall(NamedTuple):
    """A call by the position of its rank and its own position among that rank's calls."""

    rank: int
    call: int


def job_of(ranks: Sequence[RankCommunication], options: GoalOptions, *, excess_time: bool = True) -> RecordedJob:
    """Matches the calls of all ranks and chooses an algorithm for each match. With `excess_time` collectives keep the
    time that they took beyond the fitted network. O(n log n) in the calls, and quadratic in the members of an
    all-to-all.

    Raises DataError for a rank that is there twice.
    """
    numbers = tuple(rank.rank for rank in ranks)
    if len(set(numbers)) < len(numbers):
        raise DataError(f"several graphs are of one rank, among {', '.join(map(str, numbers))}; give each rank once")
    matching = match([rank.calls for rank in ranks])
    matches = _matches(matching)
    begin = begin_of_ranks(len(ranks), _matched_times(ranks, matches))
    job = _JobBuilder(ranks, begin, matching, options, Counter())
    collectives: list[Collective] = []
    nodes: list[list[MatchedNode]] = [[] for _ in ranks]
    for calls in matches:
        collective, ordered = job.collective(calls)
        for rank, call in ordered:
            nodes[rank].append(MatchedNode(int(ranks[rank].calls.row[call]), len(collectives)))
        collectives.append(collective)
    job.count_isolated(matches)
    ends = begin + np.array([rank.last_end_ns for rank in ranks], np.int64)
    network = fitted_messages(
        Timed(collective.algorithm, collective.first, max(collective.duration_ns)) for collective in collectives
    )
    links, waited = links_of(collectives, network)
    job.counts[APART] = sum(link > 0 for link in links)
    if excess_time and network and not options.measured_communication:
        excess = excess_times(collectives, waited, network)
    else:
        excess = [(0,) * len(collective.members) for collective in collectives]
    return RecordedJob(numbers, begin, ends, collectives, nodes, +job.counts, network, links, excess)


def _matches(matching: Matching) -> list[list[_MatchedCall]]:
    """Returns the matches of several ranks, each with its calls by rank."""
    rank, call, matched = matching.met()
    calls = [_MatchedCall(*pair) for pair in zip(rank.tolist(), call.tolist(), strict=True)]
    bounds = [*np.flatnonzero(np.diff(matched, prepend=-1)).tolist(), len(calls)]
    return [calls[begin:end] for begin, end in pairwise(bounds)]


def _matched_times(ranks: Sequence[RankCommunication], matches: Sequence[Sequence[_MatchedCall]]) -> MatchedTimes:
    rows = [
        (
            rank,
            number,
            int(ranks[rank].start_ns[call]),
            int(ranks[rank].start_ns[call] + ranks[rank].duration_ns[call]),
            int(ranks[rank].calls.type[call] != NodeType.COMM_COLL),
            int(ranks[rank].calls.kind[call]),
        )
        for number, calls in enumerate(matches)
        for rank, call in calls
    ]
    rank, matched, start, end, message, kind = np.array(rows, np.int64).reshape(-1, 6).T
    return MatchedTimes(rank, matched, start, end, message > 0, kind)


class _JobBuilder(NamedTuple):
    """Chooses how each match of the ranks is done, and counts in `counts` how many are done in which way."""

    ranks: Sequence[RankCommunication]
    begin_ns: Int64
    matching: Matching
    options: GoalOptions
    counts: Counter[str]

    def collective(self, calls: Sequence[_MatchedCall]) -> tuple[Collective, list[_MatchedCall]]:
        """Returns the collective of a match, and the match's calls by group rank."""
        ranks = self.ranks
        first, first_calls = calls[0], ranks[calls[0].rank].calls
        kind: int | None = None
        group: tuple[int, ...] = ()
        if first_calls.type[first.call] != NodeType.COMM_COLL:
            # sends come before receives
            ordered = sorted(calls, key=lambda call: ranks[call.rank].calls.type[call.call])
        else:
            recorded = self.matching.groups[self.matching.group[first.rank][first.call]].ranks
            group = ranks_of(recorded) if recorded else tuple(rank.rank for rank in ranks)
            group_rank = positions_in(recorded) if recorded else {rank: at for at, rank in enumerate(group)}
            ordered = sorted(calls, key=lambda call: group_rank.get(ranks[call.rank].rank, len(group_rank)))
            kind = int(first_calls.kind[first.call])
            self.counts[PARTIAL] += len(ordered) < len(group)
        sizes = tuple(max(int(ranks[rank].calls.size[call]), 0) for rank, call in ordered)
        if kind is None:
            sizes = (sizes[0] or sizes[1],) * len(sizes)
        roots = [int(ranks[rank].root[call]) for rank, call in ordered]
        numbers = [ranks[rank].rank for rank, _ in ordered]
        root = next((numbers.index(rank) for rank in roots if rank in numbers), 0)
        shares = self._shares(ordered, group) if kind == CollectiveType.ALL_TO_ALL else ()
        member = CollectiveMember(0, len(ordered), sizes, shares, root, self.options.chunk_bytes)
        measured = self.options.measured_communication
        algorithm = BARRIER if measured else self._algorithm(kind, member)
        if algorithm == MESSAGE and self._waited(*ordered):
            algorithm = AWAITED
        self.counts[MEASURED if measured else algorithm] += 1
        members = tuple(rank for rank, _ in ordered)
        starts = [int(self.begin_ns[rank] + ranks[rank].start_ns[call]) for rank, call in ordered]
        return Collective(algorithm, members, member, max(starts), self._durations(ordered, starts)), ordered

    def _waited(self, send: _MatchedCall, receive: _MatchedCall) -> bool:
        """Returns whether a send waited for its receiver: it ended nearer to the receive's end than to its begin.

        A send that did not wait ended before the receive began, but clocks agree to some µs only.
        """
        starts = [int(self.begin_ns[rank] + self.ranks[rank].start_ns[call]) for rank, call in (send, receive)]
        lasts = [int(self.ranks[rank].duration_ns[call]) for rank, call in (send, receive)]
        return 2 * (starts[0] + lasts[0]) > 2 * starts[1] + lasts[1]

    def _algorithm(self, kind: int | None, member: CollectiveMember) -> str:
        moved = sum(map(sum, member.shares)) if member.shares else sum(member.sizes)
        if not moved:
            self.counts[WITHOUT_BYTES] += kind != CollectiveType.BARRIER
            return BARRIER
        if kind is None:
            return MESSAGE
        if self.options.algorithm == "recursive-doubling" and kind in DOUBLING:
            if member.members & (member.members - 1) == 0:
                return DOUBLING[CollectiveType(kind)]
            self.counts[NOT_DOUBLED] += 1
        return next((name for of_kind, name in RING.items() if of_kind == kind), BARRIER)

    def _shares(self, calls: Sequence[_MatchedCall], group: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Returns the bytes of an all-to-all from each member to each.

        Splits are recorded for the whole group; only the members that are there exchange theirs.
        """
        group_rank = {rank: position for position, rank in enumerate(group)}
        peers = [group_rank.get(self.ranks[call.rank].rank, 0) for call in calls]
        shares, is_even = list[tuple[int, ...]](), False
        for rank, call in calls:
            split, size = self.ranks[rank].splits[call], max(int(self.ranks[rank].calls.size[call]), 0)
            is_even |= len(split) != len(group)
            shares.append(tuple(split[peer] if len(split) == len(group) else size // len(group) for peer in peers))
        self.counts[NO_SPLITS] += is_even
        return tuple(shares)

    def _durations(self, calls: Sequence[_MatchedCall], starts_ns: Sequence[int]) -> tuple[int, ...]:
        """Returns how long each member takes from the last arrival on.

        That is the time of the shortest member, as the others waited before. Host threads end independently.
        """
        duration = [int(self.ranks[rank].duration_ns[call]) for rank, call in calls]
        if not all(self.ranks[rank].on_host[call] for rank, call in calls):
            return (min(duration),) * len(calls)
        last = max(starts_ns)
        return tuple(max(start + length - last, 0) for start, length in zip(starts_ns, duration, strict=True))

    def count_isolated(self, matches: Sequence[Sequence[_MatchedCall]]) -> None:
        """Counts the calls that no other rank's call matches."""
        matched = {call for calls in matches for call in calls}
        for position, rank in enumerate(self.ranks):
            for call, kind in enumerate(rank.calls.type.tolist()):
                reason = ISOLATED if kind == NodeType.COMM_COLL else UNANSWERED
                self.counts[reason] += (position, call) not in matched
