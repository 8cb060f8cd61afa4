"""A large array is read in pieces: whatever the size of a piece, its elements are those of the whole document."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.device_trace import read_device_trace
from execgraph.linker.host_trace import read_host_trace
from execgraph.schema import json_stream
from execgraph.schema.errors import DataError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def test_small_pieces_are_really_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "PIECE", 64)
    pieces, rest = read(json.dumps(DOCUMENT).encode())
    assert len(pieces) >= 3 and len(rest) <= 3


VALUES = st.recursive(
    st.none() | st.integers(-99, 99) | st.text('ab"\\{}[],: p', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ph", "args", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.dictionaries(st.sampled_from(["ph", "args", "x"]), VALUES, max_size=3), max_size=8), st.integers(1, 90)
)
def test_any_elements_survive_any_size_of_a_piece(elements: list[Any], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "PIECE", size)
        pieces, rest = read(json.dumps({"before": [1], "traceEvents": elements, "after": {"x": 2}}).encode())
    assert pieces + rest == elements


def test_a_bare_list_is_the_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "PIECE", 64)
    pieces, rest = read(json.dumps(DOCUMENT["traceEvents"]).encode())
    assert pieces + rest == DOCUMENT["traceEvents"]


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


# What cannot be read


def cut(text: bytes) -> bytes:
    return text[: len(text) // 2]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"hello", "is not valid JSON"),
        (b'[{"ph": "X"}', "is not valid JSON"),
        (b'{"traceEvents": [{"ph": "X", "ts": {}}]}', "unexpected content"),
        (cut(json.dumps(DOCUMENT).encode()), "is not valid JSON"),
        (cut(gzip.compress(json.dumps(DOCUMENT).encode())), "damaged compressed file"),
        (b"\xff\xfe" + json.dumps(DOCUMENT).encode("utf-16"), "is not valid JSON"),
        (b'{"traceEvents": [{"name": "\xff"}]}', "is not valid JSON"),
    ],
)
def test_what_is_no_trace_is_one_clear_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "device.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=complaint) as refused:
        read_device_trace(str(path))
    assert str(refused.value).startswith(str(path))


@pytest.mark.xfail(strict=True, raises=TypeError, reason="msgspec refuses the type of ExactEvent.ts")
def test_fractions_that_a_double_cannot_hold_are_read_exactly(tmp_path: Path) -> None:
    text = (
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1707417525509335.789,'
        ' "dur": 1.211}]}'
    )
    path = tmp_path / "device.json"
    path.write_text(text)
    ops = read_device_trace(str(path)).ops
    assert (int(ops.start[0]), int(ops.end[0])) == (1_707_417_525_509_335_789, 1_707_417_525_509_337_000)
