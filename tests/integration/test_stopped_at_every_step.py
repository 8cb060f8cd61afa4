"""A command is stopped at each change of a file in turn: the next run is as if it had never been.

At every fifth one in a run of all tests, at each with EXECGRAPH_ENDINGS.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from execgraph.converter.scaling import Growth
from execgraph.schema.linked import LinkedTrace
from execgraph.tools.analyses import Column, Table
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.job import BuildOptions, build, build_rank, building, scale
from execgraph.tools.job.build_rank import RankTask
from execgraph.tools.report import write_csv
from support.generated import here

CHANGES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"}
APART = 1 if "EXECGRAPH_ENDINGS" in os.environ else 5
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Steps:
    """Counts changes of the file system, and stops the one with the number `stop`."""

    stop = count = 0

    @classmethod
    def seen(cls, event: str, arguments: tuple[object, ...]) -> None:
        is_writing = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & WRITING)
        if cls.stop and (event in CHANGES or is_writing):
            cls.count += 1
            if cls.count == cls.stop:
                raise KeyboardInterrupt


sys.addaudithook(Steps.seen)


@contextmanager
def stopped_at(step: int) -> Iterator[None]:
    Steps.stop, Steps.count = step, 0
    try:
        yield
    finally:
        Steps.stop = 0


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def stop_at_every_step(work: Callable[[Path], object], folder: Path, before: Callable[[Path], object]) -> None:
    """The next run gives what an undisturbed one gives, wherever the first was stopped."""
    undisturbed = folder / "undisturbed"
    before(undisturbed)
    work(undisturbed)
    for step in range(1, 1000, APART):
        out = folder / str(step)
        before(out)
        try:
            with stopped_at(step):
                work(out)
        except KeyboardInterrupt:
            work(out)
            assert files(out) == files(undisturbed), f"stopped at step {step}"
            assert not list(out.rglob(".*"))
            shutil.rmtree(out)
        else:
            assert step > 10
            return


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of a job, each of which would by itself give its groups other numbers."""
    folder = tmp_path_factory.mktemp("traces")
    for pair in write_traces(simulate(build_job("moe_dp", steps=1, layers=1, seed=3)), folder / "job")[1:3]:
        for path in map(Path, pair):
            path.rename(folder / path.name)
    shutil.rmtree(folder / "job")
    return folder


@pytest.fixture(autouse=True)
def linked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the time is that of linking, which changes no file of the output."""
    linked_rank, linked = build_rank.linked_rank, dict[Path, LinkedTrace]()

    def linked_again(task: RankTask) -> LinkedTrace:
        key = task.folder / task.pair.device
        return linked[key] if key in linked else linked.setdefault(key, linked_rank(task))

    for module in (build_rank, building):
        monkeypatch.setattr(module, "linked_rank", linked_again)


def nothing(_: Path) -> None:
    pass


def test_a_first_build(traces: Path, tmp_path: Path) -> None:
    options = BuildOptions(target="goal")
    stop_at_every_step(lambda out: build(traces, out, options, here), tmp_path, nothing)


def test_a_build_over_that_of_another_job(traces: Path, jobs: Callable[[int], Path], tmp_path: Path) -> None:
    build(jobs(3), tmp_path / "other", BuildOptions(), here)

    def before(out: Path) -> None:
        shutil.copytree(tmp_path / "other", out)

    options = BuildOptions(target="astra-sim")
    stop_at_every_step(lambda out: build(traces, out, options, here), tmp_path, before)


def test_a_build_of_the_rank_that_is_new(traces: Path, tmp_path: Path) -> None:
    build([traces / "device_rank1.json", traces / "host_rank1.json"], tmp_path / "one", BuildOptions(), here)

    def before(out: Path) -> None:
        shutil.copytree(tmp_path / "one", out)

    stop_at_every_step(lambda out: build(traces, out, BuildOptions(), here), tmp_path, before)


def test_scaling_a_job(jobs: Callable[[int], Path], tmp_path: Path) -> None:
    build(jobs(2), tmp_path / "graphs", BuildOptions(), here)

    def scaled(out: Path) -> None:
        if not (out / "scaled").exists():
            scale(tmp_path / "graphs", out / "scaled", Growth(2), here)

    stop_at_every_step(scaled, tmp_path / "work", nothing)


def test_tables_of_a_report(tmp_path: Path) -> None:
    tables = [Table(name, "", [Column("a", "", ["b"])]) for name in ("one", "two", "three")]

    def written(out: Path) -> None:
        write_csv(tables, out)

    def is_none(out: Path) -> bool:
        return not list(out.glob("*.csv"))

    stop_at_every_step(written, tmp_path / "work", nothing)
    for step in range(1, 10):
        out = tmp_path / str(step)
        with pytest.raises(KeyboardInterrupt), stopped_at(step):
            written(out)
        assert is_none(out)
