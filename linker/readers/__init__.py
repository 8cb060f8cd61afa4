"""Trace files in, columns of what was recorded out: host traces, device traces as Kineto JSON or rocpd databases, one rank of several."""

from .categories import DEVICE_SIDE_WAITS, INSTANT, Role, role_of
from .device_rows import (
    ActivityRows,
    CallRows,
    DeviceTrace,
    EventRecordRows,
    OpRows,
    PythonRows,
    QueueEventRows,
    SyncRows,
)
from .device_trace import read_device_trace
from .host_trace import ROOT_NODE, HostTrace, read_host_trace
from .merged import merging_signs, one_rank
from .rocpd_database import dialect, is_database, is_merged, is_rocpd, opened, processes
from .selection import Kept, select_linked, select_rows
from .side_by_side import Traces, read_traces
from .sync_calls import SYNC_RECORDS, SyncCall, sync_calls

__all__ = [
    "DEVICE_SIDE_WAITS",
    "INSTANT",
    "ROOT_NODE",
    "SYNC_RECORDS",
    "ActivityRows",
    "CallRows",
    "DeviceTrace",
    "EventRecordRows",
    "HostTrace",
    "Kept",
    "OpRows",
    "PythonRows",
    "QueueEventRows",
    "Role",
    "SyncCall",
    "SyncRows",
    "Traces",
    "dialect",
    "is_database",
    "is_merged",
    "is_rocpd",
    "merging_signs",
    "one_rank",
    "opened",
    "processes",
    "read_device_trace",
    "read_host_trace",
    "read_traces",
    "role_of",
    "select_linked",
    "select_rows",
    "sync_calls",
]
