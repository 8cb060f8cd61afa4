"""Finds the ops that use what others have written, by storage and time. Tensors are taken to be contiguous."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Int64
from ...schema.linked import Ops, Tensors
from .host_transfers import TRANSFER


class Bytes(NamedTuple):
    """A range of bytes of a storage."""

    begin: int
    end: int


ByteRanges = Mapping[int, Bytes]
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
        self._uses: dict[int, list[Use]] = defaultdict(list)
        uses = ~ops.op_schema.where(_is_view) & ~ops.name.where(lambda name: name.startswith(TRANSFER))
        uses &= ~np.isin(ops.thread, transfer_threads)
        uses &= (ops.start != ABSENT) & ops.recorded_by_host
        if storages:
            tensors = ops.arguments.tensors
            used = tensors.where(uses[tensors.row] & ~tensors.is_output & np.isin(tensors.storage, [*storages]))
            for row, storage, range_ in _covered(used):
                self._uses[storage].append(Use(int(ops.start[row]), row, range_))
        for uses_of_storage in self._uses.values():
            uses_of_storage.sort(key=attrgetter("start"))

    def first(self, written: ByteRanges, since: int) -> int:
        """Returns the row of the first op from `since` (ns) on that uses any of what was written, -1 for none."""
        of_each = (_first(self._uses[storage], range_, since) for storage, range_ in written.items())
        use = min((use for use in of_each if use is not None), default=None)
        return -1 if use is None else use.row


def byte_ranges(tensors: Tensors) -> ByteRanges:
    """Returns the bytes that the tensors of one op cover, from the first to the last one of each storage."""
    return {storage: range_ for _, storage, range_ in _covered(tensors)}


def _covered(tensors: Tensors) -> Iterator[tuple[int, int, Bytes]]:
    """Yields the bytes that the tensors of each op, by row, cover of each storage."""
    covered: dict[tuple[int, int], Bytes] = {}
    columns = (tensors.row, tensors.storage, tensors.low, tensors.high)
    for row, storage, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        before = covered.get((row, storage), Bytes(begin, end))
        covered[row, storage] = Bytes(min(before.begin, begin), max(before.end, end))
    yield from ((row, storage, range_) for (row, storage), range_ in covered.items())


def _is_view(schema: str) -> bool:
    """Returns whether an op only returns a view of its input."""
    return "(a)" in schema and "!" not in schema


def _first(uses: list[Use], written: Bytes, since: int) -> Use | None:
    later = islice(uses, bisect_left(uses, since, key=attrgetter("start")), None)
    return next((use for use in later if use.used.begin < written.end and written.begin < use.used.end), None)
