"""Ranks as text for a terminal: a line each, of thousands a line for all that are alike."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from .terminal import in_one_line

MOST_ROWS = 64
LONGEST = 32


def rank_rows(headings: Sequence[str], rows: Iterable[tuple[str, ...]], alike: Collection[str]) -> list[str]:
    """Returns a line per row, whose first cell is the rank; the last column is left-aligned, the others right-aligned.

    Of more than MOST_ROWS rows those that agree in the columns named in `alike` share a line: their ranks, and from
    where to where their other cells go.
    """
    rows = list(rows)
    if len(rows) > MOST_ROWS:
        groups: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        same = [index for index, heading in enumerate(headings) if heading in alike]
        for row in rows:
            groups[tuple(row[index] for index in same)].append(row)
        rows = [_shared(group) for group in groups.values()]
    cells = [tuple(map(in_one_line, row)) for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join([*map(str.rjust, row[:-1], widths), row[-1]]) for row in cells]


def _shared(rows: list[tuple[str, ...]]) -> tuple[str, ...]:
    names, *columns = zip(*rows, strict=True)
    numbers = sorted(int(name) for name in names if name.isdecimal())
    ranks = ranges(numbers) if len(numbers) == len(names) else f"{names[0]} …"
    if len(ranks) > LONGEST:
        ranks = f"{ranks[:LONGEST].rpartition(',')[0]}, … {len(rows)} in all"
    return (ranks, *map(_cell_range, columns))


def _cell_range(cells: tuple[str, ...]) -> str:
    if len(set(cells)) == 1:
        return cells[0]
    try:
        low, high = min(cells, key=float), max(cells, key=float)
    except ValueError:
        return f"{cells[0]} …"
    return f"{low}–{high}"


def absent_ranks(there: Iterable[int], count: int) -> dict[str, int]:
    """Returns the runs of absent ranks below `count`, and how many ranks each has; a file may claim any count.

    >>> absent_ranks([7, 1], 10**9)
    {'0': 1, '2-6': 5, '8-999999999': 999999992}
    """
    present = sorted({rank for rank in there if 0 <= rank < count})
    runs = ((last + 1, after - 1) for last, after in pairwise([-1, *present, max(count, 0)]))
    return {
        f"{first}-{last}" if last > first else str(first): last - first + 1 for first, last in runs if last >= first
    }


def absent_in_words(there: Iterable[int], count: int, most: int = 6) -> str:
    """Returns the runs of absent ranks as text, no more than `most` of them.

    >>> absent_in_words([0, 2, 4, 9], 12, most=3)
    '1, 3, 5-8, …'
    """
    runs = [*absent_ranks(there, count)]
    return ", ".join(runs[:most]) + (", …" if len(runs) > most else "")


def ranges(numbers: Sequence[int], shortest: int = 3) -> str:
    """Returns ascending numbers as text, runs of at least `shortest` as ranges.

    >>> ranges([0, 1, 2, 5, 7, 8]), ranges([0, 1, 2, 5, 7, 8], shortest=2)
    ('0-2, 5, 7, 8', '0-2, 5, 7-8')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) >= shortest else ", ".join(map(str, run)) for run in runs)
