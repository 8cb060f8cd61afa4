"""What a device trace for viewing, merged of several ranks, says about each: how to get that rank's own trace back."""

import msgspec


class MergedRank(msgspec.Struct):
    """One rank of the list `mergedRanks` at the top level of a merged trace.

    Its rows are those of the processes in `processes`, which maps them to the processes (or devices) that the rank's own trace has. Its
    times there are `time_shift_ns` smaller, its correlation and flow ids (those above 0) `id_offset` smaller. `metadata` is the rest of
    that trace's top level.
    """

    rank: int
    file: str = ""
    time_shift_ns: int = 0
    id_offset: int = 0
    processes: dict[int, int] = {}
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
