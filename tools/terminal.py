"""Text and JSON for terminals, lines of summaries, ranks as rows; no control characters: names may be hostile."""

import logging
import os
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby, pairwise

from ..schema.io import ACTING, BOLD, NORMAL, STANDARD_STREAM, open_output

LONGEST_LINE = 1_500
"""Letters of a line. A trace may hold a name that fills screens; of it the beginning and the end are shown."""
ENDING = 200
ACTING_UTF8 = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
"""Those of `ACTING` that JSON leaves as they are."""
WIDTH = 12
MOST_ROWS = 64
OF_DEVICES = ("kernels", "", "copies", "devices", "streams", "activities", "linked", "CUDA graphs", "graph activities")
LONGEST = 32
NAMES_SHOWN = 4


def plain(text: str) -> str:
    """Returns the text with what acts on a terminal as escapes; line ends and tabs stay."""
    return ACTING.sub(lambda match: ascii(match[0])[1:-1], text)


def in_one_line(text: str) -> str:
    """Returns plain text with line ends as escapes, too: no name in it can begin a line that looks like ours."""
    return short_line(plain(text).replace("\n", "\\n"))


def short_line(line: str) -> str:
    """Returns the line without its middle, if it is longer than any that people read."""
    if len(line) <= LONGEST_LINE:
        return line
    between = f" … {len(line):,} letters in all … "
    return line[: LONGEST_LINE - ENDING - len(between)] + between + line[-ENDING:]


class PlainFormatter(logging.Formatter):
    """Notes, warnings and errors are a line each, summaries have several."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record's text as it may be printed."""
        text = super().format(record)
        if record.exc_info:
            return plain(text)
        lines = [text] if record.levelno >= logging.WARNING else text.split("\n")
        return "\n".join(map(in_one_line, lines))


def print_text(text: str, *, answer_first: bool = False) -> None:
    """Prints text for people, on a terminal the first paragraph bold if it is the answer (https://no-color.org)."""
    lines = [short_line(line) for line in plain(text).split("\n")]
    if answer_first and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        end = lines.index("") if "" in lines else len(lines)
        lines[:end] = [f"{BOLD}{line}{NORMAL}" for line in lines[:end]]
    with open_output(STANDARD_STREAM) as stream:
        stream.writelines(f"{line}\n".encode() for line in lines)


def print_json(pieces: Iterable[bytes]) -> None:
    """Prints JSON piece by piece, with control characters escaped. Raises DataError like `print_text`."""
    with open_output(STANDARD_STREAM) as stream:
        stream.writelines(map(plain_json, pieces))


def plain_json(json: bytes) -> bytes:
    """JSON in UTF-8 with escapes, as JSON has them, for what acts on a terminal."""
    return ACTING_UTF8.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), json)


def summary_line(title: str, text: str) -> str:
    """Returns a line of a summary: its title, in a column of one width, and the text."""
    return in_one_line(f"{title:<{WIDTH}}{text}")


def format_counts(title: str, counts: Mapping[str, int]) -> list[str]:
    """Returns a line for each thing that was counted."""
    return [summary_line(title, f"{count} {what}") for what, count in counts.items()]


def rank_rows(headings: Sequence[str], rows: Iterable[tuple[str, ...]], alike: Collection[str]) -> list[str]:
    """Returns a line per row, whose first cell is the rank; many rows that agree in `alike` columns share one."""
    rows = list(rows)
    if rows and all(
        cell in ("0", "") for row in rows for name, cell in zip(headings, row, strict=True) if name in OF_DEVICES
    ):
        kept = [number for number, name in enumerate(headings) if name not in OF_DEVICES]
        headings, rows = [headings[at] for at in kept], [tuple(row[at] for at in kept) for row in rows]
    if len(rows) > MOST_ROWS:
        groups: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        for row in rows:
            groups[tuple(cell for heading, cell in zip(headings, row, strict=True) if heading in alike)].append(row)
        columns = (zip(*group, strict=True) for group in groups.values())
        rows = [(_rank_names(ranks), *map(_cell_range, others)) for ranks, *others in columns]
    cells = [tuple(map(in_one_line, row)) for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join([*map(str.rjust, row[:-1], widths), row[-1]]) for row in cells]


def _rank_names(names: Sequence[str]) -> str:
    ranks = ranges(sorted(map(int, names))) if all(map(str.isdecimal, names)) else f"{names[0]} …"
    return ranks if len(ranks) <= LONGEST else f"{ranks[:LONGEST].rpartition(',')[0]}, … {len(names)} in all"


def _cell_range(cells: Sequence[str]) -> str:
    if len(set(cells)) == 1:
        return cells[0]
    try:
        return f"{min(cells, key=float)}–{max(cells, key=float)}"
    except ValueError:
        return f"{cells[0]} …"


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
    """Returns the runs of absent ranks as text, no more than `most` of them: `1, 3, 5-8, …`."""
    runs = [*absent_ranks(there, count)]
    return ", ".join(runs[:most]) + (", …" if len(runs) > most else "")


def ranges(numbers: Sequence[int], shortest: int = 3) -> str:
    """Returns ascending numbers as text, runs of at least `shortest` as ranges: `0-2, 5, 7, 8`."""
    # a number less its position is the same for all of a run
    by_run = groupby(enumerate(numbers), lambda item: item[1] - item[0])
    runs = [[number for _, number in run] for _, run in by_run]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) >= shortest else ", ".join(map(str, run)) for run in runs)


def list_names(names: Sequence[str], shown: int = NAMES_SHOWN) -> str:
    """Returns the first few names, and how many more there are."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def list_counts(lead: str, counts: Mapping[str, int]) -> str:
    """Returns `lead` and how many files of each kind there are; "" without any."""
    listing = ", ".join(f"{kind} ({count})" for kind, count in counts.items() if count)
    return lead + listing if listing else ""
