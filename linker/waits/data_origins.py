"""Which streams last touched the data that a launch uses, by the tensors of its op.

A correct program lets a stream wait for another one before it uses what that one wrote, or overwrites what that one
read.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...schema.columns import Ragged
from ...schema.linked import HOST, Activities, Calls, Ops
from .streams import StreamKey


class Origin(NamedTuple):
    """A stream that last touched some storages of an activity, and when its work was launched (ns)."""

    stream: StreamKey
    launched: int


class DataOrigins:
    """The origins of every activity, by the ops that launched. There are none where no host trace records tensors.

    They are computed at the first use, as traces that record what every wait is for do not need them. O(tensors).
    """

    def __init__(self, ops: Ops, activities: Activities, calls: Calls) -> None:
        self._ops, self._activities, self._calls = ops, activities, calls

    @cached_property
    def _origins(self) -> dict[int, set[Origin]]:
        """The origins on other streams, by activity."""
        ops, activities = self._ops, self._activities
        rows = np.flatnonzero((activities.call_row >= 0) & (activities.op_row >= 0))
        launched = self._calls.start[activities.call_row[rows]]
        order = np.lexsort((activities.start[rows], launched))
        last: dict[int, Origin] = {}
        origins: dict[int, set[Origin]] = {}
        columns = rows, launched, activities.device[rows], activities.stream[rows], activities.op_row[rows]
        tensors = ops.arguments.tensors
        tensors = tensors.where((tensors.device != HOST) & (tensors.storage != 0))
        storages = Ragged.grouped(tensors.row, tensors.storage, len(ops))
        for row, time, device, stream, op in zip(*(column[order].tolist() for column in columns), strict=True):
            current = Origin(StreamKey(device, stream), time)
            touched = {*storages[op].tolist()}
            earlier = {last[storage] for storage in touched if storage in last}
            if elsewhere := {origin for origin in earlier if origin.stream != current.stream}:
                origins[row] = elsewhere
            last.update(dict.fromkeys(touched, current))
        return origins

    def streams(self, activities: Iterable[int], since: int, until: int) -> list[StreamKey]:
        """Returns the other streams that last touched what these activities use, the latest launch first.

        Only what was launched from `since` to before `until` (ns) counts.
        """
        origins = {
            origin for row in activities for origin in self._origins.get(row, ()) if since <= origin.launched < until
        }
        return list(dict.fromkeys(origin.stream for origin in sorted(origins, key=lambda origin: -origin.launched)))
