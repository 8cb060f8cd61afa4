"""JSON read piece by piece, and how far a reader is."""

import gzip
import io
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema import json_stream
from execgraph.schema.errors import Damage, DataError
from execgraph.schema.json_repair import opening_of
from execgraph.schema.progress import beside, give_up
from execgraph.schema.reasons import Reason
from hypothesis import HealthCheck, given, settings, strategies as st

DOCUMENT: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "H200"}],
    "traceEvents": [
        {"ph": "X", "name": "plain", "ts": 1},
        {"ph": "X", "name": "nested", "args": {"Input Dims": [[1, 2], []], "inner": [{"ph": "X"}, {"ph": "Y"}]}},
        {"ph": "X", "name": 'a name with "},{"ph" inside'},
        {"ph": "X", "name": 'and with \\"},\n{"ph": "X" too, \\\\'},
        {"ph": "M", "name": "brackets ]}],[{", "args": {"name": "{"}},
        {"ph": "X", "name": "é漢", "ts": 2.5},
    ],
    "traceName": "last.json",
}


def read(text: bytes, key: str = "traceEvents") -> tuple[list[Any], list[Any]]:
    """The elements read in pieces, then those that were left to the document."""
    reader: json_stream.ArrayReader[Any] = json_stream.ArrayReader(io.BytesIO(text), "t.json", key, Any, lambda _: None)
    pieces = [element for _, elements in reader for element in elements]
    document = json.loads(reader.document)
    return pieces, document[key] if isinstance(document, dict) else document


@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])
def test_any_size_of_a_piece_gives_the_same_elements(monkeypatch: pytest.MonkeyPatch, layout: dict[str, Any]) -> None:
    text = json.dumps(DOCUMENT, **layout).encode()
    for size in range(1, len(text) + 2):
        monkeypatch.setattr(json_stream, "PIECE", size)
        pieces, rest = read(text)
        assert pieces + rest == DOCUMENT["traceEvents"], size


