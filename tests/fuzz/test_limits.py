"""Hostile files: whatever reads them ends soon, in little memory, with one clear line or with what was readable.

Files made to do harm and found by hand; test_cases.py and `make fuzz` run many more through all commands.
"""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zstandard
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.columns import BytesColumn
from execgraph.schema.comm_groups import read_groups
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph, varint
from execgraph.schema.graph.json_files import graph_to_json, json_to_graph
from execgraph.schema.io import GZIP_MAGIC
from execgraph.schema.io.files import ZSTD_MAGIC
from execgraph.schema.linked import LARGEST_ID, Arguments, read_linked, usable_arguments
from execgraph.schema.reasons import Counts, Reason
from execgraph.tools.commands import trace_convert, trace_jsonize, trace_link, trace_replay
from execgraph.tools.replay import replay

from fuzz.running import run
from fuzz.samples import played

resource = pytest.importorskip("resource", reason="the system limits no memory")
if not Path("/proc/self/statm").exists():
    pytest.skip("the system does not tell how much memory a process has", allow_module_level=True)

MB = 1 << 20
LONGEST_S = 10.0
LARGEST = 800 * MB
"""What reading one of these files of a few MB may take: seconds of this process, and memory beside what it has."""


@contextmanager
def bounded() -> Iterator[None]:
    """Time and memory in here are limited, and a refusal is one line of a readable length."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + LARGEST, hard))
    begin = time.process_time()
    try:
        yield
    except DataError as error:
        assert 0 < len(str(error)) < 1400 and "\n" not in str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert time.process_time() - begin < LONGEST_S


def written(folder: Path, content: bytes) -> str:
    (folder / "file").write_bytes(content)
    return str(folder / "file")


def silent(_: int) -> None:
    """Nobody watches the progress."""


def jsonize(path: str) -> None:
    graph_to_json(path, f"{path}.json", silent)


def unjsonize(path: str) -> None:
    json_to_graph(path, f"{path}.et", silent)


def replay_file(path: str) -> None:
    replay(ExecutionGraph.read(path, tensors=False))


# JSON


class Reader(NamedTuple):
    """What reads a file, how the file begins, and how an element in it does."""

    read: Callable[[str], Any]
    begin: bytes
    element: bytes


READERS = {
    "device": Reader(read_device_trace, b'{"traceEvents": [', b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2'),
    "host": Reader(read_host_trace, b'{"schema": "1.1.1", "nodes": [', b'{"id": 1, "name": "a"'),
    "linked": Reader(read_linked, b'{"schema": "1.1.1", "nodes": [', b'{"id": 1, "name": "a", "ts": 1'),
    "graph as JSON": Reader(unjsonize, b'{"metadata": {}, "nodes": [', b'{"id": 1, "name": "a"'),
    "groups": Reader(read_groups, b'{"1": [', b"1"),
}  # fmt: skip

HOSTILE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "lists in lists": lambda begin, _: begin + b"[" * MB,
    "objects in objects": lambda begin, _: begin + b'{"a":' * MB,
    "lists around all": lambda begin, _: b"[" * MB + begin,
    "objects around all": lambda begin, _: b'{"a":' * (MB // 4) + begin,
    "a number of a million digits": lambda begin, element: begin + element + b', "x": ' + b"9" * MB + b"}]}",
    "an id of a million digits": lambda begin, _: begin + b'{"id": ' + b"9" * MB + b', "ph": "X"}]}',
    "a text of 8 MB without an end": lambda begin, element: begin + element + b', "x": "' + b"x" * (8 * MB),
    "backslashes": lambda begin, element: begin + element + b', "x": "' + b"\\" * (2 * MB),
    "quotes": lambda begin, element: begin + element + b', "x": "' + b'"' * (2 * MB),
    "the list in a text, over and over": lambda begin, _: b'{"x": "' + begin.lstrip(b"{") * 20_000,
    "the list in the list, over and over": lambda begin, _: begin * 6_000,
    "elements that begin and never end": lambda begin, element: begin + (element + b",\n") * 5_000,
    "elements without an end of the list": lambda begin, element: begin + (element + b"},") * 25_000,
    "commas": lambda begin, _: begin + b"," * (2 * MB),
    "closing brackets": lambda begin, _: begin + b"}]" * MB,
    "starts of texts": lambda begin, _: begin + b'":"' * MB,
    "a hundred thousand keys": lambda begin, element: begin + element + b"".join(b', "k%d": 1' % key for key in range(100_000)) + b"}]}",
    "a key of a million letters": lambda begin, element: b'{"' + b"k" * MB + b'": [1], ' + begin[1:] + element + b"}]}",
    "spaces": lambda begin, _: begin + b" " * (2 * MB),
    "zeros": lambda begin, _: begin + bytes(2 * MB),
    "halves of elements": lambda begin, _: begin + b'{"a":1},{"b":' * 100_000,
}  # fmt: skip


OTHERS = [reader for reader in READERS if reader not in ("device", "groups")]
"""They stream JSON as the reader of device traces does: each gets a third of what is hostile."""


@pytest.mark.parametrize(
    ("reader", "hostile"),
    [
        *((reader, hostile) for reader in ("device", "groups") for hostile in HOSTILE),
        *((OTHERS[(row + 1) % 3], hostile) for row, hostile in enumerate(HOSTILE)),
    ],
)
def test_hostile_json_ends_soon(tmp_path: Path, reader: str, hostile: str) -> None:
    path = written(tmp_path, HOSTILE[hostile](READERS[reader].begin, READERS[reader].element))
    with bounded():
        READERS[reader].read(path)


# Graphs


def message(*fields: bytes) -> bytes:
    content = b"".join(fields)
    return varint(len(content)) + content


ID = b"\x08\x01"
METADATA = message()
ABSURD = {
    "a length of 2 GB": varint((1 << 31) - 1) + bytes(10), "a length of 2**70": b"\xff" * 10 + b"\x01" * 10,
    "a name of 8 GB": METADATA + message(ID, b"\x12" + varint(1 << 33)),
    "a million nodes without content": METADATA + bytes(MB),
    "forty thousand nodes of one id": METADATA + message(ID) * 40_000,
    "a node of twenty thousand attributes": METADATA + message(ID, b"\x52\x00" * 20_000),
    "a node of ten thousand unknown fields": METADATA + message(ID, b"\xf8\x07\x01" * 10_000),
    "attributes in attributes": METADATA + message(ID, b"\x52" * MB),
    "a node that depends on itself a million times": METADATA + message(ID, b"\x2a" + varint(MB) + b"\x01" * MB),
    "numbers that never end": METADATA + message(ID, b"\x2a" + varint(MB) + b"\xff" * MB),
    "a name of 8 MB": METADATA + message(ID, b"\x12" + varint(8 * MB) + b"a" * (8 * MB)),
}  # fmt: skip


@pytest.mark.parametrize("absurd", ABSURD)
@pytest.mark.parametrize("read", [replay_file, jsonize, read_linked, unjsonize], ids=lambda read: read.__name__)
def test_absurd_graphs_end_soon(tmp_path: Path, read: Callable[[str], Any], absurd: str) -> None:
    path = written(tmp_path, ABSURD[absurd])
    with bounded():
        read(path)


# Compression

PACKED = {"gzip": gzip.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("reader", [*READERS, "graph", "graph to JSON"])
def test_what_decompresses_without_end_is_refused(tmp_path, monkeypatch, reader, packed):
    monkeypatch.setattr("execgraph.schema.io.files.LEAST_SUSPECT", MB)
    monkeypatch.setattr("execgraph.schema.io.files.LARGEST_RATIO", dict.fromkeys((GZIP_MAGIC, ZSTD_MAGIC), 100))
    if reader in READERS:
        read, begin, element = READERS[reader]
        bomb = begin + (element + (b"}," if element[:1] == b"{" else b",")) * (4 * MB // (len(element) + 1))
    else:
        read = replay_file if reader == "graph" else jsonize
        bomb = METADATA + message(ID, b"\x12" + varint(4 * MB) + b"a" * (4 * MB))
    path = written(tmp_path, PACKED[packed](bomb))
    with pytest.raises(
        DataError, match=r"decompresses to more than 1\.\d MB, the limit for a file of its size; if you trust"
    ):
        read(path)


# Parents in circles


# Commands


@pytest.mark.parametrize("hostile", ["a name of 8 GB", "a length of 2 GB"])
@pytest.mark.parametrize(
    ("main", "options"),
    [
        (trace_link.main, ["--output", "out", "--device-trace"]),
        (trace_link.main, ["--output", "out", "--device-trace", "none", "--host-trace"]),
        (trace_convert.main, ["--output", "out", "--input"]),
        (trace_jsonize.main, ["--output", "out.json", "--input"]),
        (trace_jsonize.main, ["--output", "out.et", "--input"]),
        (trace_replay.main, ["--input"]),
    ],
    ids=["link device", "link host", "convert", "jsonize", "jsonize back", "replay"],
)
def test_commands_refuse_in_one_line(tmp_path, monkeypatch, capsys, main, options, hostile):
    monkeypatch.chdir(tmp_path)
    with bounded(), pytest.raises(SystemExit) as ended:
        main([*options, written(tmp_path, ABSURD[hostile])])
    assert ended.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "file") in line and "internal error" not in line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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
    counted = {Reason.NODES_WITHOUT_ID: 1, Reason.ARGUMENTS_NO_LISTS: 2, Reason.TENSORS_TOO_LARGE: 2}
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
    assert not Arguments(BytesColumn.of([arguments]), BytesColumn.of(())).tensors.spanned.any()
