"""One rank's part in each of its collectives: what it was, when the rank arrived, and how many bytes it sent."""

from typing import NamedTuple

import numpy as np

from ...converter.communication import bytes_per_element
from ...converter.ranks import Calls, recorded_calls
from ...schema.columns import ABSENT, Intervals
from ...schema.graph import CollectiveType, NodeType
from ...schema.linked import Communication, LinkedTrace
from .classes import ActivityClass, activity_classes, covered_time
from .rank_trace import RankTrace

OF_ALL_MEMBERS = (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)
"""Collectives whose size is that of the larger buffer, which holds a part of every member."""


class Arrival(NamedTuple):
    """One rank's part in a collective. `size` is in bytes, times are in ns, `start` since the epoch if it was recorded.

    `exposed` is the part of the duration in which the rank's device computes nothing.
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
    """A rank's arrivals, the call of each, by which they are matched over ranks, and the number of communications
    whose group or peer is unknown.
    """

    rank: int
    calls: Calls
    arrivals: list[Arrival]
    unmatched: int


class _Span(NamedTuple):
    recorded: Communication
    kernel: str
    start: int
    end: int
    exposed: int


def collectives_of(rank: RankTrace) -> RankCollectives:
    """Returns the rank's communications, on the device or on the host, in order of their starts."""
    spans = _spans(rank.linked)
    calls = recorded_calls([span.recorded for span in spans], [span.kernel for span in spans], rank.rank)
    calls = calls.take(np.flatnonzero(calls.is_placed))
    kinds = zip(calls.row.tolist(), calls.type.tolist(), calls.kind.tolist(), strict=True)
    arrivals = [
        _arrival(rank, spans[row], node != NodeType.COMM_COLL, CollectiveType(kind) if kind >= 0 else None)
        for row, node, kind in kinds
    ]
    return RankCollectives(rank.rank, calls, arrivals, len(spans) - len(calls))


def _spans(linked: LinkedTrace) -> list[_Span]:
    """Returns the rank's communications, on the device or on the host, in order of their starts.

    Communication on the host is exposed while no device computes.
    """
    spans: list[_Span] = []
    computes = activity_classes(linked.activities) == ActivityClass.COMPUTATION
    for table in (linked.activities, linked.ops):
        rows = np.flatnonzero((table.communication_row >= 0) & (table.start != ABSENT))
        times = Intervals(table.start[rows], table.end[rows])
        device = linked.activities.device[rows] if table is linked.activities else None
        exposed = times.end - times.start - covered_time(linked.activities, computes, times, device)
        columns = (table.communication_row[rows], table.name.codes[rows], *times, exposed)
        spans += [
            _Span(part, table.name.table[name], start, end, exposed_ns)
            for row, name, start, end, exposed_ns in zip(*(column.tolist() for column in columns), strict=True)
            for part in linked.communications[row].parts
        ]
    return sorted(spans, key=lambda span: span.start)


def _arrival(rank: RankTrace, span: _Span, is_message: bool, kind: CollectiveType | None) -> Arrival:
    recorded = span.recorded
    members = 2 if is_message else len(recorded.ranks) or max(recorded.group_size, 1)
    return Arrival(
        rank.rank,
        recorded.name or span.kernel,
        kind,
        recorded.dtype,
        span.start + rank.linked.info.base_time_ns,
        span.end - span.start,
        _size(recorded, kind, members),
        members,
        tuple(recorded.in_split),
        span.exposed,
    )


def _size(recorded: Communication, kind: CollectiveType | None, members: int) -> int:
    """Returns the bytes as nccl-tests count them: of the buffer with every member's part, else of a member's input."""
    inputs, outputs = max(recorded.in_elements, 0), max(recorded.out_elements, 0)
    elements = max(inputs, outputs)
    if kind in OF_ALL_MEMBERS and min(inputs, outputs) == 0:
        elements *= members if (kind is CollectiveType.ALL_GATHER) == (inputs > 0) else 1
    return elements * bytes_per_element(recorded.dtype)
