"""Texts within a trace that hold lists and objects: whoever wrote them may have written anything."""

import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.linked import integer_list, literal
from execgraph.schema.reasons import Reason
from execgraph.tools.commands import (
    trace_build as build,
    trace_convert,
    trace_diagnose,
    trace_link,
    trace_merge,
    trace_report,
)
from support.builder.timeline import TraceBuilder
from support.folders import ROOT

DEPTH = 5000
HOSTILE = (
    "[" * DEPTH, "[" * DEPTH + "]" * DEPTH, '{"a":' * DEPTH, "(" * DEPTH, "-" * DEPTH, "{[]}", "[{[]:1}]", "[{}, 1, null]",
    "9" * 400, f"[{'9' * DEPTH}]", "[1e999]", "[NaN]", "-Infinity", '{"a":{"b":[{"c":{}}]}}', '[{"ranks":{"a":{}},"pg_name":[{}]}]',
    '[{"ranks":[[0],{},null],"group_size":{}}]', "['\\ud800']", "[\udc00]", "[0]*10**9", "[0, x]", "'\\d'", "\0", " ",
)  # fmt: skip
HOST_FIELDS = "values", "in_split_size", "out_split_size", "pg_desc", "pg_name"
DEVICE_FIELDS = (
    "Concrete Inputs", "Input Dims", "Input type", "Process Group Ranks", "Process Group Name", "Process Group Description",
    "In split size", "Out split size", "pg_config",
)  # fmt: skip
NOT_UTF8 = b'"[\xff]"'


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_can_be_read(text: str) -> None:
    literal(text)
    integer_list(text)
    integer_list([text, literal(text)])


def test_what_is_read_is_what_json_and_python_mean() -> None:
    assert literal('[1, {"a": null}]') == [1, {"a": None}]
    assert literal("[1, {'a': None}, (True,)]") == [1, {"a": None}, (True,)]
    assert [*map(literal, ("", "x", "[1", "print(1)", "[" * DEPTH, "{[]}", "[{[]: 1}]"))] == [None] * 7


def test_a_list_of_numbers_is_a_list_of_numbers_alone() -> None:
    assert integer_list("[0, -1, 2]") == integer_list([0, -1, 2.0]) == [0, -1, 2]
    assert integer_list("") == integer_list(None) == integer_list("[0, 1, ..., 7]") == []
    assert [*map(integer_list, ("[1, x]", "[1.5, '2']", "7 8", 7, [[1]], "{[]}"))] == [None] * 6


def test_no_other_module_reads_such_texts() -> None:
    modules = (
        path for package in ("schema", "linker", "converter", "tools") for path in (ROOT / package).rglob("*.py")
    )
    assert [path.name for path in modules if "literal_eval" in path.read_text()] == ["numbers.py"]


def a_run() -> TraceBuilder:
    t = TraceBuilder("2.13", rank=0, world_size=2)
    group, tensor = t.group([0, 1], name="0"), t.tensor((4, 8))
    with t.op("aten::mm", inputs=[tensor, tensor], outputs=[tensor]):
        t.launch("sgemm", 7, 20)
    for _ in HOSTILE:
        t.collective("alltoall_base", group=group, tensors=[tensor], in_split=[1, 3], out_split=[2, 2])
    return t


def objects(value: Any) -> Iterator[dict[str, Any]]:
    for inside in value.values() if isinstance(value, dict) else value:
        if isinstance(inside, dict | list):
            yield from objects(inside)
    if isinstance(value, dict):
        yield value


def changed(document: dict[str, Any], field: str) -> dict[str, Any]:
    """With another hostile text in each place of that name, and in the arguments of all rows, as it is or in lists."""
    texts = cycle(way for text in HOSTILE for way in (text, [text], [[text]]))
    for row in document.get("traceEvents", ()):
        row.setdefault("args", {}).setdefault(field, None)
    for one in objects(document):
        if field in one:
            one[field] = next(texts)
        if one.get("name") == field and "value" in one:
            one["value"] = next(texts)
    return document


@pytest.mark.parametrize("field", [*HOST_FIELDS, *DEVICE_FIELDS])
def test_no_command_stumbles_over_a_text_in_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str
) -> None:
    def command(entry: Any, *arguments: object) -> None:
        with pytest.raises(SystemExit) as ended:
            entry.main([*map(str, arguments)])
        said = capsys.readouterr().err
        assert ended.value.code in (0, 1) and "internal error" not in said, said
        assert ended.value.code == 0 or "error: " in said

    (tmp_path / "traces").mkdir()
    host, device = a_run().write(tmp_path / "traces")
    path = host if field in HOST_FIELDS else device
    text = json.dumps(changed(json.loads(path.read_bytes()), field)).encode()
    path.write_bytes(text.replace(b'" "', NOT_UTF8))
    command(trace_link, host, device, "-o", tmp_path / "linked.json")
    if (tmp_path / "linked.json").exists():
        command(trace_convert, tmp_path / "linked.json", "-o", tmp_path / "graph.et")
    command(trace_link, device, "-o", tmp_path / "device.json")
    if (tmp_path / "device.json").exists():
        command(trace_convert, tmp_path / "device.json", "-o", tmp_path / "graph.et")
    command(trace_diagnose, tmp_path / "traces")
    command(trace_merge, device, "-o", tmp_path / "merged.json")
    command(trace_report, host, device, "--json")
    command(build, tmp_path / "traces", "-o", tmp_path / "graphs", "--jobs", 1)


def noted(tmp_path: Path, file: int, field: str, text: str) -> dict[str, int]:
    paths = a_run().write(tmp_path)
    document = json.loads(paths[file].read_bytes())
    for one in objects(document):
        if field in one:
            one[field] = [text] if field == "values" and "process_group:init" in str(one) else text
        if one.get("name") == field:
            one["value"] = text
    paths[file].write_text(json.dumps(document))
    return link(read_host_trace(str(paths[0])), read_device_trace(str(paths[1]))).report.oddities


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    assert noted(tmp_path, 1, "Process Group Ranks", "[{[]:1}]")[Reason.UNREADABLE_LISTS] >= len(HOSTILE)
    assert noted(tmp_path, 0, "in_split_size", "{[]}")[Reason.UNREADABLE_LISTS] == len(HOSTILE)
    assert Reason.UNREADABLE_LISTS not in noted(tmp_path, 0, "in_split_size", "[1, 3]")


@pytest.mark.parametrize(("text", "count"), [("{[]}", 1), ("[" * DEPTH, 1), ('[{"pg_name": "0"}, 7]', 1), ("[]", 0)])
def test_a_description_of_groups_that_cannot_be_read_is_counted(tmp_path: Path, text: str, count: int) -> None:
    host, device = a_run().write(tmp_path)
    document = json.loads(host.read_bytes())
    [init] = [node for node in document["nodes"] if "process_group:init" in node["name"]]
    init["inputs"]["values"] = [text]
    host.write_text(json.dumps(document))
    found = link(read_host_trace(str(host)), read_device_trace(str(device))).report.oddities
    assert found.get(Reason.UNREADABLE_GROUPS, 0) == count
