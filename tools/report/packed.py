"""Packs columns of whole numbers as text for the page: bytes of equal significance together, deflated, in base64.

So numbers that vary little need almost no room. The bytes per number follow from the largest number of a column.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.columns import Int64

LEVEL = 6


class Packed(NamedTuple):
    """Packed columns: the number of values of each and the bytes per value, in the order in which they are in `text`.

    A value v is stored as 2 v, a negative one as -2 v - 1. All lowest bytes of the first column come first, then all
    next ones, and so on.
    """

    columns: dict[str, tuple[int, int]]
    text: str


def pack_columns(columns: Mapping[str, Int64], suffix: bytes = b"") -> Packed:
    """Packs the columns, and bytes that follow them."""
    shapes, parts = dict[str, tuple[int, int]](), list[bytes]()
    for name, values in columns.items():
        planes = _planes(values)
        shapes[name] = len(values), len(planes)
        parts.append(planes.tobytes())
    return Packed(shapes, base64.b64encode(zlib.compress(b"".join([*parts, suffix]), LEVEL)).decode())


def _planes(values: Int64) -> npt.NDArray[np.uint8]:
    folded = ((values << 1) ^ (values >> 63)).astype("<u8")
    count = (int(folded.max(initial=0)).bit_length() + 7) // 8
    return np.ascontiguousarray(folded.view(np.uint8).reshape(-1, 8)[:, :count].T)
