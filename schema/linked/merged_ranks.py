"""What a merged device trace says of each rank in it: how to get that rank's own trace back."""

from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
LARGEST_ID = 1 << 53
"""What readers that hold numbers as doubles can tell apart; larger ids are no profiler's and stay as they are."""


class MergedRank(msgspec.Struct):
    """One rank of the list `mergedRanks` at the top level of a merged trace.

    Its rows are those of the processes in `processes`, which maps them to the processes (or devices) that the rank's
    own trace has, as `threads` maps threads that it does not have. Its times there are `time_shift_ns` smaller, its
    correlation and flow ids (from 1 to LARGEST_ID there) `id_offset` smaller. `metadata` is the rest of that trace's
    top level.
    """

    rank: Int64
    file: str = ""
    time_shift_ns: Int64 = 0
    id_offset: Int64 = 0
    processes: dict[Int64, Int64] = {}
    threads: dict[Int64, Int64] = {}
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
