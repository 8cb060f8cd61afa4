"""Messages whose send waited for the receiver, and how a rank's graph keeps that.

NCCL's send ends when its receiver has taken the data, so it waits for a receiver that comes late. A simulator that
sends at once needs another message before: the receiver tells the sender that it is ready.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...schema.graph import NodeType
from .communication_summary import CommunicationEntry

READY_TAGS = 1 << 30
"""The tags of ready messages begin here, above those of recorded ones."""

Issued = Sequence[Sequence[CommunicationEntry]]


class SimulatedOrder(NamedTuple):
    """What a rank's graph keeps of the common order, by node id: the position of each communication, of a receive that
    of its send; and the tag of the ready message of each send that waits and of its receive. `awaited` are the numbers
    of the matches of these.
    """

    positions: dict[int, int]
    ready: dict[int, int]
    awaited: frozenset[int]


class _Send(NamedTuple):
    position: int
    end_ns: int


def simulated_orders(issued: Issued, positions: Sequence[Sequence[int]]) -> list[SimulatedOrder]:
    """Returns what each rank keeps, from the matched entries of all ranks on one clock and their common positions.

    A send waited for its receiver if it ended after the receiver's kernel had begun. It gets a ready message if all
    that the receiver's kernel depends on comes before the send in the common order: then no rank waits in a circle.
    """
    sends, ready = dict[int, _Send](), dict[int, int]()
    for entries, of_rank in zip(issued, positions, strict=True):
        ends = dict[int, int]()
        for entry in entries:
            ends[entry.kernel] = max(ends.get(entry.kernel, 0), entry.end_ns)
        for entry, position in zip(entries, of_rank, strict=True):
            if entry.type is NodeType.COMM_SEND:
                sends[entry.matched] = _Send(position, ends[entry.kernel])
    for entries, of_rank in zip(issued, positions, strict=True):
        firsts = dict[int, CommunicationEntry]()
        for entry in entries:
            first, send = firsts.setdefault(entry.kernel, entry), sends.get(entry.matched)
            is_met = send is not None and entry.type is NodeType.COMM_RECV and send.end_ns > first.start_ns
            if send and is_met and all(of_rank[before] < send.position for before in first.follows):
                ready[entry.matched] = READY_TAGS + entry.matched
    return [
        SimulatedOrder(
            {
                entry.node: sends[entry.matched].position if entry.matched in sends else position
                for entry, position in zip(entries, of_rank, strict=True)
            },
            {entry.node: ready[entry.matched] for entry in entries if entry.matched in ready},
            frozenset(entry.matched for entry in entries if entry.matched in ready),
        )
        for entries, of_rank in zip(issued, positions, strict=True)
    ]