VALUES = st.recursive(
    st.none() | st.integers(-99, 99) | st.text('ab"\\{}[],: p', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ph", "args", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("document", [DOCUMENT, DOCUMENT["traceEvents"]], ids=["object", "bare list"])
def test_small_pieces_are_really_taken(monkeypatch: pytest.MonkeyPatch, document: Any) -> None:
    monkeypatch.setattr(json_stream, "PIECE", 64)
    pieces, rest = read(json.dumps(document).encode())
    assert pieces + rest == DOCUMENT["traceEvents"] and len(pieces) >= 3


def test_a_document_without_the_array_stays_whole() -> None:
    reader: json_stream.ArrayReader[Any] = json_stream.ArrayReader(
        io.BytesIO(b'{"nodes": [1]}'), "t.json", "traceEvents", Any, lambda _: None
    )
    assert list(reader) == [] and reader.document == b'{"nodes": [1]}'


def test_real_traces_read_the_same_in_small_pieces(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = data / "attention"
    host, device = str(folder / "host_rank0.json.gz"), str(folder / "device_rank0.json.gz")
    whole_host, whole_device = read_host_trace(host), read_device_trace(device)
    monkeypatch.setattr(json_stream, "PIECE", 5000)
    small_host, small_device = read_host_trace(host), read_device_trace(device)
    assert small_host.id.tolist() == whole_host.id.tolist()
    assert small_host.inputs == whole_host.inputs
    assert small_device.ops.start.tolist() == whole_device.ops.start.tolist()
    assert [small_device.ops.name[row] for row in range(50)] == [whole_device.ops.name[row] for row in range(50)]


# What looks like elements and is none

LOOKS = (
    '{"ph":"X"},' * 300, "}]" * 300, [{"ph": "X"}] * 300, [[{"ph": "X"}]] * 300, {"traceEvents": [{"ph": "X"}] * 300},
)  # fmt: skip


def read_whole(document: Any) -> tuple[list[Any], json_stream.ArrayReader[Any], Damage]:
    """The elements that a reader takes which mends damage."""
    damage = Damage("t.json", "rows")
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    reader: json_stream.ArrayReader[Any] = json_stream.ArrayReader(
        io.BytesIO(text), "t.json", "traceEvents", dict[str, Any], lambda _: None, damage=damage
    )
    return [element for _, elements in reader for element in elements], reader, damage


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("looks", LOOKS)
def test_what_an_element_holds_is_not_taken_for_elements(monkeypatch, looks, place):
    monkeypatch.setattr(json_stream, "PIECE", 500)
    elements = [{"ph": "X", "name": "a"}, {"ph": "X", "name": "b"}]
    elements.insert(place, {"ph": "X", "args": {"note": looks}})
    found, _, damage = read_whole({"traceEvents": elements})
    assert found == elements and not damage.notes


@pytest.mark.parametrize("looks", LOOKS)
def test_what_stands_around_the_elements_is_not_taken_for_them(monkeypatch: pytest.MonkeyPatch, looks: Any) -> None:
    monkeypatch.setattr(json_stream, "PIECE", 500)
    elements = [{"ph": "X", "name": "a"}, {"ph": "X", "name": "b"}]
    found, reader, damage = read_whole({"before": looks, "traceEvents": elements, "after": looks})
    assert found == elements and not damage.notes
    assert json.loads(reader.document) == {"before": looks, "traceEvents": [], "after": looks}


def test_beside_what_looks_like_elements_only_a_wrong_one_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "PIECE", 500)
    for looks in LOOKS:
        elements: list[Any] = [{"ph": "X", "args": {"note": looks}}, 7, {"ph": "X", "args": {"note": looks}}]
        found, _, damage = read_whole({"traceEvents": elements})
        assert found == elements[::2] and [*damage.dropped.values()] == [1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.dictionaries(st.sampled_from(["ph", "args", "x"]), VALUES, max_size=3), max_size=8), st.integers(1, 90)
)
def test_any_elements_survive_any_size_of_a_piece_and_nothing_is_mended(elements: list[Any], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "PIECE", size)
        document = {"before": [1], "traceEvents": elements, "after": {"x": 2}}
        pieces, rest = read(json.dumps(document).encode())
        found, _, damage = read_whole(document)
    assert pieces + rest == found == elements and not damage.notes


NESTED: dict[str, Any] = {"args": {"inner": [{"args": "X"}, {"args": "Y"}]}, "ph": "X", "z": 1.5}
"""An element that holds objects that begin as it does itself, and goes on behind a list of them."""


@pytest.mark.parametrize("layout", [{}, {"indent": 2}])
@pytest.mark.parametrize("size", [1, 64, 1 << 19])
def test_wherever_a_file_is_cut_all_before_the_cut_is_used(monkeypatch, layout, size):
    monkeypatch.setattr(json_stream, "PIECE", size)
    elements = [NESTED | {"name": f"n{number}"} for number in range(3)]
    text = json.dumps({"traceEvents": elements, "traceName": "x"}, **layout).encode()
    for cut in range(text.index(b"[") + 1, len(text)):
        found, _, damage = read_whole(text[:cut])
        assert found == elements[: len(found)], cut
        assert len(found) >= text[:cut].count(b'"name"') - 1 and sum(damage.dropped.values()) <= 1, cut


def test_the_last_element_is_mended_as_the_others_are() -> None:
    elements = [{"attrs": [{"name": "id"}], "name": name, "ph": "X"} for name in ("plain", 'a "quoted" name')]
    text = json.dumps({"traceEvents": elements, "traceName": "x"}).replace("\\", "")
    found, _, damage = read_whole(text.encode())
    assert found == elements and damage.oddities == {Reason.UNESCAPED_QUOTES.of("rows"): 1}


# Files that profilers did not write so, but are read


def device_ops(tmp_path: Path, content: bytes) -> list[str]:
    """The names of the ops in a device trace; those of one start are in the order of their names."""
    path = tmp_path / "device.json"
    path.write_bytes(content)
    ops = read_device_trace(str(path)).ops
    return [ops.name[row] for row in range(len(ops.start))]


def op(name: str, first: str = "ph") -> str:
    row = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    return json.dumps({first: row[first], **row})


def events(*elements: str, between: str = ",") -> bytes:
    return ('{"traceEvents": [' + between.join(elements) + "]}").encode()


def test_elements_whose_first_keys_differ_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "PIECE", 300)
    names = [f"op {number}" for number in range(40)]
    rows = [op(name, "ph" if number % 5 == 0 else "name") for number, name in enumerate(names)]
    assert device_ops(tmp_path, events(*rows)) == sorted(names)
    assert device_ops(tmp_path, events(*rows, op('a "quoted" name').replace("\\", ""), *rows)) == sorted(
        [*names, *names, 'a "quoted" name']
    )


