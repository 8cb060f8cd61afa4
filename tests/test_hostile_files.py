"""Files that strangers wrote to do harm, through all commands: read, or refused in a line; `make fuzz` runs many more."""

import json
import os
import sys
from pathlib import Path

import pytest
from execgraph.converter import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.traces import LARGEST_ID
from execgraph.schema.traces.arguments import NO_LISTS, TOO_LARGE

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

from commands import KINDS, SHARES, case_of, check
from samples import played

SEED = int(os.environ.get("EXECGRAPH_FUZZ_SEED", "20"))
CASES = 300
TOGETHER = 30


@pytest.mark.parametrize("first", range(0, CASES, TOGETHER))
def test_changed_files_are_read_or_refused(first: int, tmp_path: Path) -> None:
    for number in range(first, first + TOGETHER):
        folder = tmp_path / str(number)
        folder.mkdir()
        check(case_of(SEED, number), folder)


def test_what_no_column_holds_is_given_anew_or_left_out_and_counted(tmp_path: Path) -> None:
    host, device = played("2.13", 0).write(tmp_path)
    nodes = json.loads(host.read_bytes())
    [op] = [node for node in nodes["nodes"] if node["name"] == "aten::mm"]
    op["id"] = (1 << 63) - 1
    op["inputs"]["values"][0] = [10**30, 10**30, 0, 5, 4, "cuda:0"]
    op["outputs"]["types"] = 5
    host.write_text(json.dumps(nodes))
    read = read_host_trace(str(host))
    assert read.noted == {"host nodes without an id of their own, given one": 1}
    assert read.id.max() <= LARGEST_ID
    report = convert(link(read, read_device_trace(str(device)))).report
    assert report is not None
    assert report.dropped == {NO_LISTS: 1, TOO_LARGE: 1}


def test_every_kind_of_file_has_its_share() -> None:
    assert {*SHARES} == {*KINDS}
