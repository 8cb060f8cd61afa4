"""Where in its job a process stands, as far as the header of its device trace says so."""

from typing import Any

import pytest
from execgraph.linker.readers.device_trace import (
    DistributedInfo,
    device_names,
    distributed_info,
    times_without_profiler,
)
from execgraph.schema.linked import LONGEST_RECORDING, kineto


def place(base_time: Any = None, **distributed: Any) -> DistributedInfo:
    return distributed_info(kineto.DeviceFile(distributed=kineto.DistributedInfo(**distributed), base_time=base_time))


@pytest.mark.parametrize(("rank", "found"), [(0, 0), ("5", 5), (-1, None), (None, None), ("none", None)])
def test_a_rank_is_a_number_from_zero(rank: Any, found: int | None) -> None:
    assert place(rank=rank).rank == found


@pytest.mark.parametrize(("size", "found"), [(1, 1), ("8", 8), (0, None), (-1, None), (None, None)])
def test_a_world_has_at_least_one_rank(size: Any, found: int | None) -> None:
    assert place(world_size=size).world_size == found


def test_groups_are_those_that_are_records() -> None:
    assert place(pg_config=[{"pg_name": "0"}, 7, {}]).groups == [{"pg_name": "0"}, {}]
    assert place(pg_config="none").groups == []


def test_a_header_may_say_nothing() -> None:
    assert distributed_info(kineto.DeviceFile()) == DistributedInfo(None, None, 0, [])
    assert place(base_time="12").base_time_ns == 12


def test_devices_have_numbers_from_zero_and_names() -> None:
    devices = [
        {"id": 0, "name": "A100"},
        {"id": "1", "name": "H100"},
        {"id": -1, "name": "x"},
        {"id": 2},
        {"name": "x"},
        7,
    ]
    assert device_names(kineto.DeviceFile(devices=devices)) == {0: "A100", 1: "H100"}
    assert device_names(kineto.DeviceFile(devices="none")) == {}


@pytest.mark.parametrize(
    ("recorded", "found"),
    [(3662.9, 3_662_900), (5, 5000), (0.001, 1), (0, -1), (-3, -1), ("3", -1), (1e300, -1), (None, -1)],
)
def test_the_length_of_a_step_is_a_time_above_zero(recorded: Any, found: int) -> None:
    assert times_without_profiler(kineto.DeviceFile(step_without_profiler=recorded)) == (found, -1)


def test_a_step_is_shorter_than_the_longest_recording() -> None:
    for step_us, is_known in ((LONGEST_RECORDING // 1000 - 1, True), (LONGEST_RECORDING // 1000 + 1, False)):
        times = times_without_profiler(kineto.DeviceFile(step_without_profiler=step_us))
        assert (times.step_without_profiler_ns > 0) == is_known


@pytest.mark.parametrize(("recorded", "found"), [(0.5, 500), (0, 0), (5, 5000), (5.1, -1), (-1, -1), ("x", -1)])
def test_a_wait_for_data_is_a_part_of_its_step(recorded: Any, found: int) -> None:
    top = kineto.DeviceFile(step_without_profiler=5, data_wait_without_profiler=recorded)
    assert times_without_profiler(top) == (5000, found)
    alone = kineto.DeviceFile(data_wait_without_profiler=recorded)
    assert times_without_profiler(alone) == (-1, -1)
