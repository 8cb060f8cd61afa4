"""A first look at every rank's device trace: its clock and its processes, before anything is written."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...linker.communication import MANY_MEMBERS
from ...linker.readers import DeviceTrace, read_device_trace
from ...schema.errors import DataError
from ...schema.linked import FOREVER
from ...schema.progress import Progress
from ..input_ranks import RankFile
from .merge_clocks import Ends, clock_corrections, collective_ends, shared_ends

NS_PER_YEAR = 31_556_952 * 10**9


class RankClock(NamedTuple):
    """The epoch of a rank's times (ns), and what to add to them on the common clock: whole µs, at least 0."""

    base_time_ns: int
    shift_ns: int
    correction_ns: int


class Survey(NamedTuple):
    """The epoch of the common clock, each rank's clock and host processes, and notes on them."""

    base_time_ns: int
    clocks: dict[int, RankClock]
    hosts: dict[int, frozenset[int]]
    notes: list[str]


def survey(ranks: Sequence[RankFile], progress: Progress) -> Survey:
    """Reads each trace once and keeps a few numbers of each collective.

    Raises DataError for a trace that cannot be read, or whose clock is too far from the others' for 64 bits.
    """
    bases: dict[int, int] = {}
    hosts: dict[int, frozenset[int]] = {}
    ends: dict[int, Ends] = {}
    notes: list[str] = []
    for rank, path in progress(ranks, "comparing clocks", unit="rank"):
        trace = read_device_trace(str(path))
        bases[rank], hosts[rank], ends[rank] = trace.base_time_ns, _hosts(trace), collective_ends(trace)
        if unlisted := ends[rank].unlisted:
            notes.append(f"{path}: {unlisted} {MANY_MEMBERS}")
    first, corrections = min(bases.values()), clock_corrections(shared_ends(ends))
    clocks = {
        rank: RankClock(base, round((base - first + corrections[rank]) / 1000) * 1000, corrections[rank])
        for rank, base in bases.items()
    }
    for rank, path in ranks:
        if abs(shift := clocks[rank].shift_ns) >= FOREVER:
            raise DataError(
                f"{path}: its clock is {abs(shift) / NS_PER_YEAR:.0f} years from that of other ranks; leave it out"
            )
    return Survey(first, clocks, hosts, notes)


def _hosts(trace: DeviceTrace) -> frozenset[int]:
    """Returns the processes of host rows; some profilers show calls on devices too."""
    devices = np.setdiff1d(trace.activities.device, trace.ops.process)
    return frozenset(trace.processes) - frozenset(devices.tolist())
