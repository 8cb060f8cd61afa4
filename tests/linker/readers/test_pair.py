"""Both traces of a pair are read as each is by itself, and the first one that cannot be read is named."""

from pathlib import Path

import pytest
from execgraph.linker.readers import read_device_trace, read_host_trace, read_traces
from execgraph.schema.errors import DataError


def test_both_traces_are_those_that_are_read_alone(data: Path) -> None:
    host_path, device_path = (str(data / "training" / f"{kind}_rank0.json.gz") for kind in ("host", "device"))
    read = list[int]()
    host, device = read_traces(host_path, device_path, on_progress=read.append)
    assert host is not None and host.id.tolist() == read_host_trace(host_path).id.tolist()
    assert device.activities.start.tolist() == read_device_trace(device_path).activities.start.tolist()
    assert sum(read) > 0


def test_without_a_host_trace_the_arguments_of_ops_come_from_the_device_trace(data: Path) -> None:
    path = str(data / "training" / "device_rank0.json.gz")
    host, device = read_traces(None, path)
    expected = read_device_trace(path, arguments=True).ops.arguments
    assert host is None and len(expected.table) > 1 and device.ops.arguments.table == expected.table


def test_the_first_trace_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path / 'host'}: cannot be read"):
        read_traces(str(tmp_path / "host"), str(tmp_path / "device"))
