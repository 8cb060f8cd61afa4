"""Reads trace files into columns: host traces, device traces of all formats, and one rank of merged ones."""

from .cupti_rows import within_launches
from .database import opened
from .device_rows import (
    DEVICE_SIDE_WAITS, INSTANT, DeviceTrace, KeptRows, RecordedEvents, RecordedOps, RecordedPython, RecordedQueueEvents,
    RecordedSyncs, Role, role_of, select, select_linked,
)  # fmt: skip
from .device_trace import OWN_FILES, merged_ranks, merging_signs, one_rank, ranks_of_processes, read_device_trace
from .formats import NoTraceError, is_transcoded, open_trace
from .host_trace import ROOT_NODE, HostTrace, read_host_trace
from .kineto_rows import FIRST_DEPENDENCY
