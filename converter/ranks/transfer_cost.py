"""The cost of a collective or message: steps with a latency each, and bytes on a link; and its fit to measured times.

Rings of n ranks take 2(n - 1) steps for an all-reduce, n - 1 for collectives that gather, scatter or have a root. The
bytes are nccl-tests' share of the size: (n - 1)/n for gathering or scattering, twice that for an all-reduce, all bytes
for collectives with a root.
"""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.graph import CollectiveType

MESSAGE = -1
"""The kind of a send and its receive, next to the CollectiveTypes."""
AWAITED_MESSAGE = -2
"""The kind of a send that waits until its receiver says that it is ready."""
ROUNDING = 1e-9
"""A difference of errors that means nothing."""
DIGITS = 9
"""So many digits of a factor are the same on every processor; the last ones are not."""
Factors = npt.NDArray[np.float64]


class Transfer(NamedTuple):
    """A collective or message: CollectiveType or a kind of message, members, bytes that each puts in, ns from the last
    arrival to the end; and the ranks of its members, as the simulator numbers them, if they are known.
    """

    kind: int
    members: int
    size: int
    ns: int
    ranks: tuple[int, ...] = ()


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


def fitted_factors(relative: Factors) -> tuple[float, ...]:
    """Returns the factors, one for each column and none below 0, for which the weighted sums of the rows are closest
    to 1.

    The columns are steps and bytes, of one network or of several, each divided by the measured time. O(2**columns).
    """
    ones, columns = np.ones(len(relative)), range(relative.shape[1])
    best, least = np.zeros(len(columns)), float("inf")
    for count in reversed(columns):
        for used in combinations(reversed(columns), count + 1):
            factors = np.zeros(len(columns))
            factors[list(used)] = np.linalg.lstsq(relative[:, used], ones, rcond=None)[0]
            error = float(((relative @ factors - 1) ** 2).sum())
            # of factors that are as good the most are kept, so that rounding decides nothing
            if (factors >= 0).all() and error < least - ROUNDING:
                best, least = factors, error
    return tuple(float(f"{factor:.{DIGITS}g}") for factor in best)
