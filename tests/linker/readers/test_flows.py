"""Rows that say little of themselves: launches by flows alone, rows without a category, work queued for a thread."""

import json
import os
from pathlib import Path
from typing import Any

import execgraph as eg
import pytest
from execgraph.linker.readers import DeviceTrace, read_device_trace
from execgraph.schema.columns import ABSENT
from execgraph.schema.errors import DataError
from execgraph.schema.reasons import Reason

TRACES = os.environ.get("EXECGRAPH_TRACES", "")
Row = dict[str, Any]


def row(name: str, pid: Any, tid: Any, ts: Any, dur: Any = 1, **other: Any) -> Row:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur} | other


def flow(category: str, number: Any, start: tuple[Any, Any, Any], end: tuple[Any, Any, Any]) -> list[Row]:
    return [
        {"ph": phase, "cat": category, "id": number, "pid": pid, "tid": tid, "ts": ts}
        for phase, (pid, tid, ts) in (("s", start), ("f", end))
    ]


def process(pid: Any, name: str) -> Row:
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def read(folder: Path, *rows: Row) -> DeviceTrace:
    path = folder / "device.json"
    path.write_text(json.dumps(rows))
    trace = read_device_trace(str(path))
    kept = sum(len(table.start) for table in (trace.ops, trace.calls, trace.activities))
    assert trace.read == kept + trace.ignored + sum(trace.skipped.values()) - trace.skipped.of(Reason.UNREADABLE_ROWS)
    return trace


def launches(trace: DeviceTrace) -> list[tuple[str, str]]:
    """Returns the names of calls and of what they launch, by correlation."""
    calls = dict(zip(trace.calls.correlation.tolist(), trace.calls.name.tolist(), strict=True))
    pairs = zip(trace.activities.correlation.tolist(), trace.activities.name.tolist(), strict=True)
    return sorted((calls[number] if number else "", name) for number, name in pairs)


def test_activities_have_the_correlation_of_the_call_that_their_flow_starts_at(tmp_path: Path) -> None:
    calls = [row(f"hipLaunchKernel{at}", 1, 1, at, cat="hip_runtime") for at in (10, 20)]
    kernels = [row(name, 2, 0, at, cat="kernel") for name, at in (("a", 40), ("b", 30), ("c", 50), ("d", 60))]
    flows = flow("ac2g", "x7", (1, 1, 10), (2, 0, 40)) + flow("ac2g", 8, (1, 1, 20.5), (2, 0, 30))
    # one id starts twice, so that nothing says which start is meant
    flows += flow("ac2g", 9, (1, 1, 10), (2, 0, 50)) + flow("ac2g", 9, (1, 1, 20), (2, 0, 50))
    trace = read(tmp_path, row("aten::mm", 1, 1, 1, 90, cat="cpu_op"), *calls, *kernels, *flows)
    assert launches(trace) == [("", "c"), ("", "d"), ("hipLaunchKernel10", "a"), ("hipLaunchKernel20", "b")]
    assert len({*trace.calls.correlation.tolist()}) == 2


def test_correlations_of_the_file_are_kept_and_completed(tmp_path: Path) -> None:
    rows = [
        row("recorded", 1, 1, 10, cat="cuda_runtime", args={"correlation": 5}),
        row("given", 1, 1, 20, cat="cuda_runtime"), row("k", 2, 7, 11, cat="kernel"),
        row("l", 2, 7, 21, cat="kernel", args={"correlation": 6}),
    ]  # fmt: skip
    flows = flow("ac2g", 1, (1, 1, 10), (2, 7, 11)) + flow("ac2g", 2, (1, 1, 20), (2, 7, 21))
    trace = read(tmp_path, *rows, *flows)
    assert launches(trace) == [("given", "l"), ("recorded", "k")]
    assert sorted(trace.calls.correlation.tolist()) == [5, 6]


def test_of_calls_at_one_time_the_one_with_the_id_of_the_flow_launches(tmp_path: Path) -> None:
    calls = [row(f"call{number}", 1, 1, 10, 0, cat="runtime", args={"External id": number}) for number in (3, 4, 5)]
    kernels = [row(f"k{number}", 2, 0, 30, cat="kernel", args={"External id": number}) for number in (5, 3)]
    flows = [end for number in (3, 5) for end in flow("ac2g", number, (1, 1, 10), (2, 0, 30))]
    trace = read(tmp_path, *calls, *kernels, *flows)
    assert launches(trace) == [("call3", "k3"), ("call5", "k5")]
    # these name flows, no ops
    assert not trace.activities.external_id.any()


