"""Host trace + device trace -> linked trace.

`read_host_trace` and `read_device_trace` read columns, `link` joins them, `LinkedTrace` is the result.
"""

from .device_rows import DeviceTrace
from .device_trace import read_device_trace
from .host_trace import HostTrace, read_host_trace
from .link import link

__all__ = ["DeviceTrace", "HostTrace", "link", "read_device_trace", "read_host_trace"]
