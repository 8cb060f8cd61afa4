"""Makes the rows of a Kineto trace, to which formats that are no JSON are transcoded, with exact times."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from ...schema.errors import DataError

ROWS_AT_ONCE = 1 << 12
MEMORY_KINDS = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
"""By CUPTI's number."""
Row = dict[str, Any]
Place = tuple[int, int]
"""The process and the thread of a row."""
encode = msgspec.json.encode


def text_of(
    head: Row, rows: Iterable[Row | msgspec.Raw], tail: Callable[[], Row], if_empty: str = ""
) -> Iterator[bytes]:
    """Yields the text of a trace: members of its top level, rows, and members that are known only behind these.

    Raises DataError that says `if_empty`, unless that is empty, where nothing lasted.
    """
    yield encode(head)[:-1] + b',"traceEvents":['
    separator, lasts, remaining = b"\n", not if_empty, iter(rows)
    while piece := list(islice(remaining, ROWS_AT_ONCE)):
        lasts = lasts or any(isinstance(row, dict) and "dur" in row for row in piece)
        yield separator + encode(piece)[1:-1]
        separator = b",\n"
    if not lasts:
        raise DataError(if_empty)
    members = encode(tail())[1:]
    yield b"\n]" + b"," * (len(members) > 1) + members + b"\n"


def complete(category: str, name: str, place: Place, start: int, end: int | None, args: Row) -> Row:
    """Returns the row of what lasted from `start` to `end` (ns); without an end it has no duration."""
    row: Row = {"ph": "X", "cat": category, "name": name, "pid": place[0], "tid": place[1], "ts": microseconds(start)}
    return row | ({} if end is None else {"dur": microseconds(end - start)}) | {"args": args}


def flow(phase: str, number: int, place: Place, ns: int) -> Row:
    """Returns the start ("s") or the end ("f") of an arrow."""
    row: Row = {"ph": phase, "id": number, "pid": place[0], "tid": place[1], "ts": microseconds(ns)}
    return row | {"cat": "ac2g", "name": "ac2g", "bp": "e"}


def labels(processes: list[int], are_ranks: bool) -> Iterator[Row]:
    """Yields which processes are those of the host, or which rank each is, in ascending order."""
    for rank, process in enumerate(processes):
        label = f"rank {rank}" if are_ranks else "CPU"
        yield {"ph": "M", "name": "process_labels", "pid": process, "tid": 0, "args": {"labels": label}}


def microseconds(ns: int) -> msgspec.Raw:
    """Returns a time in µs, with the digits of its ns."""
    return msgspec.Raw(b"%b%d.%03d" % (b"-" * (ns < 0), *divmod(abs(ns), 1000)))
