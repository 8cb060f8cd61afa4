"""The communication of a job for GOAL: which calls of all ranks are one, who takes part, and by which algorithm."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, get_args

import numpy as np

from ...schema.arguments import Simulator
from ...schema.columns import Int64, NodeNumbers, Ragged
from ...schema.errors import DataError
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
from ..ranks import Call, Calls, begin_of_ranks, graph_calls, match, measured_times, positions_in, ranks_of
from ..rewiring import COMMUNICATION
from .algorithms import Algorithm, Collective, CollectiveMember, MessageNetwork, excess_times, fitted_messages, links_of

RING: dict[int, Algorithm] = {
    CollectiveType.ALL_REDUCE: Algorithm.ALL_REDUCE_RING, CollectiveType.ALL_GATHER: Algorithm.ALL_GATHER_RING,
    CollectiveType.REDUCE_SCATTER: Algorithm.REDUCE_SCATTER_RING,
    CollectiveType.REDUCE_SCATTER_BLOCK: Algorithm.REDUCE_SCATTER_RING, CollectiveType.BROADCAST: Algorithm.BROADCAST,
    CollectiveType.REDUCE: Algorithm.REDUCE, CollectiveType.GATHER: Algorithm.GATHER,
    CollectiveType.SCATTER: Algorithm.SCATTER, CollectiveType.ALL_TO_ALL: Algorithm.ALL_TO_ALL,
}  # fmt: skip
"""All other types are barriers."""


class Treatment(Enum):
    """How communications were treated, apart from their algorithms, and what that is called."""

    ISOLATED = "collectives that no other rank recorded, as calc of the measured time"
    UNANSWERED = "messages of which the other end is not there, as calc of the measured time"
    MEASURED = "collectives and messages that meet, then take their measured time"
    APART = "collectives that ran beside others as fast as alone, through other nics"
    PARTIAL = "collectives without some members of their group, of those that are there"
    WITHOUT_BYTES = "communications without a recorded size, as barriers"
    NO_SPLITS = "all-to-alls without recorded splits, taken as even"


COMMUNICATION_WORDS: dict[Algorithm | Treatment, str] = {how: how.value for how in (*Algorithm, *Treatment)}
"""What each is called in counts and files."""


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """How to write a job in GOAL, as the options of `trace-build --target goal`.

    >>> import execgraph as eg
    >>> job = eg.build("tests/data/training", target=eg.GoalOptions(measured_communication=True))
    >>> (job.folder / "job.goal").is_file()
    True

    Args:
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

    chunk_bytes: int = 512 * 1024
    gpus_per_node: int = 0
    measured_communication: bool = False
    simulator: Simulator = "loggopsim"

    def __post_init__(self) -> None:
        if self.simulator not in (choices := get_args(Simulator)):
            raise ValueError(f"GoalOptions: simulator is {self.simulator!r}, not one of {choices}")
        if self.chunk_bytes < 1 or self.gpus_per_node < 0:
            raise ValueError("GoalOptions: chunk_bytes and gpus_per_node are numbers from 1 on")


class RankCalls(NamedTuple):
    """The calls of a rank, the bytes of all-to-alls by member, if known, and ns from its first node to the end."""

    rank: int
    calls: Calls
    splits: dict[int, tuple[int, ...]]
    last_end_ns: int


