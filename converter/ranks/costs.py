"""What a collective or message costs: steps with a latency each, and bytes on a link; and its fit to measured times.

Rings of n ranks take 2(n - 1) steps for an all-reduce, n - 1 for collectives that gather, scatter or have a root. The
bytes are nccl-tests' share of the size: (n - 1)/n for gathering or scattering, twice that for an all-reduce, all bytes
for collectives with a root. ASTRA-sim's analytical network does the same for what it runs in rings (`step_cost`);
measured on the simulator with one collective per run (generations of 2025-08 and 2026-03, equal to 1 in 1000).
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
IN_RINGS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = map(int, IN_RINGS)


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


RING: dict[int, CostOf] = {
    int(CollectiveType.ALL_REDUCE): lambda members, size: Cost(2 * (members - 1), 2 * (members - 1) * size / members),
    int(CollectiveType.BARRIER): lambda members, size: Cost(2 * (members - 1), 0),
    **dict.fromkeys(
        map(int, (CollectiveType.ALL_GATHER, CollectiveType.GATHER)),
        lambda members, size: Cost(members - 1, (members - 1) * size),
    ),
    **dict.fromkeys(
        map(int, (CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK, CollectiveType.SCATTER)),
        lambda members, size: Cost(members - 1, (members - 1) * size / members),
    ),
    **dict.fromkeys(
        map(int, (CollectiveType.BROADCAST, CollectiveType.REDUCE)), lambda members, size: Cost(members - 1, size)
    ),
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


STEPS: dict[int, CostOf] = {
    **{kind: RING[kind] for kind in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)},
    int(CollectiveType.ALL_TO_ALL): lambda members, size: Cost(1, size / members),
    MESSAGE: lambda members, size: Cost(1, size),
    AWAITED_MESSAGE: lambda members, size: Cost(2, size),
}


def step_cost(kind: int, members: int, size: int, direct: bool) -> Cost:
    """Returns the steps of a collective or message in the simulator; all-to-alls go `direct` or in a ring.

    >>> step_cost(CollectiveType.ALL_GATHER, 4, 1000, direct=True)
    Cost(steps=3, bytes=3000)
    """
    if direct or kind != CollectiveType.ALL_TO_ALL:
        return STEPS[kind](members, size)
    steps = members * (members - 1) / 2
    return Cost(steps, steps * size / members)


class Stage(NamedTuple):
    """A collective of type `kind` among the ranks of each line in a dimension, into which each puts `size` bytes."""

    dimension: int
    kind: int
    size: int


def stages(kind: int, ranks: Sequence[int], size: int) -> Iterator[Stage]:
    """Yields the stages, one after the other, of a collective in dimensions of so many ranks.

    >>> [*stages(CollectiveType.ALL_REDUCE, (2, 4), 800)]
    [Stage(dimension=0, kind=7, size=800), Stage(dimension=1, kind=0, size=400), Stage(dimension=0, kind=2, size=400)]
    """
    used = [dimension for dimension, count in enumerate(ranks) if count > 1]
    if kind == ALL_REDUCE:
        *scattered, last = used
        for dimension in scattered:
            yield Stage(dimension, REDUCE_SCATTER, size)
            size //= ranks[dimension]
        yield Stage(last, ALL_REDUCE, size)
        for dimension in reversed(scattered):
            yield Stage(dimension, ALL_GATHER, size)
            size *= ranks[dimension]
        return
    for dimension in reversed(used) if kind == ALL_GATHER else used:
        yield Stage(dimension, kind, size)
        if kind == ALL_GATHER:
            size *= ranks[dimension]
        elif kind == REDUCE_SCATTER:
            size //= ranks[dimension]


def carried_excess(surplus: Iterable[tuple[Hashable, float]]) -> list[int]:
    """Returns by how many ns each of several transfers, one after the other, took longer than a network gives it.

    `surplus` says who took part and by how much the transfer took longer. What the network gives one too much is taken
    off the next ones of the same members, so that all of them together take the measured time.

    >>> carried_excess([("all", -300), ("all", 200), ("some", 5), ("all", 150)])
    [0, 0, 5, 50]
    """
    balance_ns, excess = defaultdict[Hashable, float](float), list[int]()
    for members, ns in surplus:
        balance_ns[members] += ns
        excess.append(round(balance_ns.pop(members)) if balance_ns[members] > 0 else 0)
    return excess
