"""Columns of whole numbers as a text that a page unpacks: bytes of the same place together, deflated, in base64.

Numbers that hardly vary then take next to nothing, and what a column holds is known from its largest number: it needs
no type.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....schema.columns import Int64

LEVEL = 6


class Packed(NamedTuple):
    """For each column how many numbers there are and how many bytes each takes, in the order of the `text`; after them
    that of `names`.

    A number v stands as 2 v, a negative one as -2 v - 1. First come all lowest bytes of the first column, then all next
    ones.
    """

    columns: dict[str, tuple[int, int]]
    text: str


def packed(columns: Mapping[str, Int64], suffix: bytes = b"") -> Packed:
    """Returns the columns, and bytes that follow them."""
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
