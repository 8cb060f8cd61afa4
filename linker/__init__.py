"""Host trace + device trace -> linked trace.

`read_host_trace` and `read_device_trace` read columns, `link` joins them, `LinkedTrace` is the result. `read_linked` reads one from a
file.
"""

from .foreign import read_linked
from .link import link
from .readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace

__all__ = ["DeviceTrace", "HostTrace", "link", "read_device_trace", "read_host_trace", "read_linked"]
