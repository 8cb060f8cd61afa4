"""Large traces are read by two processes: what comes of it is what one of them reads, files that cannot be read are refused alike."""

import os
import sys
from pathlib import Path

import pytest
from execgraph.linker import link, read_device_trace, read_host_trace
from execgraph.linker.readers import read_traces, side_by_side
from execgraph.schema.errors import DataError
from execgraph.schema.linked import write_linked

pytestmark = pytest.mark.skipif(os.name != "posix", reason="files are handed to another process by their number")


@pytest.fixture(autouse=True)
def always_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest trace counts as large, and there is a second core."""
    monkeypatch.setattr(side_by_side, "_is_worth_it", lambda *_: True)


def pair(data: Path) -> tuple[str, str]:
    return str(data / "training" / "host_rank0.json.gz"), str(data / "training" / "device_rank0.json.gz")


def test_both_traces_are_those_that_are_read_alone(data: Path, tmp_path: Path) -> None:
    host, device = pair(data)
    write_linked(link(*read_traces(host, device, folder=tmp_path)), str(tmp_path / "together"))
    write_linked(link(read_host_trace(host), read_device_trace(device)), str(tmp_path / "alone"))
    assert (tmp_path / "together").read_bytes() == (tmp_path / "alone").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"together", "alone"}


def test_the_host_trace_is_read_in_another_process(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "read_host_trace", lambda *_: pytest.fail("read here"))
    assert read_traces(*pair(data), folder=tmp_path).host is not None


def test_a_device_trace_alone_is_read_in_one_process(data: Path, tmp_path: Path) -> None:
    found = read_traces(None, pair(data)[1], folder=tmp_path)
    assert found.host is None and len(found.device.activities.start)


@pytest.mark.parametrize("bad", [("host",), ("device",), ("host", "device")])
def test_the_first_trace_that_cannot_be_read_is_refused(data: Path, tmp_path: Path, bad: tuple[str, ...]) -> None:
    host, device = (
        str(tmp_path / kind) if kind in bad else path for kind, path in zip(("host", "device"), pair(data), strict=True)
    )
    with pytest.raises(DataError, match=f"{tmp_path / bad[0]}: cannot be read"):
        read_traces(host, device, folder=tmp_path)


def test_a_process_that_dies_is_done_without(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    host, device = pair(data)
    found = read_traces(host, device, folder=tmp_path).host
    assert found is not None and found.id.tolist() == read_host_trace(host).id.tolist()


def test_no_module_comes_from_the_folder_that_the_command_runs_in(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    monkeypatch.chdir(tmp_path)
    read_traces(*pair(data), folder=tmp_path)
    assert not (tmp_path / "imported").exists()
