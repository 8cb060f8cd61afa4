"""The bytes of storages that the tensors in ops' arguments cover, taken as contiguous and by their strides."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64
from ...schema.linked import NOWHERE, TensorColumns, TensorReader

AT_ONCE = 1 << 12
"""Number of texts that are read together."""


class Ranges(NamedTuple):
    """Columns of tensors: the text number `row` names bytes [low, high) of a storage on a device, HOST for the host.

    `argument` is the index of the argument that names it. By its strides the tensor ends at `strided_high`, ABSENT
    where these are not recorded; it is `dense` where none of the bytes lies between its elements.
    """

    row: Int64
    storage: Int64
    low: Int64
    high: Int64
    device: Int64
    argument: Int64
    strided_high: Int64
    dense: Bool

    def where(self, chosen: Bool | Int64) -> "Ranges":
        """Returns the chosen ranges."""
        return Ranges(*(column[chosen] for column in self))  # type: ignore[arg-type]


def named_ranges(arguments: Sequence[bytes]) -> Ranges:
    """Returns the ranges of the tensors in each text, without empty ones and those without a storage."""
    reader = TensorReader()
    parts = [_ranges(reader.of(arguments[:0]), 0)]
    for first in range(0, len(arguments), AT_ONCE):
        parts.append(_ranges(reader.of(arguments[first : first + AT_ONCE]), first))
    return Ranges(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _ranges(tensors: TensorColumns, first_row: int) -> Ranges:
    chosen = tensors.where((tensors.storage != 0) & (tensors.elements != 0) & (tensors.device != NOWHERE))
    offset, size, spanned = chosen.offset, chosen.size, chosen.spanned
    return Ranges(
        row=chosen.row + first_row,
        storage=chosen.storage,
        low=offset * size,
        high=(offset + chosen.elements) * size,
        device=chosen.device,
        argument=chosen.argument,
        strided_high=np.where(spanned > 0, (offset + spanned) * size, ABSENT),
        dense=spanned <= chosen.elements,
    )
