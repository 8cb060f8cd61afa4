"""Reads trace files into columns: host traces, device traces as Kineto JSON or rocpd, and one rank of merged ones."""

from .device_rows import (
    DEVICE_SIDE_WAITS as DEVICE_SIDE_WAITS,
    INSTANT as INSTANT,
    DeviceTrace as DeviceTrace,
    KeptRows as KeptRows,
    RecordedActivities as RecordedActivities,
    RecordedCalls as RecordedCalls,
    RecordedEvents as RecordedEvents,
    RecordedOps as RecordedOps,
    RecordedPython as RecordedPython,
    RecordedQueueEvents as RecordedQueueEvents,
    RecordedSyncs as RecordedSyncs,
    Role as Role,
    role_of as role_of,
    select_linked as select_linked,
)
from .device_trace import read_device_trace as read_device_trace
from .host_trace import ROOT_NODE as ROOT_NODE, HostTrace as HostTrace, read_host_trace as read_host_trace
from .merged import merging_signs as merging_signs, one_rank as one_rank
from .rocpd_database import (
    dialect as dialect,
    is_database as is_database,
    is_merged as is_merged,
    is_rocpd as is_rocpd,
    opened as opened,
    processes as processes,
)
from .rocpd_rows import read_rocpd as read_rocpd
