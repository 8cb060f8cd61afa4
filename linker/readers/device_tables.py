"""Makes the tables of a device trace from the columns of its events, one function per role. Times are in ns.

`pad` says which of `start` and `duration` were written without the zeros before their ns.
"""

import numpy as np

from ...schema.columns import Categorical, Int64
from .categories import ANNOTATIONS
from .device_rows import (
    RecordedActivities,
    RecordedCalls,
    RecordedEvents,
    RecordedOps,
    RecordedPython,
    RecordedQueueEvents,
    RecordedSyncs,
)
from .event_rows import EventRows

ALL_STREAMS = (1 << 32) - 1
BUILT_IN = "<built-in"
"""The start of names of functions that are not Python; they hold addresses, which differ from run to run."""


def ops(rows: EventRows, pad: dict[str, bool]) -> RecordedOps:
    """Returns the host ops and annotations."""
    start, end = rows.start_end(pad)
    category = rows.category.column()
    return RecordedOps(
        name=rows.name.column(),
        start=start,
        end=end,
        annotation=category.where(lambda name: name.lower() in ANNOTATIONS),
        rf_id=rows.column("record_function_id"),
        event_index=rows.column("ev_idx"),
        arguments=rows.argument_column(),
        **_columns(rows, "process", "thread", "external_id", "sequence", "forward_thread"),
    )


def calls(rows: EventRows, pad: dict[str, bool]) -> RecordedCalls:
    """Returns the runtime and driver calls."""
    start, end = rows.start_end(pad)
    return RecordedCalls(
        name=rows.name.column(),
        start=start,
        end=end,
        **_columns(rows, "process", "thread", "correlation", "external_id"),
    )


def activities(rows: EventRows, pad: dict[str, bool]) -> RecordedActivities:
    """Returns the activities of devices."""
    start, end = rows.start_end(pad)
    category = rows.category.column()
    lowered = Categorical.of(name.lower() for name in category.table)
    process, device, stream = rows.column("process"), rows.column("device"), rows.column("stream")
    copied = rows.column("bytes")
    return RecordedActivities(
        name=rows.name.column(),
        category=Categorical(lowered.codes[category.codes], lowered.table),
        process=process,
        device=np.where(device < 0, process, device),
        stream=np.where(stream < 0, rows.column("lane"), stream),
        start=start,
        end=end,
        size=np.where(copied < 0, rows.column("size"), copied),
        **_columns(rows, "correlation", "external_id", "graph_node", "bandwidth"),
    )


def syncs(rows: EventRows, pad: dict[str, bool]) -> RecordedSyncs:
    """Returns the cuda_sync rows; a stream of -1 means all or unknown."""
    start, end = rows.start_end(pad)

    def stream(name: str) -> Int64:
        column = rows.column(name)
        return np.where(column == ALL_STREAMS, -1, column)

    return RecordedSyncs(
        kind=rows.sync_kind.column(),
        start=start,
        end=end,
        stream=stream("stream"),
        wait_stream=stream("wait_stream"),
        record_correlation=rows.column("wait_record"),
        event=stream("wait_event"),
        **_columns(rows, "process", "device", "correlation"),
    )


def event_records(rows: EventRows) -> RecordedEvents:
    """Returns the cuda_event rows."""
    return RecordedEvents(**_columns(rows, "process", "correlation", "stream", "event"))


def queue_events(rows: EventRows, pad: dict[str, bool]) -> RecordedQueueEvents:
    """Returns the waits and signals of device queues."""
    process, device = rows.column("process"), rows.column("device")
    start, end = rows.start_end(pad)
    return RecordedQueueEvents(
        device=np.where(device < 0, process, device),
        stream=rows.column("stream"),
        awaited=rows.column("wait_stream"),
        sequence=rows.column("queue_sequence"),
        start=start,
        end=end,
    )


def python(rows: EventRows, pad: dict[str, bool]) -> RecordedPython:
    """Returns the calls of modules and of Python's functions, without calls of built-in functions."""
    start, end = rows.start_end(pad)
    names = rows.name.column()
    is_chosen = ~names.where(lambda name: name.startswith(BUILT_IN))
    used, code = np.unique(names.codes[is_chosen], return_inverse=True)
    return RecordedPython(
        name=Categorical(code.reshape(-1).astype(np.int32), [names.table[used_code] for used_code in used.tolist()]),
        process=rows.column("process")[is_chosen],
        thread=rows.column("thread")[is_chosen],
        start=start[is_chosen],
        end=end[is_chosen],
    )


def _columns(rows: EventRows, *names: str) -> dict[str, Int64]:
    return {name: rows.column(name) for name in names}
