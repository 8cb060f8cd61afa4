"""Finds the ops that use what others have written, by storage and time. Tensors are taken to be contiguous."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64
from ...schema.linked import TENSOR, Ops
from .host_transfers import TRANSFER


class Bytes(NamedTuple):
    """A range of bytes of a storage."""

    begin: int
    end: int


ByteRanges = Mapping[bytes, Bytes]
"""A range of bytes for each storage."""


class Use(NamedTuple):
    """The use of some bytes of a storage by an op, and when the op starts (ns)."""

    start: int
    row: int
    used: Bytes


class Users:
    """The ops that use any of the storages that are `written`, but for those on `transfer_threads`: they transfer."""

    def __init__(self, ops: Ops, written: Iterable[ByteRanges], transfer_threads: Int64) -> None:
        storages = {storage for ranges in written for storage in ranges}
        self._uses: dict[bytes, list[Use]] = defaultdict(list)
        uses = ~ops.op_schema.where(_is_view) & ~ops.name.where(lambda name: name.startswith(TRANSFER))
        uses &= ~np.isin(ops.thread, transfer_threads)
        rows = np.flatnonzero((ops.start != ABSENT) & ops.recorded_by_host & uses)
        for row in rows[np.argsort(ops.start[rows], kind="stable")].tolist() if storages else []:
            for storage, used in byte_ranges(ops.inputs[row]).items():
                if storage in storages:
                    self._uses[storage].append(Use(int(ops.start[row]), row, used))

    def first(self, written: ByteRanges, since: int) -> int:
        """Returns the row of the first op from `since` (ns) on that uses any of what was written, -1 for none."""
        of_each = (_first(self._uses[storage], range_, since) for storage, range_ in written.items())
        use = min((use for use in of_each if use is not None), default=None)
        return -1 if use is None else use.row


def byte_ranges(arguments: bytes) -> ByteRanges:
    """Returns the bytes that the tensors among an op's arguments, as the host trace writes them, cover."""
    covered: dict[bytes, Bytes] = {}
    for tensor in TENSOR.finditer(arguments):
        offset, count, size = (int(tensor[group]) for group in (2, 3, 4))
        range_ = Bytes(offset * size, (offset + count) * size)
        before = covered.get(tensor[1], range_)
        covered[tensor[1]] = Bytes(min(before.begin, range_.begin), max(before.end, range_.end))
    return covered


def _is_view(schema: str) -> bool:
    """Returns whether an op only returns a view of its input."""
    return "(a)" in schema and "!" not in schema


def _first(uses: list[Use], written: Bytes, since: int) -> Use | None:
    later = islice(uses, bisect_left(uses, since, key=attrgetter("start")), None)
    return next((use for use in later if use.used.begin < written.end and written.begin < use.used.end), None)
