"""What the top level of a device trace says of the process's place among others, and of the devices."""

from typing import Any, NamedTuple

from ...schema.comm_groups import INT32_MAX
from ...schema.traces import FOREVER, integer, kineto


class DistributedInfo(NamedTuple):
    """Rank and world size are None where the file does not say them."""

    rank: int | None
    world_size: int | None
    base_time_ns: int
    groups: list[dict[str, Any]]


def device_names(top: kineto.DeviceFile) -> dict[int, str]:
    """Returns the recorded names of devices by number, where both are told."""
    listed = top.devices if isinstance(top.devices, list) else []
    known = [(integer(one.get("id"), -1), one.get("name")) for one in listed if isinstance(one, dict)]
    return {number: name for number, name in known if number >= 0 and isinstance(name, str) and name}


def place_in_job(top: kineto.DeviceFile) -> DistributedInfo:
    """Returns as the header of the file says; parts that are no ranks, no times, no numbers or no lists count as
    missing.
    """
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
