"""Recognises by name which runtime and driver calls record, await, query or free. Any call may launch."""

import re
from enum import IntEnum

from ..columns import Categorical, Int64


class SyncCall(IntEnum):
    """What a runtime call has to do with waiting; NONE for nothing."""

    NONE = 0
    EVENT_RECORD = 1
    STREAM_WAIT = 2
    EVENT_SYNC = 3
    STREAM_SYNC = 4
    DEVICE_SYNC = 5
    EVENT_QUERY = 6
    FREE = 7


_VENDOR = r"^(?:cuda|cu|hip|mu|musa)"
_NAMES = (
    (SyncCall.EVENT_RECORD, _VENDOR + r"EventRecord(?:WithFlags)?$"),
    (SyncCall.STREAM_WAIT, _VENDOR + r"StreamWaitEvent$"),
    (SyncCall.EVENT_SYNC, _VENDOR + r"EventSynchronize$|^(?:ur|pi)Events?Wait$"),
    (SyncCall.STREAM_SYNC, _VENDOR + r"StreamSynchronize$|synchronizeStream|^(?:ur|pi)QueueFinish$"),
    (SyncCall.DEVICE_SYNC, _VENDOR + r"(?:Device|Thread|Ctx)Synchronize$|synchronizeDevice"),
    (SyncCall.EVENT_QUERY, _VENDOR + r"EventQuery$"),
    (SyncCall.FREE, _VENDOR + r"(?:Mem)?(?:Free|FreeHost|HostFree|FreeArray|FreeMipmappedArray)$"),
)
_NAMED_BY_RECORD = (SyncCall.STREAM_WAIT, SyncCall.EVENT_SYNC, SyncCall.STREAM_SYNC)
_SUFFIX = re.compile(r"(_ptsz|_ptds|_spt|_v\d+)+$")


def sync_call(name: str) -> SyncCall:
    """Returns the meaning of a call's name; per-thread-stream and version suffixes do not matter.

    >>> sync_call("cudaStreamSynchronize_ptsz").name, sync_call("cudaLaunchKernel").name
    ('STREAM_SYNC', 'NONE')
    """
    plain = _SUFFIX.sub("", name)
    return next((kind for kind, pattern in _NAMES if re.search(pattern, plain)), SyncCall.NONE)


def sync_calls(names: Categorical) -> Int64:
    """Returns the SyncCall of every call."""
    return names.numbers(sync_call, SyncCall.NONE)


def waits_without_record(calls: Categorical, sync_records: int) -> int:
    """Returns how many CUDA calls wait for a stream or an event that the trace does not name.

    None do in a trace that has synchronisation records. Waits for a whole device need none, and other vendors'
    profilers have none.

    >>> from execgraph.schema.columns import Categorical
    >>> calls = Categorical.of(["cudaStreamWaitEvent", "cudaDeviceSynchronize", "hipStreamWaitEvent"])
    >>> waits_without_record(calls, 0), waits_without_record(calls, 1)
    (1, 0)
    """
    if sync_records:
        return 0
    return int(calls.where(lambda name: name.startswith("cu") and sync_call(name) in _NAMED_BY_RECORD).sum())


SYNC_RECORDS = {
    "stream wait event": SyncCall.STREAM_WAIT,
    "event sync": SyncCall.EVENT_SYNC,
    "stream sync": SyncCall.STREAM_SYNC,
    "context sync": SyncCall.DEVICE_SYNC,
}
