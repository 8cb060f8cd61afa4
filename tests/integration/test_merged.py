"""Device traces in which a tool merged several ranks are recognised before linking; a rank comes out as it went in.

The first lanes that have room, found by heaps, beside references that look at all lanes.
"""

import cProfile
import json
import pstats
import tracemalloc
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import execgraph as eg
import numpy as np
import pytest
from execgraph.linker.communication.transfers import FIRST_LANE, _lanes
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace
from execgraph.schema.errors import DataError
from execgraph.tools.recognise import InputKind, recognise
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.commands import Run
from support.tables import OpRow, op_rows

Trace = dict[str, Any]
REMEDY = "link each rank's own file"


def run_of(rank: int, launches: int = 3) -> TraceBuilder:
    """A rank that launches graphs and single kernels; correlation ids are the same on every rank."""
    t = TraceBuilder(rank=rank, world_size=64, device=rank % 8, pid=1000)
    for number in range(launches):
        with t.op(f"step {number}"):
            t.graph_launch([(f"rank {rank} graph {number}.{node}", 7 + node % 2, 5) for node in range(8)])
            t.launch(f"rank {rank} kernel {number}", duration=9)
            t.stream_synchronize()
    return t


def rows_of(trace: Trace) -> list[dict[str, Any]]:
    return list(trace["traceEvents"])


def renumbered(rank: int, trace: Trace, *, devices: bool = True) -> Trace:
    """The trace with processes, and devices if told, that no other rank has, and labels that say whose they are."""
    trace = deepcopy(trace)
    for row in rows_of(trace):
        if row["pid"] >= 1000 or devices:
            row["pid"] += 10_000 * (rank + 1)
    pids = sorted({row["pid"] for row in rows_of(trace)})
    trace["traceEvents"] += [label(pid, f"rank {rank}") for pid in pids]
    return trace


def label(pid: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 0, "args": {"labels": text}}


def unlabelled(rank: int, trace: Trace) -> Trace:
    trace = renumbered(rank, trace)
    trace["traceEvents"] = [row for row in rows_of(trace) if row["ph"] != "M"]
    return trace


def shifted(rank: int, trace: Trace) -> Trace:
    """Only times are the rank's own, as where each rank runs in a container of its own."""
    trace = deepcopy(trace)
    for row in rows_of(trace):
        row["ts"] += 1000 * rank
    return trace


def merge(folder: Path, ranks: Iterable[int], change: Callable[[int, Trace], Trace], launches: int = 3) -> Path:
    """One file with the rows of all ranks, and the top level of the last."""
    path = folder / "merged.json"
    traces = [change(rank, run_of(rank, launches).device_trace()) for rank in ranks]
    rows = [row for trace in traces for row in rows_of(trace)]
    top = {key: value for key, value in traces[-1].items() if key != "distributedInfo"}
    path.write_text(json.dumps(top | {"traceEvents": rows}))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as refused:
        link(None, read_device_trace(str(path)))
    assert any(remedy in str(refused.value) for remedy in (REMEDY, "take one out with"))
    return str(refused.value)


# What tells a merged trace


def test_several_descriptions_of_the_job_are_a_sign(tmp_path: Path) -> None:
    trace = run_of(0).device_trace()
    text = json.dumps(trace)
    described = json.dumps(trace["distributedInfo"])
    path = tmp_path / "merged.json"
    path.write_text(text.replace('"distributedInfo"', f'"distributedInfo": {described}, "distributedInfo"', 1))
    assert "several distributedInfo" in refusal(path)


@pytest.mark.parametrize("renamed", ["pid", "correlation", "External id"])
def test_arguments_that_a_merging_tool_renamed_are_a_sign(tmp_path: Path, renamed: str) -> None:
    def rename(rank: int, trace: Trace) -> Trace:
        trace = unlabelled(rank, trace)
        for row in rows_of(trace):
            if renamed in row.get("args", {}):
                row["args"][f"{renamed}_raw"] = row["args"][renamed]
                row["args"][renamed] += 1_000_000 * rank
            elif renamed == "pid" and row.get("args"):
                row["args"]["pid_raw"] = row["pid"]
        return trace

    assert "arguments renamed by a merging tool" in refusal(merge(tmp_path, [0, 1], rename))


def test_flows_that_start_twice_are_a_sign(tmp_path: Path) -> None:
    """All that is left of the calls are their arrows."""

    def without_calls(rank: int, trace: Trace) -> Trace:
        trace = unlabelled(rank, trace)
        trace["traceEvents"] = [row for row in rows_of(trace) if row.get("cat") != "cuda_runtime"]
        return trace

    assert "flows that start more than once" in refusal(merge(tmp_path, [0, 1], without_calls))


# One rank comes out


