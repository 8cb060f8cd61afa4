"""Tables of a linked trace by hand, one named tuple per row, for tests of a single part; times are in ns."""

from typing import Any, NamedTuple

import numpy as np
from execgraph.linker.readers import RecordedSyncs
from execgraph.schema.columns import ABSENT, BytesColumn, Categorical, Int64, JsonRecords
from execgraph.schema.linked import Activities, Calls, Ops

FIRST = 100
"""The correlation of the first call."""


class Called(NamedTuple):
    start: int
    end: int
    name: str = "cudaLaunchKernel"


class Op(NamedTuple):
    """An op, without times unless they are given; `forward` is the thread that its forward op ran on."""

    name: str = "aten::mm"
    start: int = ABSENT
    end: int = ABSENT
    thread: int = 0
    sequence: int = -1
    forward: int = 0
    schema: str = ""
    inputs: bytes = b""
    outputs: bytes = b""


class Ran(NamedTuple):
    """An activity; `call` is the row of its launch call."""

    start: int
    end: int
    call: int = -1
    stream: int = 7
    name: str = "kernel"
    device: int = 0
    category: str = "kernel"


class Synced(NamedTuple):
    """A synchronisation record of a call, and the call that recorded the event that it awaited, by row."""

    kind: str
    call: int
    stream: int = -1
    awaited: int = -1
    recorded: int = -1 - FIRST


def column(*values: int) -> Int64:
    return np.array(values, np.int64)


def ops(*rows: Op) -> Ops:
    number = np.arange(len(rows), dtype=np.int64)
    unknown, name = 0 * number - 1, Categorical.of(row.name for row in rows)
    return Ops(
        id=number,
        parent_id=unknown,
        name=name,
        thread=column(*(row.thread for row in rows)),
        start=column(*(row.start for row in rows)),
        end=column(*(row.end for row in rows)),
        exclusive=0 * number,
        recorded_by_host=number >= 0,
        op_schema=Categorical.of(row.schema for row in rows),
        rf_id=unknown,
        fw_parent=unknown,
        seq_id=column(*(row.sequence for row in rows)),
        scope=0 * number,
        tid=unknown,
        fw_tid=column(*(row.forward for row in rows)),
        inputs=BytesColumn.of(row.inputs for row in rows),
        outputs=BytesColumn.of(row.outputs for row in rows),
        extra=JsonRecords.of({}, dict[str, Any]),
        communication_row=unknown,
    )


def calls(*rows: Called) -> Calls:
    number = np.arange(len(rows), dtype=np.int64)
    return Calls(
        name=Categorical.of(row.name for row in rows),
        thread=0 * number,
        start=column(*(row.start for row in rows)),
        end=column(*(row.end for row in rows)),
        correlation=FIRST + number,
        op_row=0 * number - 1,
    )


def activities(*rows: Ran) -> Activities:
    number = np.arange(len(rows), dtype=np.int64)
    return Activities(
        id=number,
        name=Categorical.of(row.name for row in rows),
        category=Categorical.of(row.category for row in rows),
        device=column(*(row.device for row in rows)),
        stream=column(*(row.stream for row in rows)),
        start=column(*(row.start for row in rows)),
        end=column(*(row.end for row in rows)),
        correlation=FIRST + number,
        graph_node=0 * number,
        size=0 * number - 1,
        bandwidth=0 * number - 1,
        call_row=column(*(row.call for row in rows)),
        op_row=0 * number - 1,
        communication_row=0 * number - 1,
    )


def syncs(*rows: Synced) -> RecordedSyncs:
    number = np.arange(len(rows), dtype=np.int64)
    return RecordedSyncs(
        kind=Categorical.of(row.kind for row in rows),
        process=0 * number,
        start=0 * number,
        end=0 * number,
        device=0 * number,
        correlation=FIRST + column(*(row.call for row in rows)),
        stream=column(*(row.stream for row in rows)),
        wait_stream=column(*(row.awaited for row in rows)),
        record_correlation=FIRST + column(*(row.recorded for row in rows)),
        event=0 * number - 1,
    )
