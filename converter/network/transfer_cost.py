"""The cost of a collective or message: steps with a latency each, and bytes on a link; and its fit to measured times.

Rings of n ranks take 2(n - 1) steps for an all-reduce, n - 1 for collectives that gather, scatter or have a root. The
bytes are nccl-tests' share of the size: (n - 1)/n for gathering or scattering, twice that for an all-reduce, all bytes
for collectives with a root.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.graph import CollectiveType

MESSAGE = -1
"""The kind of a send and its receive, next to the CollectiveTypes."""
Factors = npt.NDArray[np.float64]


class Transfer(NamedTuple):
    """A collective or message: CollectiveType or MESSAGE, members, bytes that each puts in, ns from the last arrival to
    the end.
    """

    kind: int
    members: int
    size: int
    ns: int


class Cost(NamedTuple):
    """A number of steps, and of bytes on a link, one after the other."""

    steps: float
    bytes: float


CostOf = Callable[[int, int], Cost]
"""The cost for so many members that each put in so many bytes."""


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
    """Returns the two factors, none below 0, for which the weighted sums of the rows are closest to 1.

    The columns are steps and bytes, each divided by the measured time.
    """
    ones = np.ones(len(relative))
    both = np.linalg.lstsq(relative, ones, rcond=None)[0]
    if (both >= 0).all():
        return float(both[0]), float(both[1])
    single = (relative * ones[:, None]).sum(axis=0) / np.maximum((relative**2).sum(axis=0), 1e-300)
    error = ((relative * single - 1) ** 2).sum(axis=0)
    return (float(single[0]), 0.0) if error[0] < error[1] else (0.0, float(single[1]))
