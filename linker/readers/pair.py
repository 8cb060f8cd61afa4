"""Reads both traces of a process."""

from typing import NamedTuple

from ...schema.progress import OnProgress, unseen
from .device_rows import DeviceTrace
from .device_trace import read_device_trace
from .host_trace import HostTrace, read_host_trace


class Traces(NamedTuple):
    """The traces of one process; the host trace may be missing."""

    host: HostTrace | None
    device: DeviceTrace


def read_traces(
    host: str | None, device: str, *, strict: bool = False, modules: bool = False, on_progress: OnProgress = unseen
) -> Traces:
    """Reads both traces, as `read_host_trace` and `read_device_trace` do.

    `on_progress` is called with the number of bytes read. Without a host trace the arguments of ops are read, too.
    """
    host_trace = read_host_trace(host, strict=strict, on_progress=on_progress) if host is not None else None
    no_host = host is None
    return Traces(
        host_trace,
        read_device_trace(device, strict=strict, arguments=no_host, on_progress=on_progress, modules=modules),
    )