@pytest.mark.parametrize("size", [40, 64, 100, 1000])
def test_damage_is_found_whatever_the_size_of_a_piece(tmp_path, monkeypatch, size):
    monkeypatch.setattr(json_stream, "PIECE", size)
    rows = [op(f"op {number}") for number in range(12)]
    rows[4] = op("MARK").replace("MARK", 'a "quoted" name')
    found = device_ops(tmp_path, events(*rows, between=",\n  "))
    assert found == sorted(f"op {number}" if number != 4 else 'a "quoted" name' for number in range(12))
    rows[7] = '{"ph": "X", "cat": "cpu_op", "name": }{'
    with pytest.raises(DataError, match="the device events from byte"):
        device_ops(tmp_path, events(*rows, between=",\n  "))


def test_a_name_that_looks_like_an_element_is_a_name(tmp_path: Path) -> None:
    name = '"},\n {"ph": "X", "cat": "cpu_op", "name": "not an op'
    found = device_ops(
        tmp_path, events(op(name), op("real"), op("NaN").replace('"dur": 1', '"dur": NaN'), op(name), op("last"))
    )
    assert sorted(found) == sorted([name, name, "NaN", "last", "real"])


@pytest.mark.parametrize(
    ("row", "says"), [("7", "the first at byte {}"), ('{"ph": "X", "name": [}', "the device events from byte {} on")]
)
def test_the_first_place_of_damage_is_the_byte_in_the_file(tmp_path, monkeypatch, row, says):
    monkeypatch.setattr(json_stream, "PIECE", 500)
    rows = [op(f"op {number}") for number in range(50)]
    text = events(*rows[:30], row, *rows[31:])
    path = tmp_path / "device.json"
    path.write_bytes(text)
    try:
        [said] = read_device_trace(str(path)).notes
    except DataError as refused:
        said = str(refused)
    assert says.format(len(events(*rows[:30])) - 2 + 1) in said


# What cannot be read


def cut(text: bytes) -> bytes:
    return text[: len(text) // 2]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"hello", "is not valid JSON"),
        (b'[{"ph": "X"}', "holds no host op"),
        (b'{"traceEvents": [{"ph": "X", "ts": {}}]}', "cannot be read"),
        (cut(json.dumps(DOCUMENT).encode()), "is cut off after byte"),
        (cut(gzip.compress(json.dumps(DOCUMENT).encode(), mtime=0)), "holds no host op"),
        (b"\xff\xfe" + json.dumps(DOCUMENT).encode("utf-16"), "is UTF-16"),
        (b'{"traceEvents": [{"name": "\xff"}]}', "holds no host op"),
    ],
)
def test_what_is_no_trace_is_one_clear_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "device.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=complaint) as refused:
        read_device_trace(str(path))
    assert str(refused.value).startswith(str(path))


@pytest.mark.parametrize(
    "text", [b'{"nodes": [{"a": 1}, {"a": }]}', b'{"nodes": [{"a": 1}, {"a": 2}', b'{"nodes": [1, 2']
)
def test_without_leave_to_mend_damage_is_left_to_the_decoder(text: bytes) -> None:
    with pytest.raises(DataError, match="is not valid JSON"):
        json_stream.decode(all_of(text).document, dict[str, Any], "t.json")


def test_without_leave_to_mend_an_element_may_not_be_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "PIECE", 100)
    monkeypatch.setattr(json_stream, "LONGEST_ELEMENT", 1000)
    with pytest.raises(DataError, match="an element of more than"):
        all_of(b'{"nodes": [{"a": "' + b"x" * 5000)


