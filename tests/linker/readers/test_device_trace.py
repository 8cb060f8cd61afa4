"""What is no device trace, and what is, by what the file holds."""

import json
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.readers import DeviceTrace, read_device_trace
from execgraph.schema.errors import DataError
from execgraph.schema.reasons import Reason
from support.builder.timeline import TraceBuilder


def read(tmp_path: Path, content: Any, **options: bool) -> DeviceTrace:
    path = tmp_path / "device.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_device_trace(str(path), **options)


def small_run(**args: Any) -> dict[str, Any]:
    t = TraceBuilder()
    with t.op("aten::mm", args=args):
        t.launch("sgemm", **args)
    return t.device_trace()


def test_a_host_trace_in_its_place_is_named(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.leaf("aten::mm", 5)
    with pytest.raises(DataError, match=r"device.json: a host trace \(it has nodes\); expected a Kineto device trace"):
        read(tmp_path, t.host_trace())


def test_a_file_without_events_is_no_trace(tmp_path: Path) -> None:
    for content in ({"traceEvents": []}, []):
        with pytest.raises(DataError, match="holds no host op and no device activity; expected a Kineto trace"):
            read(tmp_path, content)
    with pytest.raises(DataError, match="expected a Kineto device trace"):
        read(tmp_path, {"other": 1})


def test_of_a_damaged_file_without_events_the_damage_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected a Kineto trace with traceEvents; ") as refused:
        read(tmp_path, '{"traceEvents": [')
    assert str(refused.value).count("device.json") == 1


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    assert len(read(tmp_path, small_run()["traceEvents"]).activities.start) == 1


def test_lists_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    known = read(tmp_path, small_run(**{"Process Group Ranks": [0, 1], "Collective name": "allreduce"}))
    assert Reason.UNREADABLE_LISTS not in known.oddities
    torn = read(tmp_path, small_run(**{"Process Group Ranks": "[0, {}", "Collective name": "allreduce"}))
    assert torn.oddities[Reason.UNREADABLE_LISTS] > 0


def test_arguments_that_are_no_lists_are_counted(tmp_path: Path) -> None:
    lists = small_run(**{"Input Dims": [[2]], "Input type": ["float"]})
    assert Reason.ARGUMENTS_NO_LISTS not in read(tmp_path, lists, arguments=True).oddities
    others = small_run(**{"Input Dims": [[2]], "Input type": 5, "Concrete Inputs": {}})
    assert read(tmp_path, others, arguments=True).oddities[Reason.ARGUMENTS_NO_LISTS] == 2
