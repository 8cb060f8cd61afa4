"""Host trace + device trace -> linked trace.

`read_host_trace` and `read_device_trace` read columns, `link` joins them, `LinkedTrace` is the result. `read_linked`
reads one from a file.
"""

from .link import link, read_linked
from .readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace
