"""The activities of a device trace as the linked trace has them."""

import numpy as np

from ..schema.columns import Int64
from ..schema.linked import Activities
from .readers import DeviceTrace


def activities_of(
    device: DeviceTrace, call_row: Int64, op_row: Int64, communication_row: Int64, largest_id: int
) -> Activities:
    """Returns the table, with the rows of calls, ops and communications that were found for each; ids follow the
    largest one of an op.
    """
    rows = device.activities
    return Activities(
        id=largest_id + 1 + np.arange(len(rows.start)),
        name=rows.name,
        category=rows.category,
        device=rows.device,
        stream=rows.stream,
        start=rows.start,
        end=rows.end,
        correlation=rows.correlation,
        graph_node=rows.graph_node,
        size=rows.size,
        bandwidth=rows.bandwidth,
        call_row=call_row,
        op_row=op_row,
        communication_row=communication_row,
    )
