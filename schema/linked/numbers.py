"""Reads numbers, times, lists and records that a trace may give as numbers, as texts of any size, or not at all.

Times are exact int64 ns: a double holds a µs time stamp to the ns only up to 2**43 (about 100 days), so that a
fraction on a larger one, as traces of early 2024 have it, must be read as decimal text.
"""

import ast
import re
import warnings
import zlib
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..columns import ABSENT, Floats, Int64, isin
from ..errors import Remedy, RequestError
from ..machine import AGREEING

LARGEST = 1 << 63
NUMBER = re.compile(r"0x[0-9a-f]{1,16}(?![0-9a-f])|-?\d{1,19}(?!\d)", re.IGNORECASE)
LONGEST = 1 << 26
LONGEST_PYTHON = 1 << 21
"""Characters. Python's parser, which reads what is no JSON, takes some 200 bytes for each."""
SHORTENED = "..."
"""Stands in lists that the profiler cut."""
FAILURES = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, msgspec.DecodeError)
NEVER, FOREVER = -(1 << 62), 1 << 62
"""Before and after all times that a trace may hold; their difference is still an int64."""
LONGEST_RECORDING = 1 << 55
"""ns, about a year: what is said to have lasted longer, or to be further from other rows, was not measured."""
EXACT_MICROSECONDS = float(1 << 43)
LARGEST_MICROSECONDS = float(FOREVER // 1000)
DECIMAL_TEXT = re.compile(rb"\s*(-?)(\d{1,15}\d?)(?:\.(\d{1,3}))?\s*")
DOUBLE_FRACTIONS = (0, 200, 250, 500, 750, 800)
"""What a double can hold beside a µs time since 1970, in ns; it is written with no more digits than it needs."""
Stamp = int | float | str | Decimal | None


def integer(value: Any, missing: int) -> int:
    """Returns a number that may be text, as an int; `missing` for what is no number or too large for 64 bits.

    >>> integer("stream 7", -1), integer("0x1f", -1), integer(None, -1), integer(7.0, -1), integer([7], -1)
    (7, 31, -1, 7, -1)
    """
    if isinstance(value, str):
        match = NUMBER.search(value)
        value = int(match.group(), 16 if match.group()[:2].lower() == "0x" else 10) if match else None
    if not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        return missing
    return int(value)


def json_value(text: bytes | msgspec.Raw) -> Any:
    """Returns what a JSON text stands for; None for what cannot be held: lists too deep, and numbers too large."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def identity(value: Any) -> int:
    """Returns the number of a process or thread; a name in its place becomes a negative number of its own."""
    if isinstance(value, str) and not re.fullmatch(r"\s*-?\d+\s*", value):
        return -2 - zlib.crc32(value.encode())
    return integer(value, -1)


def integers(values: Sequence[Any], missing: int) -> Int64:
    """Returns a column of `integer(value, missing)`."""
    for present in (values, [missing if value is None else value for value in values]):
        if (column := _whole_numbers(present)) is not None:
            return column
    return np.fromiter((integer(value, missing) for value in values), np.int64, len(values))


def identities(values: Sequence[Any]) -> Int64:
    """Returns a column of `identity(value)`."""
    column = _whole_numbers(values)
    return np.fromiter(map(identity, values), np.int64, len(values)) if column is None else column


def _whole_numbers(values: Sequence[Any]) -> Int64 | None:
    """Returns a column of numbers that are integers of 64 bits, None if others are among them."""
    try:
        return np.asarray(array("q", values))
    except (TypeError, OverflowError):
        return None


def literal(text: str) -> Any:
    """Returns the value of a text in JSON or, as PyTorch 2.1 writes, Python's notation; None if it is neither."""
    if len(text) > LONGEST:
        return None
    with suppress(*FAILURES):
        return msgspec.json.decode(text)
    with suppress(*FAILURES), warnings.catch_warnings():
        # the parser warns of what is odd in a program
        warnings.simplefilter("ignore")
        return ast.literal_eval(text) if len(text) <= LONGEST_PYTHON else None
    return None


def integer_list(value: Any) -> list[int] | None:
    """Returns a list of integers that may be given as text, or as the keys of an object; None for what is no such list.

    Empty where none is given, and where the profiler shortened it (Kineto keeps 30).
    """
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [] if SHORTENED in value else _numbers(literal(value))
    return _numbers(value)


def _numbers(value: Any) -> list[int] | None:
    if isinstance(value, dict):
        return sorted(integer(key, -1) for key in value)
    is_list = isinstance(value, list | tuple) and all(isinstance(number, int | float) for number in value)
    return [integer(number, -1) for number in value] if is_list else None


class InexactTime(ValueError):
    """A µs stamp too large for a double, which may have lost its ns: the text must be decoded again with `Decimal`."""


class ExactTimes(NamedTuple):
    """Times in ns, ABSENT where there is none, and how many digits each had after the point."""

    ns: Int64
    digits: Int64


def nanoseconds(stamps: Sequence[Stamp]) -> Int64:
    """Returns stamps in µs as int64 ns, rounded, ABSENT for none. Raises InexactTime when a double has lost ns."""
    if None in stamps:
        times = np.full(len(stamps), ABSENT, np.int64)
        rows = [row for row, stamp in enumerate(stamps) if stamp is not None]
        times[rows] = nanoseconds([stamps[row] for row in rows])
        return times
    try:
        column = np.array(stamps)
    except (OverflowError, ValueError):
        column = np.array(stamps, object)
    if column.dtype.kind in "iu" and (not len(column) or np.abs(column).max() < LARGEST_MICROSECONDS):
        return np.asarray(column, np.int64) * 1000
    if column.dtype.kind == "f" and np.isfinite(column).all():
        size = np.abs(column)
        if ((size >= EXACT_MICROSECONDS) & (size < LARGEST_MICROSECONDS)).any():
            raise InexactTime
        if (size < EXACT_MICROSECONDS).all():
            whole = np.floor(column)
            return np.asarray(whole, np.int64) * 1000 + np.asarray(np.rint((column - whole) * 1000), np.int64)
    return np.fromiter((_nanoseconds(stamp) for stamp in stamps), np.int64, len(stamps))


def _nanoseconds(stamp: Stamp) -> int:
    if isinstance(stamp, float) and EXACT_MICROSECONDS <= abs(stamp) < LARGEST_MICROSECONDS:
        raise InexactTime
    try:
        exact = Decimal(0 if stamp is None else stamp)
        # a text can name a number that has more digits than there is memory
        nanosecond = int((exact * 1000).to_integral_value()) if exact.adjusted() < 20 else FOREVER
    except (InvalidOperation, ValueError, OverflowError):
        return ABSENT
    return nanosecond if stamp is not None and NEVER < nanosecond < FOREVER else ABSENT


def exact_times(stamps: Sequence[bytes]) -> ExactTimes:
    """Returns µs stamps as they stand in the JSON text, numbers or quoted ones."""
    times, digits = [], []
    for text in (stamp.strip(b'"') for stamp in stamps):
        if match := DECIMAL_TEXT.fullmatch(text):
            sign, integer_part, fraction = match.groups(b"")
            time = int(integer_part) * 1000 + int(fraction.ljust(3, b"0"))
            times.append((-time if sign else time) if time < FOREVER else ABSENT)
            digits.append(len(fraction))
        else:
            times.append(_nanoseconds(text.decode("utf-8", "replace")))
            digits.append(-1)
    return ExactTimes(np.array(times, np.int64), np.array(digits, np.int64))


def lacks_padding(column: Iterable[ExactTimes]) -> bool:
    """Returns whether a column has `µs.ns` without padding zeros, 5 ns as .5, as traces of March 2024 do.

    Such a column has fractions of one or two digits, and none of several digits that begins with 0, as a tenth of any
    others do.
    """
    any_short = False
    for times, digits in column:
        fraction = times % 1000
        padded = (digits >= 2) & (fraction < 100) | (digits < 0) & (times != ABSENT)
        if padded.any():
            return False
        any_short |= bool((isin(digits, (1, 2)) & ~isin(fraction, DOUBLE_FRACTIONS)).any())
    return any_short


def are_of_doubles(times: Int64) -> bool:
    """Returns whether times (ns) were µs since 1970 as doubles, whose fractions are quarters."""
    fraction = times[times > 1000 * EXACT_MICROSECONDS] % 1000
    return bool(np.count_nonzero(fraction) >= AGREEING and isin(fraction, DOUBLE_FRACTIONS).all())


def with_padding(times: ExactTimes) -> Int64:
    """Returns the times (ns) that were meant in a column that lacks padding."""
    fraction = times.ns % 1000
    padded = fraction // 10 ** (3 - np.clip(times.digits, 1, 3))
    return np.where(times.digits > 0, times.ns - fraction + padded, times.ns)


def exact_microseconds(time: int) -> str:
    """Returns an ns time as decimal µs text, exact, without needless zeros."""
    whole, fraction = divmod(abs(time), 1000)
    sign = "-" if time < 0 else ""
    return f"{sign}{whole}.{fraction:03d}".rstrip("0") if fraction else f"{sign}{whole}"


def name_of(value: Any) -> str:
    """Returns the value as text that a file can hold: with `?` for half a surrogate pair, which escapes may name."""
    return str(value).encode("utf-8", "replace").decode()


def whole_ns(times: Floats, what: str) -> Int64:
    """Returns computed times as whole ns. Raises RequestError for what no clock shows, which 64 bits may not hold."""
    if not np.abs(times).sum() < LONGEST_RECORDING:
        reason = f"{what} would take longer than any clock shows; give another "
        raise RequestError(reason, Remedy.LATENCY, " or ", Remedy.BANDWIDTH)
    return np.rint(times).astype(np.int64)
