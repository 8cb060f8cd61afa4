"""Each collective over all its ranks: latency, skew, straggler, bandwidth, waits, exposed time, and what is missing.

Members of a collective without a root all end at the same time, so that each waits for the last one by the difference
of their durations. Starts are compared on the traces' own clocks, which agree only within one machine.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...converter.ranks import Calls, Group, awaits_all, issued_at, match, ranks_of, ranks_text, recorded_calls
from ...schema.columns import ABSENT, Bool, Floats, Groups, Int64, Intervals, Rows, group_sums, groupby
from ...schema.dtypes import bytes_per_element
from ...schema.graph import CollectiveType
from ...schema.linked import Communication, step_starts
from ..recognise import MOST_APART_NS
from ..terminal import ranges
from .rank import ActivityClass, Analysis, AnalysisOptions, RankTrace
from .table import Columns, Quantity, Table, ints, pct, ratio, tabulate, us

Objects = npt.NDArray[np.object_]
NAME = "collectives_over_ranks"
NO_COLLECTIVES = "no communication with a known group was recorded"
ONE_RANK = "of one rank alone: latencies include its waiting for the others, bandwidths are at least these"
NOBODY = "no collective was recorded by several of its members"
NO_SPLITS = "no all-to-all was recorded with what goes to each member"
ALL_RECORDED = "every rank recorded all collectives of its groups"
OF_ALL_MEMBERS = (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)
"""Collectives whose size is that of the larger buffer, which holds a part of every member."""
PARTS_OF_ALL = (*OF_ALL_MEMBERS, CollectiveType.ALL_TO_ALL, CollectiveType.GATHER, CollectiveType.SCATTER)
"""Collectives of which each member keeps its own part, without sending it."""


@dataclass(frozen=True, slots=True)
class Arrivals(Calls):
    """Calls in order of issue, in ns since the epoch if it was recorded; `bytes` are as nccl-tests count them.

    `exposed` is the part of the duration in which the rank's device computes nothing, -1 without kernels.
    """

    exposed: Int64
    members: Int64
    bytes: Int64
    name: Objects
    dtype: Objects
    splits: Objects

    @property
    def duration(self) -> Int64:
        """How long each took, in ns."""
        return self.end_ns - self.start_ns


class Collectives(NamedTuple):
    """The arrivals of all ranks, grouped by collective, in the order of their first arrivals.

    `last` is the row of the last arrival at each, `ends_together` whether a collective ends only after all arrived.
    """

    arrivals: Arrivals
    groups: Groups
    process_group: list[Group]
    labels: list[str]
    last: Rows
    ends_together: Bool


Part = tuple[int, int, Arrivals]
"""A rank, how many of its communications have no known group or peer, and the others."""


def arrivals_of(rank: RankTrace, _: AnalysisOptions) -> Part:
    """Returns the rank's communications; one on the host is exposed while no device computes."""
    linked, spans = rank.linked, list[tuple[int, int, int, int, str, Communication]]()
    computes = rank.classes == ActivityClass.COMPUTATION
    for table in (linked.activities, linked.ops):
        rows = np.flatnonzero((table.communication_row >= 0) & (table.start != ABSENT))
        times = Intervals(table.start[rows], table.end[rows])
        device = linked.activities.device[rows] if table is linked.activities else None
        hidden = rank.covered_time(computes, times, device)
        exposed = times.end - times.start - hidden if computes.any() else np.full(len(rows), -1)
        issued = times.start if table is linked.activities else issued_at(times.start, linked.ops.rf_id[rows])
        columns = issued, times.start, times.end, exposed, table.communication_row[rows]
        spans += [
            (*span, name, part)
            for name, *span, row in zip(table.name[rows], *(column.tolist() for column in columns), strict=True)
            for part in linked.communications[row].parts
        ]
    spans.sort(key=lambda span: span[0])
    calls = recorded_calls([span[-1] for span in spans], [span[-2] for span in spans], rank.rank)
    calls = calls.take(calls.is_placed)
    placed = [spans[row] for row in calls.row.tolist()]
    start, end, exposed = np.array([span[1:4] for span in placed], np.int64).reshape(-1, 3).T
    calls = replace(calls, start_ns=start + linked.info.base_time_ns, end_ns=end + linked.info.base_time_ns)
    steps = tuple(sorted(step_starts(linked.ops.name, linked.ops.start)))
    recorded = [span[-1] for span in placed]
    members = np.where(calls.is_message, 2, ints(len(each.ranks) or each.group_size or -1 for each in recorded))
    kinds = zip(recorded, calls.kind.tolist(), members.tolist(), strict=True)
    arrivals = Arrivals(
        calls.groups, **calls.columns, exposed=exposed, members=members,
        bytes=ints(_size(each, kind, count) for each, kind, count in kinds),
        name=_objects(each.name or kernel for *_, kernel, each in placed),
        dtype=_objects(each.dtype for each in recorded), splits=_objects(each.in_split for each in recorded),
        steps=steps,
    )  # fmt: skip
    return rank.rank, len(spans) - len(calls), arrivals


