"""Host trace + device trace -> linked trace."""

from .link import link, read_linked
from .readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace
