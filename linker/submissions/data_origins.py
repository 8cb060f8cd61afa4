"""Which streams last touched the data that a launch uses, by the tensors of its op.

A program that is right lets a stream wait for another one before it uses what that one wrote, or overwrites what that one read.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...schema.linked import Activities, Calls, Ops
from ..communication import TENSOR
from .streams import StreamKey

HOST = b"cpu"


class Origin(NamedTuple):
    """A stream that touched some of an activity's storages last, and when that was launched."""

    stream: StreamKey
    launched: int


class DataOrigins:
    """The origins of every activity, as the ops tell that launched; none where no host trace tells tensors. Linear in tensors."""

    def __init__(self, ops: Ops, activities: Activities, calls: Calls) -> None:
        rows = np.flatnonzero((activities.call_row >= 0) & (activities.op_row >= 0))
        launched = calls.start[activities.call_row[rows]]
        order = np.lexsort((activities.start[rows], launched))
        last: dict[bytes, Origin] = {}
        self._of: dict[int, set[Origin]] = {}
        columns = (rows, activities.op_row[rows], launched, activities.device[rows], activities.stream[rows])
        for row, op, time, device, stream in zip(*(column[order].tolist() for column in columns), strict=True):
            own = Origin(StreamKey(device, stream), time)
            touched = _storages(ops.inputs[op], ops.outputs[op])
            known = {last[storage] for storage in touched if storage in last}
            self._of[row] = {origin for origin in known if origin.stream != own.stream}
            last.update(dict.fromkeys(touched, own))

    def streams(self, activities: Iterable[int], since: int, until: int) -> list[StreamKey]:
        """The streams that touched what these activities use, launched in that time, the latest first."""
        found = {origin for row in activities for origin in self._of.get(row, ()) if since <= origin.launched < until}
        return list(dict.fromkeys(origin.stream for origin in sorted(found, key=lambda one: -one.launched)))


def _storages(*arguments: bytes) -> set[bytes]:
    """The storages of the device's tensors among an op's arguments."""
    return {
        found[1] for text in arguments for found in TENSOR.finditer(text) if HOST not in found[0] and found[1] != b"0"
    }
