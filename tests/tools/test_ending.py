"""However a build ends, nothing half-written has a final name, and the next one is as if it had never been.

Moments are drawn by a seed; EXECGRAPH_ENDINGS=50 draws more of them than the whole suite does, and kills workers.
"""

import argparse
import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import pytest
from execgraph.tools import command as ending
from execgraph.tools.command import run_command
from execgraph.tools.job import BuildOptions, build
from execgraph.tools.workers import in_processes
from support.generated import here

resource: Any = pytest.importorskip("resource")
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are copied as they are"),
    pytest.mark.usefixtures("linked_anew"),
]
MOMENTS = int(os.environ.get("EXECGRAPH_ENDINGS", "4"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
INTERRUPTED = b"trace-build: interrupted\n"
EARLIER, NOW = BuildOptions(io="none"), BuildOptions()


def files(folder: Path) -> dict[str, bytes]:
    """Hidden ones, too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def traces(jobs: Callable[[int], Path]) -> Path:
    return jobs(2)


@pytest.fixture(scope="module")
def wanted(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a build that nothing disturbs."""
    out = tmp_path_factory.mktemp("undisturbed")
    build(traces, out, NOW, here)
    return files(out)


@pytest.fixture(scope="module")
def earlier(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an earlier build with other options wrote."""
    build(traces, out := tmp_path_factory.mktemp("earlier"), EARLIER, here)
    return out


@pytest.fixture
def out(earlier: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(earlier, tmp_path / "out"))


class Ended(NamedTuple):
    """How a process ended, below zero by a signal, and what it had printed."""

    status: int
    said: bytes


def in_a_copy(work: Callable[[], object]) -> Ended:
    """What becomes of a copy of this process that does the work as a command does; 99 where it ends in another way."""
    hearing, saying = os.pipe()
    child = os.fork()
    if not child:
        status = 99
        try:
            with os.fdopen(saying, "w") as sys.stderr:
                run_command(lambda _: bool(work()), argparse.Namespace(quiet=True, verbose=False), "trace-build")
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            os._exit(status)
    os.close(saying)
    with os.fdopen(hearing, "rb") as stream:
        said = stream.read()
    return Ended(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said)


def calls_until(moment: int, act: Callable[[], object]) -> Callable[[FrameType, str, object], None]:
    """Counts calls of functions, and acts at one of them: moments that do not depend on how fast a machine is."""
    count = 0

    def format_counts(*_: object) -> None:
        nonlocal count
        count += 1
        if count == moment:
            act()

    return format_counts


def profiled(traces: Path, out: Path, profile: Callable[[FrameType, str, object], None]) -> None:
    sys.setprofile(profile)
    try:
        build(traces, out, NOW, here)
    finally:
        sys.setprofile(None)


@pytest.fixture(scope="module")
def calls(traces: Path, wanted: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many calls a build makes that is not the first one, which loads what others find."""
    assert wanted
    format_counts: list[int] = []
    profiled(traces, tmp_path_factory.mktemp("counted"), lambda *_: format_counts.append(1))
    return len(format_counts)


def is_whole(out: Path, before: dict[str, bytes], wanted: dict[str, bytes]) -> bool:
    """Whether graphs and groups are the earlier ones or the new ones; a report may tell of ranks that failed."""
    found = {name: content for name, content in files(out).items() if name.startswith(("graph", "comm_groups"))}
    return all(content in (before[name], wanted[name]) for name, content in found.items())


def next_is_as_ever(traces: Path, out: Path, wanted: dict[str, bytes]) -> None:
    build(traces, out, NOW, here)
    assert files(out) == wanted
    assert not [path for path in out.rglob("*") if path.is_dir()]


@pytest.mark.parametrize("seed", range(MOMENTS))
def test_a_build_is_stopped_at_any_moment(traces, out, wanted, calls, seed):
    drawn = random.Random(seed)
    number, moment = SIGNALS[seed % len(SIGNALS)], drawn.randint(1, int(0.98 * calls))
    before = files(out)
    stop = calls_until(moment, lambda: os.kill(os.getpid(), number))
    ended = in_a_copy(lambda: profiled(traces, out, stop))
    assert ended == ((-number, b"") if number == signal.SIGKILL else (ending.STOPPED, INTERRUPTED))
    assert is_whole(out, before, wanted)
    if number != signal.SIGKILL:
        # a build that is stopped while it moves files has taken the earlier report away
        assert before.keys() - {"report.json"} <= files(out).keys() <= before.keys()
    next_is_as_ever(traces, out, wanted)


@pytest.mark.parametrize("size", [1, 20_000])
def test_a_disk_that_is_full_is_one_line(traces: Path, out: Path, wanted: dict[str, bytes], size: int) -> None:
    def filling() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        return len(build(traces, out, NOW, here).report.all_failures)

    before = files(out)
    ended = in_a_copy(filling)
    assert ended.status == 1 and ended.said.count(b"\n") <= 1
    assert ended.said == b"" or b"cannot be written" in ended.said
    assert is_whole(out, before, wanted) and files(out).keys() <= before.keys()
    next_is_as_ever(traces, out, wanted)


@pytest.mark.parametrize("megabytes", [4, 64])
def test_memory_that_is_short_is_one_line(traces: Path, out: Path, wanted: dict[str, bytes], megabytes: int) -> None:
    def starving() -> int:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20),) * 2)
        return len(build(traces, out, NOW, here).report.all_failures)

    if not Path("/proc/self/statm").exists():
        pytest.skip("the system does not say how much memory a process has")
    before = files(out)
    ended = in_a_copy(starving)
    assert ended.status in (0, 1) and b"internal error" not in ended.said and ended.said.count(b"\n") <= 1
    assert is_whole(out, before, wanted)
    next_is_as_ever(traces, out, wanted)


