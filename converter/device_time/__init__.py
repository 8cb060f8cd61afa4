"""The device's time: how long after its release each activity started, what of that is usual, and what are delays."""

from .delays import Delays, by_cause, delays
from .device_room import Room, device_room
from .device_time import DeviceTime, device_time

__all__ = [
    "Delays",
    "DeviceTime",
    "Room",
    "by_cause",
    "delays",
    "device_room",
    "device_time",
]
