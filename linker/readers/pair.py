"""The two traces of one process: read together, or as `link` is given them, objects or files in their order."""

from typing import NamedTuple

from ...schema.arguments import InputFile, is_file, wrong_argument
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


CALL = "link(host, device)"


def given_traces(
    host: HostTrace | InputFile | None,
    device: DeviceTrace | InputFile | None,
    *,
    strict: bool = False,
    modules: bool = False,
) -> tuple[HostTrace | None, DeviceTrace]:
    """Returns both traces, read where they are given as files; `strict` refuses damaged ones, `modules` reads calls.

    Raises TypeError where one is missing, is of another kind, or both are in the other order.
    """
    if isinstance(host, DeviceTrace) and isinstance(device, HostTrace):
        raise TypeError(f"{CALL} takes the host trace first, then the device trace; these two are swapped")
    if not (host is None or is_file(host) or isinstance(host, HostTrace)):
        raise wrong_argument(CALL, "a HostTrace, the path of a host trace, or None first", host)
    if device is None:
        raise TypeError(f"{CALL} lacks the device trace; without a host trace write link(None, device)")
    if not (is_file(device) or isinstance(device, DeviceTrace)):
        raise wrong_argument(CALL, "a DeviceTrace or the path of a device trace second", device)
    return (
        host if host is None or isinstance(host, HostTrace) else read_host_trace(host, strict=strict),
        # the ops of a trace without a host trace keep the arguments that it recorded itself
        device
        if isinstance(device, DeviceTrace)
        else read_device_trace(device, strict=strict, arguments=host is None, modules=modules),
    )
