"""Makes the rows of a Kineto trace, to which formats that are no JSON are transcoded, with exact times."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from ...schema.columns import ThreadIntervals, nesting_lanes
from ...schema.errors import DataError

ROWS_AT_ONCE = 1 << 12
FIRST_DEPENDENCY = 1 << 40
"""The first id of flows between activities; those from launches have the smaller ids of their calls."""
Row = dict[str, Any]
Place = tuple[int, int]
"""The process and the thread of a row."""
encode = msgspec.json.encode


def text_of(
    head: Callable[[], Row], rows: Iterator[Row | msgspec.Raw], tail: Callable[[], Row | Exception], if_empty: str = ""
) -> Iterator[bytes]:
    """Yields the text of a trace; DataError with `if_empty` where nothing lasted, and the error that `tail` returns."""
    piece = list(islice(rows, ROWS_AT_ONCE))
    yield encode(head())[:-1] + b',"traceEvents":['
    separator, lasts = b"\n", not if_empty
    while piece:
        lasts = lasts or any(isinstance(row, dict) and "dur" in row for row in piece)
        yield separator + encode(piece)[1:-1]
        separator, piece = b",\n", list(islice(rows, ROWS_AT_ONCE))
    if not lasts:
        raise DataError(if_empty)
    last = tail()
    if isinstance(last, Exception):
        raise last
    members = encode(last)[1:]
    yield b"\n]" + b"," * (len(members) > 1) + members + b"\n"


def complete(category: str, name: str, place: Place, start: int, end: int | None, args: Row) -> Row:
    """Returns the row of what lasted from `start` to `end` (ns); without an end it has no duration."""
    row: Row = {"ph": "X", "cat": category, "name": name, "pid": place[0], "tid": place[1], "ts": microseconds(start)}
    return row | ({} if end is None else {"dur": microseconds(end - start)}) | {"args": args}


def flow(phase: str, number: int, place: Place, ns: int) -> Row:
    """Returns the start ("s") or the end ("f") of an arrow."""
    row: Row = {"ph": phase, "id": number, "pid": place[0], "tid": place[1], "ts": microseconds(ns)}
    return row | {"cat": "ac2g", "name": "ac2g", "bp": "e"}


def labels(processes: list[int]) -> Iterator[Row]:
    """Yields which process is that of the host, or of several, in ascending order, which rank each is."""
    for rank, process in enumerate(processes):
        label = f"rank {rank}" if len(processes) > 1 else "CPU"
        yield {"ph": "M", "name": "process_labels", "pid": process, "tid": 0, "args": {"labels": label}}


def microseconds(ns: int) -> msgspec.Raw:
    """Returns a time in µs, with the digits of its ns."""
    return msgspec.Raw(b"%b%d.%03d" % (b"-" * (ns < 0), *divmod(abs(ns), 1000)))


def on_lanes(ranges: list[tuple[int, int, int, str]], first: int) -> Iterator[Row]:
    """Yields ranges, by process, start, end and text, on the fewest threads on which they nest, from `first` on."""
    columns = np.array([row[:3] for row in ranges], np.int64).reshape(-1, 3).T
    for (process, start, end, text), lane in zip(
        ranges, nesting_lanes(ThreadIntervals(*columns)).tolist(), strict=True
    ):
        yield complete("user_annotation", text, (process, first + lane), start, end, {})