def rank_communication(graph: ExecutionGraph, position: int) -> RankCalls:
    """Returns the communication of a graph; its rank is `position` where the graph has none. O(n log n)."""
    rank, splits = graph.number("rank", position), graph.attributes.get("comm_split")
    rows = np.flatnonzero(np.isin(graph.type, COMMUNICATION))
    calls = graph_calls(graph, NodeNumbers(rows[np.argsort(graph.id[rows], kind="stable")]), rank)
    split = {row: tuple(splits[row].tolist()) for row in rows.tolist()} if isinstance(splits, Ragged) else {}
    last_end_ns = int(measured_times(graph).end_ns[graph.type != NodeType.METADATA].max(initial=0))
    return RankCalls(rank, calls, split, last_end_ns)


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job as recorded: begins and ends on one clock (ns), and the communicating rows of each rank in one order."""

    ranks: tuple[int, ...]
    begin_ns: Int64
    end_ns: Int64
    collectives: list[Collective]
    nodes: list[list[tuple[int, int]]]
    counts: Counter[Algorithm | Treatment]
    network: MessageNetwork | None


def job_of(ranks: Sequence[RankCalls], options: GoalOptions, *, excess_time: bool = True) -> RecordedJob:
    """Matches the calls of all ranks and chooses an algorithm for each; DataError for a rank that is there twice."""
    numbers = tuple(rank.rank for rank in ranks)
    if len(set(numbers)) < len(numbers):
        raise DataError(f"several graphs are of one rank, among {', '.join(map(str, numbers))}; give each rank once")
    calls = match([rank.calls for rank in ranks])
    begin, met = begin_of_ranks(len(ranks), calls), calls.met()
    chooser = _Chooser(numbers, begin.tolist(), [rank.splits for rank in ranks], options, Counter())
    chooser.counts[Treatment.ISOLATED] = int((~calls.is_message).sum() - (~met.is_message).sum())
    chooser.counts[Treatment.UNANSWERED] = int(calls.is_message.sum() - met.is_message.sum())
    collectives: list[Collective] = []
    nodes: list[list[tuple[int, int]]] = [[] for _ in ranks]
    for members in met.matches():
        collective, ordered = chooser.collective(members)
        for member in ordered:
            nodes[member.rank].append((member.row, len(collectives)))
        collectives.append(collective)
    network = fitted_messages(collectives)
    links, waited_ns = links_of(collectives, network)
    chooser.counts[Treatment.APART] = sum(link > 0 for link in links)
    excess = [(0,) * len(collective.members) for collective in collectives]
    if excess_time and network and not options.measured_communication:
        excess = excess_times(collectives, waited_ns, network)
    collectives = [
        collective._replace(link=link, excess_ns=excess_ns)
        for collective, link, excess_ns in zip(collectives, links, excess, strict=True)
    ]
    ends = begin + np.array([rank.last_end_ns for rank in ranks], np.int64)
    return RecordedJob(numbers, begin, ends, collectives, nodes, +chooser.counts, network)


class _Chooser(NamedTuple):
    """Chooses how each match, which began at `begin_ns`, is done, and counts that; `splits` are by rank and row."""

    ranks: tuple[int, ...]
    begin_ns: list[int]
    splits: list[dict[int, tuple[int, ...]]]
    options: GoalOptions
    counts: Counter[Algorithm | Treatment]

    def collective(self, members: Sequence[Call]) -> tuple[Collective, list[Call]]:
        """Returns the collective of a match, and the match's members by group rank."""
        kind, group, is_message = -1, self.ranks, members[0].type != NodeType.COMM_COLL
        of_group = members[0].group.ranks if members[0].group else ""
        if is_message:
            # sends come before receives
            ordered = sorted(members, key=lambda member: member.type)
        else:
            kind, group = members[0].kind, ranks_of(of_group) if of_group else self.ranks
            place = positions_in(of_group) if of_group else {rank: at for at, rank in enumerate(group)}
            ordered = sorted(members, key=lambda member: place.get(self.ranks[member.rank], len(place)))
            self.counts[Treatment.PARTIAL] += len(ordered) < len(group)
        sizes = tuple(max(member.size, 0) for member in ordered)
        if is_message:
            sizes = (sizes[0] or sizes[1],) * len(sizes)
        numbers = [self.ranks[member.rank] for member in ordered]
        roots = (member.target if member.source < 0 else member.source for member in ordered)
        root = next((numbers.index(root) for root in roots if root in numbers), 0)
        shares = self._shares(ordered, group) if kind == CollectiveType.ALL_TO_ALL else ()
        first = CollectiveMember(0, len(ordered), sizes, shares, root, self.options.chunk_bytes)
        start = [member.start_ns + self.begin_ns[member.rank] for member in ordered]
        duration, last = [member.end_ns - member.start_ns for member in ordered], max(start)
        measured = self.options.measured_communication
        algorithm = Algorithm.BARRIER if measured else self._algorithm(is_message, kind, first)
        # a send that did not wait for its receiver ended before that began, but clocks agree to some µs only: it waited
        # if it ended nearer to the receive's end than to its begin
        if algorithm == Algorithm.MESSAGE and 2 * (start[0] + duration[0]) > 2 * start[1] + duration[1]:
            algorithm = Algorithm.AWAITED_MESSAGE
        self.counts[Treatment.MEASURED if measured else algorithm] += 1
        # the shortest member did not wait for others; host threads end independently
        taken = (min(duration),) * len(ordered)
        if all(member.on_host for member in ordered):
            taken = tuple(max(begin + length - last, 0) for begin, length in zip(start, duration, strict=True))
        return Collective(algorithm, tuple(member.rank for member in ordered), first, last, taken), ordered

    def _algorithm(self, is_message: bool, kind: int, member: CollectiveMember) -> Algorithm:
        if not (sum(map(sum, member.shares)) if member.shares else sum(member.sizes)):
            self.counts[Treatment.WITHOUT_BYTES] += kind != CollectiveType.BARRIER
            return Algorithm.BARRIER
        if is_message:
            return Algorithm.MESSAGE
        return RING.get(kind, Algorithm.BARRIER)

    def _shares(self, members: Sequence[Call], group: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Returns the bytes of an all-to-all from each member to each, without those for members not there."""
        place = {rank: position for position, rank in enumerate(group)}
        peers = [place.get(self.ranks[member.rank], 0) for member in members]
        splits = [self.splits[member.rank].get(member.row, ()) for member in members]
        self.counts[Treatment.NO_SPLITS] += any(len(split) != len(group) for split in splits)
        return tuple(
            tuple(split[peer] if len(split) == len(group) else max(member.size, 0) // len(group) for peer in peers)
            for member, split in zip(members, splits, strict=True)
        )
