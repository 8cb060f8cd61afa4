"""One job per folder: one build at a time, earlier builds' files are removed, inputs that change are refused."""

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from execgraph.converter.scaling import Growth
from execgraph.linker.windows import Window
from execgraph.schema.errors import DataError
from execgraph.schema.io import alone, fresh_folder, locked, open_input
from execgraph.tools.job import BuildOptions, BuiltJob, build, building, scale
from execgraph.tools.job.build_report import LOCK, PIECE, content_of
from execgraph.tools.job.building import RankTask
from support.generated import here


@pytest.fixture
def job(jobs: Callable[[int], Path], tmp_path: Path) -> Path:
    """The traces of two ranks, which a test may change."""
    return Path(shutil.copytree(jobs(2), tmp_path / "job"))


def built(job: Path, out: Path) -> BuiltJob:
    return build(job, out, BuildOptions(), here)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


BUILT = ["comm_groups.json", "graph.0.et", "graph.1.et", "report.json"]


def test_a_request_that_no_rank_can_meet_leaves_the_folder_as_it_was(job: Path, tmp_path: Path) -> None:
    built(job, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    nothing = build(job, tmp_path / "out", BuildOptions(), here, window=Window(steps=(99, 100)))
    assert len(nothing.report.all_failures) == 2 and not nothing.is_written
    assert [re.search("is left as the earlier build made it", line) is not None for line in nothing.stale] == [True]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


# Who is alone


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that builds into tmp_path/out."""
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / LOCK
    work = "with locked(Path(sys.argv[1]), 'out'): print('held', flush=True); sys.stdin.read()"
    script = f"import sys\nfrom pathlib import Path\nfrom execgraph.schema.io import locked\n{work}"
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_build_says_who_holds_the_folder(job: Path, tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    with pytest.raises(DataError, match=rf"out: process {holder.pid} on .+ since \d{{4}}-.* UTC works on it; wait"):
        built(job, tmp_path / "out")
    assert names(tmp_path / "out") == [LOCK]


def test_what_a_killed_process_held_is_free(job: Path, tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    built(job, tmp_path / "out")
    assert names(tmp_path / "out") == BUILT


def test_without_locks_of_the_system_the_file_itself_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "fcntl", None)
    path = tmp_path / "lock"
    with (
        locked(path, "out"),
        pytest.raises(DataError, match=f"out: process {os.getpid()} .*remove {path} if"),
        locked(path, "out"),
    ):
        pass
    assert not path.exists()
    with locked(path, "out"):
        assert path.exists()


def test_scaling_into_a_folder_is_for_one_at_a_time(job: Path, tmp_path: Path) -> None:
    built(job, tmp_path / "graphs")
    left = tmp_path / ".scaled.scaling"
    left.mkdir()
    (left / "half").touch()
    into = tmp_path / "scaled"
    with (
        locked(tmp_path / ".scaled.scaling.lock", "it"),
        pytest.raises(DataError, match=r"scaled: process .* works on it"),
    ):
        scale(tmp_path / "graphs", into, Growth(2), here)
    scale(tmp_path / "graphs", into, Growth(2), here)
    assert names(tmp_path) == ["graphs", "job", "scaled"]


def test_a_fresh_folder_is_empty_and_gone_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with fresh_folder(tmp_path / "work") as folder:
            assert names(folder) == []
            (folder / "file").touch()
        assert names(tmp_path) == []


# What earlier builds left


def test_graphs_of_ranks_that_are_gone_are_removed_and_named(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    built(job, out)
    mine = out / "graph.7.et"
    mine.write_bytes(b"of another tool")
    for kind in ("host", "device"):
        (job / f"{kind}_rank1.json").unlink()
    found = built(job, out)
    assert names(out) == ["comm_groups.json", "graph.0.et", "graph.7.et", "report.json"]
    assert found.stale == ["graph.1.et: rank 1 of an earlier build, which is not in this job; removed"]
    assert built(job, out).stale == []


def test_a_job_of_other_traces_in_the_folder_is_named_before_it_is_replaced(
    job: Path, jobs: Callable[[int], Path], tmp_path: Path
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    built(job, out)
    other.mkdir()
    for rank in (2, 3):
        for kind in ("host", "device"):
            shutil.copy(jobs(4) / f"{kind}_rank{rank}.json", other)
    assert (
        "the folder held a job of other traces, device_rank0.json and 1 more; it is replaced" in built(other, out).stale
    )
    assert built(other, out).stale == []
    (out / "report.json").unlink()
    (out / "graph.9.et").write_bytes(b"of another tool")
    unreported = "graph.2.et and 2 more: in the folder without a report of their build; 2 replaced, 1 left"
    assert built(other, out).stale == [unreported]


def test_a_graph_that_something_else_wrote_is_left_and_named(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    built(job, out)
    (out / "graph.1.et").write_bytes(b"mine")
    for kind in ("host", "device"):
        (job / f"{kind}_rank1.json").unlink()
    [line] = built(job, out).stale
    assert line.endswith("left, as something else has written it since")
    assert (out / "graph.1.et").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["../precious", "precious", "/{tmp_path}/precious", "graph.1.et/../precious"])
def test_a_report_cannot_have_other_files_removed(job: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    built(job, out)
    name = name.format(tmp_path=tmp_path)
    for folder in (tmp_path, out):
        (folder / "precious").write_bytes((out / "graph.1.et").read_bytes())
    report = json.loads((out / "report.json").read_text())
    report["ranks"][1]["graph"]["file"] = name
    (out / "report.json").write_text(json.dumps(report))
    for kind in ("host", "device"):
        (job / f"{kind}_rank1.json").unlink()
    built(job, out)
    assert (tmp_path / "precious").exists() and (out / "precious").exists()


def test_no_graph_stands_for_a_rank_that_failed(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    built(job, out)
    (job / "device_rank1.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 1}}')
    assert built(job, out).stale == ["graph.1.et: rank 1 failed; removed"]
    assert "graph.1.et" not in names(out)


def test_what_killed_builds_had_begun_is_removed(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / ".building").mkdir(parents=True)
    for name in (".building/0", LOCK):
        (out / name).write_text("half")
    built(job, out)
    assert names(out) == BUILT


# Names of outputs

RANKS = [  # as traces say them
    "../../up", "0; touch mine", "\x1b[2J", "9" * 300, -3, 1e30, 10**30, 2**63 - 1, True, None, [0], {"rank": 0},
]  # fmt: skip


@pytest.mark.parametrize("rank", RANKS, ids=range(len(RANKS)))
@pytest.mark.parametrize("name", ["device.json", "device_rank1$(touch mine)\x1b.json", f"device_rank{'9' * 200}.json"])
def test_names_of_outputs_hold_nothing_of_a_trace_but_a_number(
    job: Path, tmp_path: Path, rank: object, name: str
) -> None:
    for kind in ("host", "device"):
        (job / f"{kind}_rank1.json").unlink()
    device = json.loads((job / "device_rank0.json").read_text())
    (job / "device_rank0.json").unlink()
    device["distributedInfo"] = {"rank": rank, "world_size": 1, "pg_config": [{"pg_name": "../../pg", "ranks": [0]}]}
    (job / name).write_text(json.dumps(device))
    with contextlib.suppress(DataError):
        built(job, tmp_path / "out")
    made = names(tmp_path / "out") if (tmp_path / "out").exists() else []
    assert [one for one in made if not re.fullmatch(r"graph\.\d+\.et|comm_groups\.json|report\.json", one)] == []
    assert names(tmp_path) in (["job"], ["job", "out"]) and len(names(job)) == 3


# Inputs that change


@pytest.mark.parametrize("pack", [lambda text: text, gzip.compress], ids=["plain", "gzip"])
def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(pack(os.urandom(1 << 22)))
    with open_input(str(path)) as stream:
        stream.read(1000)
        with path.open("ab") as more:
            more.write(pack(b"more"))
        with pytest.raises(DataError, match=r"trace\.json: was written to while it was read"):
            stream.read()


def test_a_rank_whose_input_is_replaced_while_it_is_built_fails(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked_rank = building.linked_rank

    def replaced(task: RankTask) -> object:
        linked = linked_rank(task)
        if task.pair.rank == 1:
            new = job / "new"
            shutil.copy(job / "host_rank1.json", new)
            new.rename(job / "host_rank1.json")
        return linked

    monkeypatch.setattr(building, "linked_rank", replaced)
    report = built(job, tmp_path / "out").report
    assert report.all_failures == [
        "rank 1: host_rank1.json: was changed while the graph was built from it; run again when that is done"
    ]


def test_hashing_that_nobody_waits_for_any_more_ends(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 * PIECE))
    given_up = iter([False, True])
    assert content_of(tmp_path / "large", "large", lambda: next(given_up)).bytes == PIECE
