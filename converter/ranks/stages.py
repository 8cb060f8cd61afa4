"""The stages of a collective of all ranks in a network of several dimensions, as the simulator runs them.

A reduce-scatter goes through the dimensions in order, an all-gather in the opposite order. An all-reduce scatters the
sum in each dimension but the last, reduces the shards in that one, and gathers on the way back. An all-to-all moves all
bytes once in each dimension.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...schema.graph import CollectiveType

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = (
    int(kind) for kind in (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
)


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
        size = (
            size * ranks[dimension]
            if kind == ALL_GATHER
            else size // ranks[dimension]
            if kind == REDUCE_SCATTER
            else size
        )
