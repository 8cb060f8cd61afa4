"""Fits a network to a job's measured collectives: bandwidth and latency of a switch in ASTRA-sim's analytical model.

In that model a ring of n ranks takes 2(n - 1) steps for an all-reduce, n - 1 for an all-gather or a reduce-scatter; an
all-to-all takes one step in which all messages go at once, or n(n - 1)/2 steps as a ring. A step takes twice the
latency, to the switch and from it, plus the time of its bytes. Measured on the simulator with one collective per run
(generations of 2025-08 and 2026-03, equal to 1 in 1000).
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from ...schema.columns import Int64, group_ids, split_groups
from ...schema.graph import CollectiveType
from .transfer_cost import MESSAGE, RING, Cost, CostOf, Factors, Transfer, fitted_factors

GIB = 2**30
"""Bytes of a GB in the simulator."""
LEAST_SIZES = 3
"""Sizes without which a fit is not judged: without one of them, two still tell latency from bandwidth."""
PARTS = 10
"""Into how many parts the sizes are divided, of which one at a time is left out; fewer sizes are left out singly."""


class Network(msgspec.Struct, frozen=True):
    """A switch: `bandwidth_gb_s` (2**30 bytes) and `latency_ns` of a link, fitted to so many `transfers`.

    `sizes` counts the transfers that differ in type, members or bytes. `fit_error_pct` is the median error in % of
    transfers of sizes that the fit was made without, None with too few sizes to leave any out. `repeat_error_pct` is
    how far transfers of one size are from their median, in the median, None if each size was measured once: no network
    describes them better. `direct` is whether all-to-alls fit better as direct messages than as a ring.
    """

    bandwidth_gb_s: float = 100.0
    latency_ns: float = 500.0
    transfers: int = 0
    sizes: int = 0
    fit_error_pct: float | None = None
    repeat_error_pct: float | None = None
    direct: bool = True


def fitted_network(measured: Sequence[Transfer]) -> Network:
    """Returns the network with the least squares of relative errors; the default network if nothing was measured."""
    usable = [
        transfer
        for transfer in measured
        if transfer.ns > 0 and transfer.size > 0 and transfer.members > 1 and transfer.kind in STEPS
    ]
    if not usable:
        return Network()
    ring_too = any(transfer.kind == CollectiveType.ALL_TO_ALL for transfer in usable)
    costs = {direct: _relative_costs(usable, direct) for direct in ((True, False) if ring_too else (True,))}
    direct = min(costs, key=lambda direct: float(np.median(_errors(costs[direct], costs[direct]))))
    size = group_ids(*np.array([transfer[:3] for transfer in usable], np.int64).T)
    sizes, per = int(size.max()) + 1, fitted_factors(costs[direct])
    return Network(
        bandwidth_gb_s=round(1e9 / GIB / max(per[1], 1e-6), 3),
        latency_ns=round(per[0] / 2, 1),
        transfers=len(usable),
        sizes=sizes,
        fit_error_pct=_percent(_held_out_errors(costs[direct], size)),
        repeat_error_pct=_percent(_repeat_errors(np.array([transfer.ns for transfer in usable], np.float64), size)),
        direct=direct,
    )


def _relative_costs(transfers: Sequence[Transfer], direct: bool) -> Factors:
    """Returns a row of steps and bytes for each transfer, divided by its measured time."""
    cost = [step_cost(transfer.kind, transfer.members, transfer.size, direct) for transfer in transfers]
    return np.asarray(np.array(cost, np.float64) / np.array([[transfer.ns] for transfer in transfers], np.float64))


def _errors(fitted: Factors, judged: Factors) -> Factors:
    """Returns how far off, relatively, the network that fits some transfers is for others."""
    return np.asarray(np.abs(judged @ fitted_factors(fitted) - 1))


def _held_out_errors(relative: Factors, size: Int64) -> list[Factors]:
    """Returns the errors of each part of the sizes in the network that fits the other parts; none for few sizes."""
    sizes = int(size.max()) + 1
    parts = [size % PARTS == part for part in range(min(PARTS, sizes))] if sizes >= LEAST_SIZES else []
    return [_errors(relative[~part], relative[part]) for part in parts]


def _repeat_errors(time: Factors, size: Int64) -> list[Factors]:
    """Returns how far, relatively, each time is from the median of its size, of sizes measured more than once."""
    order = np.argsort(size, kind="stable")
    times = [time[rows] for rows in split_groups(order, size) if len(rows) > 1]
    return [np.abs(same / np.median(same) - 1) for same in times]


def _percent(errors: list[Factors]) -> float | None:
    return round(100 * float(np.median(np.concatenate(errors))), 1) if errors else None


def step_cost(kind: int, members: int, size: int, direct: bool = True) -> Cost:
    """Returns the steps of a collective or message in the simulator; all-to-alls go `direct` or in a ring.

    >>> step_cost(CollectiveType.ALL_GATHER, 4, 1000)
    Cost(steps=3, bytes=3000)
    """
    of_kind = STEPS[kind] if direct or kind != CollectiveType.ALL_TO_ALL else _ring_all_to_all
    return of_kind(members, size)


def _ring_all_to_all(members: int, size: int) -> Cost:
    steps = members * (members - 1) / 2
    return Cost(steps, steps * size / members)


IN_RINGS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
STEPS: dict[int, CostOf] = {
    **{int(kind): RING[kind] for kind in IN_RINGS},
    int(CollectiveType.ALL_TO_ALL): lambda members, size: Cost(1, size / members),
    MESSAGE: lambda members, size: Cost(1, size),
}
