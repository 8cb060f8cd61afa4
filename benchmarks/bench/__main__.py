"""The benchmark: speed and peak memory of every command on synthetic traces of growing size, beside the least possible.

Memory is anonymous memory, which the system cannot take back, of the command and its processes together.

Every piece of work runs in a fresh process, all of them in turn, several rounds; times are medians, without the start
of Python. A floor is what this machine needs, in the same minutes, to decode the inputs once, typed and whole in
memory, and to write as many bytes as the command does. MB are 10**6 bytes of input: host and device trace,
uncompressed. Nothing is asserted.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
from execgraph.schema.errors import DataError, require
from execgraph.schema.io import open_output
from execgraph.tools.command import progress, run_command
from execgraph.tools.command_parser import CommandParser

from .memory import resident_bytes, watched
from .results import Benchmark, Result, Size, build_share, changes_table, size_table
from .work import DEVICE, HOST, TRACES, WORKS, WORKS_OF_MANY, WORKS_OF_ONE, Timing

NAME = "python -m benchmarks.bench"
JOB = ("--job", "ddp")
"""Training steps with all-reduces on a stream of their own."""
LARGE, SMALL = ("--ranks", "2", "--layers", "24"), ("--steps", "2", "--layers", "2")
"""Steps of about 1.2 MB each, as many as make the size; two steps of two layers on every rank."""
WORK = str(Path(__file__).with_name("work.py"))
"""Run as a file: it works in the folder of the traces, where Python does not see this package."""
GENERATE = "-m", "execgraph", "trace-generate"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Measures, prints tables and saves the results if asked to. Exits with 0, 1 for bad input, 2 for wrong usage."""
    parser = CommandParser(
        NAME,
        "Measures every command on synthetic traces of growing size, each in a fresh process. To compare two commits, "
        "run it on\n"
        "each, on the same traces and the same quiet machine: save the results of one and give them to the other.",
        f"git checkout main    && {NAME} --keep /tmp/bench --json main.json\n"
        f"  git checkout faster  && {NAME} --keep /tmp/bench --compare main.json",
        reads=False,
    )
    parser.add_argument(
        "--sizes", type=_sizes, default=[5, 20, 81, 325], metavar="MB,…", help="megabytes of input (5,20,81,325)"
    )
    parser.add_argument(
        "--ranks",
        type=_sizes,
        default=[64, 256],
        metavar="N,…",
        help="jobs of so many small ranks, from 2 on (64,256)",
    )
    parser.add_argument(
        "--stacks",
        type=_positive,
        default=0,
        metavar="N",
        help="rows of Python's calls for each op called, as trace-generate has them",
    )
    parser.add_argument("--runs", type=_positive, default=3, metavar="K", help="rounds over all works (3)")
    parser.add_argument("--keep", metavar="DIR", help="keep the traces here; those of an earlier run are used again")
    parser.add_argument("--json", metavar="FILE", help="save the results")
    parser.add_argument("--compare", metavar="OLD.json", help="saved results, of another commit: print what changed")
    parser.add_argument(
        "--markdown", action="store_true", help="print only the largest size and job, as tables for a page"
    )
    run_command(_bench, parser.parse_args(argv), NAME)


def _sizes(text: str) -> list[int]:
    return sorted({_positive(size) for size in text.split(",")})


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _bench(arguments: argparse.Namespace) -> None:
    require("report")  # which is measured last, after minutes
    old = _saved(arguments.compare, arguments.sizes, arguments.ranks) if arguments.compare else None
    with tempfile.TemporaryDirectory(prefix="execgraph-bench-") as scratch:
        root = Path(arguments.keep or scratch).resolve()
        stacks = arguments.stacks
        folders = {megabytes: root / f"{megabytes}MB{f'-{stacks}' if stacks else ''}" for megabytes in arguments.sizes}
        sizes = [
            _measured(
                Size(megabytes, 0, {}, []),
                folder,
                (*LARGE, "--size", str(megabytes), "--stacks", str(stacks)),
                arguments.runs,
            )
            for megabytes, folder in folders.items()
        ]
        jobs = [
            _measured(Size(0, 0, {}, [], ranks), root / f"{ranks}ranks", (*SMALL, "--ranks", str(ranks)), 1)
            for ranks in arguments.ranks
        ]
    new = Benchmark(_machine(), platform.python_version(), _commit(), sizes, jobs)
    if arguments.json:
        with open_output(arguments.json) as out:
            out.write(msgspec.json.format(msgspec.json.encode(new)))
    print(_markdown(new) if arguments.markdown else _text(new))
    if old:
        print(f"\n{changes_table(old, new).text()}")


