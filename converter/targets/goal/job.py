"""The job: which calls of all ranks are one message or collective, who takes part, and how it is done."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....schema.columns import Int64
from ....schema.errors import DataError
from ....schema.graph import CollectiveType, NodeType
from ...ranks import Attendance, Matching, awaits_all, begin_of_ranks, match, positions_in, ranks_of
from .algorithms import CollectiveMember
from .goal_options import GoalOptions
from .rank_communication import RankCommunication

MESSAGE = "message"
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
    CollectiveType.ALL_TO_ALL: "all-to-all pairwise",
}
DOUBLING = {
    CollectiveType.ALL_REDUCE: "all-reduce by recursive doubling",
    CollectiveType.ALL_GATHER: "all-gather by recursive doubling",
}

ALONE = "collectives that no other rank recorded, as calc of the measured time"
UNANSWERED = "messages of which the other end is not there, as calc of the measured time"
MEASURED = "collectives and messages that meet, then take their measured time"
PARTIAL = "collectives without some members of their group, of those that are there"
WITHOUT_BYTES = "communications without a recorded size, as barriers"
NO_SPLITS = "all-to-alls without recorded splits, taken as even"
NOT_DOUBLED = "all-reduces and all-gathers of members that are no power of two, by ring"


class Meeting(NamedTuple):
    """A collective or message. `members` are ranks by their places in the job; `part` is that of the first member, from
    which the others differ in their place. Each member takes `lasts_ns` from when all have come, as measured.
    """

    algorithm: str
    members: tuple[int, ...]
    part: CollectiveMember
    lasts_ns: tuple[int, ...]

    def part_of(self, rank: int) -> CollectiveMember:
        """Returns the part of the rank at this place of the job."""
        return self.part._replace(place=self.members.index(rank))


class Attended(NamedTuple):
    """The row of a rank's graph that takes part in the meeting of this number."""

    row: int
    meeting: int


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """The ranks of the job as recorded, by place; when each began and had ended, in ns on one clock; what they meet in,
    and which meetings each attends, in one order for all.
    """

    ranks: tuple[int, ...]
    begin_ns: Int64
    end_ns: Int64
    meetings: list[Meeting]
    attended: list[list[Attended]]
    counts: Counter[str]


class _Member(NamedTuple):
    rank: int
    call: int


def job_of(ranks: Sequence[RankCommunication], options: GoalOptions) -> RecordedJob:
    """Matches the calls of all ranks and says how each match is done. O(n log n) in the calls, and members squared of
    all-to-alls.

    Raises DataError for a rank that is there twice.
    """
    numbers = tuple(own.rank for own in ranks)
    if len(set(numbers)) < len(numbers):
        raise DataError(f"several graphs are of one rank, among {', '.join(map(str, numbers))}; give each rank once")
    matching, counts = match([own.calls for own in ranks]), Counter[str]()
    together = _together(matching)
    begin = begin_of_ranks(len(ranks), _attendance(ranks, together))
    meetings: list[Meeting] = []
    attended: list[list[Attended]] = [[] for _ in ranks]
    for members in together:
        meeting, order = _meeting(ranks, begin, matching, members, options, counts)
        for member in order:
            attended[member.rank].append(Attended(int(ranks[member.rank].calls.row[member.call]), len(meetings)))
        meetings.append(meeting)
    _count_alone(ranks, together, counts)
    ends = begin + np.array([own.last_end_ns for own in ranks], np.int64)
    return RecordedJob(numbers, begin, ends, meetings, attended, +counts)


def _together(matching: Matching) -> list[list[_Member]]:
    """Returns the matches of several ranks, each with its members by rank."""
    rank = np.repeat(np.arange(len(matching.matched)), [len(own) for own in matching.matched])
    call = np.concatenate([np.empty(0, np.int64), *(np.arange(len(own)) for own in matching.matched)])
    matched = np.concatenate([np.empty(0, np.int64), *matching.matched])
    order = np.argsort(matched, kind="stable")
    bounds = np.flatnonzero(np.diff(matched[order], prepend=-1, append=-1)) if len(order) else np.empty(0, np.int64)
    found = [
        [_Member(*pair) for pair in zip(rank[rows].tolist(), call[rows].tolist(), strict=True)]
        for rows in np.split(order, bounds[1:-1])
        if len(rows)
    ]
    return [members for members in found if len({member.rank for member in members}) > 1]


def _attendance(ranks: Sequence[RankCommunication], together: Sequence[Sequence[_Member]]) -> Attendance:
    rows = [
        (
            member.rank,
            number,
            int(own.start_ns[member.call]),
            int(own.start_ns[member.call] + own.duration_ns[member.call]),
            int(own.calls.type[member.call] != NodeType.COMM_COLL),
            int(own.calls.kind[member.call]),
        )
        for number, members in enumerate(together)
        for member in members
        for own in (ranks[member.rank],)
    ]
    rank, matched, start, end, message, kind = np.array(rows, np.int64).reshape(-1, 6).T
    return Attendance(rank, matched, start, end, message > 0, (message == 0) & awaits_all(kind))


