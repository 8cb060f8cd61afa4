"""trace-merge: which files it merges and replaces, and what becomes of those that it cannot use."""

import json
import shutil
from pathlib import Path

import pytest
from execgraph.linker.readers import read_device_trace
from execgraph.tools.commands.trace_merge import main
from execgraph.tools.job import merge_for_viewing
from execgraph.tools.trace_files import by_rank, find_traces
from support.reports import Jobs, ranks_in, recorded_activities


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


@pytest.mark.parametrize("name", ["merged.json", "merged.json.gz", "merged.db"])
def test_the_command_merges_a_folder_again_and_again(jobs: Jobs, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    assert command(folder, "--output", folder / name) == 0
    first = (folder / name).read_bytes()
    assert command(folder, "--output", folder / name) == 0
    assert len((folder / name).read_bytes()) == len(first)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["device_rank0.json", "host_rank1.json"])
def test_no_trace_of_the_folder_is_replaced(
    jobs: Jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    before = (folder / name).read_bytes()
    assert command(folder, "--output", folder / name) == 2
    assert "is a trace of one rank, which is read: give another name for the output" in capsys.readouterr().err
    assert (folder / name).read_bytes() == before


def test_the_summary_counts_what_was_not_merged(jobs: Jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(jobs(2), "--output", tmp_path / "m.json", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["skipped"] == {"truth.json of trace-generate": 1, "host traces, which have no times": 2}
    assert [rank["activities"] for rank in summary["ranks"]] == [sum(recorded_activities(jobs(2)).values()) // 2] * 2


def test_wrong_input_is_refused_and_the_old_output_stays(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    shutil.copy(folder / "device_rank0.json", folder / "again_rank0.json")
    for name in ("m.json", "m.db"):
        (tmp_path / name).write_text("old")
        assert command(folder, "--output", tmp_path / name) == 1
        assert command(jobs(2) / "host_rank0.json", "--output", tmp_path / name) == 1
        assert command(tmp_path / "absent", "--output", tmp_path / name) == 1
        assert (tmp_path / name).read_text() == "old"
    assert command(jobs(2), "--output", tmp_path / "m.txt") == 2


def test_a_clock_that_is_centuries_from_the_others_is_refused(
    jobs: Jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    for rank, shift in enumerate((-(10**15), 4 * 10**15)):
        path = folder / f"device_rank{rank}.json"
        trace = json.loads(path.read_text())
        trace["traceEvents"] = [
            {**row, "ts": int(row["ts"]) + shift} if "ts" in row else row for row in trace["traceEvents"]
        ]
        path.write_text(json.dumps(trace))
    for name in ("m.json", "m.db"):
        assert command(folder, "--output", tmp_path / name) == 1
        assert "device_rank0.json: its clock is 158 years from that of other ranks" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]


@pytest.mark.parametrize("key", ["cat", "pid", "tid", "id", "args"])
def test_values_that_nothing_can_hold_stay_in_the_merged_trace(jobs: Jobs, tmp_path: Path, key: str) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    path = folder / "device_rank1.json"
    row = json.dumps(
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, key: "HUGE"}
    ).replace('"HUGE"', "1e999")
    path.write_text(path.read_text().replace('"traceEvents": [', f'"traceEvents": [{row},', 1))
    assert command(folder, "--output", tmp_path / "m.json") == 0
    assert json.loads((tmp_path / "m.json").read_text(), parse_constant=float)["mergedRanks"][1]["rank"] == 1
    assert command(folder, "--output", tmp_path / "m.db") == 0


def test_a_base_time_that_no_clock_shows_is_none(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    path = folder / "device_rank0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "baseTimeNanoseconds": "0x7fffffffffffffff"}))
    assert read_device_trace(str(path)).base_time_ns == 0
    assert command(folder, "--output", tmp_path / "m.db") == 0


def test_a_trace_that_cannot_be_used_leaves_no_output(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    (folder / "device_rank1.json").write_text('{"distributedInfo": {"rank": 1}, "traceEvents": []}')
    for name in ("m.json", "m.db"):
        assert command(folder, "--output", tmp_path / name) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]


def test_of_a_trace_that_breaks_off_what_can_be_read_is_merged_and_that_is_said(jobs: Jobs, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(jobs(2), tmp_path / "job"))
    path = folder / "device_rank1.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    report = merge_for_viewing(ranks_in(folder), str(tmp_path / "m.json"))
    assert 0 < report.ranks[1].rows < report.ranks[0].rows
    assert any("device_rank1.json: " in note and "ends early" in note for note in report.notes)


def test_a_number_in_a_name_that_is_the_process_is_no_rank(jobs: Jobs, tmp_path: Path) -> None:
    for rank, pid in enumerate((41_000, 41_064)):
        trace = json.loads((jobs(2) / f"device_rank{rank}.json").read_text())
        del trace["distributedInfo"]
        (tmp_path / f"trace_{pid}.json").write_text(json.dumps(trace))
    ranks, notes = by_rank(find_traces([tmp_path]).devices, {})
    assert [(rank, path.name) for rank, path in ranks] == [(0, "trace_41000.json"), (1, "trace_41064.json")]
    assert len(notes) == 2 and "numbered 1 by its process" in notes[1]


def test_the_recorded_rank_comes_before_that_of_the_name(jobs: Jobs, tmp_path: Path) -> None:
    shutil.copy(jobs(2) / "device_rank1.json", tmp_path / "device_rank5.json")
    assert [rank for rank, _ in ranks_in(tmp_path)] == [1]