def all_of(text: bytes) -> json_stream.ArrayReader[Any]:
    """A reader that has read all of a text."""
    reader: json_stream.ArrayReader[Any] = json_stream.ArrayReader(
        io.BytesIO(text), "t.json", "nodes", Any, lambda _: None
    )
    for _ in reader:
        pass
    return reader


# Times


EPOCH = 1_710_806_400_000_000_000


def ops_at(tmp_path: Path, *times: str) -> list[tuple[int, int]]:
    """Starts and durations, as read from a device trace with rows of those `ts` and `dur`."""
    rows = (f'{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, {time}}}' for time in times)
    path = tmp_path / "device.json"
    path.write_text('{"traceEvents": [' + ", ".join(rows) + "]}")
    ops = read_device_trace(str(path)).ops
    return list(zip(ops.start.tolist(), (ops.end - ops.start).tolist(), strict=True))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (['"ts": 1707417525509335.789, "dur": 1.211'], [(1_707_417_525_509_335_789, 1211)]),
        (['"ts": "1707417525509335.789", "dur": "1.211"'], [(1_707_417_525_509_335_789, 1211)]),
        (
            ['"ts": 1710806400000001.7, "dur": 12.30', '"ts": 1710806400000002.120, "dur": 3.4', '"ts": 1710806400000003.86, "dur": 1'],
            [(EPOCH + 1007, 12_030), (EPOCH + 2120, 3004), (EPOCH + 3086, 1000)],
        ),
        (
            ['"ts": 1710806400000001.7, "dur": 1.5', '"ts": 1710806400000002.012, "dur": 1.05'],
            [(EPOCH + 1700, 1500), (EPOCH + 2012, 1050)],
        ),
    ],
    ids=["beyond a double", "texts", "without leading zeros, as Kineto wrote 5 ns as .5 in 2024", "with leading zeros"],
)  # fmt: skip
def test_fractions_of_microseconds_are_read_exactly(tmp_path, times, expected):
    assert ops_at(tmp_path, *times) == expected


@pytest.mark.parametrize("count", [1, 20])
def test_arrays_of_that_name_on_deeper_levels_are_passed_over(count: int) -> None:
    inside = ",".join(['{"nodes":[1],"a":"\\"nodes\\":[["}'] * count)
    text = b'{"a":[%b],"nodes":[{"id":1}' % inside.encode()
    assert opening_of(text, "nodes", ended=False) == text.index(b'{"id"')


resource = pytest.importorskip("resource")


def test_the_work_is_done_beside() -> None:
    begun = threading.Event()
    work = beside(lambda: (begun.set(), threading.get_ident()))
    assert begun.wait(10)
    assert work.result()[1] != threading.get_ident()


def no_memory(*_: object) -> None:
    raise OSError("cannot allocate memory")


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("module", "name", "refuse"), [("mmap", "mmap", no_memory), ("threading.Thread", "start", no_thread)]
)
def test_without_a_thread_the_work_is_done_here(monkeypatch, module, name, refuse):
    monkeypatch.setattr(f"{module}.{name}", refuse)
    assert beside(threading.get_ident).result() == threading.get_ident()


def test_an_error_is_raised_to_who_wants_the_result() -> None:
    with pytest.raises(ZeroDivisionError):
        beside(lambda: 1 // 0).result()


def test_who_gives_up_waits_for_what_has_begun() -> None:
    begun, ended = threading.Event(), list[int]()
    work = beside(lambda: (begun.set(), time.sleep(0.1), ended.append(1)))
    begun.wait(10)
    give_up(work)
    assert ended == [1]


@pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
@pytest.mark.parametrize(("limit", "most"), [("RLIMIT_AS", 400_000_000), ("RLIMIT_NOFILE", 32)])
def test_a_build_takes_fewer_workers_where_the_system_gives_fewer(data, tmp_path, limit, most):
    start = f"import resource, sys; resource.setrlimit(resource.{limit}, ({most}, {most}))"
    program = f"{start}; from execgraph.start import trace_build; trace_build()"
    command = [sys.executable, "-c", program, str(data / "training"), "-o", str(tmp_path / "out"), "--jobs", "2", "-q"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    )
    assert (done.returncode, done.stderr) == (0, "")
