"""How many steps and bytes a collective or message costs in ASTRA-sim's analytical network.

A ring of n ranks takes 2(n - 1) steps for an all-reduce, n - 1 for an all-gather or a reduce-scatter; an all-to-all
takes one step in which all messages go at once, or n(n - 1)/2 steps as a ring. A step takes twice the latency, to the
switch and from it, plus the time of its bytes. A send that waits for its receiver takes a step for the ready message
and one for its bytes. Measured on the simulator with one collective per run (generations of 2025-08 and 2026-03, equal
to 1 in 1000).
"""

from ...schema.graph import CollectiveType
from .transfer_cost import AWAITED_MESSAGE, MESSAGE, RING, Cost, CostOf

IN_RINGS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
STEPS: dict[int, CostOf] = {
    **{int(kind): RING[kind] for kind in IN_RINGS},
    int(CollectiveType.ALL_TO_ALL): lambda members, size: Cost(1, size / members),
    MESSAGE: lambda members, size: Cost(1, size),
    AWAITED_MESSAGE: lambda members, size: Cost(2, size),
}


def step_cost(kind: int, members: int, size: int, direct: bool) -> Cost:
    """Returns the steps of a collective or message in the simulator; all-to-alls go `direct` or in a ring.

    >>> step_cost(CollectiveType.ALL_GATHER, 4, 1000, direct=True)
    Cost(steps=3, bytes=3000)
    """
    of_kind = STEPS[kind] if direct or kind != CollectiveType.ALL_TO_ALL else _ring_all_to_all
    return of_kind(members, size)


def _ring_all_to_all(members: int, size: int) -> Cost:
    steps = members * (members - 1) / 2
    return Cost(steps, steps * size / members)