def _meeting(
    ranks: Sequence[RankCommunication],
    begin: Int64,
    matching: Matching,
    members: Sequence[_Member],
    options: GoalOptions,
    counts: Counter[str],
) -> tuple[Meeting, list[_Member]]:
    """Returns how a match is done, and its members in the order of their places in it."""
    first, own = members[0], ranks[members[0].rank].calls
    kind: int | None = None
    group: tuple[int, ...] = ()
    if own.type[first.call] != NodeType.COMM_COLL:
        order = sorted(members, key=lambda one: ranks[one.rank].calls.type[one.call])  # sends come before receives
    else:
        known = matching.groups[matching.group[first.rank][first.call]].ranks
        group = ranks_of(known) if known else tuple(own.rank for own in ranks)
        place = positions_in(known) if known else {number: at for at, number in enumerate(group)}
        order = sorted(members, key=lambda one: place.get(ranks[one.rank].rank, len(place)))
        kind = int(own.kind[first.call])
        counts[PARTIAL] += len(order) < len(group)
    sizes = tuple(max(int(ranks[one.rank].calls.size[one.call]), 0) for one in order)
    if kind is None:
        sizes = (sizes[0] or sizes[1],) * len(sizes)
    roots = [int(ranks[one.rank].root[one.call]) for one in order]
    recorded = [ranks[one.rank].rank for one in order]
    root = next((recorded.index(rank) for rank in roots if rank in recorded), 0)
    shares = _shares(ranks, order, group, counts) if kind == CollectiveType.ALL_TO_ALL else ()
    part = CollectiveMember(0, len(order), sizes, shares, root, options.chunk_bytes)
    algorithm = BARRIER if options.measured_communication else _algorithm(kind, part, options, counts)
    counts[MEASURED if options.measured_communication else algorithm] += 1
    return Meeting(algorithm, tuple(one.rank for one in order), part, _lasts(ranks, begin, order)), order


def _algorithm(kind: int | None, part: CollectiveMember, options: GoalOptions, counts: Counter[str]) -> str:
    moved = sum(map(sum, part.shares)) if part.shares else sum(part.sizes)
    if not moved:
        counts[WITHOUT_BYTES] += kind != CollectiveType.BARRIER
        return BARRIER
    if kind is None:
        return MESSAGE
    if options.algorithm == "recursive-doubling" and kind in DOUBLING:
        if part.members & (part.members - 1) == 0:
            return DOUBLING[CollectiveType(kind)]
        counts[NOT_DOUBLED] += 1
    return next((name for known, name in RING.items() if known == kind), BARRIER)


def _shares(
    ranks: Sequence[RankCommunication], order: Sequence[_Member], group: Sequence[int], counts: Counter[str]
) -> tuple[tuple[int, ...], ...]:
    """Returns the bytes of an all-to-all from each member to each: of what was recorded for the whole group what those
    that are there exchange.
    """
    place = {rank: at for at, rank in enumerate(group)}
    peers = [place.get(ranks[one.rank].rank, 0) for one in order]
    found, even = list[tuple[int, ...]](), False
    for one in order:
        own = ranks[one.rank]
        split, size = own.splits[one.call], max(int(own.calls.size[one.call]), 0)
        even |= len(split) != len(group)
        found.append(tuple(split[at] if len(split) == len(group) else size // len(group) for at in peers))
    counts[NO_SPLITS] += even
    return tuple(found)


def _lasts(ranks: Sequence[RankCommunication], begin: Int64, order: Sequence[_Member]) -> tuple[int, ...]:
    """Returns from the last arrival on: the shortest member's time, as the others had waited; host threads end each for
    itself.
    """
    duration = [int(ranks[one.rank].duration_ns[one.call]) for one in order]
    if not all(ranks[one.rank].on_host[one.call] for one in order):
        return (min(duration),) * len(order)
    start = [int(begin[one.rank] + ranks[one.rank].start_ns[one.call]) for one in order]
    return tuple(max(at + lasted - max(start), 0) for at, lasted in zip(start, duration, strict=True))


def _count_alone(
    ranks: Sequence[RankCommunication], together: Sequence[Sequence[_Member]], counts: Counter[str]
) -> None:
    """Adds how many calls have nobody to meet."""
    met = Counter((member.rank, member.call) for members in together for member in members)
    for rank, own in enumerate(ranks):
        for call, kind in enumerate(own.calls.type.tolist()):
            counts[ALONE if kind == NodeType.COMM_COLL else UNANSWERED] += (rank, call) not in met
