"""Each collective as all ranks together saw it: how long it took, who came last, what bandwidth it reached, who did not record it.

Members meet by process group and sequence number, without numbers by order; a send meets its receive. Starts are compared on the traces'
own clocks, which agree only within one machine.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from ...converter.communication import bytes_per_element, meaning, peers
from ...schema.columns import ABSENT, Int64
from ...schema.graph import CollectiveType, NodeType
from ...schema.linked import Communication, LinkedTrace
from .rank_trace import Analysis, Options, RankTrace
from .table import Column, Floats, Table, microseconds

LONGEST_NAME = 8
"""Digits up to which a group's name is one; PyTorch 2.1 recorded an address, which differs by process."""
NO_COLLECTIVES = "no communication with a known group was recorded"

_PARTS_OF_ALL = (
    CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK,
    CollectiveType.ALL_TO_ALL, CollectiveType.GATHER, CollectiveType.SCATTER,
)  # fmt: skip
_OF_ALL_MEMBERS = (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)
"""Sized by the larger buffer, which holds a part of every member."""


class Group(NamedTuple):
    """Who communicates: the members' global ranks, or nothing but a name; `number` tells groups of the same members apart."""

    ranks: tuple[int, ...]
    name: str
    number: int


class Key(NamedTuple):
    """What one rank's communication has in common with its counterparts."""

    group: Group
    sequence: int
    repetition: int


class Arrival(NamedTuple):
    """One rank's part in a collective; times in ns since the epoch where the trace tells it, `size` in bytes."""

    rank: int
    name: str
    kind: CollectiveType | None
    dtype: str
    start: int
    duration: int
    size: int
    members: int
    splits: tuple[int, ...]


Numbers = dict[tuple[tuple[int, ...], str], int]


class RankCollectives(NamedTuple):
    rank: int
    arrivals: dict[Key, Arrival]
    unplaced: int


def _of_rank(rank: RankTrace, _: Options) -> RankCollectives:
    linked = rank.linked
    arrivals: dict[Key, Arrival] = {}
    numbers: Numbers = {}
    seen: Counter[Hashable] = Counter()
    unplaced = 0
    for recorded, kernel, start, end in _in_order(linked):
        meant = meaning(recorded, kernel)
        group = _group(recorded, meant.node if meant else None, rank.rank, numbers)
        if group is None:
            unplaced += 1
            continue
        # a send and its receive count their own numbers: they meet by order
        sequence = recorded.sequence if meant is None or meant.node is NodeType.COMM_COLL else -1
        key = Key(group, sequence, seen[group, sequence])
        seen[group, sequence] += 1
        kind = meant.type if meant else None
        members = len(group.ranks) or max(recorded.group_size, 1)
        arrivals[key] = Arrival(
            rank.rank,
            recorded.name or kernel,
            kind,
            recorded.dtype,
            start + linked.info.base_time_ns,
            end - start,
            _size(recorded, kind, members),
            members,
            tuple(recorded.in_split),
        )
    return RankCollectives(rank.rank, arrivals, unplaced)


def _in_order(linked: LinkedTrace) -> list[tuple[Communication, str, int, int]]:
    """(communication, kernel name, start, end) of the rank's communications, on the device or on the host, as they started."""
    found: list[tuple[Communication, str, int, int]] = []
    for table in (linked.activities, linked.ops):
        rows = np.flatnonzero((table.communication_row >= 0) & (table.start != ABSENT))
        columns = table.communication_row[rows], table.name.codes[rows], table.start[rows], table.end[rows]
        found += [
            (part, table.name.table[name], start, end)
            for row, name, start, end in zip(*(column.tolist() for column in columns), strict=True)
            for part in linked.communications[row].parts
        ]
    return sorted(found, key=lambda one: one[2])


def _group(recorded: Communication, node: NodeType | None, own: int, numbers: Numbers) -> Group | None:
    """The group, None where nothing tells it. Of groups with the same members and no usable name, the first used is number 0."""
    if node in (NodeType.COMM_SEND, NodeType.COMM_RECV):
        pair = peers(recorded, node, own)
        return Group(pair, "send/recv", 0) if min(pair) >= 0 else None
    if not recorded.ranks and not recorded.group:
        return None
    ranks = tuple(sorted(recorded.ranks))
    if len(recorded.group) <= LONGEST_NAME or not ranks:
        return Group(ranks, recorded.group, 0)
    unnamed = (ranks, recorded.group)
    return Group(ranks, "", numbers.setdefault(unnamed, sum(known[0] == ranks for known in numbers)))


def _size(recorded: Communication, kind: CollectiveType | None, members: int) -> int:
    """Bytes as nccl-tests count them: of the buffer that holds every member's part, else of what one member gives."""
    given, taken = max(recorded.in_elements, 0), max(recorded.out_elements, 0)
    elements = max(given, taken)
    if kind in _OF_ALL_MEMBERS and min(given, taken) == 0:
        elements *= members if (kind is CollectiveType.ALL_GATHER) == (given > 0) else 1
    return elements * bytes_per_element(recorded.dtype)