def command(traces: Path, out: Path, *more: str) -> list[str]:
    start = "from execgraph.tools.commands.trace_build import main; main()"
    return [sys.executable, "-c", start, "--input-dir", str(traces), "--output-dir", str(out), "-q", *more]


@pytest.mark.parametrize("seed", range(max(2, MOMENTS // 5)))
def test_a_build_in_processes_is_stopped_at_any_moment(traces, out, wanted, seed):
    number, before = SIGNALS[seed % len(SIGNALS)], files(out)
    in_a_group = command(traces, out, "--jobs", "2")
    with subprocess.Popen(in_a_group, stderr=subprocess.PIPE, start_new_session=True) as process:
        until_it_works(out)
        time.sleep(random.Random(seed).uniform(0, 1.5))
        # Ctrl-C goes to all processes of a terminal
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        _, said = process.communicate(timeout=60)
    if process.returncode == -signal.SIGINT:
        # Python was going down, with all work done
        assert {name: files(out)[name] for name in wanted} == wanted
    elif process.returncode:
        assert process.returncode == (-number if number == signal.SIGKILL else ending.STOPPED)
        assert said == INTERRUPTED or number == signal.SIGKILL
    assert is_whole(out, before, wanted)
    next_is_as_ever(traces, out, wanted)


def until_it_works(out: Path) -> None:
    deadline = time.monotonic() + 30
    while not (out / ".building").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.skipif(
    "EXECGRAPH_ENDINGS" not in os.environ, reason="set EXECGRAPH_ENDINGS=50 for many moments, and a cluster"
)
@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_whose_workers_are_killed_builds_the_same(traces, out, wanted, seed):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        subprocess.Popen(
            command(traces, out, "--scheduler", cluster.scheduler_address), stderr=subprocess.PIPE
        ) as process,
    ):
        until_it_works(out)
        time.sleep(random.Random(seed).uniform(0, 0.5))
        for worker in [*cluster.workers.values()][: 1 + seed % 2]:
            if worker.pid:
                os.kill(worker.pid, signal.SIGKILL)
        process.communicate(timeout=120)
    assert process.returncode in (0, 1)
    next_is_as_ever(traces, out, wanted)


def long_call() -> None:
    # another thread, as the signal comes in the middle of the call
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)


class Closing:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("work", [long_call, Closing], ids=["in a long call", "where Python drops exceptions"])
def test_an_interrupt_ends_the_work_all_the_same(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    monkeypatch.setattr(ending, "SECONDS_TO_CLEAN_UP", 0.2)
    assert in_a_copy(work) == (ending.STOPPED, INTERRUPTED)


LOADING = """
import importlib.metadata, os, sys
class Meanwhile:
    def find_spec(name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), int(sys.argv[2]))
sys.meta_path.insert(0, Meanwhile)
[command] = importlib.metadata.entry_points(group="console_scripts", name="trace-build")
command.load()(["--input-dir", sys.argv[3], "--output-dir", sys.argv[3]])
"""
"""Starts the installed command, and sends a signal when it imports a module."""


@pytest.mark.parametrize("module", ["numpy", "execgraph.tools.commands.trace_build"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_still_loading_ends_in_a_line(module: str, number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADING, module, str(int(number)), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (ending.STOPPED, INTERRUPTED)


def test_a_command_in_the_background_stays_deaf_to_interrupts() -> None:
    def deaf() -> NoReturn:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert in_a_copy(deaf) == (ending.STOPPED, INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs masks of signals")
def test_no_worker_of_a_new_process_ever_hears_an_interrupt_not_even_the_first() -> None:
    program = (
        "import signal; from functools import partial; from execgraph.tools.workers import in_processes; "
        "masks = in_processes(partial(signal.pthread_sigmask, signal.SIG_BLOCK), [[], [], []], 2); "
        "print([signal.SIGINT in mask for _, mask in masks])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[True, True, True]\n"


def test_no_task_is_lost_where_the_system_gives_no_more_processes_while_some_work(monkeypatch):
    submit, calls = ProcessPoolExecutor.submit, iter(range(9))

    def submit_or_fail(pool: ProcessPoolExecutor, *task: Any) -> Future[Any]:
        if next(calls) == 2:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return submit(pool, *task)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit_or_fail)
    assert sorted(in_processes(abs, [-1, -2, -3, -4], 2)) == [(-4, 4), (-3, 3), (-2, 2), (-1, 1)]


def test_processes_say_options_as_those_read_them_who_began_the_work() -> None:
    program = (
        "from execgraph.schema.errors import Audience, Remedy, said_to; "
        "from execgraph.tools.workers import in_processes\n"
        "for readers in Audience:\n"
        "    with said_to(readers):\n"
        "        print(sorted(words for _, words in in_processes(format, [Remedy.RANK, Remedy.JOBS], 2)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "['--jobs', '--rank N']\n['jobs', 'rank=N']\n"
