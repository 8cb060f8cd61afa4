"""Which ops use what others have written: the users of each storage, by time. Tensors are taken to be contiguous."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT
from ...schema.linked import Ops
from ...schema.traces import TENSOR
from .host_transfers import TRANSFER


class Bytes(NamedTuple):
    """A stretch of a storage."""

    begin: int
    end: int


Stretches = Mapping[bytes, Bytes]
"""By storage."""


class Use(NamedTuple):
    """When an op, by row, begins to use some of a storage."""

    start: int
    row: int
    used: Bytes


class Users:
    """The users of some storages."""

    def __init__(self, ops: Ops, of: Iterable[Stretches]) -> None:
        storages = {storage for stretches in of for storage in stretches}
        self._uses: dict[bytes, list[Use]] = defaultdict(list)
        uses = ~ops.op_schema.where(_is_view) & ~ops.name.where(lambda name: name.startswith(TRANSFER))
        rows = np.flatnonzero((ops.start != ABSENT) & ops.recorded_by_host & uses)
        for row in rows[np.argsort(ops.start[rows], kind="stable")].tolist() if storages else []:
            for storage, used in stretches(ops.inputs[row]).items():
                if storage in storages:
                    self._uses[storage].append(Use(int(ops.start[row]), row, used))

    def first(self, written: Stretches, since: int) -> int:
        """Returns the row of the first op from then on that uses any of what was written, -1 for none."""
        found = (_first(self._uses[storage], some, since) for storage, some in written.items())
        use = min((use for use in found if use is not None), default=None)
        return -1 if use is None else use.row


def stretches(arguments: bytes) -> Stretches:
    """Returns what tensors among an op's arguments, as the host trace writes them, cover of their storages."""
    covered: dict[bytes, Bytes] = {}
    for found in TENSOR.finditer(arguments):
        offset, count, size = (int(found[group]) for group in (2, 3, 4))
        some = Bytes(offset * size, (offset + count) * size)
        known = covered.get(found[1], some)
        covered[found[1]] = Bytes(min(known.begin, some.begin), max(known.end, some.end))
    return covered


def _is_view(schema: str) -> bool:
    """Returns whether an op only shows in another way what it is given."""
    return "(a)" in schema and "!" not in schema


def _first(uses: list[Use], written: Bytes, since: int) -> Use | None:
    later = islice(uses, bisect_left(uses, since, key=attrgetter("start")), None)
    return next((use for use in later if use.used.begin < written.end and written.begin < use.used.end), None)
