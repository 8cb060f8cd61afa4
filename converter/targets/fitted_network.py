"""Fits a network to a job's measured collectives: bandwidth and latency of a switch in ASTRA-sim's analytical model.

In that model a ring of n ranks takes 2(n - 1) steps for an all-reduce, n - 1 for an all-gather or a reduce-scatter; an
all-to-all takes one step in which all messages go at once, or n(n - 1)/2 steps as a ring. A step takes twice the
latency, to the switch and from it, plus the time of its bytes. Measured on the simulator with one collective per run
(generations of 2025-08 and 2026-03, equal to 1 in 1000).
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from ...schema.graph import CollectiveType
from .transfer_cost import MESSAGE, RING, Cost, CostOf, Transfer, fitted_factors

GIB = 2**30
"""Bytes of a GB in the simulator."""


class Network(msgspec.Struct, frozen=True):
    """A switch: `bandwidth_gb_s` (2**30 bytes) and `latency_ns` of a link, fitted to so many `transfers`.

    `fit_error_pct` is the median error of the fit in %. `direct` is whether all-to-alls fit better as direct messages
    than as a ring.
    """

    bandwidth_gb_s: float = 100.0
    latency_ns: float = 500.0
    transfers: int = 0
    fit_error_pct: float = 0.0
    direct: bool = True


def fitted_network(measured: Sequence[Transfer]) -> Network:
    """Returns the network with the least squares of relative errors; the default network if nothing was measured."""
    usable = [
        transfer
        for transfer in measured
        if transfer.ns > 0 and transfer.size > 0 and transfer.members > 1 and transfer.kind in STEPS
    ]
    fits = [_fit(usable, direct) for direct in (True, False)]
    return min(fits, key=lambda fit: fit.fit_error_pct) if usable else Network()


def _fit(measured: Sequence[Transfer], direct: bool) -> Network:
    if not measured:
        return Network()
    steps_of = STEPS | ({} if direct else {CollectiveType.ALL_TO_ALL: _ring_all_to_all})
    cost = np.array([steps_of[transfer.kind](transfer.members, transfer.size) for transfer in measured], np.float64)
    time = np.array([transfer.ns for transfer in measured], np.float64)
    per_step, per_byte = fitted_factors(cost / time[:, None])
    off = np.abs(cost @ (per_step, per_byte) / time - 1)
    return Network(
        bandwidth_gb_s=round(1e9 / GIB / max(per_byte, 1e-6), 3),
        latency_ns=round(per_step / 2, 1),
        transfers=len(measured),
        fit_error_pct=round(100 * float(np.median(off)), 1),
        direct=direct,
    )


def _ring_all_to_all(members: int, size: int) -> Cost:
    steps = members * (members - 1) / 2
    return Cost(steps, steps * size / members)


IN_RINGS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
STEPS: dict[int, CostOf] = {
    **{int(kind): RING[kind] for kind in IN_RINGS},
    int(CollectiveType.ALL_TO_ALL): lambda members, size: Cost(1, size / members),
    MESSAGE: lambda members, size: Cost(1, size),
}