def test_rows_without_a_category_have_the_role_of_their_process(tmp_path: Path) -> None:
    tasks = [
        ("MatMul", {"Task Type": "AI_CORE"}), ("MEMCPY_ASYNC", {"Task Type": "Other"}), ("x", {"desc": "FillBuffer"}),
        ("y", {"Task Type": "EVENT_WAIT"}), ("z", {}), ("CopyHostToDevice", {"desc": "KernelExecution"}),
    ]  # fmt: skip
    rows = [row(name, "8", "3", str(10 + at), "1", args=args) for at, (name, args) in enumerate(tasks)]
    rows += [row("aclrtMemcpy", 5, 1, 2), row("Free", 6, 0, 1), row("q", 7, 0, 1), row("hipLaunch", "9", "9", "3", "4")]
    flows = flow("api_op", "1", ("9", "9", "5"), ("8", "3", "10"))
    named = [process("8", "GPU2"), process(5, "CANN"), process(6, "Overlap Analysis"), process(7, "Python GC")]
    trace = read(
        tmp_path, {}, *rows, *named, *flows, {"ph": "C", "pid": "8", "ts": 1, "args": {"idle": 0}}, {"name": "p"}
    )
    assert trace.activities.category.tolist() == ["kernel", "gpu_memcpy", "gpu_memset", "kernel", "kernel"]
    assert (trace.activities.device.tolist(), trace.activities.stream.tolist()) == ([8] * 5, [3] * 5)
    assert sorted(trace.calls.name.tolist()) == ["aclrtMemcpy", "hipLaunch"]
    lost = {Reason.NO_CATEGORY.of("Python GC"): 1, Reason.DEVICE_ROWS_OF_WAITING: 1}
    assert trace.skipped == lost | {Reason.UNREADABLE_ROWS.of("device events"): 1}
    assert launches(trace)[-1] == ("hipLaunch", "MatMul")


def queued(folder: Path, lost: int = 0) -> DeviceTrace:
    """Two ops queue a kernel each for thread 2, which is busy with the first one when the second is queued. Of so many
    ops before them the kernels were lost.
    """
    rows = [process(8, "Ascend Hardware"), process(50, "CANN")]
    for number, (enqueued, dequeued, took) in enumerate(((10, 20, 10), (25, 31, 10)), 1):
        rows += [
            row(f"op{number}", 5, 1, str(enqueued), 4, cat="cpu_op"),
            row("Enqueue", 5, 1, enqueued + 1, 2, cat="enqueue"), row("Dequeue", 5, 2, dequeued, took, cat="dequeue"),
            row("AscendCL@aclnnMm", 50, 2, dequeued + 1, 5), row(f"mm{number}", 8, 3, f"{dequeued + 9}.500", 9),
            *flow("async_task_queue", number, (5, 1, enqueued + 1), (5, 2, dequeued)),
            *flow("HostToDevice", f"{number << 33}", (50, 2, f"{dequeued + 2}.100"), (8, 3, f"{dequeued + 9}.500")),
            *flow("async_npu", number, (5, 1, str(enqueued)), (8, 3, f"{dequeued + 9}.500")),
        ]  # fmt: skip
    rows += [row("AscendCL@aclnnMm", 50, 2, before, 1) for before in range(lost)]
    rows += [row("AscendCL@aclrtSynchronizeStream", 50, 1, 45, 5)]
    return read(folder, *rows)


@pytest.mark.parametrize("lost", [0, 3])
def test_launches_of_which_the_flow_and_the_activity_are_lost_are_counted(tmp_path: Path, lost: int) -> None:
    notes = [note for note in eg.link(None, queued(tmp_path, lost)).report.notes if "no activity" in note]
    assert [f"{lost} of {lost + 2} launch calls have no activity" in note for note in notes] == [True] * bool(lost)


def test_work_that_a_thread_queues_for_another_one_is_of_the_op_that_queued_it(tmp_path: Path) -> None:
    trace = queued(tmp_path)
    assert trace.processes == [5]
    linked = eg.link(None, trace)
    assert [linked.ops.name[op] for op in linked.activities.op_row.tolist()] == ["op1", "op2"]
    assert [linked.calls.name[call] for call in linked.activities.call_row.tolist()] == ["AscendCL@aclnnMm"] * 2
    waits = linked.handoffs
    assert waits.source_time.tolist() == [11_000, 26_000]
    # the second was queued before the thread was done with the first
    assert waits.waiting_since.tolist() == [ABSENT, 31_000]
    assert waits.target_time.tolist() == [11_000, 31_000]
    assert linked.host_waits.source_row.tolist() == [1]
    assert eg.replay(eg.convert(linked)).error_pct == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("rows", [[], [{}], [process(8, "Ascend Hardware")], [row("k", 3, 1, 1)]])
def test_a_file_without_work_is_refused_in_one_line(tmp_path: Path, rows: list[Row]) -> None:
    with pytest.raises(DataError, match=r"device\.json: holds no host op and no device activity"):
        read(tmp_path, *rows)


@pytest.mark.skipif(not TRACES, reason="EXECGRAPH_TRACES is not set")
@pytest.mark.parametrize(
    ("path", "activities", "linked"),
    [
        ("rocm_flows_only/gemm_01.json.gz", 20, 20),
        ("ascend_npu/trace_view.json.gz", 276, 274),
        ("rpd/rpd2tracing.json.gz", 85, 85),
    ],
)
def test_real_traces_are_linked_by_flows(path: str, activities: int, linked: int) -> None:
    trace = eg.link(None, Path(TRACES) / "wild" / path)
    assert len(trace.activities) == activities
    assert (trace.activities.call_row >= 0).sum() == linked
    assert not any("launch call" in note for note in trace.report.notes)
    assert abs(eg.replay(eg.convert(trace)).error_pct) < 0.1
