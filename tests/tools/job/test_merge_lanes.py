"""Rows that cross others of their thread are on lanes beside it, and come back when their rank is taken out."""

import json
from pathlib import Path
from typing import Any

from execgraph.linker.readers import one_rank, read_device_trace
from execgraph.tools.job import merge_for_viewing
from support.reports import Jobs, merged, ranks_in, rows_of


def crossing(rows: list[dict[str, Any]]) -> int:
    """How many rows begin inside another of their thread and outlast it."""
    count = 0
    ends: dict[tuple[int, int], list[int]] = {}
    for row in sorted(rows, key=lambda row: (row["ts"], -row["dur"])):
        start = round(1000 * row["ts"])
        end = start + round(1000 * row["dur"])
        around = ends.setdefault((row["pid"], row["tid"]), [])
        while around and around[-1] <= start:
            around.pop()
        count += bool(around) and end > around[-1]
        around.append(end)
    return count


def overlapping(folder: Path) -> Path:
    """A device trace of one kernel, two that start while it runs, and two ops of one thread that cross."""
    places = {"kernel": {"pid": 0, "tid": 7}, "cpu_op": {"pid": 9, "tid": 9}}

    def row(category: str, name: str, ts: int, dur: int, **args: int) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, **places[category], "ts": ts, "dur": dur, "args": args}

    rows = [
        {"ph": "M", "name": "thread_name", **places["kernel"], "args": {"name": "stream 7"}},
        row("cpu_op", "op", 0, 50, **{"External id": 1}), row("cpu_op", "late", 40, 20, **{"External id": 2}),
        row("kernel", "long", 100, 20, correlation=1), row("kernel", "early", 110, 20, correlation=2),
        row("kernel", "third", 115, 20, correlation=3), row("kernel", "after", 140, 5, correlation=4),
        {"ph": "f", "bp": "e", "cat": "ac2g", "name": "ac2g", "id": 2, **places["kernel"], "ts": 110},
    ]  # fmt: skip
    path = folder / "device_rank0.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": rows}))
    return path


def test_rows_that_cross_others_of_their_thread_are_shown_beside_it(tmp_path: Path) -> None:
    before = json.loads(overlapping(tmp_path).read_text())
    trace = merged(tmp_path, tmp_path / "merged.json")
    assert crossing(rows_of(before)) == 3 and crossing(rows_of(trace)) == 0
    lanes = {row["tid"]: row["args"]["name"] for row in trace["traceEvents"] if row["name"] == "thread_name"}
    shown = {row["name"]: lanes.get(row["tid"]) for row in trace["traceEvents"] if row["ph"] in "Xf"}
    assert [shown[name] for name in ("long", "early", "third", "after")] == [
        "stream 7", "stream 7 · 2", "stream 7 · 3", "stream 7",
    ]  # fmt: skip
    assert shown["ac2g"] == shown["early"]


def test_a_rank_taken_out_has_the_threads_and_streams_of_its_own_trace(tmp_path: Path) -> None:
    own = read_device_trace(str(overlapping(tmp_path)))
    merge_for_viewing(ranks_in(tmp_path), str(tmp_path / "merged.json"))
    again = one_rank(read_device_trace(str(tmp_path / "merged.json")), 0)
    assert again.ops.thread.tolist() == own.ops.thread.tolist() == [9, 9]
    assert again.activities.stream.tolist() == own.activities.stream.tolist() == [7] * 4


def test_no_row_of_a_job_crosses_another(jobs: Jobs, tmp_path: Path) -> None:
    assert crossing(rows_of(merged(jobs(8), tmp_path / "merged.json"))) == 0
