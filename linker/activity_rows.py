"""The activities of a device trace as the linked trace has them."""

import numpy as np

from ..schema.columns import CallRows, CommunicationRows, OpRows
from ..schema.linked import Activities
from .readers import DeviceTrace

AS_RECORDED = ["name", "category", "device", "stream", "start", "end", "correlation", "graph_node", "size", "bandwidth"]


def activities_of(device: DeviceTrace, call_row: CallRows, op_row: OpRows, largest_id: int = 0) -> Activities:
    """Returns the activities with their launch calls and ops, yet without communications.

    Their ids follow `largest_id`, the largest one of an op.
    """
    rows = device.activities
    return Activities(
        id=largest_id + 1 + np.arange(len(rows.start)),
        **{name: getattr(rows, name) for name in AS_RECORDED},
        call_row=call_row,
        op_row=op_row,
        communication_row=CommunicationRows(np.full(len(rows.start), -1, np.int64)),
    )