def _over_ranks(parts: Sequence[RankCollectives], _: Options) -> Table:
    meetings: dict[Key, list[Arrival]] = defaultdict(list)
    for part in parts:
        for key, arrival in part.arrivals.items():
            meetings[key].append(arrival)
    keys = sorted(meetings, key=lambda key: min(arrival.start for arrival in meetings[key]))
    unplaced = sum(part.unplaced for part in parts)
    note = NO_COLLECTIVES if not keys else ""
    if unplaced:
        note = f"{note or 'not in it'}: {unplaced} communications whose group is not known"
    present = [meetings[key] for key in keys]
    missing = _missing(keys, present, parts)
    first = [arrivals[0] for arrivals in present]
    columns = [
        Column("group", "", [group_label(key.group) for key in keys]),
        Column("sequence", "", _integers([key.sequence for key in keys])),
        Column("repetition", "", _integers([key.repetition for key in keys])),
        Column("collective", "", [arrival.name for arrival in first]),
        Column("dtype", "", [arrival.dtype for arrival in first]),
        Column("members", "", _integers([arrival.members for arrival in first])),
        Column("present", "", _integers([len(arrivals) for arrivals in present])),
        Column("missing", "", [", ".join(map(str, ranks)) for ranks in missing]),
        *_figures(present),
    ]
    return Table(NAME, "Collectives over ranks", columns, note, (_missing_by_group(keys, missing),))


def group_label(group: Group) -> str:
    """The group's name and its members, runs of ranks shortened.

    >>> group_label(Group((0, 1, 2, 3, 8), "tp", 0))
    'tp (0-3, 8)'
    """
    runs: list[list[int]] = []
    for rank in group.ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    listing = ", ".join("-".join(map(str, run)) for run in runs)
    name = group.name or (f"group {group.number}" if group.number else "")
    return f"{name} ({listing})".strip() if listing else name


def _figures(present: list[list[Arrival]]) -> list[Column]:
    """Size, times and bandwidths of each meeting. A single arrival has no skew and nobody to wait for (-1)."""
    latency = np.array([min(arrival.duration for arrival in arrivals) for arrivals in present], np.float64)
    starts = [[arrival.start for arrival in arrivals] for arrivals in present]
    skew = np.array([max(one) - min(one) if len(one) > 1 else np.nan for one in starts], np.float64)
    last = [max(arrivals, key=lambda arrival: arrival.start).rank if len(arrivals) > 1 else -1 for arrivals in present]
    size = np.array([max(arrival.size for arrival in arrivals) for arrivals in present], np.float64)
    bandwidth = np.divide(size, latency, out=np.full(len(size), np.nan), where=(latency > 0) & (size > 0))
    share = np.array([bus_share(arrivals[0].kind, arrivals[0].members) for arrivals in present], np.float64)
    return [
        Column("size", "B", size),
        microseconds("latency", latency),
        microseconds("start_skew", skew),
        Column("straggler", "", _integers(last)),
        Column("algorithm_bandwidth", "GB/s", bandwidth),
        Column("bus_bandwidth", "GB/s", bandwidth * share),
        Column("imbalance", "", _imbalance(present)),
    ]


def bus_share(kind: CollectiveType | None, members: int) -> float:
    """How much of the algorithm bandwidth each link carries, as nccl-tests count it: n members send what is not for themselves.

    >>> bus_share(CollectiveType.ALL_REDUCE, 4), bus_share(CollectiveType.ALL_GATHER, 4), bus_share(None, 4)
    (1.5, 0.75, 1.0)
    """
    others = (members - 1) / members
    return 2 * others if kind is CollectiveType.ALL_REDUCE else others if kind in _PARTS_OF_ALL else 1.0


def _imbalance(present: list[list[Arrival]]) -> Floats:
    """The largest split over the mean one, of all members; NaN where none were recorded."""
    splits = [[split for arrival in arrivals for split in arrival.splits] for arrivals in present]
    return np.array([max(one) * len(one) / sum(one) if sum(one) else np.nan for one in splits], np.float64)


def _missing(keys: list[Key], present: list[list[Arrival]], parts: Sequence[RankCollectives]) -> list[list[int]]:
    """For each meeting the ranks that were given and belong to its group but did not record it."""
    members: dict[Group, set[int]] = defaultdict(set)
    for key, arrivals in zip(keys, present, strict=True):
        members[key.group].update(key.group.ranks or (arrival.rank for arrival in arrivals))
    given = {part.rank for part in parts}
    return [
        sorted((members[key.group] & given) - {arrival.rank for arrival in arrivals})
        for key, arrivals in zip(keys, present, strict=True)
    ]


def _missing_by_group(keys: list[Key], missing: list[list[int]]) -> Table:
    lacking = Counter((key.group, rank) for key, ranks in zip(keys, missing, strict=True) for rank in ranks)
    rows = sorted(lacking.items())
    columns = [
        Column("rank", "", _integers([rank for (_, rank), _ in rows])),
        Column("group", "", [group_label(group) for (group, _), _ in rows]),
        Column("missing", "", _integers([count for _, count in rows])),
    ]
    note = "" if rows else "every rank recorded all collectives of its groups" if keys else NO_COLLECTIVES
    return Table(f"{NAME}_missing", "Collectives that a member did not record", columns, note)


def _integers(values: list[int]) -> Int64:
    return np.array(values, np.int64)


NAME = "collectives_over_ranks"
collectives_over_ranks = Analysis(NAME, _of_rank, _over_ranks)
