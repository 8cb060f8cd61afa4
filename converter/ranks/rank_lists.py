"""Lists of ranks as short text, so that a summary of thousands of ranks stays small; real groups are regular."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

RUN = re.compile(r"(-?\d+)(?:-(-?\d+)(?::(-?\d+))?)?")
_GIVEN_RUN = r"[0-9]{1,9}(?:-[0-9]{1,9}(?::-?[1-9][0-9]{0,8})?)?"
LIST = re.compile(rf"{_GIVEN_RUN}(?:,{_GIVEN_RUN})*")
"""A list of ranks from 0 on."""


def ranks_text(ranks: Sequence[int]) -> str:
    """Returns the ranks in their order as text, with runs of equal steps as first-last:step.

    >>> ranks_text([0, 1, 2, 3, 8]), ranks_text(range(0, 64, 8)), ranks_text([5, 4, 9])
    ('0-3,8', '0-56:8', '5,4,9')
    """
    return ",".join(_runs(ranks))


def given_ranks(text: str, limit: int) -> tuple[int, ...] | None:
    """Returns the ranks of a text from elsewhere; None if it is no list, or one of more than `limit` ranks.

    >>> given_ranks("0-3,8", 9), given_ranks("0-99999999999", 9), given_ranks("all", 9)
    ((0, 1, 2, 3, 8), None, None)
    """
    if not LIST.fullmatch(text):
        return None
    runs = ((int(run[1]), int(run[2] or run[1]), int(run[3] or 1)) for run in RUN.finditer(text))
    return ranks_of(text) if sum((last - first) // step + 1 for first, last, step in runs) <= limit else None


@cache
def ranks_of(text: str) -> tuple[int, ...]:
    """Returns the ranks of a text.

    >>> ranks_of("0-3,8"), ranks_of("9-3:-3")
    ((0, 1, 2, 3, 8), (9, 6, 3))
    """
    ranks: list[int] = []
    for run in RUN.finditer(text):
        first, last, step = int(run[1]), int(run[2] or run[1]), int(run[3] or 1)
        ranks += range(first, last + (1 if step > 0 else -1), step)
    return tuple(ranks)


@cache
def positions_in(text: str) -> dict[int, int]:
    """The position of each rank in the list that a text stands for; of a rank that is there twice the last.

    >>> positions_in("4-6:2,5")
    {4: 0, 6: 1, 5: 2}
    """
    return {rank: position for position, rank in enumerate(ranks_of(text))}


def _runs(ranks: Sequence[int]) -> Iterator[str]:
    start = 0
    while start < len(ranks):
        first, end = ranks[start], start + 1
        step = ranks[end] - first if end < len(ranks) else 0
        while step and end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if end - start < 3:
            end = start + 1
        last = ranks[end - 1]
        yield str(first) if last == first else f"{first}-{last}" + (f":{step}" if step != 1 else "")
        start = end
