"""A device trace in columns: host ops, runtime calls, device activities, synchronisation records.

Times are int64 ns on the trace's own clock.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...schema.columns import Bool, Categorical, Int64, JsonRecords, Summary, SummaryRepr, Table, format_counts
from ...schema.linked import MergedRank, kineto
from ...schema.reasons import Counts
from .categories import Role


@dataclass(slots=True, repr=False)
class RecordedOps(Table):
    """Host ops and annotations as the device trace recorded them. `rf_id` 0 and `sequence` -1 mean not recorded.

    `arguments` are JSON texts as the host trace has them, {"values", "shapes", "types"}; empty where they were not
    recorded or not requested.
    """

    name: Categorical
    process: Int64
    thread: Int64
    start: Int64
    end: Int64
    annotation: Bool
    rf_id: Int64
    external_id: Int64
    event_index: Int64
    sequence: Int64
    forward_thread: Int64
    arguments: Categorical


@dataclass(slots=True, repr=False)
class RecordedCalls(Table):
    """Runtime and driver calls. `correlation` 0 means none."""

    name: Categorical
    process: Int64
    thread: Int64
    start: Int64
    end: Int64
    correlation: Int64
    external_id: Int64


@dataclass(slots=True, repr=False)
class RecordedActivities(Table):
    """Kernels, copies, sets and the like of other vendors.

    `size` is in bytes, `bandwidth` in bytes/s, -1 where not recorded.
    """

    name: Categorical
    category: Categorical
    process: Int64
    device: Int64
    stream: Int64
    start: Int64
    end: Int64
    correlation: Int64
    external_id: Int64
    graph_node: Int64
    size: Int64
    bandwidth: Int64


@dataclass(slots=True, repr=False)
class RecordedSyncs(Table):
    """cuda_sync records; -1 where a field is unknown. `stream` is the one that waits, `wait_stream` the awaited one."""

    kind: Categorical
    process: Int64
    start: Int64
    end: Int64
    device: Int64
    correlation: Int64
    stream: Int64
    wait_stream: Int64
    record_correlation: Int64
    event: Int64


@dataclass(slots=True, repr=False)
class RecordedEvents(Table):
    """cuda_event records: event `event` was recorded on `stream` by the call with this correlation."""

    process: Int64
    correlation: Int64
    stream: Int64
    event: Int64


@dataclass(slots=True, repr=False)
class RecordedQueueEvents(Table):
    """Events on device queues: `stream` recorded number `sequence` (`awaited` -1), or waited for that number of stream
    `awaited`.
    """

    device: Int64
    stream: Int64
    awaited: Int64
    sequence: Int64
    start: Int64
    end: Int64


@dataclass(slots=True, repr=False)
class RecordedPython(Table):
    """Calls of Python: of modules, as `nn.Module: Linear_0`, and of functions, as `file.py(12): forward`."""

    name: Categorical
    process: Int64
    thread: Int64
    start: Int64
    end: Int64


def no_queue_events() -> RecordedQueueEvents:
    """Returns a table without rows."""
    return RecordedQueueEvents(*np.empty((6, 0), np.int64))


@dataclass(slots=True, repr=False)
class DeviceTrace(SummaryRepr):
    """The rows of a device trace. Of the `read` rows of its list, `ignored` carry no work (flows, counters, thread
    names).

    `skipped` counts by reason the rows about work that are in no table, `oddities` decisions that the reader took;
    `notes` are whole sentences about the file. `python` is None unless asked for. `merged` says how to get each
    rank's own trace out of a merged one, `merge_marks` what else shows that ranks were merged. `recording_start` is the
    time that viewers show as 0. Times without a profiler are -1 where they were not measured.

    >>> import execgraph as eg
    >>> device = eg.read_device_trace("tests/data/training/device_rank0.json.gz")
    >>> device.rank, device.world_size, len(device.activities.start)
    (0, 2, 63)
    """

    path: str
    rank: int | None
    world_size: int | None
    base_time_ns: int
    groups: list[dict[str, Any]]
    ops: RecordedOps
    calls: RecordedCalls
    activities: RecordedActivities
    syncs: RecordedSyncs
    event_records: RecordedEvents
    communication: dict[Role, JsonRecords[kineto.Args]]
    queue_events: RecordedQueueEvents = field(default_factory=no_queue_events)
    python: RecordedPython | None = None
    labels: list[tuple[int, str]] = field(default_factory=list)
    merged: list[MergedRank] = field(default_factory=list)
    merge_marks: list[str] = field(default_factory=list)
    skipped: Counts = field(default_factory=Counts)
    oddities: Counts = field(default_factory=Counts)
    notes: list[str] = field(default_factory=list)
    ends_early: bool = False
    recording_start: int | None = None
    device_names: dict[int, str] = field(default_factory=dict)
    step_without_profiler_ns: int = -1
    data_wait_without_profiler_ns: int = -1
    read: int = 0
    ignored: int = 0

    def summary(self) -> Summary:
        """Returns the path of the file and the numbers of its rows."""
        ops, calls, activities = len(self.ops.start), len(self.calls.start), len(self.activities.start)
        lines = {
            "rows": format_counts({"ops": ops, "calls": calls, "activities": activities}),
            "notes": str(len(self.notes)),
        }
        return Summary(f"DeviceTrace: {self.path}", lines)

    @property
    def processes(self) -> list[int]:
        """The processes whose host rows the file holds."""
        return [int(pid) for pid in np.union1d(self.ops.process, self.calls.process)]
