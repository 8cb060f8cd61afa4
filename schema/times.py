"""Time stamps of traces as exact int64 ns.

A double holds a µs time stamp to the ns only up to 2**43 (about 100 days); a fraction on a larger one, as traces of early 2024
have it, must be read as decimal text.
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

from .columns import ABSENT, Int64

EXACT_MICROSECONDS = float(1 << 43)
LARGEST_MICROSECONDS = float((1 << 62) // 1000)

Stamp = int | float | str | Decimal | None


class InexactTime(ValueError):
    """A fractional µs stamp too large for a double: the text must be decoded again with `Decimal`."""


def nanoseconds(stamps: Sequence[Stamp]) -> Int64:
    """µs stamps as int64 ns: whole µs × 1000 plus the rounded fraction; ABSENT where there is none or it is no number.

    Raises InexactTime when a double among them has lost ns.
    """
    try:
        column = np.array(stamps)
    except (OverflowError, ValueError):
        column = np.array(stamps, object)
    if column.dtype.kind in "iu" and (not len(column) or np.abs(column).max() < LARGEST_MICROSECONDS):
        return np.asarray(column, np.int64) * 1000
    if column.dtype.kind == "f" and np.isfinite(column).all():
        size = np.abs(column)
        if (size[column % 1 != 0] >= EXACT_MICROSECONDS).any():
            raise InexactTime
        if (size < EXACT_MICROSECONDS).all():
            whole = np.floor(column)
            return np.asarray(whole, np.int64) * 1000 + np.asarray(np.rint((column - whole) * 1000), np.int64)
    return np.fromiter((_nanoseconds(stamp) for stamp in stamps), np.int64, len(stamps))


def _nanoseconds(stamp: Stamp) -> int:
    if isinstance(stamp, float) and abs(stamp) >= EXACT_MICROSECONDS and stamp % 1:
        raise InexactTime
    try:
        exact = Decimal(0 if stamp is None else stamp)
        nanosecond = int((exact * 1000).to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        return ABSENT
    return nanosecond if stamp is not None and abs(nanosecond) < 1 << 62 else ABSENT


def microseconds(time: int) -> str:
    """An ns time as decimal µs text, exact, without needless zeros.

    >>> microseconds(1694128201427784000), microseconds(1500), microseconds(-1)
    ('1694128201427784', '1.5', '-0.001')
    """
    whole, fraction = divmod(abs(time), 1000)
    sign = "-" if time < 0 else ""
    return f"{sign}{whole}.{fraction:03d}".rstrip("0") if fraction else f"{sign}{whole}"
