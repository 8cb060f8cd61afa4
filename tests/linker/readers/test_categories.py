"""Rows that no command needs are cut out before decoding: they are counted, and no other row is lost with them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.readers import INSTANT, read_device_trace
from execgraph.linker.readers.device_rows import skip_categories
from execgraph.schema import json_stream
from execgraph.tools.generate import build_job, simulate, write_traces
from hypothesis import given, settings, strategies as st

CALL: dict[str, Any] = {
    "ph": "X",
    "cat": "python_function",
    "name": "nn.py(1): forward",
    "ts": 1,
    "args": {"Python id": 1},
}
OP: dict[str, Any] = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "args": {"Ev Idx": 1}}
LAYOUTS: list[dict[str, Any]] = [{}, {"indent": 2}, {"separators": (",", ":")}]


def read(elements: list[dict[str, Any]], layout: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The elements that were decoded, and how many were left out."""
    text = json.dumps({"traceEvents": elements}, **layout).encode()
    reader: json_stream.ArrayReader[Any] = json_stream.ArrayReader(
        io.BytesIO(text), "t.json", "traceEvents", Any, lambda _: None, skip_pattern=skip_categories()
    )
    decoded = [element for _, piece in reader for element in piece]
    return decoded + json.loads(reader.document)["traceEvents"], reader.skipped


@pytest.mark.parametrize("layout", LAYOUTS)
def test_calls_of_python_are_counted_and_all_else_is_read(layout: dict[str, Any]) -> None:
    memory = CALL | {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]"}
    assert read([OP, CALL, CALL, OP, memory, memory, OP, OP], layout) == ([OP] * 4, 4)


TEXTS = st.sampled_from(["forward", "a{b", "}}, {", 'say "x"', "}\\", '{"ph": "X", "cat": "python_function", ', "é"])
ARGS = st.sampled_from([{}, {"Python id": 1}, {"x": "}}, {"}, {"x": {"y": {}}, "z": 1}, {"x": [{"ph": "X"}]}, None])
ROWS = st.builds(
    lambda row, text, args, bare: {
        key: value for key, value in (row | {"name": text, "args": args}).items() if key != bare
    },
    st.sampled_from([CALL, OP]),
    TEXTS,
    ARGS,
    st.sampled_from(["", "args", "name"]),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(ROWS, max_size=9), st.sampled_from(LAYOUTS), st.integers(30, 900))
def test_whatever_the_rows_hold_only_calls_of_python_are_left_out(
    rows: list[dict[str, Any]], layout: dict[str, Any], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "PIECE", size)
        kept, skipped = read(rows, layout)
    assert [row for row in kept if row["cat"] == "cpu_op"] == [row for row in rows if row["cat"] == "cpu_op"]
    assert len(kept) + skipped == len(rows)


def test_a_trace_with_stacks_reads_like_the_same_one_without(tmp_path: Path) -> None:
    run = simulate(build_job("simple", steps=2, layers=2, seed=1))
    plain, stacks = (write_traces(run, tmp_path / str(count), stacks=count)[0].device for count in (0, 20))
    without, read_fast, read_whole = (
        read_device_trace(str(plain)),
        read_device_trace(str(stacks)),
        read_device_trace(str(stacks), strict=True),
    )
    calls = stacks.read_text().count('"python_function"')
    assert calls and read_fast.read == read_whole.read == without.read + calls
    assert read_fast.ignored == read_whole.ignored == without.ignored + calls
    assert read_fast.ops.start.tolist() == without.ops.start.tolist()
    assert read_fast.activities.end.tolist() == without.activities.end.tolist()


@pytest.mark.parametrize("modules", [False, True])
@pytest.mark.parametrize("needed", [(), (INSTANT,)])
def test_whatever_is_asked_for_all_else_is_read_alike(tmp_path: Path, modules: bool, needed: tuple[str, ...]) -> None:
    allocation = {"ph": "i", "cat": INSTANT, "name": "[memory]", "ts": 1, "s": "t", "args": {"Bytes": 1}}
    rows = [{**row, "pid": 1, "tid": 1, "dur": 1} for row in (OP, CALL, allocation, OP, CALL, allocation, OP)]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": rows}))
    trace = read_device_trace(str(file), modules=modules, keep_categories=needed)
    assert (trace.read, trace.ignored, len(trace.ops.start)) == (7, 4, 1)
    assert trace.python is None if not modules else len(trace.python.start) == 2
