"""Files made to do harm and found by hand; test_cases.py and `make fuzz` run many more through all commands."""

import json
from pathlib import Path

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.columns import BytesColumn
from execgraph.schema.counts import Counts
from execgraph.schema.linked import LARGEST_ID, read_arguments, usable_arguments
from execgraph.schema.reasons import Reason

from fuzz.running import run
from fuzz.samples import played


def test_what_no_column_holds_is_given_anew_or_left_out_and_counted(tmp_path: Path) -> None:
    host, device = played("2.13", 0).write(tmp_path)
    nodes = json.loads(host.read_bytes())
    [op] = [node for node in nodes["nodes"] if node["name"] == "aten::mm"]
    op["id"] = (1 << 63) - 1
    op["inputs"]["values"][0] = [10**30, 10**30, 0, 5, 4, "cuda:0"]
    op["inputs"]["shapes"][0] = [10**30]
    op["outputs"] |= {"types": 5, "strides": None}
    host.write_text(json.dumps(nodes))
    read = read_host_trace(str(host))
    counted = {
        Reason.NODES_WITHOUT_ID: 1,
        Reason.ARGUMENTS_NO_LISTS: 2,
        Reason.TENSORS_TOO_LARGE: 2,
    }
    assert read.oddities == counted
    assert read.id.max() <= LARGEST_ID
    linked = link(read, read_device_trace(str(device)))
    assert counted.items() <= linked.report.oddities.items()
    report = convert(linked).report
    assert report is not None and not report.dropped


def test_arguments_that_cannot_be_used_are_empty_and_all_others_stay() -> None:
    counted = Counts()
    odd = {
        b'{"values":[[4,5,0,1,4,"cuda:0"],"no\\":5"],"x":5}': b'{"values":[[4,5,0,1,4,"cuda:0"],"no\\":5"],"x":5}',
        b'{"values" : {},"shapes":[[1]]}': b'{"values":[],"shapes":[[1]]}',
        b'{"values":[[4,5,0,1,9999,"cuda:0"],[4,5,0,1000000000000000,4,"cpu"]]}': b'{"values":[[],[]]}',
        b'{"strides": [[1000000000000000000000]],"values":[1000000000000000000000]}': b'{"strides":[],"values":[1000000000000000000000]}',
    }
    assert usable_arguments([*odd], counted) == [*odd.values()]
    assert counted == {Reason.ARGUMENTS_NO_LISTS: 1, Reason.TENSORS_TOO_LARGE: 3}


def test_a_linked_file_of_another_is_read_as_carefully(tmp_path: Path) -> None:
    host, device = played("2.13", 0).write(tmp_path)
    linked = link(read_host_trace(str(host)), read_device_trace(str(device)))
    linked.ops.inputs = BytesColumn.of([b'{"values":5}'] * len(linked.ops))
    report = convert(linked).report
    assert report is not None and report.dropped[Reason.ARGUMENTS_NO_LISTS] > 1


def test_halves_of_characters_and_numbers_without_end_are_read_from_text_inside_a_trace(tmp_path: Path) -> None:
    host, device = played("2.13", 0).write(tmp_path)
    trace = json.loads(device.read_bytes())
    trace |= {"deviceProperties": [{"id": 0, "name": "\ud800"}], "cuda_driver_version": "9" * 5000}
    device.write_text(json.dumps(trace, sort_keys=True))
    nodes = json.loads(host.read_bytes())
    [init] = [node for node in nodes["nodes"] if "process_group:init" in node["name"]]
    init["inputs"]["values"] = [json.dumps([{"pg_name": "\ud800", "pg_desc": "\udfff", "ranks": [0]}])]
    host.write_text(json.dumps(nodes))
    assert run("diagnose", tmp_path, "--json")[0] == 0
    assert run("link", "--host-trace", host, "--device-trace", device, "--output", tmp_path / "linked.json")[0] == 0


@pytest.mark.parametrize("size", [-(10**30), 10**30])
def test_a_view_of_elements_of_no_size_has_no_bytes(size: int) -> None:
    arguments = b'{"values":[[1,2,0,4,%d,"cuda:0"]],"shapes":[[4]],"strides":[[1]]}' % size
    assert not read_arguments([arguments], ()).tensors.spanned.any()
