"""What passed between the release of each device activity and its start: the usual latency or gap, and delays."""

from .concurrency_limit import ConcurrencyLimit as ConcurrencyLimit, concurrency_limit as concurrency_limit
from .delays import Delays as Delays, by_cause as by_cause, delays as delays
from .device_time import DeviceTime as DeviceTime, device_time as device_time