def named(rank: int, trace: Trace) -> Trace:
    """As SGLang merges: processes are named by the coordinates of the rank; nothing else is changed."""
    trace = deepcopy(trace)
    for row in rows_of(trace):
        row["pid"] = f"[TP{rank % 2:02d}-DP00-PP{rank // 2:02d}] {row['pid']}"
    return trace


def test_ranks_in_the_names_of_processes_come_out_as_they_went_in(tmp_path: Path, run: Run) -> None:
    path = merge(tmp_path, [2, 0, 3, 1], named)
    assert recognise(path).kind is InputKind.MERGED
    assert "4 ranks recorded as merged: 0 [TP00-DP00-PP00], 1 [TP01-DP00-PP00], 2 [TP00-DP00-PP01]" in refusal(path)
    for rank in range(4):
        linked = link(None, read_device_trace(str(path)), rank=rank)
        own = link(None, read_device_trace(str(run_of(rank).write(tmp_path)[1])), rank=rank)
        assert (linked.info.rank, linked.info.pid, [*linked.ops.name]) == (rank, 1000, [*own.ops.name])
        for name in ("device", "stream", "start", "call_row", "correlation"):
            assert getattr(linked.activities, name).tolist() == getattr(own.activities, name).tolist()
    assert run("trace-build", path, "-o", tmp_path / "out").code == 0
    assert {*own.activities.name} <= {*eg.read_graph(tmp_path / "out" / "graph.3.et").nodes["name"]}
    alone = merge(tmp_path, [3], named)
    assert recognise(alone)[1:4] == (InputKind.DEVICE, 1000, 1)
    assert link(None, str(alone)).info.rank == 1


def on_one_device(rank: int, trace: Trace) -> Trace:
    """Each rank calls its device 0, and the file does too."""
    return renumbered(rank, trace, devices=False)


def test_on_a_device_that_several_ranks_have_correlations_that_differ_tell_whose_a_row_is(tmp_path: Path) -> None:
    def apart(rank: int, trace: Trace) -> Trace:
        trace = on_one_device(rank, trace)
        for row in rows_of(trace):
            if "correlation" in row.get("args", {}):
                row["args"]["correlation"] += 1_000_000 * rank
        return trace

    trace = read_device_trace(str(merge(tmp_path, [0, 8], apart)))
    for rank in (0, 8):
        linked = link(None, trace, rank=rank)
        assert {linked.activities.name[row].split(" ")[1] for row in range(27)} == {str(rank)}
        assert linked.activities.call_row.min() >= 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (on_one_device, "several ranks launched under the same correlations on device 0; "),
        (lambda rank, trace: trace | {"traceEvents": [*rows_of(shifted(rank, trace)), label(1000, f"rank {rank}")]},
         "several ranks have the process 1000; "),
    ],
    ids=["device", "process"],
)  # fmt: skip
def test_rows_that_may_be_of_any_rank_are_refused(tmp_path, change, why):
    trace = read_device_trace(str(merge(tmp_path, [0, 8], change)))
    with pytest.raises(DataError, match=f"rank 8 cannot be taken out of this merged trace, as {why}{REMEDY}"):
        link(None, trace, rank=8)


# As much work as there are events


def effort(path: Path) -> tuple[int, int]:
    """Function calls and the most memory that it takes to read a merged trace, tell what it is and take a rank out."""

    def take() -> None:
        device = read_device_trace(str(path))
        with pytest.raises(DataError):
            link(None, device)
        link(None, device, rank=1)

    take()
    profile = cProfile.Profile()
    profile.runcall(take)
    tracemalloc.start()
    try:
        take()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return pstats.Stats(profile).total_calls, peak  # type: ignore[attr-defined]


def test_the_effort_grows_as_the_events_do(tmp_path: Path) -> None:
    few, many = (effort(merge(tmp_path, range(copies), renumbered, launches=20)) for copies in (4, 16))
    assert [large / small < 4.5 for small, large in zip(few, many, strict=True)] == [True, True]


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 9)), max_size=12)
"""Thread, start and length."""


@given(SPANS)
def test_a_message_is_on_the_first_lane_of_its_thread_that_is_free(spans: list[tuple[int, int, int]]) -> None:
    rows = [OpRow(start, start + length, thread=thread) for thread, start, length in spans]
    free_from: list[tuple[int, int]] = []
    lanes = {}
    for row in sorted(range(len(rows)), key=lambda row: (rows[row].thread, rows[row].start)):
        thread, start, end = rows[row].thread, rows[row].start, rows[row].end
        free = (lane for lane, (of, until) in enumerate(free_from) if of == thread and until <= start)
        lane = next(free, len(free_from))
        free_from[lane : lane + 1] = [(thread, end)]
        lanes[row] = FIRST_LANE - lane
    found = _lanes(op_rows(*rows), np.arange(len(rows))) if rows else np.empty(0)
    assert found.tolist() == [lanes[row] for row in range(len(rows))]
