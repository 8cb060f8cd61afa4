"""What a wait may be for, and how likely the order of the calls makes it."""

from enum import IntEnum
from typing import NamedTuple

from ...schema.reasons import Reason


class OrderBasis(IntEnum):
    """What in the order of the calls makes a candidate likely, the best reason first."""

    RIGHT_BEFORE_IN_COLLECTIVE = 0
    KIND_OF_SAME_EVENT = 1
    SAME_EVENT = 2
    RIGHT_BEFORE = 3
    UNUSED = 4
    UNUSED_AND_MARKED = 5
    STREAM_IN_USE = 6
    NONE = 7


class OrderRank(NamedTuple):
    """How likely the order of the calls makes a candidate: the smaller, the likelier.

    Candidates with the same basis compare by `position` among the event records, counted from the front or the back.
    """

    basis: OrderBasis
    position: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the order of the calls says anything; else only times can tell."""
        return self.basis is not OrderBasis.NONE


UNRANKED = OrderRank(OrderBasis.NONE)


class Option(NamedTuple):
    """The `back`-th last event record of a kind before a wait (kind -1: the wait call itself).

    `rank` says how likely it is by the order of the calls, `streams` which streams it may be on, the likeliest first,
    and `reason` is what it is counted as.
    """

    kind: int
    back: int
    rank: OrderRank
    streams: tuple[int, ...]
    reason: Reason