def _objects(values: Iterable[Any]) -> Objects:
    return np.fromiter(values, np.object_)


def _size(recorded: Communication, kind: int, members: int) -> int:
    """Returns the bytes as nccl-tests count them: of the buffer with every member's part, else of a member's input."""
    inputs, outputs = max(recorded.in_elements, 0), max(recorded.out_elements, 0)
    elements = max(inputs, outputs)
    if kind in OF_ALL_MEMBERS and min(inputs, outputs) == 0:
        elements *= max(members, 0) if (kind == CollectiveType.ALL_GATHER) == (inputs > 0) else 1
    return elements * _element_bytes(recorded.dtype)


def _element_bytes(dtype: str) -> int:
    """Returns the size of a dtype, 0 of one that is not known; where none is recorded, elements are bytes."""
    return bytes_per_element(dtype, 0 if dtype else 1)


def match_collectives(ranks: Sequence[int], of_ranks: Sequence[Arrivals]) -> Collectives:
    """Returns the collectives of these ranks, by whose numbers the arrivals are known from here on."""
    arrivals = match(of_ranks)
    arrivals = replace(arrivals, rank=np.array(ranks, np.int64)[arrivals.rank])
    groups, start = groupby(arrivals.matched), arrivals.start_ns
    groups = groups.in_order(np.lexsort((groups.first, groups.smallest(start))))
    ends_together = groups.smallest(awaits_all(arrivals.kind).astype(np.int64)) > 0
    # durations decide first, as the clocks of two machines may differ by more than their ranks' arrivals
    by_duration = ends_together[groups.number]
    least = np.where(by_duration, arrivals.duration, -start)
    order = np.lexsort((np.where(by_duration, -start, 0), least, groups.number))
    last = order[np.searchsorted(groups.number[order], np.arange(len(groups)))]
    process_groups = [
        call.group or Group(ranks_text((call.source, call.target)), "send/recv")
        for call in arrivals.take(groups.first).rows()
    ]
    label_of = {each: group_label(each) for each in set(process_groups)}
    labels = [label_of[each] for each in process_groups]
    return Collectives(arrivals, groups, process_groups, labels, last, ends_together)


def group_label(group: Group) -> str:
    """Returns the group's name and its members: `tp (0-3, 8)`."""
    ranks = ranges(ranks_of(group.ranks), shortest=2)
    return f"{group.name} ({ranks})".strip() if ranks else group.name


def _over_ranks(parts: Sequence[Part], _: AnalysisOptions) -> Table:
    """Returns a row for each collective, and the tables of details; a single arrival has no skew, and straggler -1."""
    ranks, unmatched, of_ranks = zip(*parts, strict=True)
    collectives = match_collectives(ranks, of_ranks)
    groups, arrivals = collectives.groups, collectives.arrivals
    first, present, missing = groups.first, groups.count(), _missing(collectives, set(ranks))
    note = NO_COLLECTIVES if not len(groups) else ""
    if sum(unmatched):
        note = f"{note or 'not in it'}: {sum(unmatched)} communications whose group is not known"
    shared, latency, size = present > 1, groups.smallest(arrivals.duration), groups.largest(arrivals.bytes)
    start_apart = groups.largest(arrivals.start_ns) - groups.smallest(arrivals.start_ns)
    end_apart = groups.largest(arrivals.end_ns) - groups.smallest(arrivals.end_ns)
    apart = float(np.median(end_apart[shared])) if shared.any() else 0.0
    if shared.any() and apart > np.median(latency[shared]):
        clocks = "the ranks' clocks disagree, do not trust skews and stragglers"
        note = f"{note}{note and '; '}members end {apart / 1000:,.0f} µs apart (median): {clocks}"
    note = "; ".join(filter(None, [note, *arrivals.decisions]))
    no_size = np.array([_element_bytes(dtype) == 0 for dtype in arrivals.dtype[first].tolist()], np.bool_)
    if no_size.any():
        dtypes = ", ".join(sorted(set(arrivals.dtype[first[no_size]].tolist())))
        note = f"{note}{note and '; '}{no_size.sum()} of unknown dtype ({dtypes}), so their bytes are not known"
    # of each collective the ratio of the largest split of any member to the mean one
    splits = [[*chain.from_iterable(arrivals.splits[rows])] for rows in groups.rows()]
    imbalance = [max(each) * len(each) / sum(each) if sum(each) else np.nan for each in splits]
    bandwidth = ratio(size, latency, where=(latency > 0) & (size > 0))
    members = arrivals.members[first]
    bus_bandwidth = bandwidth * bus_share(arrivals.kind[first], members)
    columns: Columns = {
        "group": collectives.labels, "sequence": arrivals.sequence[first], "repetition": arrivals.occurrence[first],
        "collective": arrivals.name[first].tolist(), "dtype": arrivals.dtype[first].tolist(),
        "members": members, "present": present,
        "missing": [", ".join(map(str, lacking)) for lacking in missing],
        "size": Quantity("B", np.where(no_size | ((members < 0) & (size == 0)), np.nan, size)), "latency": us(latency),
        "start_skew": us(np.where(shared & (end_apart <= MOST_APART_NS), start_apart, np.nan)),
        "straggler": np.where(shared, arrivals.rank[collectives.last], -1),
        "algorithm_bandwidth": Quantity("GB/s", bandwidth), "bus_bandwidth": Quantity("GB/s", bus_bandwidth),
        "imbalance": np.array(imbalance, np.float64),
    }  # fmt: skip
    table = tabulate(NAME, "Collectives over ranks", columns, note)
    by_size, by_group = _by_size(table, len(parts)), _by_group(collectives, note)
    last = _all_to_all(collectives), _missing_by_group(collectives, missing)
    return replace(table, details=(by_size, by_group, *_waits(collectives, note), *last))


