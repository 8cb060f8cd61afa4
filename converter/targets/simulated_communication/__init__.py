"""What graphs need for a simulator that models communication, not for one that gives every node its measured time."""

from .excess_time import EXCESS_TIME as EXCESS_TIME, with_excess_time as with_excess_time
from .ready_messages import (
    AWAITED as AWAITED,
    READY as READY,
    in_common_order as in_common_order,
    with_ready_messages as with_ready_messages,
)
