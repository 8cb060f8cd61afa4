"""The network that a job's measured collectives fit: bandwidth and latency of one switch, as ASTRA-sim's analytical backend reckons.

There a ring of n ranks takes 2(n - 1) steps for an all-reduce, n - 1 for an all-gather or a reduce-scatter; an all-to-all takes one step
in which all messages go at once, or as a ring n(n - 1)/2. A step takes twice the latency, to the switch and from it, and its bytes'
time. Measured on the simulator with one collective a run (generations of 2025-08 and 2026-03, the same to 1 in 1000).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ...schema.graph import CollectiveType

GIB = 2**30
"""Bytes: what the simulator calls a GB."""
MESSAGE = -1
"""Stands for a send and its receive where a CollectiveType does for others."""


class Transfer(NamedTuple):
    """One collective or message: CollectiveType or MESSAGE, members, bytes that each puts in, ns from the last to come until the end."""

    kind: int
    members: int
    size: int
    ns: int


class Network(msgspec.Struct, frozen=True):
    """One switch: `bandwidth_gb_s` (2**30 bytes) and `latency_ns` of a link, fitted to so many `transfers`, of which half are reckoned
    less than `off_pct` wrong. `direct` is whether all-to-alls fit better as direct messages than as a ring."""

    bandwidth_gb_s: float = 100.0
    latency_ns: float = 500.0
    transfers: int = 0
    off_pct: float = 0.0
    direct: bool = True


def fitted_network(measured: Sequence[Transfer]) -> Network:
    """The network that fits best, by least squares of relative errors; the default one where nothing was measured."""
    known = [one for one in measured if one.ns > 0 and one.size > 0 and one.members > 1 and one.kind in STEPS]
    fits = [_fit(known, direct) for direct in (True, False)]
    return min(fits, key=lambda fit: fit.off_pct) if known else Network()


def _fit(measured: Sequence[Transfer], direct: bool) -> Network:
    if not measured:
        return Network()
    steps_of = STEPS | ({} if direct else {CollectiveType.ALL_TO_ALL: _ring_all_to_all})
    cost = np.array([steps_of[one.kind](one.members, one.size) for one in measured], np.float64)
    time = np.array([one.ns for one in measured], np.float64)
    per_step, per_byte = _not_negative(cost / time[:, None])
    off = np.abs(cost @ (per_step, per_byte) / time - 1)
    return Network(
        bandwidth_gb_s=round(1e9 / GIB / max(per_byte, 1e-6), 3),
        latency_ns=round(per_step / 2, 1),
        transfers=len(measured),
        off_pct=round(100 * float(np.median(off)), 1),
        direct=direct,
    )


def _not_negative(relative: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> tuple[float, float]:
    """The two factors, none below 0, that bring the rows' sums closest to 1."""
    one = np.ones(len(relative))
    both = np.linalg.lstsq(relative, one, rcond=None)[0]
    if (both >= 0).all():
        return float(both[0]), float(both[1])
    alone = (relative * one[:, None]).sum(axis=0) / np.maximum((relative**2).sum(axis=0), 1e-300)
    left = ((relative * alone - 1) ** 2).sum(axis=0)
    return (float(alone[0]), 0.0) if left[0] < left[1] else (0.0, float(alone[1]))


def _ring_all_to_all(members: int, size: int) -> tuple[float, float]:
    steps = members * (members - 1) / 2
    return steps, steps * size / members


STEPS: dict[int, Callable[[int, int], tuple[float, float]]] = {
    int(CollectiveType.ALL_REDUCE): lambda members, size: (2 * (members - 1), 2 * (members - 1) * size / members),
    int(CollectiveType.ALL_GATHER): lambda members, size: (members - 1, (members - 1) * size),
    int(CollectiveType.REDUCE_SCATTER): lambda members, size: (members - 1, (members - 1) * size / members),
    int(CollectiveType.ALL_TO_ALL): lambda members, size: (1, size / members),
    MESSAGE: lambda members, size: (1, size),
}
"""Steps and bytes one after the other, by kind, of members that each put so many bytes in."""