collectives_over_ranks = Analysis(NAME, arrivals_of, _over_ranks)


def bus_share(kind: npt.ArrayLike, members: npt.ArrayLike) -> Floats:
    """Returns the bus bandwidth as a multiple of the algorithm bandwidth, as nccl-tests define it.

    >>> bus_share([CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, -1], [4, 4, 4]).tolist()
    [1.5, 0.75, 1.0]
    """
    members = np.where(np.asarray(members) > 0, members, np.nan)
    others, kind = (members - 1) / members, np.asarray(kind)
    return np.where(kind == CollectiveType.ALL_REDUCE, 2 * others, np.where(np.isin(kind, PARTS_OF_ALL), others, 1.0))


def _by_size(table: Table, ranks: int) -> Table:
    """Returns the bandwidth of each collective by group and size, and the best bandwidth of any size."""
    names = "group", "collective", "size", "latency", "bus_bandwidth"
    group, collective, size, latency, bus = (np.array(table[name]) for name in names)
    codes = _codes(group), _codes(collective)
    kind, sizes = groupby(*codes), groupby(*codes, np.nan_to_num(size, nan=-1))
    best = np.full(len(kind), np.nan)
    np.fmax.at(best, kind.number, bus)
    best = best[kind.number[sizes.first]]
    known = [[column[rows][~np.isnan(column[rows])] for rows in sizes.rows()] for column in (latency, bus)]
    medians = [[np.median(each) if len(each) else np.nan for each in of_sizes] for of_sizes in known]
    typical_latency, typical = np.array(medians, np.float64)
    columns: Columns = {
        "group": group[sizes.first].tolist(), "collective": collective[sizes.first].tolist(),
        "size": Quantity("B", size[sizes.first]), "count": sizes.count(), "latency": Quantity("µs", typical_latency),
        "bus_bandwidth": Quantity("GB/s", typical), "best_bandwidth": Quantity("GB/s", best),
        "of_best": pct(typical, best),
    }  # fmt: skip
    note, title = ONE_RANK if ranks == 1 else "", "Bandwidth of collectives by size"
    return tabulate(f"{NAME}_by_size", title, columns, note, empty=NO_COLLECTIVES)


def _codes(column: Sequence[str] | npt.NDArray[np.str_]) -> Int64:
    """Returns a number for each text, ascending with the texts."""
    return np.unique(np.array(column, np.str_), return_inverse=True)[1].reshape(-1).astype(np.int64)


def _by_group(collectives: Collectives, note: str) -> Table:
    """Returns the communication time of each rank and group, and the part of it without computation beside it."""
    labels = collectives.labels
    groups = groupby(collectives.arrivals.rank, _codes(labels)[collectives.groups.number])
    time, exposed = groups.sum(collectives.arrivals.duration), groups.sum(collectives.arrivals.exposed) * 1.0
    exposed[exposed < 0] = np.nan
    columns: Columns = {
        "rank": collectives.arrivals.rank[groups.first],
        "group": [labels[number] for number in collectives.groups.number[groups.first].tolist()],
        "collectives": groups.count(), "time": us(time), "exposed": us(exposed), "exposed_pct": pct(exposed, time),
    }  # fmt: skip
    return tabulate(f"{NAME}_by_group", "Exposed communication by group", columns, empty=note)


