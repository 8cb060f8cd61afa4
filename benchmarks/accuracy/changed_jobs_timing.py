"""Records one job and times it in turns with the same job changed, in processes that do nothing else. Needs PyTorch."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import IO, Any, NamedTuple

from execgraph.schema.errors import DataError

ROOT = Path(__file__).parents[2]
MODULE = "benchmarks.accuracy.changed_jobs"
STEPS_RECORDED = 5
FINDING = "finding:"
"""Before the name of a finding of a report, whose gain is asked for."""
TRACES, TRUTH, SAID = "traces", "truth.json", "said.txt"
"""What the folder of a job holds: what was recorded, what its changes did, and what its processes said."""


class Effort(NamedTuple):
    """How often base and changed steps take turns, how many steps a turn has, and how many go before recording. A job
    has so many seconds. Its `device` is one for the table of jobs of one GPU, "" for the jobs of a CPU.
    """

    rounds: int
    steps: int
    wait: int
    limit_s: int = 900
    device: str = ""


class Timed(NamedTuple):
    """The factors by which a change is asked for, and per round how long a step took without and with it (s)."""

    scale: dict[str, float]
    rounds: list[tuple[float, float]]


def jobs_of(device: str) -> tuple[dict[str, Any], list[str]]:
    """Returns the jobs by name, and what cannot be run on the device."""
    if device:
        from .changed_jobs_gpu import jobs

        return jobs(device)
    from .changed_jobs_programs import JOBS

    return JOBS, []


def outcome(folder: Path) -> dict[str, Timed]:
    """Returns what each change of the job in a folder did."""
    return {text: Timed(scale, rounds) for text, (scale, rounds) in json.loads((folder / TRUTH).read_text()).items()}


def time_job(name: str, folder: Path, ranks: int, effort: Effort) -> None:
    """Records a job to the folder, and what each change of it did. Every rank is a process of one thread.

    Raises DataError if one fails, or takes too long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-m", MODULE, "--one", name, str(folder / TRACES), *map(str, effort)]
    with ExitStack() as stack:
        said = [[stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(ranks)] for _ in range(2)]
        processes = [
            subprocess.Popen(
                command, cwd=ROOT, env=os.environ | shared | {"RANK": str(rank)}, stdout=out, stderr=errors
            )
            for rank, (out, errors) in enumerate(zip(*said, strict=True))
        ]
        try:
            # if one fails, the others wait for it
            end = monotonic() + effort.limit_s
            while None in (codes := [process.poll() for process in processes]) and not any(codes):
                if monotonic() > end:
                    raise DataError(f"job {name!r} took more than {effort.limit_s} s")
                sleep(0.1)
        finally:
            for process in processes:
                process.kill()
            (folder / SAID).write_text("".join(map(_text, said[1])))
        for code, errors in zip(codes, said[1], strict=True):
            if code:
                problem = (_text(errors).strip().splitlines() or ["it said nothing"])[-1]
                raise DataError(f"job {name!r} failed with exit status {code}: {problem}")
        (folder / TRUTH).write_text(_text(said[0][0]).splitlines()[-1])


def _text(said: IO[str]) -> str:
    said.seek(0)
    return said.read()


def run_one(name: str, folder: str, effort: Effort) -> None:
    """Is such a process: rank 0 prints a line of JSON."""
    import torch
    from torch import distributed

    from .changed_jobs_programs import Bare

    job = jobs_of(effort.device)[0][name]
    torch.set_num_threads(1)
    if job.ranks > 1:
        distributed.init_process_group("gloo")
    base = job.steps()
    _record(base, folder, job.settle, effort)
    measured = cache(Bare.factor)  # so that changes that share a factor ask with the same one
    scales: list[Mapping[str, float]] = [
        {
            selector: measured(factor) if isinstance(factor, Bare) else factor
            for selector, factor in change.scale.items()
        }
        for change in job.changes
    ]
    changed = [job.steps(change) for change in job.changes]
    meet = distributed.barrier if job.ranks > 1 else lambda: None

    def block(steps: Any) -> float:
        for _ in range(job.settle):
            next(steps)
        synchronise()
        meet()
        begin = perf_counter()
        for _ in range(effort.steps):
            next(steps)
        synchronise()
        return (perf_counter() - begin) / effort.steps

    rounds: list[list[tuple[float, float]]] = [[] for _ in changed]
    for number in range(effort.rounds):
        for steps, times in zip(changed, rounds, strict=True):
            turns = [base, steps][:: 1 if number % 2 else -1]
            lengths = {id(turn): block(turn) for turn in turns}
            times.append((lengths[id(base)], lengths[id(steps)]))
    if int(os.environ["RANK"]) == 0:
        texts = [change.text for change in job.changes]
        print(json.dumps(dict(zip(texts, zip(scales, rounds, strict=True), strict=True))), flush=True)
    meet()
    os._exit(0)  # threads and workers of the jobs wait for ever


def synchronise() -> None:
    """Waits until the device has done all of its work, if there is one."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _record(base: Any, folder: str, settle: int, effort: Effort) -> None:
    """Records steps of the job, after steps without a profiler."""
    import execgraph

    for _ in range(settle):
        next(base)
    with execgraph.capture(folder, wait=effort.wait, active=STEPS_RECORDED) as recorder:
        for _ in range(2 * (effort.wait + 4 + STEPS_RECORDED)):  # more than are needed: they cost little
            next(base)
            recorder.step()
