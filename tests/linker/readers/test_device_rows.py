"""Rows that no command needs are cut out before decoding: they are counted, and no other row is lost with them.

Rows of a trace as a trace of its own: what refers to a row by number follows it.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.linker.readers import INSTANT, KeptRows, Role, read_device_trace, select_linked
from execgraph.linker.readers.device_rows import select, skip_categories
from execgraph.schema import json_stream
from execgraph.schema.columns import RecordsByRow
from execgraph.schema.linked import Communication, kineto, select_rows
from execgraph.tools.generate import build_job, simulate, write_traces
from hypothesis import given, strategies as st
from support.references import COMMUNICATION, Act, Call, Op, linked_of
from support.tables import ActivityRow, Called, CallRow, OpRow, calls, column, device_trace

CALL: dict[str, Any] = {
    "ph": "X", "cat": "python_function", "name": "nn.py(1): forward", "ts": 1, "args": {"Python id": 1},
}  # fmt: skip
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


@given(st.lists(ROWS, max_size=9), st.sampled_from(LAYOUTS), st.integers(30, 900))
def test_whatever_the_rows_hold_only_calls_of_python_are_left_out(rows, layout, size):
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


def mask(*kept: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.array(kept, np.bool_)


def test_rows_are_selected_by_mask_and_by_number() -> None:
    table = calls(Called(0, 1, "a"), Called(2, 3, "b"), Called(4, 5, "c"))
    by_mask, by_number = select_rows(table, mask(1, 0, 1)), select_rows(table, column(2, 0))
    assert ([by_mask.name[row] for row in (0, 1)], by_mask.start.tolist()) == (["a", "c"], [0, 4])
    assert ([by_number.name[row] for row in (0, 1)], by_number.start.tolist()) == (["c", "a"], [4, 0])


def told(ops: dict[int, kineto.Args], activities: dict[int, kineto.Args]) -> dict[Role, RecordsByRow[kineto.Args]]:
    """What communication recorded, by row."""
    return {role: RecordsByRow.of(kineto.Args, args) for role, args in ((Role.OP, ops), (Role.ACTIVITY, activities))}


def test_communication_follows_its_op_and_its_activity_where_rows_are_selected() -> None:
    args = [kineto.Args(group_name=str(number), first_rank=1 << 70) for number in range(4)]
    trace = device_trace(
        ops=[OpRow(start) for start in range(3)], activities=[ActivityRow(start) for start in range(3)]
    )
    trace.communication = told({0: args[0], 2: args[1]}, {1: args[2], 2: args[3]})
    taken = select(trace, ops=mask(0, 1, 1), activities=mask(0, 1, 0))
    assert taken.communication == {Role.OP: {1: args[1]}, Role.ACTIVITY: {0: args[2]}}
    assert (taken.ops.start.tolist(), taken.activities.start.tolist()) == ([1, 2], [1])
    trace = device_trace([OpRow()] * 2, [CallRow(0), CallRow(1)], [ActivityRow()] * 2)
    trace.communication = told({1: kineto.Args()}, {1: kineto.Args()})
    taken = select(trace, calls=mask(0, 1))
    assert taken.communication == trace.communication
    assert taken.ops is trace.ops and taken.activities is trace.activities
    assert taken.calls.start.tolist() == [1]


def test_of_a_linked_trace_all_that_refers_to_kept_rows_follows_them() -> None:
    whole = linked_of(
        [Act(0, 1, COMMUNICATION, call=0), Act(1, 2, call=1), Act(2, 3, COMMUNICATION, call=2), Act(3, 4, call=2)],
        [Call(0, 1, op=0), Call(1, 2, op=1), Call(2, 3, op=2)],
        [Op(0, 1), Op(1, 2, name="second", shapes="[[2]]"), Op(2, 3, name="third", shapes="[[3]]")],
        device_waits=[(2, 1), (3, 0), (1, 0)],
        host_waits=[(2, 1), (1, 0), (0, 1)],
        communications=[Communication(name="first"), Communication(name="other")],
    )
    whole.ops.extra = RecordsByRow.of(dict, {0: {"a": 1}, 2: {"b": 2}})
    part = select_linked(whole, KeptRows(mask(0, 1, 1), mask(0, 1, 1), mask(0, 1, 1, 1)))
    assert ([part.ops.name[row] for row in (0, 1)], part.ops.extra) == (["second", "third"], {1: {"b": 2}})
    assert part.ops.inputs == whole.ops.inputs[1:] and part.ops.outputs == whole.ops.outputs[1:]
    assert (part.calls.start.tolist(), part.calls.op_row.tolist()) == ([1, 2], [0, 1])
    activities = part.activities
    assert (activities.call_row.tolist(), activities.op_row.tolist()) == ([0, 1, 1], [0, 1, 1])
    assert (part.communications, activities.communication_row.tolist()) == ([whole.communications[1]], [-1, 0, -1])
    assert list(zip(part.device_waits.target_row.tolist(), part.device_waits.source_row.tolist(), strict=True)) == [
        (1, 0), (2, -1), (0, -1)
    ]  # fmt: skip
    assert list(zip(part.host_waits.call_row.tolist(), part.host_waits.source_row.tolist(), strict=True)) == [
        (1, 0), (0, -1)
    ]  # fmt: skip


def test_communication_of_kept_ops_is_kept() -> None:
    whole = linked_of([], [], [Op(0, 1), Op(1, 2)], communications=[Communication(name="a"), Communication(name="b")])
    whole.ops.communication_row = column(0, 1)
    part = select_linked(whole, KeptRows(mask(0, 1), mask(), mask()))
    assert (part.communications, part.ops.communication_row.tolist()) == ([whole.communications[1]], [0])
    whole.ops.communication_row = column(0, -1)
    part = select_linked(whole, KeptRows(mask(1, 1), mask(), mask()))
    assert (part.communications, part.ops.communication_row.tolist()) == ([whole.communications[0]], [0, -1])
