"""Which ranges of storages the tensors in ops' arguments cover. Tensors are taken to be contiguous."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Int64, Interner
from ...schema.traces import TENSOR, integer

HOST, NOWHERE = -1, -2
WITHOUT_NUMBER = {"cpu": HOST, "meta": NOWHERE}


class Ranges(NamedTuple):
    """Text number `row` names bytes [low, high) of a storage on a device, HOST for the host."""

    row: Int64
    storage: Int64
    low: Int64
    high: Int64
    device: Int64

    def where(self, chosen: Bool) -> "Ranges":
        """Returns the chosen ranges."""
        return Ranges(*(column[chosen] for column in self))


def named_ranges(texts: Iterable[bytes]) -> Ranges:
    """Returns the ranges of the tensors in each text, without those that are empty or have no storage."""
    counts: list[int] = []
    codes: list[int] = []
    # an op lists again what the ops around it list, and most tensors are used more than once
    distinct = Interner[tuple[bytes, ...]]()
    for found in map(TENSOR.findall, texts):
        counts.append(len(found))
        codes += map(distinct.__getitem__, found)
    storage, offset, count, size = np.array([tensor[:4] for tensor in distinct], np.int64).reshape(-1, 4).T
    device = np.array([_device(tensor[4]) for tensor in distinct], np.int64)
    row, code = np.repeat(np.arange(len(counts)), np.array(counts, np.int64)), np.array(codes, np.int64)
    ranges = Ranges(row, storage[code], (offset * size)[code], ((offset + count) * size)[code], device[code])
    return ranges.where(((storage != 0) & (count != 0) & (device != NOWHERE))[code])


def _device(text: bytes) -> int:
    """Returns the number in `"cuda:1"`; a name without one is that of the first device."""
    name = text.strip().strip(b'"').decode("utf-8", "replace")
    return WITHOUT_NUMBER[name] if name in WITHOUT_NUMBER else integer(name.partition(":")[2], 0)
