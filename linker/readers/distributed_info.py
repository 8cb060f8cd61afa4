"""Reads the rank, world size, groups, device names and the length of a step from the top level of a device trace."""

from typing import Any, NamedTuple

from ...schema.comm_groups import INT32_MAX
from ...schema.linked import FOREVER, LONGEST_RECORDING, integer, kineto


class DistributedInfo(NamedTuple):
    """The process in its job; rank and world size are None where they are not recorded."""

    rank: int | None
    world_size: int | None
    base_time_ns: int
    groups: list[dict[str, Any]]


def device_names(top: kineto.DeviceFile) -> dict[int, str]:
    """Returns the recorded names of devices by number."""
    devices = top.devices if isinstance(top.devices, list) else []
    names = [(integer(device.get("id"), -1), device.get("name")) for device in devices if isinstance(device, dict)]
    return {number: name for number, name in names if number >= 0 and isinstance(name, str) and name}


class TimesWithoutProfiler(NamedTuple):
    """How long a step takes without a profiler (ns), and how long its loop waits for PyTorch's data loader; -1 where
    that was not measured.
    """

    step_without_profiler_ns: int
    data_wait_without_profiler_ns: int


def times_without_profiler(top: kineto.DeviceFile) -> TimesWithoutProfiler:
    """Returns what the top level of the file says of steps without a profiler; a wait is no longer than its step."""
    step, wait = map(_nanoseconds, (top.step_without_profiler, top.data_wait_without_profiler))
    return TimesWithoutProfiler(step if step > 0 else -1, wait if wait <= step else -1)


def _nanoseconds(time_us: Any) -> int:
    is_time = isinstance(time_us, int | float) and 0 <= time_us < LONGEST_RECORDING / 1000
    return round(time_us * 1000) if is_time else -1


def distributed_info(top: kineto.DeviceFile) -> DistributedInfo:
    """Returns what the top level of the file records; invalid values count as missing."""
    distributed = top.distributed or kineto.DistributedInfo()
    rank, world = integer(distributed.rank, -1), integer(distributed.world_size, -1)
    base_time = integer(top.base_time, 0)
    groups = distributed.pg_config if isinstance(distributed.pg_config, list) else []
    return DistributedInfo(
        rank if 0 <= rank <= INT32_MAX else None,
        world if 0 < world <= INT32_MAX else None,
        base_time if 0 <= base_time < FOREVER else 0,
        [group for group in groups if isinstance(group, dict)],
    )
