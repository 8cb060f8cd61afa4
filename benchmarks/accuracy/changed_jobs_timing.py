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
from time import perf_counter, sleep
from typing import Any, NamedTuple

from execgraph.schema.errors import DataError

ROOT = Path(__file__).parents[2]
MODULE = "benchmarks.accuracy.changed_jobs"
STEPS_RECORDED = 5


class Effort(NamedTuple):
    """How often base and changed steps take turns, how many steps a turn has, and how many go before recording."""

    rounds: int
    steps: int
    wait: int


class Timed(NamedTuple):
    """The factors by which a change is asked for, and per round how long a step took without and with it (s)."""

    scale: dict[str, float]
    rounds: list[tuple[float, float]]


def timed(name: str, folder: str, ranks: int, effort: Effort) -> dict[str, Timed]:
    """Records a job to the folder, and returns what each change of it did. Every rank is a process of one thread.

    Raises DataError if one fails.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-m", MODULE, "--one", name, folder, *map(str, effort)]
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
            while None in (codes := [process.poll() for process in processes]) and not any(codes):
                sleep(0.1)
        finally:
            for process in processes:
                process.kill()
        for code, errors in zip(codes, said[1], strict=True):
            if code:
                errors.seek(0)
                problem = (errors.read().strip().splitlines() or ["it said nothing"])[-1]
                raise DataError(f"job {name!r} failed with exit status {code}: {problem}")
        said[0][0].seek(0)
        line = said[0][0].read().splitlines()[-1]
    return {text: Timed(scale, rounds) for text, (scale, rounds) in json.loads(line).items()}


def run_one(name: str, folder: str, effort: Effort) -> None:
    """Is such a process: rank 0 prints a line of JSON."""
    import torch
    from torch import distributed

    from .changed_jobs_programs import JOBS, Bare

    job = JOBS[name]
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
        meet()
        begin = perf_counter()
        for _ in range(effort.steps):
            next(steps)
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


def _record(base: Any, folder: str, settle: int, effort: Effort) -> None:
    """Records steps of the job, after steps without a profiler."""
    import execgraph

    for _ in range(settle):
        next(base)
    with execgraph.capture(folder, wait=effort.wait, warmup=1, active=STEPS_RECORDED) as recorder:
        for _ in range(2 * (effort.wait + 1 + STEPS_RECORDED)):  # more than are needed: they cost little
            next(base)
            recorder.step()
