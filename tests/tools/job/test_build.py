"""Building all ranks of a job: every graph, what failed and why, what is not built again, and the same bytes always.

One job per folder: one build at a time, earlier builds' files are removed, inputs that change are refused.
"""

import contextlib
import gzip
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import execgraph as eg
import pytest
from execgraph.converter.scaling import Growth
from execgraph.linker.windows import Window
from execgraph.schema.arguments import Target
from execgraph.schema.errors import DataError, RequestError
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.io import alone, decompressing_at_most, fresh_folder, locked, open_input
from execgraph.tools import workers
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.job import BuildOptions, BuiltJob, Outcomes, build, rank_building, scale
from execgraph.tools.job.build_report import LOCK, PIECE, content_of, read_report
from execgraph.tools.job.building import RankResult, RankTask
from execgraph.tools.job.rank_building import build_rank
from execgraph.tools.replay import describe_simulated, why_not_one_job
from execgraph.tools.workers import WorkerDied, in_processes
from support.commands import status_of
from support.generated import here
from support.tasks import content, killed_by_3, process_of, staged

command = partial(status_of, "trace-build")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a job of two ranks."""
    folder = tmp_path_factory.mktemp("traces")
    write_traces(simulate(build_job("ddp", ranks=2, steps=1, layers=1, seed=3)), folder)
    return folder


@pytest.fixture
def job(traces: Path, tmp_path: Path) -> Path:
    """A copy of them that a test may change."""
    return Path(shutil.copytree(traces, tmp_path / "job"))


@pytest.fixture
def out(built_for: Callable[[Target], Path], tmp_path: Path) -> Path:
    """What a build of them wrote, that a test may change."""
    return Path(shutil.copytree(built_for("generic"), tmp_path / "out"))


def built(folder: Path, out: Path, options: BuildOptions | None = None, anew: bool = False) -> BuiltJob:
    return build(folder, out, options or BuildOptions(), here, anew=anew)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def without_rank_1(job: Path) -> None:
    for kind in ("host", "device"):
        (job / f"{kind}_rank1.json").unlink()


# What is built


def test_every_rank_gets_a_graph_and_the_report_says_from_what(traces: Path, tmp_path: Path) -> None:
    report = built(traces, tmp_path / "out").report
    assert sorted(files(tmp_path / "out")) == ["comm_groups.json", "graph.0.et", "graph.1.et", "report.json"]
    for rank, summary in enumerate(report.ranks):
        graph = ExecutionGraph.read(str(tmp_path / "out" / f"graph.{rank}.et"))
        assert graph.metadata["rank"] == summary.rank == rank
        assert (len(graph), len(graph.data_deps.values)) == (summary.convert and summary.convert.nodes, summary.edges)
        found = (summary.device.file, summary.host and summary.host.file)
        assert found == (f"device_rank{rank}.json", f"host_rank{rank}.json")
        assert summary.link and summary.link.matched > 0
    assert report.skipped == {"truth.json of trace-generate": 1}
    assert not report.all_failures and not report.all_notes


def test_swapped_names_do_not_swap_ranks(job: Path, tmp_path: Path) -> None:
    built(job, tmp_path / "right")
    (job / "host_rank0.json").rename(job / "aside")
    (job / "host_rank1.json").rename(job / "host_rank0.json")
    (job / "aside").rename(job / "host_rank1.json")
    report = built(job, tmp_path / "swapped").report
    assert [summary.host and summary.host.file for summary in report.ranks] == ["host_rank1.json", "host_rank0.json"]
    assert [summary.link and summary.link.agreement_pct for summary in report.ranks] == [100.0, 100.0]


def test_sequence_numbers_that_each_process_counts_for_itself_are_not_used_and_that_is_said(job: Path, tmp_path: Path):
    for rank in (0, 1):
        path = job / f"device_rank{rank}.json"
        path.write_text(
            re.sub(r'"Seq": ?(\d+)', lambda at, r=rank: f'"Seq": {2 * int(at[1]) + 3 * r}', path.read_text())
        )
    notes = [built(job, tmp_path / "out").report.all_notes for _ in range(2)]
    said = "sequence numbers of group 0,1 (0) are not the same on all ranks: calls are matched in their order"
    assert notes == [[said]] * 2
    assert why_not_one_job([ExecutionGraph.read(str(tmp_path / f"out/graph.{rank}.et")) for rank in (0, 1)]) == ""


def test_a_device_trace_without_host_trace_is_built_alone(job: Path, tmp_path: Path) -> None:
    (job / "host_rank1.json").unlink()
    report = built(job, tmp_path / "out").report
    assert [summary.status for summary in report.ranks] == ["built", "built"]
    lonely, unknown = report.all_notes
    assert lonely.startswith("rank 1: device_rank1.json: has no host trace")
    assert unknown.startswith("rank 1: no host trace: ")


def test_a_broken_rank_fails_alone_and_names_its_file(job: Path, tmp_path: Path) -> None:
    (job / "device_rank0.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 0}}')
    report = built(job, tmp_path / "out").report
    assert [summary.status for summary in report.ranks] == ["failed", "built"]
    [failure] = report.all_failures
    assert failure.startswith("rank 0: device_rank0.json: ")
    assert sorted(files(tmp_path / "out")) == ["comm_groups.json", "graph.1.et", "report.json"]


# What is not built again


def test_ranks_that_are_up_to_date_are_left_alone(job: Path, out: Path) -> None:
    before, written = files(out), (out / "graph.0.et").stat().st_mtime_ns
    assert built(job, out).unchanged == {0, 1}
    assert (out / "graph.0.et").stat().st_mtime_ns == written
    assert built(job, out, anew=True).unchanged == set()
    assert (out / "graph.0.et").stat().st_mtime_ns > written
    assert files(out) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda job, _: (job / "host_rank0.json").open("a").write("\n"),
        lambda _, out: (out / "graph.0.et").unlink(),
        lambda _, out: (out / "graph.0.et").write_bytes(b"other"),
    ],
    ids=["another input", "no graph", "another graph"],
)
def test_a_rank_that_changed_is_built_again(job: Path, out: Path, change: Callable[[Path, Path], Any]) -> None:
    graph = (out / "graph.0.et").read_bytes()
    change(job, out)
    assert built(job, out).unchanged == {1}
    assert (out / "graph.0.et").read_bytes() == graph


def test_other_options_reach_the_graphs_and_build_everything_again(traces: Path, out: Path) -> None:
    full = (out / "graph.0.et").stat().st_size
    bare = built(traces, out, BuildOptions(io="none"))
    smaller = bare.report.ranks[0].graph
    assert smaller and smaller.bytes < full and bare.unchanged == set()


@pytest.mark.parametrize("job", ["training", "gloo_slow"])
def test_graphs_of_several_ranks_for_a_simulator_replay_as_the_run_did(job: str, data: Path, tmp_path: Path) -> None:
    """Their ids have gaps, and each rank takes the time beyond the network by itself."""
    found = eg.replay(eg.build(data / job, tmp_path / "graphs", target="astra-sim")).results
    assert found.error_pct == pytest.approx(0, abs=0.05) and found.explained_pct == 100


def test_simulators_get_the_run_without_a_profiler_unless_asked_for_the_recorded_one(tmp_path: Path) -> None:
    small, out = Path("tests/data/gpu/small").resolve(), tmp_path / "graphs"

    def replayed_us(**options: Any) -> float:
        job = eg.build(small, out, **options)
        is_modelled = any("unprofiled" in graph.metadata for graph in job)
        return eg.replay(job, as_recorded=not is_modelled).makespan_us

    recorded_us, step_us = 48_933, 3_663
    assert replayed_us() == replayed_us(target="astra-sim", as_recorded=True) == pytest.approx(recorded_us, rel=1e-4)
    assert read_report(out / "report.json").run == ""  # type: ignore[union-attr]
    assert replayed_us(without_profiler=True) == pytest.approx(2 * step_us, rel=2e-3)
    assert replayed_us(changes={"class:host": 0.5}) == pytest.approx(step_us, rel=2e-3)
    for target in ("astra-sim", "goal", "goal"):  # the last one is up to date
        job = eg.build(small, out, target=target)
        said = "the unprofiled one: a step took 24.47 ms recorded, 3.66 ms unprofiled"
        assert job.build_report is not None and job.build_report.run == said
        if target == "astra-sim":
            assert eg.replay(job).makespan_us == pytest.approx(2 * step_us, rel=2e-3)
            assert "modelled" in eg.replay(job).describe() and "µs modelled" in describe_simulated(job.simulate())
            with pytest.raises(RequestError, match="the graphs hold the unprofiled run: build them with --as-recorded"):
                eg.replay(job, as_recorded=True)
    assert job.replay().work.unprofiled is None
    with pytest.raises(ValueError, match="ask for one of them"):
        eg.build(small, without_profiler=True, as_recorded=True)
    with pytest.raises(RequestError, match="no node has"):
        eg.build(small, changes={"no such op": 0})


def test_a_part_of_the_traces_is_built_on_every_rank_and_not_taken_for_another(tmp_path: Path) -> None:
    job, out = tmp_path / "job", tmp_path / "out"
    write_traces(simulate(build_job("ddp", ranks=2, steps=2, layers=1, seed=3)), job)
    nodes = []
    for steps in (None, (0, 1), (1, 2)):
        report, unchanged, *_ = build(job, out, BuildOptions(), here, window=Window(steps=steps))
        assert (report.disagreements, unchanged) == ([], set())
        nodes.append([rank.convert.activities for rank in report.ranks if rank.convert])
    assert [sum(rank) for rank in zip(*nodes[1:], strict=True)] == nodes[0]
    assert build(job, out, BuildOptions(), here, window=Window(steps=(1, 2))).unchanged == {0, 1}


@pytest.fixture(scope="module")
def built_for(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Target], Path]:
    """What a build for a target writes, not to be changed."""

    @cache
    def folder(target: Target) -> Path:
        out = tmp_path_factory.mktemp(target)
        built(traces, out, BuildOptions(target=target))
        return out

    return folder


@pytest.mark.parametrize(
    ("target", "content"),
    [("generic", None), ("generic", b'{"1": [1, 0]}\n'), ("astra-sim", "twice"), ("goal", "twice")],
)
@pytest.mark.parametrize("name", ["comm_groups.json", "report.json", "graph.0.et"])
def test_a_file_that_somebody_changed_is_mended_by_the_next_build(traces, built_for, tmp_path, target, name, content):
    out, options = tmp_path / "out", BuildOptions(target=target)
    shutil.copytree(built_for(target), out)
    before = files(out)
    (out / name).unlink()
    if content is not None:
        (out / name).write_bytes(before[name] * 2 if isinstance(content, str) else content)
    built(traces, out, options)
    assert files(out) == before


def test_a_figure_that_somebody_changed_in_the_report_is_not_believed(traces: Path, out: Path) -> None:
    before, path = files(out), out / "report.json"
    path.write_text(re.sub('"edges": [0-9]+', '"edges": 7', path.read_text(), count=1))
    assert files(out) != before
    again = built(traces, out)
    assert again.unchanged == set() and files(out) == before
    assert again.stale == ["report.json is not what the earlier build wrote: all ranks are built again"]
    (out / "comm_groups.json").unlink()
    assert built(traces, out).stale == [
        "comm_groups.json is not what the earlier build wrote: all ranks are built again"
    ]


def test_a_rank_that_did_not_change_gets_the_numbers_of_groups_that_the_others_have_now(tmp_path: Path) -> None:
    write_traces(simulate(build_job("moe_dp", steps=1, layers=1, seed=3)), tmp_path / "job")
    job, out = tmp_path / "job", tmp_path / "out"
    for part in ([0], [0, 1, 2, 3], [0, 1, 2], [0]):
        devices = [job / f"device_rank{rank}.json" for rank in part]
        hosts = [job / f"host_rank{rank}.json" for rank in part]
        for folder in (out, tmp_path / f"{part}"):
            build([*devices, *hosts], folder, BuildOptions(), here)
        assert files(out) == files(tmp_path / f"{part}")


@pytest.mark.usefixtures("in_this_process")
def test_for_a_simulator_all_ranks_are_built_again_when_one_is_gone(job: Path, tmp_path: Path) -> None:
    out, options = tmp_path / "out", BuildOptions(target="astra-sim")
    built(job, out, options)
    without_rank_1(job)
    built(job, out, options)
    built(job, tmp_path / "alone", options)
    assert files(out) == files(tmp_path / "alone")


def test_no_output_replaces_a_trace(job: Path, tmp_path: Path) -> None:
    out, trace = tmp_path / "out", job / "device_rank1.json"
    out.mkdir()
    (out / "graph.0.et").symlink_to(trace)
    before = trace.read_bytes()
    with pytest.raises(RequestError, match=r"graph\.0\.et is .*device_rank1\.json, which is read: give another folder"):
        built(job, out)
    assert trace.read_bytes() == before
    named = trace.rename(job / "report.json")
    with pytest.raises(RequestError, match=r"report\.json is a trace, not of a build: rename it, or give another fol"):
        built(job, job)
    assert named.read_bytes() == before


# The same bytes, wherever


def test_the_number_of_jobs_changes_nothing(traces: Path, out: Path, tmp_path: Path) -> None:
    assert command("--input-dir", traces, "--output-dir", tmp_path / "there", "--jobs", 2, "-q") == 0
    assert files(out) == files(tmp_path / "there")


@pytest.mark.parametrize("below", ["", "graphs"])
def test_outputs_inside_the_input_folder_are_no_inputs(job: Path, below: str) -> None:
    out = job / below
    built(job, out)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert built(job, out).unchanged == {0, 1}
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


def test_a_dask_cluster_builds_the_same_files(traces: Path, out: Path, tmp_path: Path, scheduler: str) -> None:
    assert command("--input-dir", traces, "--output-dir", tmp_path / "there", "--scheduler", scheduler, "-q") == 0
    assert files(tmp_path / "there") == files(out)


def test_what_a_cluster_lacks_is_said_in_time(job: Path, tmp_path: Path, capsys: Any) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        distributed.LocalCluster(n_workers=0, processes=False, protocol="tcp://", dashboard_address=None) as idle,
    ):
        for address, said in (
            ("", "argument --scheduler: '' is no address, such as"),
            ("tls://127.0.0.1:1", "--scheduler tls://127.0.0.1:1: is no Dask scheduler (TLS expects"),
            (
                f"tcp://127.0.0.1:{silent.getsockname()[1]}",
                "no Dask scheduler answers within 0.5 s; does it run there?",
            ),
            (idle.scheduler_address, "waits for a worker, up to 0.5 s\n"),
            (idle.scheduler_address, "no worker within 0.5 s; start one where execgraph is: dask worker tcp://"),
        ):
            where = ("--scheduler", address, "--scheduler-timeout", 0.5)
            assert command(job, "-o", tmp_path / "out", *where) == (2 if not address else 1)
            assert said in capsys.readouterr().err


class HereAlone:
    """What only this process takes for the version; workers get the function that knows it."""

    def __call__(self, _: str) -> str:
        return "0.0"

    def __reduce__(self) -> Any:
        return getattr, (importlib.metadata, "version")


def test_workers_of_another_version_are_refused(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "version", HereAlone())
    with pytest.raises(DataError, match=r"the worker tcp://.* has execgraph [0-9.]+; install execgraph 0.0 there"):
        [*workers.on_cluster(process_of, [1], scheduler)]


@pytest.mark.parametrize("work", [in_processes, workers.on_cluster])
def test_workers_have_the_limit_of_the_command(work: Callable[..., Any], tmp_path: Path, scheduler: str) -> None:
    (tmp_path / "file").write_bytes(gzip.compress(b"a" * (64 << 10)))
    with decompressing_at_most("63K"):
        where = 2 if work is in_processes else scheduler
        outcomes = [outcome for _, outcome in work(content, [str(tmp_path / "file")] * 2, where)]
    assert ["decompresses to more" in str(outcome) for outcome in outcomes] == [True, True]


@pytest.mark.parametrize(
    ("elsewhere", "said"),
    [
        (lambda task, _: build_rank(task._replace(job=task.job._replace(scratch=Path("nowhere")))), "does not see it"),
        (
            lambda task, job: build_rank(task._replace(job=task.job._replace(folder=job))),
            "host_rank[01].json: a worker read another file of this name",
        ),
    ],
)
def test_a_worker_that_sees_other_folders_fails_its_ranks(elsewhere, said, job: Path, tmp_path: Path) -> None:
    other = shutil.copytree(job, tmp_path / "other")
    for path in other.iterdir():
        path.write_text(path.read_text() + "\n")

    def run(function: Any, tasks: Any, on_progress: Any) -> Iterator[Any]:
        yield from ((task, elsewhere(task, other)) for task in tasks)

    failures = build(job, tmp_path / "out", BuildOptions(), run).report.all_failures
    assert failures and all(re.search(said, failure) for failure in failures)


# Workers


def test_a_single_task_needs_no_worker() -> None:
    assert dict(in_processes(process_of, [1], 4)) == {1: os.getpid()}
    assert os.getpid() not in dict(in_processes(process_of, [1, 2], 1)).values()


def test_a_killed_worker_fails_its_own_task_only() -> None:
    outcomes = dict(in_processes(killed_by_3, range(6), 2))
    assert isinstance(outcomes.pop(3), WorkerDied)
    assert outcomes == {number: number * number for number in (0, 1, 2, 4, 5)}


def test_a_worker_that_waits_for_ever_is_ended() -> None:
    ask = "workers.SECONDS_TO_END = 0.1; signal.signal(15, workers.end_worker); os.kill(os.getpid(), 15)"
    script = f"import os, signal, time\nfrom execgraph.tools import workers\ntry: {ask}\nfinally: time.sleep(60)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGALRM


@pytest.mark.parametrize("tasks", [[3], [2, 1, 3]])
def test_stages_are_told_while_tasks_run(tasks: list[int]) -> None:
    told: list[int] = []
    assert sorted(outcome for _, outcome in in_processes(staged, tasks, 2, told.append)) == sorted(tasks)
    assert sum(told) == sum(tasks)


def test_a_lost_worker_is_a_failure_of_its_rank(traces: Path, tmp_path: Path) -> None:
    def losing(function: Callable[[RankTask], RankResult], tasks: Sequence[RankTask], _: object) -> Outcomes:
        yield tasks[0], WorkerDied("its process was killed")
        yield tasks[1], function(tasks[1])

    report = build(traces, tmp_path, BuildOptions(), losing).report
    assert report.all_failures == ["rank 0: device_rank0.json: WorkerDied: its process was killed"]
    assert [summary.status for summary in report.ranks] == ["failed", "built"]


# The command


@pytest.mark.usefixtures("in_this_process")
def test_the_table_and_the_json_say_what_was_built(job, tmp_path, capsys):
    (job / "device_rank1.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 1}}')
    assert command("--input-dir", job, "--output-dir", tmp_path / "out", "--json") == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads((tmp_path / "out" / "report.json").read_text())
    lines = said.err.splitlines()
    assert lines[0].split("  ")[0] == "rank"
    assert [line.split()[-1] for line in lines[1:3]] == ["built", "failed"]
    assert any(line.startswith("trace-build: error: rank 1: device_rank1.json: ") for line in lines)


@pytest.mark.usefixtures("in_this_process")
def test_notes_fail_only_a_strict_build(job: Path, tmp_path: Path) -> None:
    (job / "host_rank1.json").unlink()
    for more, status in ((), 0), (("--strict",), 1):
        assert command("--input-dir", job, "--output-dir", tmp_path / "out", "-q", *more) == status


# One job in a folder


BUILT = ["comm_groups.json", "graph.0.et", "graph.1.et", "report.json"]


def test_a_request_that_no_rank_can_meet_leaves_the_folder_as_it_was(job: Path, out: Path) -> None:
    before = files(out)
    nothing = build(job, out, BuildOptions(), here, window=Window(steps=(99, 100)))
    assert len(nothing.report.all_failures) == 2 and not nothing.is_written
    assert [re.search("is left as the earlier build made it", line) is not None for line in nothing.stale] == [True]
    assert files(out) == before
    (empty := out.parent / "empty").mkdir()
    (empty / "device_rank0.json").write_bytes(b"")
    assert "is empty" in "".join(build(empty, out.parent / "none", BuildOptions(), here).report.all_failures)


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


def test_a_second_build_says_who_holds_the_folder_until_that_process_is_gone(job, tmp_path, holder):
    with pytest.raises(DataError, match=rf"out: process {holder.pid} on .+ since \d{{4}}-.* UTC works on it; wait"):
        built(job, tmp_path / "out")
    assert names(tmp_path / "out") == [LOCK]
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


@pytest.mark.parametrize("there", ["symlink_to", "hardlink_to", "write_bytes"])
def test_a_lock_empties_no_file_of_somebody(tmp_path: Path, there: str) -> None:
    mine, lock = tmp_path / "mine", tmp_path / "lock"
    mine.write_bytes(b"mine")
    getattr(lock, there)(mine.read_bytes() if there == "write_bytes" else mine)
    with pytest.raises(DataError, match="lock: is a link or a file of somebody, where the lock"), locked(lock, "out"):
        pass
    assert mine.read_bytes() == lock.read_bytes() == b"mine"


@pytest.mark.usefixtures("in_this_process")
def test_a_link_in_place_of_an_output_is_replaced(job: Path, tmp_path: Path) -> None:
    out, mine, names = tmp_path / "out", tmp_path / "mine", ("graph.0.et", "report.json", "astra-sim/system.json")
    mine.write_bytes(b"mine")
    (out / "astra-sim").mkdir(parents=True)
    for name in names:
        (out / name).symlink_to(mine)
    assert command(job, "-o", out, "--target", "astra-sim", "-q") == 0
    assert mine.read_bytes() == b"mine" and not any((out / name).is_symlink() for name in names)


def test_scaling_into_a_folder_is_for_one_at_a_time(out: Path, tmp_path: Path) -> None:
    left = tmp_path / ".scaled.scaling"
    left.mkdir()
    (left / "half").touch()
    into = tmp_path / "scaled"
    with (
        locked(tmp_path / ".scaled.scaling.lock", "it"),
        pytest.raises(DataError, match=r"scaled: process .* works on it"),
    ):
        scale(out, into, Growth(2), here)
    scale(out, into, Growth(2), here)
    assert names(tmp_path) == ["out", "scaled"]


def test_a_fresh_folder_is_empty_and_gone_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with fresh_folder(tmp_path / "work") as folder:
            assert names(folder) == []
            (folder / "file").touch()
        assert names(tmp_path) == []


# What earlier builds left


def test_graphs_of_ranks_that_are_gone_are_removed_and_named(job: Path, out: Path) -> None:
    mine = out / "graph.7.et"
    mine.write_bytes(b"of another tool")
    without_rank_1(job)
    found = built(job, out)
    assert names(out) == ["comm_groups.json", "graph.0.et", "graph.7.et", "report.json"]
    assert found.stale == ["graph.1.et: rank 1 of an earlier build, which is not in this job; removed"]
    assert built(job, out).stale == []


def test_a_job_of_other_traces_in_the_folder_is_named_before_it_is_replaced(jobs, out, tmp_path):
    other = tmp_path / "other"
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


def test_a_graph_that_something_else_wrote_is_left_and_named(job: Path, out: Path) -> None:
    (out / "graph.1.et").write_bytes(b"mine")
    without_rank_1(job)
    [line] = built(job, out).stale
    assert line.endswith("left, as something else has written it since")
    assert (out / "graph.1.et").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["../precious", "precious", "/{tmp_path}/precious", "graph.1.et/../precious"])
def test_a_report_cannot_have_other_files_removed(job: Path, out: Path, tmp_path: Path, name: str) -> None:
    name = name.format(tmp_path=tmp_path)
    for folder in (tmp_path, out):
        (folder / "precious").write_bytes((out / "graph.1.et").read_bytes())
    report = json.loads((out / "report.json").read_text())
    report["ranks"][1]["graph"]["file"] = name
    (out / "report.json").write_text(json.dumps(report))
    without_rank_1(job)
    built(job, out)
    assert (tmp_path / "precious").exists() and (out / "precious").exists()


def test_no_graph_stands_for_a_rank_that_failed(job: Path, out: Path) -> None:
    (job / "device_rank1.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 1}}')
    assert built(job, out).stale == ["graph.1.et: rank 1 failed; removed"]
    assert "graph.1.et" not in names(out)


def test_what_killed_builds_had_begun_is_removed(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / ".building").mkdir(parents=True)
    for name in (".building/0", LOCK):
        (out / name).write_text("process 7")
    built(job, out)
    assert names(out) == BUILT


# Names of outputs

RANKS = [  # as traces say them
    "../../up", "\x1b[2J", "9" * 300, -3, 1e30, 10**30, 2**63 - 1, True, [0],
]  # fmt: skip


NAMES = "device_rank1$(touch mine)\x1b.json", f"device_rank{'9' * 200}.json"


@pytest.mark.parametrize(
    ("name", "rank"),
    [*(("device.json", rank) for rank in RANKS), *((name, rank) for name in NAMES for rank in ("../../up", None))],
    ids=range(len(RANKS) + 4),
)
def test_names_of_outputs_hold_nothing_of_a_trace_but_a_number(job, tmp_path, rank, name):
    without_rank_1(job)
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


def test_a_rank_whose_input_is_replaced_while_it_is_built_fails(job, tmp_path, monkeypatch):
    linked_rank = rank_building.linked_rank

    def replaced(task: RankTask) -> object:
        linked = linked_rank(task)
        if task.pair.rank == 1:
            new = job / "new"
            shutil.copy(job / "host_rank1.json", new)
            new.rename(job / "host_rank1.json")
        return linked

    monkeypatch.setattr(rank_building, "linked_rank", replaced)
    report = built(job, tmp_path / "out").report
    assert report.all_failures == [
        "rank 1: host_rank1.json: was changed while the graph was built from it; run again when that is done"
    ]


def test_hashing_that_nobody_waits_for_any_more_ends(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 * PIECE))
    given_up = iter([False, True])
    assert content_of(tmp_path / "large", "large", lambda: next(given_up)).bytes == PIECE
