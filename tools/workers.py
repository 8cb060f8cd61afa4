"""Runs tasks in processes here, or on a Dask cluster, and gives each one's result or exception as it comes.

A worker that dies fails the task that it had and no other.
"""

import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from ..schema.errors import DataError
from ..schema.io import MAX_SIZE
from ..schema.optional import require
from ..schema.progress import Advanced, unseen

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

    _Count = Synchronized[int]

Task = TypeVar("Task")
Result = TypeVar("Result")
SECONDS_BETWEEN_LOOKS = 0.5

_advanced: ContextVar[Advanced] = ContextVar("advanced", default=unseen)


class WorkerDied(Exception):
    """The process that had a task ended before the task did."""


def stage_done() -> None:
    """Tells who waits for the result of a task that one more stage of it is done."""
    _advanced.get()(1)


def in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, advanced: Advanced = unseen
) -> Generator[tuple[Task, Result | Exception], None, None]:
    """Runs the tasks in up to `jobs` processes, so many at a time; a single one in this process, as it need not wait for another.

    `advanced` is told how many more stages tasks say are done.
    """
    if len(tasks) == 1:
        token = _advanced.set(advanced)
        outcome = _outcome(partial(function, tasks[0]))
        _advanced.reset(token)
        yield tasks[0], outcome
        return
    waiting = deque(tasks)
    while waiting:
        # all tasks of a broken pool are lost, whoever broke it: each alone shows which it was
        for task in (yield from _until_a_worker_dies(function, waiting, min(jobs, len(waiting)), advanced)):
            if (yield from _until_a_worker_dies(function, deque([task]), 1, advanced)):
                yield task, WorkerDied("its process was killed, perhaps for want of memory; try fewer --jobs")


def _until_a_worker_dies(
    function: Callable[[Task], Result], waiting: deque[Task], jobs: int, advanced: Advanced
) -> Generator[tuple[Task, Result | Exception], None, list[Task]]:
    """Takes tasks from `waiting` and yields what became of them; returns those that a dying worker took along."""
    running: dict[Future[Result], Task] = {}
    spawn, seen = multiprocessing.get_context("spawn"), 0
    stages: _Count = spawn.Value("q", 0)
    with _pool(jobs, spawn, stages) as pool:
        while waiting or running:
            while waiting and len(running) < jobs:
                try:
                    with _deaf_to_interrupts():
                        future = pool.submit(function, waiting[0])
                    running[future] = waiting[0]
                except BrokenProcessPool:
                    return list(running.values())
                waiting.popleft()
            ended = wait(running, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED).done
            advanced(stages.value - seen)
            seen = stages.value
            for future in ended:
                outcome = _outcome(future.result)
                if isinstance(outcome, BrokenProcessPool):
                    return list(running.values())
                yield running.pop(future), outcome
    return []


def on_cluster(
    function: Callable[[Task], Result], tasks: Sequence[Task], address: str
) -> Generator[tuple[Task, Result | Exception], None, None]:
    """Runs the tasks on the Dask cluster whose scheduler listens at `address`; its workers see the same files under the same paths.

    Raises DataError when the package distributed is missing or no scheduler answers.
    """
    require("dask", "--scheduler")
    distributed = importlib.import_module("distributed")
    try:
        client = distributed.Client(address)
    except (OSError, TimeoutError, ValueError) as error:
        raise DataError(f"--scheduler {address}: no Dask scheduler answers ({error}); check the address") from error
    with client:
        pool = client.get_executor()
        try:
            here = partial(_as_there, function, os.environ.get(MAX_SIZE))
            task_of = {pool.submit(here, task): task for task in tasks}
            for future in as_completed(task_of):
                yield task_of[future], _outcome(future.result)
        finally:
            pool.shutdown(wait=False)


def _as_there(function: Callable[[Task], Result], max_size: str | None, task: Task) -> Result:
    """Runs the task with the limit of the command that gave it, which processes of a cluster do not inherit.

    Nothing takes it back: each task brings its own, and threads beside this one may have tasks of the same command.
    """
    os.environ.pop(MAX_SIZE, None)
    if max_size is not None:
        os.environ[MAX_SIZE] = max_size
    return function(task)


def _outcome(result: Callable[[], Result]) -> Result | Exception:
    try:
        return result()
    except Exception as error:
        return error


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started in the block never hear Ctrl-C, not even before they can say that they leave it to their parent."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _pool(jobs: int, spawn: SpawnContext, stages: "_Count") -> Iterator[ProcessPoolExecutor]:
    """Worker processes that are stopped at once, and clean up, when the block is left by an exception."""
    pool = ProcessPoolExecutor(jobs, spawn, _prepare_worker, (stages,))
    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker(stages: "_Count") -> None:
    """Workers count the stages that they have done, draw no progress bars, leave Ctrl-C to their parent, clean up when told to stop,
    and do not outlive it."""
    _advanced.set(partial(_add, stages))
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _add(stages: "_Count", count: int) -> None:
    with stages.get_lock():
        stages.value += count


def _stop(*_: object) -> NoReturn:
    sys.exit(1)


def _end_with_parent() -> None:
    """At once: what a worker would clean up is cleaned up by the next run, which may have begun."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
