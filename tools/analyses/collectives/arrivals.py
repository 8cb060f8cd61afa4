"""What one rank brings to each collective that it was part of: what it was, when the rank came and how much it gave."""

from typing import NamedTuple

import numpy as np

from ....converter.building import bytes_per_element
from ....converter.edit import covered_until
from ....converter.ranks import Calls, recorded_calls
from ....schema.columns import ABSENT, Int64, rows_by_number, rows_of_each
from ....schema.graph import CollectiveType, NodeType
from ....schema.linked import Communication, LinkedTrace
from ..rank import ActivityClass, RankTrace, activity_classes

ANY_DEVICE = -1
OF_ALL_MEMBERS = (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)
"""Sized by the larger buffer, which holds a part of every member."""


class Arrival(NamedTuple):
    """One rank's part in a collective; times in ns since the epoch where the trace tells it, `size` in bytes.

    `exposed` is the part of the duration in which its device computes nothing.
    """

    rank: int
    name: str
    kind: CollectiveType | None
    dtype: str
    start: int
    duration: int
    size: int
    members: int
    splits: tuple[int, ...]
    exposed: int


class RankCollectives(NamedTuple):
    """A rank's arrivals, the calls by which they are matched, one each, and how many more are of no known group or
    peer.
    """

    rank: int
    calls: Calls
    arrivals: list[Arrival]
    unplaced: int


class _Span(NamedTuple):
    recorded: Communication
    kernel: str
    start: int
    end: int
    exposed: int


def collectives_of(rank: RankTrace) -> RankCollectives:
    """Returns the rank's communications, on the device or on the host, as they started; those that nothing places are
    counted.
    """
    spans = _in_order(rank.linked)
    calls = recorded_calls([span.recorded for span in spans], [span.kernel for span in spans], rank.rank)
    placed = calls.take(np.flatnonzero(calls.is_placed))
    kinds = zip(placed.row.tolist(), placed.type.tolist(), placed.kind.tolist(), strict=True)
    base = rank.linked.info.base_time_ns
    arrivals = [
        _arrival(spans[row], rank.rank, base, node != NodeType.COMM_COLL, CollectiveType(kind) if kind >= 0 else None)
        for row, node, kind in kinds
    ]
    return RankCollectives(rank.rank, placed, arrivals, len(spans) - len(placed))


def _in_order(linked: LinkedTrace) -> list[_Span]:
    """Returns the rank's communications, on the device or on the host, as they started."""
    found: list[_Span] = []
    for table in (linked.activities, linked.ops):
        rows = np.flatnonzero((table.communication_row >= 0) & (table.start != ABSENT))
        names, spans = table.name.codes[rows], (table.start[rows], table.end[rows])
        columns = (
            table.communication_row[rows],
            names,
            *spans,
            _exposed(linked, *spans, table is linked.activities, rows),
        )
        found += [
            _Span(part, table.name.table[name], start, end, exposed)
            for row, name, start, end, exposed in zip(*(column.tolist() for column in columns), strict=True)
            for part in linked.communications[row].parts
        ]
    return sorted(found, key=lambda one: one.start)


def _exposed(linked: LinkedTrace, start: Int64, end: Int64, on_device: bool, rows: Int64) -> Int64:
    """Returns how long of each span the device of the activity at its row, or of a span on the host any device,
    computes nothing.
    """
    activities, exposed = linked.activities, end - start
    computes = activity_classes(activities) == ActivityClass.COMPUTATION
    device = activities.device[rows] if on_device else np.full(len(rows), ANY_DEVICE)
    works = np.flatnonzero(computes)
    computed = rows_by_number(works, activities.device) if on_device else {ANY_DEVICE: works}
    for number, own in rows_of_each(device).items():
        of = computed.get(number, works[:0])
        spans = activities.start[of], activities.end[of]
        exposed[own] -= covered_until(end[own], *spans) - covered_until(start[own], *spans)
    return exposed


def _arrival(span: _Span, own: int, base_time_ns: int, is_message: bool, kind: CollectiveType | None) -> Arrival:
    recorded = span.recorded
    members = 2 if is_message else len(recorded.ranks) or max(recorded.group_size, 1)
    return Arrival(
        own,
        recorded.name or span.kernel,
        kind,
        recorded.dtype,
        span.start + base_time_ns,
        span.end - span.start,
        _size(recorded, kind, members),
        members,
        tuple(recorded.in_split),
        span.exposed,
    )


def _size(recorded: Communication, kind: CollectiveType | None, members: int) -> int:
    """Returns bytes as nccl-tests count them: of the buffer that holds every member's part, else of what one member
    gives.
    """
    given, taken = max(recorded.in_elements, 0), max(recorded.out_elements, 0)
    elements = max(given, taken)
    if kind in OF_ALL_MEMBERS and min(given, taken) == 0:
        elements *= members if (kind is CollectiveType.ALL_GATHER) == (given > 0) else 1
    return elements * bytes_per_element(recorded.dtype)
