"""Both traces of a pair are read as each is by itself, and the first one that cannot be read is named.

`link` takes traces or their files, and answers wrong arguments in its own words.
"""

from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.link import link, read_traces
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.errors import DataError
from support.runs import read_pair, small_run


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


FOLDER = Path("tests/data/training")
HOST, DEVICE = FOLDER / "host_rank0.json.gz", FOLDER / "device_rank0.json.gz"
PAIR = read_pair(small_run())


def test_files_link_as_the_traces_in_them_and_a_device_trace_alone_keeps_its_arguments() -> None:
    linked = link(HOST, str(DEVICE))
    assert linked.report.matched == linked.report.host_ops == 200
    assert "0 of 200 ops have shapes" not in link(None, DEVICE).report.notes[-1]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("a",), r"lacks the device trace; without a host trace write link\(None, device\)"),
        ((PAIR[1], PAIR[0]), "these two are swapped"),
        ((["a"],), r"takes a HostTrace, the path of a host trace, or None first, not list"),
        ((3, PAIR[1]), "takes a HostTrace, the path of a host trace, or None first, not int"),
        ((PAIR[0], [PAIR[1]]), "takes a DeviceTrace or the path of a device trace second, not list"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[Any, ...], answer: str) -> None:
    with pytest.raises(TypeError, match=answer):
        link(*arguments)


def test_swapped_files_are_told_apart_without_the_options_of_a_command() -> None:
    with pytest.raises(DataError, match=r"a device trace \(it has traceEvents\)") as raised:
        link(DEVICE, HOST)
    assert "--" not in str(raised.value)
