"""What several tests share: the small captures of tests/data and, where given, a folder of larger real traces."""

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from execgraph.tools import workers
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.job import rank_building
from execgraph.tools.report import inputs
from hypothesis import settings
from support import linking
from support.builder.timeline import TraceBuilder
from support.commands import Ended, Run, status_of
from support.folders import DATA, TESTS
from support.graphs import GraphBuilder
from support.lower_bounds import PROJECT, lower_bounds
from support.tasks import in_turn

# how long an example takes says more about what else the machine does; every run draws other examples
settings.register_profile("often and short", deadline=None, max_examples=6)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("often and short")

LONGEST = [
    "project/test_plain_install.py", "docs/test_pages.py", "compat/test_simulator_contract.py",
    "tools/job/test_build.py", "tools/report/test_frontend.py", "linker/test_contradictions.py",
    "integration/test_what_if.py", "integration/test_outputs.py", "integration/test_damage.py",
    "tools/report/test_report.py", "fuzz/test_limits.py", "fuzz/test_claims.py", "tools/job/test_merging.py",
    "tools/test_ending.py", "cli/test_trace_scale.py", "compat/test_versions.py", "cli/test_grammar.py",
    "tools/job/test_cross_rank.py", "schema/linked/test_numbers.py", "tools/job/test_diagnosis.py",
    "tools/generate/test_generate.py", "benchmarks/test_benchmarks.py", "schema/test_json_stream.py",
    "fuzz/test_cases.py", "tools/package/test_api.py", "tools/report/test_page.py",
    "tools/package/test_runs_and_jobs.py", "tools/report/test_inputs.py", "integration/test_match.py",
    "schema/linked/test_file.py", "benchmarks/test_accuracy.py", "tools/job/test_simulators.py",
    "cli/test_link_and_convert.py", "linker/test_link.py", "integration/test_job_communication.py",
    "tools/test_terminal.py", "property/test_random_jobs.py", "integration/test_device_time.py", "docs/test_formats.py",
    "schema/graph/test_json_files.py", "tools/generate/test_machine.py", "converter/targets/test_goal_job.py",
    "compat/test_nsight.py", "integration/test_merged.py", "integration/test_groups.py",
]  # fmt: skip
"""Files that take longest, the longest first: begun last, one process would wait for the other. `make test-fast` leaves
them out.
"""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores, as tests wait for browsers and for other processes; each takes about 350 MB."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(LONGEST)))
    for item in items:
        if item.path in rank:
            item.add_marker("long")


# modules and tests that are collected are no garbage
gc.disable()


def pytest_collection_finish() -> None:
    """Collects garbage seldom, and never among the objects that exist by now: both would take a tenth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 50)


def pytest_sessionfinish() -> None:
    """Spares what is left: pytest collects five times at its end."""
    gc.freeze()


# where the environment says otherwise, each process of a command would compile the whole package: half its time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

LEVEL = logging.getLogger().level
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "out", "data")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # tests in a shell's background ignore Ctrl-C, and the commands that they interrupt would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def level_of_messages() -> Iterator[None]:
    """A command that a test or a shared fixture runs with -q silences none of the tests after it."""
    logging.getLogger().setLevel(LEVEL)
    yield


@pytest.fixture
def t() -> TraceBuilder:
    """A run without anything in it yet."""
    return TraceBuilder()


@pytest.fixture
def g() -> GraphBuilder:
    """A graph of rank 0 without anything in it yet."""
    return GraphBuilder(rank=0)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of captures that belongs to the project."""
    return DATA


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """The folder that EXECGRAPH_TRACES names; tests of larger real traces skip without it."""
    folder = os.environ.get("EXECGRAPH_TRACES")
    if not folder:
        pytest.skip("set EXECGRAPH_TRACES to a folder of real traces to run this")
    return Path(folder)


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The traces of a data-parallel job by its number of ranks, not to be changed."""

    @cache
    def traces(ranks: int) -> Path:
        folder = tmp_path_factory.mktemp(f"ranks{ranks}")
        write_traces(simulate(build_job("ddp", ranks=ranks, steps=1, layers=1, seed=5)), folder)
        return folder

    return traces


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A folder with what `make dist` builds of a copy of the tree, without network, with its files' own rights."""
    pytest.importorskip("setuptools", minversion=lower_bounds(PROJECT.read_text("utf-8"))["setuptools"])

    @cache
    def built(umask: int) -> Path:
        folder = tmp_path_factory.mktemp("built")
        before = os.umask(umask)
        try:
            shutil.copytree(PROJECT.parent, folder / "tree", ignore=LEFT_OUT, copy_function=shutil.copyfile)
        finally:
            os.umask(before)
        environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
        command = [sys.executable, str(TESTS / "support" / "packages.py"), str(folder)]
        subprocess.run(
            command, cwd=folder / "tree", env=environment, umask=umask, stdout=subprocess.DEVNULL, check=True
        )
        return folder

    return built


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a Dask cluster of two processes, which is there before a command is; they share their imports."""
    distributed = pytest.importorskip("distributed")
    with pytest.importorskip("dask").config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        cluster = distributed.LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster:
        yield cluster.scheduler_address


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process; what was printed before it is left out."""

    def ended(command: Any, *arguments: object) -> Ended:
        capfd.readouterr()
        return Ended(status_of(command, *arguments), *capfd.readouterr())

    return ended


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process what commands would start processes for: they take most of the time of small jobs."""
    monkeypatch.setattr(workers, "in_processes", in_turn)


@pytest.fixture
def linked_anew(linked_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links again what has been linked, for tests of linking by builds and reports."""
    monkeypatch.setattr(rank_building, "linked_rank", linking.linked_rank)
    monkeypatch.setattr(inputs, "read_rank", linking.read_rank)


@pytest.fixture(autouse=True)
def linked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces of the same content are linked once in a process: of tests of what is made of them that took a third."""
    monkeypatch.setattr(rank_building, "linked_rank", linking.linked_again)
    monkeypatch.setattr(inputs, "read_rank", linking.read_again)


@pytest.fixture
def torch() -> Any:
    """PyTorch, for tests of capturing."""
    return pytest.importorskip("torch", minversion="2.4", reason="host and device ops have no common id before 2.4")