def _saved(path: str, sizes: list[int], ranks: list[int]) -> Benchmark:
    try:
        old = msgspec.json.decode(Path(path).read_bytes(), type=Benchmark)
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path}: no saved results ({error}); make some with --json") from error
    if not any(old.size(name) for name in [*(f"{size} MB" for size in sizes), *(f"{job} ranks" for job in ranks)]):
        measured = ",".join(str(size.megabytes) for size in old.sizes)
        raise DataError(f"{path}: holds other sizes; measure with --sizes {measured}")
    return old


def _text(benchmark: Benchmark) -> str:
    tables = [f"{size_table(size, benchmark.sizes[0]).text()}{build_share(size)}" for size in benchmark.sizes]
    tables += [size_table(job, benchmark.jobs[0]).text() for job in benchmark.jobs]
    return "\n\n".join([f"{benchmark.machine}, Python {benchmark.python}", *tables])


def _markdown(benchmark: Benchmark) -> str:
    table = size_table(benchmark.sizes[-1], benchmark.sizes[0])
    jobs = [size_table(job, benchmark.jobs[0]).markdown() for job in benchmark.jobs[-1:]]
    share = build_share(benchmark.sizes[-1])
    return "\n\n".join([f"{benchmark.machine}, Python {benchmark.python}. {table.markdown()}\n{share}", *jobs])


def _measured(size: Size, folder: Path, job: Sequence[str], runs: int) -> Size:
    """Runs every work `runs` times on an input of that size, which is generated in the folder if it is missing."""
    if not (folder / TRACES).exists():
        _generate(folder, job, size.ranks == 1)
    size.input_bytes = sum(trace.stat().st_size for trace in (folder / TRACES).iterdir())
    size.results = [
        Result(name, [], 0) for name in WORKS if name in (WORKS_OF_ONE if size.ranks == 1 else WORKS_OF_MANY)
    ]
    for result in progress(size.results * runs, size.name, unit="work"):
        output, peak = _run_alone(folder, WORK, result.work)
        timing = msgspec.json.decode(output, type=Timing)
        result.seconds.append(timing.seconds)
        result.peak_bytes = max(result.peak_bytes, peak)
        size.counts.update(timing.counts)
    return size


def _generate(folder: Path, job: Sequence[str], first_alone: bool) -> None:
    """The traces of a job, all or the first rank's alone; they get their name when they are whole."""
    new = folder / "new"
    new.mkdir(parents=True, exist_ok=True)
    _run_alone(new, *GENERATE, *JOB, *job, "--output-dir", ".", "--quiet")
    kept = [new / Path(name).name for name in (HOST, DEVICE)] if first_alone else [*new.glob("*_rank*")]
    for outdated in {*new.iterdir()}.difference(kept):
        outdated.unlink()
    new.rename(folder / TRACES)


def _run_alone(folder: Path, *arguments: str) -> tuple[bytes, int]:
    """Runs Python in a fresh process that works in `folder`; returns its output and its peak memory in bytes."""
    command = [sys.executable, *arguments]
    with (
        tempfile.TemporaryFile() as messages,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=messages) as process,
    ):
        with watched(process.pid) as peak:
            output = process.stdout.read() if process.stdout else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            messages.seek(0)
            lines = messages.read().decode(errors="replace").splitlines() or ["it said nothing"]
            raise DataError(f"{' '.join(arguments)} in {folder} ended with {process.returncode}: {lines[-1]}")
    return output, peak.bytes or resident_bytes(usage)


def _machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(models, platform.processor() or platform.machine())}, {os.cpu_count()} cores"


def _commit() -> str:
    """Returns the commit that is measured, with `-dirty` if there is more; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        described = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return described.stdout.strip()


if __name__ == "__main__":
    main()
