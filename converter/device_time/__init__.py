"""The device's time: how long after its release each activity started, what of that is usual, and what are delays."""

from .delays import Delays as Delays, by_cause as by_cause, delays as delays
from .device_room import ConcurrencyLimit as ConcurrencyLimit, device_room as device_room
from .device_time import DeviceTime as DeviceTime, device_time as device_time