def _waits(collectives: Collectives, note: str) -> tuple[Table, Table]:
    """Returns how long each rank waited and was waited for, and how long one rank of each pair waited for the other."""
    number, arrivals = collectives.groups.number, collectives.arrivals
    last = collectives.last[number]
    early = np.flatnonzero(collectives.ends_together[number] & (arrivals.rank != arrivals.rank[last]))
    rank, last_rank = arrivals.rank[early], arrivals.rank[last[early]]
    time = (arrivals.duration - arrivals.duration[last])[early]
    pairs = groupby(rank, last_rank)
    pairs = pairs.largest_first(pairs.sum(time))
    columns: Columns = {
        "rank": rank[pairs.first], "waits_for": last_rank[pairs.first], "collectives": pairs.count(),
        "time": us(pairs.sum(time)),
    }  # fmt: skip
    by_pair = tabulate(f"{NAME}_waits", "Who waits for whom", columns, note, empty=note or NOBODY)
    came_last = last_rank[groupby(number[early]).first]
    ranks, row = np.unique(np.concatenate((rank, last_rank)), return_inverse=True)
    waiting, awaited = np.split(row, 2)
    last_count = np.bincount(np.searchsorted(ranks, came_last), minlength=len(ranks))
    shared = np.bincount(waiting, minlength=len(ranks)) + last_count
    columns = {
        "rank": ranks, "collectives": shared, "last": last_count, "last_pct": pct(last_count, shared),
        "waited": us(group_sums(waiting, time, len(ranks))), "awaited": us(group_sums(awaited, time, len(ranks))),
    }  # fmt: skip
    title = "Waiting in collectives by rank"
    return tabulate(f"{NAME}_waits_by_rank", title, columns, note, empty=note or NOBODY), by_pair


def _all_to_all(collectives: Collectives) -> Table:
    """Returns the bytes that each rank sends to each other in all-to-alls with recorded splits, summed by group."""
    sent, labels, number = Counter[tuple[str, int, int]](), collectives.labels, collectives.groups.number
    for row in np.flatnonzero(collectives.arrivals.kind == CollectiveType.ALL_TO_ALL).tolist():
        splits, group = collectives.arrivals.splits[row], collectives.process_group[number[row]]
        ranks, size = ranks_of(group.ranks), int(collectives.arrivals.bytes[row])
        if len(splits) == len(ranks):
            for target, split in zip(ranks, splits, strict=True):
                key = labels[number[row]], int(collectives.arrivals.rank[row]), target
                sent[key] += size * split // max(sum(splits), 1)
    keys = sorted(sent)
    columns: Columns = {
        "group": [group for group, _, _ in keys], "source": ints(source for _, source, _ in keys),
        "destination": ints(target for _, _, target in keys),
        "size": Quantity("B", np.array([sent[key] for key in keys], np.float64)),
    }  # fmt: skip
    title = "What goes from rank to rank in all-to-alls"
    return tabulate(f"{NAME}_all_to_all", title, columns, empty=NO_SPLITS)


def _missing(collectives: Collectives, ranks_read: set[int]) -> list[list[int]]:
    """Returns for each collective the given ranks that belong to its group but did not record it."""
    present = [set(collectives.arrivals.rank[rows].tolist()) for rows in collectives.groups.rows()]
    pairs, members = [*zip(collectives.process_group, present, strict=True)], defaultdict[Group, set[int]](set)
    for group, ranks in pairs:
        members[group].update(ranks_of(group.ranks) or ranks)
    return [sorted((members[group] & ranks_read) - ranks) for group, ranks in pairs]


def _missing_by_group(collectives: Collectives, missing: list[list[int]]) -> Table:
    pairs = zip(collectives.process_group, missing, strict=True)
    lacking = Counter((group, rank) for group, ranks in pairs for rank in ranks)
    rows = sorted(lacking.items(), key=lambda item: (ranks_of(item[0][0].ranks), *item[0]))
    columns: Columns = {
        "rank": ints(rank for (_, rank), _ in rows),
        "group": [group_label(group) for (group, _), _ in rows],
        "missing": ints(count for _, count in rows),
    }
    empty = ALL_RECORDED if len(collectives.groups) else NO_COLLECTIVES
    return tabulate(f"{NAME}_missing", "Collectives that a member did not record", columns, empty=empty)
