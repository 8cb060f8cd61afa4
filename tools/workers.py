"""Runs tasks in processes here, or on a Dask cluster, and gives each one's result or exception as it comes.

A worker that dies fails the task that it had and no other.
"""

import importlib
import multiprocessing
import os
import signal
import sys
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from ..schema.errors import Audience, DataError, Remedy, audience, require, said_to
from ..schema.io import MAX_SIZE
from ..schema.progress import OnProgress, unseen

Task = TypeVar("Task")
Result = TypeVar("Result")
SPARED = 16
"""Descriptors: for the process that begins, and for files and libraries of this one."""
FROM_TERMINALS = {getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)}

_on_progress: ContextVar[OnProgress] = ContextVar("on_progress", default=unseen)


class WorkerDied(Exception):
    """The process that had a task ended before the task did."""


def stage_done() -> None:
    """Tells who waits for the result of a task that one more stage of it is done."""
    _on_progress.get()(1)


def in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, on_progress: OnProgress = unseen
) -> Generator[tuple[Task, Result | Exception], None, None]:
    """Runs the tasks in up to `jobs` processes; a single task runs in this process.

    Where the system gives fewer processes there are fewer, and without any the tasks run here. `on_progress` is called
    with the number of stages done since the last call.
    """
    waiting, lost = deque(tasks), list[Task]()
    if len(waiting) > 1:
        yield from _run_in_workers(function, waiting, jobs, on_progress, lost)
    while waiting:
        task = waiting.popleft()
        token = _on_progress.set(on_progress)
        outcome = _outcome(partial(function, task))
        _on_progress.reset(token)
        yield task, outcome
    for task in lost:
        # alone it may find the memory that it lacked beside others
        again, lost_again = deque([task]), list[Task]()
        yield from _run_in_workers(function, again, 1, on_progress, lost_again)
        if again or lost_again:
            yield task, WorkerDied(f"its process was killed, perhaps for want of memory; try fewer {Remedy.JOBS}")


def _run_in_workers(
    function: Callable[[Task], Result], waiting: deque[Task], jobs: int, on_progress: OnProgress, lost: list[Task]
) -> Generator[tuple[Task, Result | Exception], None, None]:
    """Runs the tasks of `waiting` on a worker and yields the outcomes; adds tasks whose worker died to `lost`.

    What Python has for this waits for ever where a process has no room for one more thread.
    """
    with _workers() as working:
        while len(working) < min(jobs, len(waiting)) and _start_worker(working):
            pass
        while working:
            for worker in cast(list[Connection], wait(working)):
                try:
                    message = worker.recv()
                except (EOFError, OSError):
                    process, task = working.pop(worker)
                    worker.close()
                    process.join()
                    if task is not None:
                        # it was the task that ended it: another worker may begin
                        lost.append(task)
                        if waiting:
                            _start_worker(working)
                    continue
                if isinstance(message, int):
                    on_progress(message)
                    continue
                process, task = working[worker]
                working[worker] = process, waiting[0] if waiting else None
                worker.send((function, waiting.popleft()) if waiting else None)
                if task is not None:
                    yield task, message.outcome


class _Ready(NamedTuple):
    """What a worker says when it can have a task: what became of the one before, if there was one."""

    outcome: Any = None


_Working = dict[Connection, tuple[SpawnProcess, Any]]
"""Each worker's process and its task, None where it has none, by the connection to it."""


@contextmanager
def _workers() -> Iterator[_Working]:
    """Worker processes, which are stopped at once, and clean up, when the block is left by an exception."""
    working: _Working = {}
    try:
        yield working
    except BaseException:
        for process, _ in working.values():
            process.terminate()
        raise
    finally:
        for worker, (process, _) in working.items():
            worker.close()
            process.join()


def _start_worker(working: _Working) -> bool:
    """Starts a worker, and returns whether the system could."""
    spawn = multiprocessing.get_context("spawn")
    try:
        with _sparing_descriptors():
            parent_end, worker_end = spawn.Pipe()
        with worker_end, _ignoring_interrupts():
            process = spawn.Process(target=_work, args=(worker_end, audience()), daemon=True)
            process.start()
    except (OSError, MemoryError):
        return False
    working[parent_end] = process, None
    return True


@contextmanager
def _sparing_descriptors() -> Iterator[None]:
    """Keeps some descriptors free for this process while the block opens others; OSError if there are too few."""
    with ExitStack() as spared:
        for _ in range(SPARED):
            spared.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


def _work(parent: Connection, readers: Audience) -> None:
    """Asks for tasks and runs them until there are none, as a worker does."""
    _prepare_worker(parent)
    with said_to(readers):
        _run_given_tasks(parent)


def _run_given_tasks(parent: Connection) -> None:
    ready = _Ready()
    while True:
        try:
            parent.send(ready)
        except (EOFError, OSError):
            return
        except Exception as error:  # what came out cannot be sent
            parent.send(_Ready(error))
        try:
            message = parent.recv()
        except (EOFError, OSError):
            return
        if message is None:
            return
        function, task = message
        ready = _Ready(_outcome(partial(function, task)))


def on_cluster(
    function: Callable[[Task], Result], tasks: Sequence[Task], address: str
) -> Generator[tuple[Task, Result | Exception], None, None]:
    """Runs the tasks on the Dask cluster with the scheduler at `address`; its workers see the same paths.

    Raises DataError when the package distributed is missing or no scheduler answers.
    """
    require("dask", str(Remedy.SCHEDULER))
    distributed = importlib.import_module("distributed")
    try:
        client = distributed.Client(address)
    except (OSError, TimeoutError, ValueError) as error:
        raise DataError(
            Remedy.SCHEDULER, f" {address}: no Dask scheduler answers ({error}); check the address"
        ) from error
    with client:
        pool = client.get_executor()
        try:
            here = partial(_as_here, function, os.environ.get(MAX_SIZE), audience())
            task_of = {pool.submit(here, task): task for task in tasks}
            for future in as_completed(task_of):
                yield task_of[future], _outcome(future.result)
        finally:
            pool.shutdown(wait=False)


def _as_here(function: Callable[[Task], Result], max_size: str | None, readers: Audience, task: Task) -> Result:
    """Runs the task with the limit and for the readers of who gave it, which processes of a cluster do not inherit.

    Nothing takes the limit back: each task brings its own, and threads beside this one may have tasks of the same one.
    """
    os.environ.pop(MAX_SIZE, None)
    if max_size is not None:
        os.environ[MAX_SIZE] = max_size
    with said_to(readers):
        return function(task)


def _outcome(result: Callable[[], Result]) -> Result | Exception:
    try:
        return result()
    except Exception as error:
        return error


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Makes processes that start in the block ignore terminal interrupts, from their first moment on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Python's tracker of resources, which begins with the first worker, would have that one hear of them again
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FROM_TERMINALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare_worker(parent: Connection) -> None:
    """Sets a worker up: it reports stages, shows no progress, ignores Ctrl-C, and ends with its parent."""
    _on_progress.set(parent.send)
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    for number in FROM_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    with suppress(RuntimeError):  # there may be no more threads
        start_new_thread(_end_with_parent, ())


def _stop(*_: object) -> NoReturn:
    sys.exit(1)


def _end_with_parent() -> None:
    """At once: what a worker would clean up is cleaned up by the next run, which may have begun."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
