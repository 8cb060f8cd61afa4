"""A diagnosis counts what each process recorded and names every planted fault, the rank that has it, and what to do."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.errors import DataError
from execgraph.schema.io import open_input
from execgraph.schema.reasons import Reason
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.job import BuildOptions, Diagnosis, build, diagnose, merge_for_viewing, report
from execgraph.tools.job.diagnosis import in_words
from execgraph.tools.sync_records_advice import sync_records_advice
from execgraph.tools.trace_files import by_rank, find_traces
from support.commands import status_of
from support.databases import LITE, RPD_3, Api, Op, write_database
from support.generated import here

from benchmarks.programs import build_job

Rows = list[dict[str, Any]]
command = partial(status_of, "trace-diagnose")


def lines(*paths: Path) -> list[str]:
    """The findings in what was traced, as they are printed."""
    return [f"{found.severity} {in_words(found)}" for found in diagnose(paths).findings]


def are_told(paths: Sequence[Path], *patterns: str) -> bool:
    """Whether a finding has each of the patterns."""
    found = lines(*paths)
    return all(any(re.search(pattern, line) for line in found) for pattern in patterns)


@pytest.fixture
def folder(jobs: Callable[[int], Path], tmp_path: Path) -> Path:
    """The traces of two ranks, which a test may change."""
    return Path(shutil.copytree(jobs(2), tmp_path / "job"))


@pytest.mark.parametrize(("factor", "ahead"), [(2, 0), (1, 40)])
def test_sequence_numbers_that_each_process_counts_for_itself_are_noted(tmp_path, factor, ahead):
    write_traces(simulate(build_job("ddp", ranks=2, steps=4, layers=1, seed=5)), tmp_path)
    path = tmp_path / "device_rank1.json"
    path.write_text(re.sub(r'"Seq": ?(\d+)', lambda at: f'"Seq": {factor * int(at[1]) + ahead}', path.read_text()))
    [line] = lines(tmp_path)
    assert line.startswith("note sequence numbers of group 0,1 ") and line.endswith("matched in their order")


def test_a_sound_job_has_nothing_wrong_and_every_process_is_counted(jobs: Callable[[int], Path]) -> None:
    diagnosis = diagnose([jobs(2)])
    assert not diagnosis.findings
    assert repr(diagnosis) == "Diagnosis of 2 processes: nothing to note"
    assert diagnosis.skipped == {"truth.json of trace-generate": 1}
    assert [process.rank for process in diagnosis.processes] == [0, 1]
    for process in diagnosis.processes:
        device = json.loads(Path(process.device).read_text())
        rows = [row for row in device["traceEvents"] if row["ph"] == "X"]
        kinds = [row["cat"] for row in rows]
        assert process.kernels == kinds.count("kernel")
        assert process.copies == kinds.count("gpu_memcpy") + kinds.count("gpu_memset")
        assert process.sync_records == kinds.count("cuda_sync")
        assert process.streams == len({row["tid"] for row in rows if row["cat"] == "kernel"})
        assert process.collectives == sum("nccl" in row["name"] for row in rows if row["cat"] == "kernel")
        assert (process.devices, process.steps, process.world_size) == (1, 1, 2)
        assert (process.matched_by, process.agreement_pct) == ("record function id", 100)
        assert process.host_process in process.processes
        assert sum(kernel.count for kernel in process.top_kernels) <= process.kernels
        longest = [kernel.total_us for kernel in process.top_kernels]
        assert longest == sorted(longest, reverse=True) and len(longest) <= 10


def test_versions_are_those_that_the_files_tell(jobs: Callable[[int], Path]) -> None:
    [first, _] = diagnose([jobs(2)]).processes
    assert first.versions["nccl version"] == "2.27.5"
    assert first.versions["devices"] == "NVIDIA A100-SXM4-80GB"
    assert (first.versions["host schema"], first.versions["PyTorch"]) == ("1.1.1-chakra.0.0.4", "2.5 or newer")


def test_graph_launches_are_counted_with_their_activities(tmp_path: Path) -> None:
    write_traces(simulate(build_job("graph", steps=2)), tmp_path)
    [process] = diagnose([tmp_path]).processes
    assert process.graph_launches == 2 and process.graph_activities > 2


def edited(path: Path, change: Callable[[Rows], Rows]) -> None:
    trace = json.loads(path.read_text())
    path.write_text(json.dumps(trace | {"traceEvents": change(trace["traceEvents"])}))


def without(path: Path, chosen: Callable[[dict[str, Any]], bool], most: int = 1 << 30) -> None:
    """Takes up to `most` of the chosen complete events out."""
    left = iter(range(most))
    edited(path, lambda rows: [row for row in rows if row["ph"] != "X" or not chosen(row) or next(left, None) is None])


def no_sync_records(device: Path, _: Path) -> None:
    without(device, lambda row: row["cat"] == "cuda_sync")


def few_kernels(device: Path, _: Path) -> None:
    without(device, lambda row: row["cat"] == "kernel" and "nccl" not in row["name"], most=18)


def no_kernels(device: Path, _: Path) -> None:
    without(device, lambda row: row["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"))


def a_replay_is_not_recorded(device: Path, _: Path) -> None:
    def change(rows: Rows) -> Rows:
        launch = next(row for row in rows if row["name"] == "cudaLaunchKernel")
        launch["name"] = "cudaGraphLaunch"
        number = launch["args"]["correlation"]
        return [row for row in rows if row is launch or row.get("args", {}).get("correlation") != number]

    edited(device, change)


def a_step_is_not_marked(device: Path, host: Path) -> None:
    for path in (device, host):
        path.write_text(path.read_text().replace("ProfilerStep#", "not a step "))


def another_step(device: Path, host: Path) -> None:
    for path in (device, host):
        path.write_text(path.read_text().replace("ProfilerStep#", "ProfilerStep#1"))


ODD = {"ph": "X", "cat": "surprise", "name": "?", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {}}
ID = '"Record function id": '
Fault = Callable[[Path, Path], Any]
FAULTS: dict[str, tuple[Fault, str]] = {
    "no synchronisation records": (
        no_sync_records,
        "note .*synchronisation records are off; .*enable_cuda_sync_events",
    ),
    "ids are zero": (
        lambda device, _: device.write_text(device.read_text().replace(ID, f'{ID}0, "was": ')),
        "note .*record-function ids are absent or 0; the host trace was not being recorded .* order of their names",
    ),
    "a call is lost": (
        lambda device, _: without(device, lambda row: row["name"] == "cudaLaunchKernel", most=1),
        r"note .*activities without a launch call \(1\); they were queued before",
    ),
    "few kernels": (few_kernels, r"wrong .*LOW: \d+ kernels where another rank has \d+"),
    "no kernels": (no_kernels, r"wrong .*MISSING: 0 kernels where another rank has \d+"),
    "a collective is lost": (
        lambda device, _: without(device, lambda row: row["cat"] == "kernel" and "nccl" in row["name"], most=1),
        r"note .*1 calls of collectives launched no kernel",
    ),
    "a replay is not recorded": (
        a_replay_is_not_recorded,
        r"wrong .*1 of \d+ launch calls have no activity .*; start the profiler before graphs are captured",
    ),
    "a step is not marked": (a_step_is_not_marked, "note .*0 steps, other ranks have 1; trace the same steps"),
    "another step": (another_step, "note .*its steps begin with 1., those of other ranks with ."),
    "an unknown category": (
        lambda device, _: edited(device, lambda rows: [*rows, ODD]),
        r"note .*rows of unknown categories \(1\)",
    ),
    "no host trace": (lambda _, host: host.unlink(), "note .*a device trace without a host trace"),
    "host of another process": (
        lambda _, host: host.write_text(host.read_text().replace('"pid": ', '"pid": 9', 1)),
        "wrong .*is of process 9.* though 100 % of their ops have the same names; .*pair files by process",
    ),
}


def told_of(diagnosis: Diagnosis, rank: int, pattern: str) -> bool:
    """Whether a finding about this rank has the pattern."""
    of_rank = [found for found in diagnosis.findings if f"rank {rank}" in found.where]
    return any(re.search(pattern, f"{found.severity} {in_words(found)}") for found in of_rank)


def test_every_fault_among_many_processes_is_found_on_its_rank(jobs: Callable[[int], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(16), tmp_path / "job"))
    for rank, (plant, _) in enumerate(FAULTS.values(), 3):
        plant(folder / f"device_rank{rank}.json", folder / f"host_rank{rank}.json")
    diagnosis = diagnose([folder])
    for rank, (fault, (_, pattern)) in enumerate(FAULTS.items(), 3):
        assert told_of(diagnosis, rank, pattern), fault
    assert {place for found in diagnosis.findings for place in found.where} == {
        f"rank {rank}" for rank in range(3, 3 + len(FAULTS))
    }
    [disagree] = [found.what for found in diagnosis.findings if found.what.startswith("ranks disagree")]
    assert "rank 0 issued allreduce" in disagree and disagree.endswith("rank 7 issued none (as for rank 8)")


def test_the_share_of_matched_ops_is_of_the_host_trace_if_that_has_any(folder, capsys):
    ops = [
        row
        for row in json.loads((folder / "device_rank0.json").read_text())["traceEvents"]
        if row.get("cat") == "cpu_op"
    ]
    edited(folder / "device_rank0.json", lambda rows: [row for row in rows if row not in ops[len(ops) // 2 :]])
    host = json.loads((folder / "host_rank1.json").read_text())
    (folder / "host_rank1.json").write_text(json.dumps(host | {"nodes": host["nodes"][:2]}))
    command(folder)
    shares = [line.split()[5:6] for line in capsys.readouterr().out.splitlines()[1:3]]
    assert 40 < float(shares[0][0]) < 60 and shares[1] == ["-"]


def test_a_file_that_breaks_off_is_wrong_and_what_was_lost_is_counted(folder: Path) -> None:
    path = folder / "device_rank1.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    diagnosis = diagnose([folder])
    assert told_of(diagnosis, 1, "^wrong .*is cut off after byte")
    assert diagnosis.processes[1].dropped[Reason.CUT_OFF_ROWS.of("device events")] == 1


def swapped_names(folder: Path) -> None:
    (folder / "host_rank0.json").rename(folder / "aside")
    (folder / "host_rank1.json").rename(folder / "host_rank0.json")
    (folder / "aside").rename(folder / "host_rank1.json")


def without_rank(folder: Path) -> None:
    trace = json.loads((folder / "device_rank1.json").read_text())
    del trace["distributedInfo"]
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "trace.json").write_text(json.dumps(trace))


def of_another_name(folder: Path) -> None:
    (folder / "device_rank1.json").rename(folder / "device_rank5.json")
    (folder / "host_rank1.json").unlink()


FILES: dict[str, tuple[Callable[[Path], Any], str, list[int | None]]] = {
    "a file without rows": (
        lambda folder: (folder / "device_rank0.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 0}}'),
        "^wrong .*record it again, or leave the file out$",
        [0, 1],
    ),
    "swapped names": (
        swapped_names,
        r"device_rank0\.json and host_rank1\.json are of one process, but named as of ranks 0 and 1",
        [0, 1],
    ),
    "two traces of one rank": (
        lambda folder: shutil.copy(folder / "device_rank0.json", folder / "again_rank0.json"),
        "rank 0: 2 device traces of one process",
        [0, 0, 1],
    ),
    "another name than the recorded rank": (of_another_name, "is of rank 1, but named as of rank 5", [0, 1]),
    "no rank anywhere": (without_rank, "neither the file nor its name says the rank", [None]),
}


def test_ranks_that_record_other_times_of_a_collective_are_wrong(tmp_path: Path) -> None:
    write_traces(simulate(build_job("ddp", ranks=2, steps=4, layers=1, seed=5)), tmp_path)
    device, other = tmp_path / "device_rank1.json", tmp_path / "device_rank0.json"

    def slower(row: dict[str, Any], begin: float) -> dict[str, Any]:
        times = {"ts": begin + 2 * (row["ts"] - begin), "dur": 2 * row.get("dur", 0)} if row.get("ts") else {}
        return row | {key: time for key, time in times.items() if key in row}

    edited(device, lambda rows: [slower(row, rows[-1]["ts"]) for row in rows])
    assert are_told([device, other], "^wrong ranks disagree: ranks 0 and 1 .* 2 times as fast")


def moved_peer(row: dict[str, Any]) -> list[dict[str, Any]]:
    peer = {"Dst Rank": row["args"]["Dst Rank"] + 1} if "Dst Rank" in row.get("args", {}) else {}
    return [row | {"args": row["args"] | peer} if peer else row]


@pytest.mark.parametrize(
    ("job", "change", "said"),
    [
        ("pipeline", moved_peer, "sends .* that rank 1 does not receive"),
        ("gloo", lambda row: [row] * (not row["name"].startswith("gloo:")), "issued none"),
    ],
)
def test_what_builds_say_of_ranks_is_what_diagnoses_say(job: str, change: Any, said: str, data, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    if job == "gloo":
        shutil.copytree(data / "gloo_slow", folder)
    else:
        write_traces(simulate(build_job("pipeline", ranks=3, steps=1, layers=1)), folder)
    [path] = folder.glob("device_rank1.json*")
    with open_input(str(path)) as stream:
        trace = json.load(stream)
    path.unlink()
    rows = [changed for row in trace["traceEvents"] for changed in change(row)]
    (folder / "device_rank1.json").write_text(json.dumps(trace | {"traceEvents": rows}))
    built = build(folder, tmp_path / "graphs", BuildOptions(), here).report.disagreements
    assert re.search(said, " ".join(built))
    found = [found.what for found in diagnose([folder]).findings if found.what.startswith("ranks disagree")]
    assert found == [f"ranks disagree: {line}" for line in built]


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_not_what_they_seem_are_told_and_all_are_looked_into(folder: Path, case: str) -> None:
    change, pattern, ranks = FILES[case]
    change(folder)
    assert are_told([folder], pattern)
    assert [process.rank for process in diagnose([folder]).processes if process.device] == ranks


def test_ranks_of_the_world_that_have_no_trace_are_named(jobs: Callable[[int], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(8), tmp_path / "job"))
    for rank in (3, 4, 5):
        (folder / f"device_rank{rank}.json").unlink()
        (folder / f"host_rank{rank}.json").unlink()
    assert are_told([folder], "^note ranks 3-5: absent from a job of 8 ranks")


def test_ranks_of_jobs_of_two_sizes_are_wrong_and_none_is_absent(folder: Path) -> None:
    path = folder / "device_rank1.json"
    path.write_text(re.sub(r'"world_size": ?2', '"world_size": 4', path.read_text()))
    said = "rank 0 is of 2 ranks, rank 1 of 4"
    assert lines(folder) == [f"wrong {said}; give the traces of one job"]
    built = build(folder, folder / "graphs", BuildOptions(), here).report
    assert built.disagreements[0] == said and not built.absences


def test_stages_of_a_pipeline_are_no_ranks_that_lost_kernels(tmp_path: Path) -> None:
    write_traces(simulate(build_job("pipeline", ranks=4, steps=1)), tmp_path)
    assert lines(tmp_path) == []


def test_equal_findings_of_many_ranks_are_one_line(tmp_path: Path) -> None:
    write_traces(simulate(build_job("ddp", ranks=8, steps=1, layers=1)), tmp_path, sync_records=False)
    assert [line.split(";")[0] for line in lines(tmp_path)] == ["note ranks 0-7: synchronisation records are off"]


def test_a_trace_without_synchronisation_records_is_told_of_first(folder: Path) -> None:
    no_sync_records(folder / "device_rank1.json", folder)
    text = report(diagnose([folder])).splitlines()
    assert text[:3] == sync_records_advice("rank 1") and text[3] == ""
    assert text[2].strip() in text[-2]


def no_waits(device: Path, host: Path) -> None:
    no_sync_records(device, host)
    without(device, lambda row: "Synchronize" in row["name"] or "Wait" in row["name"])


def no_activities(device: Path, host: Path) -> None:
    no_sync_records(device, host)
    no_kernels(device, host)


@pytest.mark.parametrize("change", [lambda device, host: None, no_waits, no_activities], ids=["none", "waits", "work"])
def test_a_trace_with_its_records_or_without_waits_or_work_gets_no_advice(folder: Path, change: Fault) -> None:
    for rank in (0, 1):
        change(folder / f"device_rank{rank}.json", folder)
    diagnosis = diagnose([folder])
    assert "synchronisation records" not in report(diagnosis)
    assert not [process for process in diagnosis.processes if process.waits_without_record]


def test_databases_are_diagnosed_with_their_dialect_and_processes(tmp_path: Path) -> None:
    ops = [Op("gemm", 100 * n, 100 * n + 50, caller=n) for n in range(1, 5)]
    api = [Api("hipLaunchKernel", 10 * n, 10 * n + 5, pid=61) for n in range(1, 5)]
    write_database(tmp_path / "trace_60.db", LITE, ops[:1], pid=60)
    write_database(tmp_path / "rank1.db", RPD_3, ops, api)
    diagnosis = diagnose([tmp_path])
    by_name = {Path(process.device).name: process for process in diagnosis.processes}
    assert by_name["rank1.db"].rank == 1 and by_name["rank1.db"].processes == [61]
    assert by_name["rank1.db"].versions == {"written by": RPD_3}
    assert by_name["trace_60.db"].kernels == 1 and by_name["trace_60.db"].rank is None
    no_call = r"activities without a launch call \(1\); no runtime call was recorded"
    assert are_told([tmp_path], r"trace_60\.db: LOW: 1 kernels", no_call)


def test_strict_exits_1_for_what_is_wrong_and_0_for_notes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    no_sync_records(folder / "device_rank1.json", folder)
    assert command(folder, "--strict") == 0
    no_kernels(folder / "device_rank1.json", folder)
    assert command(folder) == 0
    assert command(folder, "--strict") == 1
    assert "MISSING" in capsys.readouterr().out


def test_json_is_one_object_with_processes_and_findings(jobs, capsys):
    assert command(jobs(2), "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert [process["rank"] for process in summary["processes"]] == [0, 1]
    assert (summary["wrong"], summary["findings"]) == (0, [])


def test_the_report_marks_asymmetry_and_lists_kernels(folder: Path) -> None:
    few_kernels(folder / "device_rank1.json", folder)
    text = report(diagnose([folder]))
    assert [line for line in text.splitlines() if line.startswith("   1 ") and "LOW" in line]
    assert "longest kernels, all" in text and "ampere_sgemm" in text


def test_steps_that_warm_up_are_counted_and_are_no_loss(folder: Path) -> None:
    diagnosis = diagnose([folder])
    head = "outside the linked part, which is no loss"
    assert head not in report(diagnosis)
    diagnosis.processes[1].dropped[Reason.OPS_OUTSIDE_HOST_WINDOW] = 7
    before, after = report(diagnosis).split(head)
    assert " 7 ops outside the host trace's window (rank 1)" in after and "window" not in before


def test_a_folder_without_traces_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DataError, match=r"no traces there, but text files \(1\)"):
        diagnose([tmp_path])
    assert command(tmp_path) == 1
    assert command(tmp_path / "absent") == 1


def test_a_file_of_several_ranks_is_named_with_its_ranks_and_each_is_inspected(jobs, tmp_path):
    merge_for_viewing(by_rank(find_traces([jobs(2)]).devices, {})[0], str(tmp_path / "merged.json"))
    line, without_host = lines(tmp_path)
    assert without_host.startswith("note ranks 0, 1: a device trace without a host trace; ")
    assert [p.kernels for p in diagnose([tmp_path]).processes] == [p.kernels for p in diagnose([jobs(2)]).processes]
    assert line.startswith("note ") and "ranks 0, 1 are in one file; " in line
    assert line.endswith("execgraph.build builds all of them, rank=N of execgraph.link takes one out")


def test_collectives_without_a_kernel_are_noted_but_not_those_of_one_rank(data: Path, folder: Path) -> None:
    """NCCL on one GPU copies; gloo's collectives are done by the host, and have no kernel anyway."""
    assert not lines(data / "gpu" / "nccl") and not lines(data / "gpu" / "gloo")
    without(folder / "device_rank0.json", lambda row: row["cat"] == "kernel" and "nccl" in row["name"])
    assert are_told([folder], r"^note rank 0: \d+ calls of collectives launched no kernel that communicates")


def test_a_job_on_a_cpu_lacks_no_device_by_its_host_trace(data: Path) -> None:
    assert not lines(data / "attention")
    assert are_told([data / "attention" / "device_rank0.json.gz"], "^note rank 0: no device activity")
