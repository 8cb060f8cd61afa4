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
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

from ..schema.errors import DataError

Task = TypeVar("Task")
Result = TypeVar("Result")
SECONDS_TO_CLEAN_UP = 10


class WorkerDied(Exception):
    """The process that had a task ended before the task did."""


def in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int
) -> Generator[tuple[Task, Result | Exception], None, None]:
    """Runs the tasks in up to `jobs` processes, so many at a time; a single one in this process, as it need not wait for another."""
    if len(tasks) == 1:
        yield tasks[0], _outcome(partial(function, tasks[0]))
        return
    waiting = deque(tasks)
    while waiting:
        # all tasks of a broken pool are lost, whoever broke it: each alone shows which it was
        for task in (yield from _until_a_worker_dies(function, waiting, min(jobs, len(waiting)))):
            if (yield from _until_a_worker_dies(function, deque([task]), 1)):
                yield task, WorkerDied("its process was killed, perhaps for want of memory; try fewer --jobs")


def _until_a_worker_dies(
    function: Callable[[Task], Result], waiting: deque[Task], jobs: int
) -> Generator[tuple[Task, Result | Exception], None, list[Task]]:
    """Takes tasks from `waiting` and yields what became of them; returns those that a dying worker took along."""
    running: dict[Future[Result], Task] = {}
    with _pool(jobs) as pool:
        while waiting or running:
            while waiting and len(running) < jobs:
                try:
                    running[pool.submit(function, waiting[0])] = waiting[0]
                except BrokenProcessPool:
                    return list(running.values())
                waiting.popleft()
            for future in wait(running, return_when=FIRST_COMPLETED).done:
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
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise DataError("--scheduler: needs Dask; pip install 'execgraph[dask]'") from error
    try:
        client = distributed.Client(address)
    except (OSError, TimeoutError, ValueError) as error:
        raise DataError(f"--scheduler {address}: no Dask scheduler answers ({error}); check the address") from error
    with client:
        pool = client.get_executor()
        try:
            task_of = {pool.submit(function, task): task for task in tasks}
            for future in as_completed(task_of):
                yield task_of[future], _outcome(future.result)
        finally:
            pool.shutdown(wait=False)


def _outcome(result: Callable[[], Result]) -> Result | Exception:
    try:
        return result()
    except Exception as error:
        return error


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that are stopped at once, and clean up, when the block is left by an exception."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_prepare_worker)
    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Workers draw no progress bars, leave Ctrl-C to their parent, clean up when told to stop, and do not outlive it."""
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_stop_after_parent, daemon=True).start()


def _stop(*_: object) -> NoReturn:
    sys.exit(1)


def _stop_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.main_thread().join(SECONDS_TO_CLEAN_UP)
    os._exit(1)
