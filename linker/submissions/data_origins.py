"""Which streams last touched the data that a launch uses, by the tensors of its op.

A program that is right lets a stream wait for another one before it uses what that one wrote, or overwrites what that
one read.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...schema.linked import Activities, Calls, Ops
from ...schema.traces import TENSOR
from .streams import StreamKey

HOST = b"cpu"
AT_ONCE = 1 << 13


class Origin(NamedTuple):
    """A stream that touched some of an activity's storages last, and when that was launched."""

    stream: StreamKey
    launched: int


class DataOrigins:
    """The origins of every activity, as the ops tell that launched; none where no host trace tells tensors. Linear in
    tensors.

    Found when first asked for: traces that record what every wait is for never ask.
    """

    def __init__(self, ops: Ops, activities: Activities, calls: Calls) -> None:
        self._ops, self._activities, self._calls = ops, activities, calls

    @cached_property
    def _of(self) -> dict[int, set[Origin]]:
        ops, activities = self._ops, self._activities
        rows = np.flatnonzero((activities.call_row >= 0) & (activities.op_row >= 0))
        launched = self._calls.start[activities.call_row[rows]]
        order = np.lexsort((activities.start[rows], launched))
        last: dict[bytes, Origin] = {}
        origins: dict[int, set[Origin]] = {}
        columns = [column[order] for column in (rows, launched, activities.device[rows], activities.stream[rows])]
        op = activities.op_row[rows][order]
        for first in range(0, len(rows), AT_ONCE):
            block = slice(first, first + AT_ONCE)
            texts = zip(ops.inputs.at(op[block]), ops.outputs.at(op[block]), strict=True)
            of_block = zip(*(column[block].tolist() for column in columns), strict=True)
            for (row, time, device, stream), arguments in zip(of_block, texts, strict=True):
                own = Origin(StreamKey(device, stream), time)
                touched = _storages(*arguments)
                known = {last[storage] for storage in touched if storage in last}
                if others := {origin for origin in known if origin.stream != own.stream}:
                    origins[row] = others
                last.update(dict.fromkeys(touched, own))
        return origins

    def streams(self, activities: Iterable[int], since: int, until: int) -> list[StreamKey]:
        """Returns the streams that touched what these activities use, launched in that time, the latest first."""
        found = {origin for row in activities for origin in self._of.get(row, ()) if since <= origin.launched < until}
        return list(dict.fromkeys(origin.stream for origin in sorted(found, key=lambda one: -one.launched)))


def _storages(*arguments: bytes) -> set[bytes]:
    """Returns the storages of the device's tensors among an op's arguments."""
    return {
        found[1] for text in arguments for found in TENSOR.finditer(text) if HOST not in found[0] and found[1] != b"0"
    }
