"""What a collective or message costs: steps that each have a latency, and bytes on a link; and the factors that
measured ones fit.

Rings: n ranks take 2(n - 1) steps for an all-reduce, n - 1 for what gathers, scatters or goes out from one; the bytes
are nccl-tests' share of the size, (n - 1)/n of what is gathered or scattered, twice that of what is all-reduced, all of
what goes out from one.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.graph import CollectiveType

MESSAGE = -1
"""Stands for a send and its receive where a CollectiveType does for others."""
Factors = npt.NDArray[np.float64]


class Transfer(NamedTuple):
    """One collective or message: CollectiveType or MESSAGE, members, bytes that each puts in, ns from the last to come
    until the end.
    """

    kind: int
    members: int
    size: int
    ns: int


class Cost(NamedTuple):
    """Steps and bytes that come one after the other."""

    steps: float
    bytes: float


CostOf = Callable[[int, int], Cost]
"""Of so many members that each put so many bytes in."""


def _of_shards(members: int, size: int) -> Cost:
    return Cost(members - 1, (members - 1) * size)


def _of_parts(members: int, size: int) -> Cost:
    return Cost(members - 1, (members - 1) * size / members)


def _of_one(members: int, size: int) -> Cost:
    return Cost(members - 1, size)


RING: dict[int, CostOf] = {
    int(CollectiveType.ALL_REDUCE): lambda members, size: Cost(2 * (members - 1), 2 * (members - 1) * size / members),
    int(CollectiveType.BARRIER): lambda members, size: Cost(2 * (members - 1), 0),
    int(CollectiveType.ALL_GATHER): _of_shards,
    int(CollectiveType.GATHER): _of_shards,
    int(CollectiveType.REDUCE_SCATTER): _of_parts,
    int(CollectiveType.REDUCE_SCATTER_BLOCK): _of_parts,
    int(CollectiveType.SCATTER): _of_parts,
    int(CollectiveType.BROADCAST): _of_one,
    int(CollectiveType.REDUCE): _of_one,
}


def fitted_factors(relative: Factors) -> tuple[float, float]:
    """Returns the two factors, none below 0, that bring the sums of the rows (steps and bytes, each over the measured
    time) closest to 1.
    """
    ones = np.ones(len(relative))
    both = np.linalg.lstsq(relative, ones, rcond=None)[0]
    if (both >= 0).all():
        return float(both[0]), float(both[1])
    single = (relative * ones[:, None]).sum(axis=0) / np.maximum((relative**2).sum(axis=0), 1e-300)
    error = ((relative * single - 1) ** 2).sum(axis=0)
    return (float(single[0]), 0.0) if error[0] < error[1] else (0.0, float(single[1]))
