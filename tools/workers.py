"""Runs tasks in processes here, or on a Dask cluster; a worker that dies fails the task that it had and no other."""

import asyncio
import importlib
import logging
import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from importlib.metadata import version
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ..schema.errors import Audience, DataError, Remedy, audience, require, speak_to
from ..schema.io import MAX_SIZE
from ..schema.progress import OnProgress, beside, unseen

Task = TypeVar("Task")
Result = TypeVar("Result")
NAME = "execgraph"
PATIENCE_S = 60.0
SECONDS_UNSAID = 2
"""How long a cluster may say nothing before it is asked, and said what is waited for."""
SECONDS_BETWEEN_LOOKS = 0.1
"""How often it is looked for stages that workers have done."""
SECONDS_TO_END = 5.0
"""After that a worker that was asked to end does, whatever it waits for."""
THREADS = 3
"""A pool needs two, and waits for ever where it gets one."""
FROM_TERMINALS = {getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)}
NO_POOL = (OSError, MemoryError, RuntimeError)
"""Where the system gives no more descriptors, memory or processes."""

log = logging.getLogger("execgraph")
_on_progress: ContextVar[OnProgress] = ContextVar("on_progress", default=unseen)


class WorkerDied(Exception):
    """The process that had a task ended before the task did."""


def stage_done() -> None:
    """Tells who waits for the result of a task that one more stage of it is done."""
    _on_progress.get()(1)


def runner(
    jobs: int, scheduler: str | None = None, patience_s: float = PATIENCE_S
) -> Callable[..., Generator[tuple[Any, Any], None, None]]:
    """Returns what runs tasks: so many processes, or the Dask cluster with this scheduler, if its package is there."""
    if scheduler is None:
        return lambda function, tasks, on_progress=unseen: in_processes(function, tasks, jobs, on_progress)
    require("dask", str(Remedy.SCHEDULER))
    return lambda function, tasks, on_progress=unseen: on_cluster(function, tasks, scheduler, patience_s)


def in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, on_progress: OnProgress = unseen
) -> Generator[tuple[Task, Result | Exception], None, None]:
    """Runs the tasks in up to `jobs` processes, or as many as the system gives; one task alone runs in this process."""
    waiting, lost = deque(tasks), list[Task]()
    workers = min(jobs, len(waiting)) if len(waiting) > 1 else 0
    while waiting and workers:
        try:
            yield from _in_pool(function, waiting, workers, on_progress, lost)
        except NO_POOL:
            workers //= 2
    for task in waiting:
        token = _on_progress.set(on_progress)
        outcome = _outcome(partial(function, task))
        _on_progress.reset(token)
        yield task, outcome
    for task in lost:
        # alone it may find the memory that it lacked beside others
        lost_again = list[Task]()
        with suppress(*NO_POOL):
            yield from _in_pool(function, deque([task]), 1, on_progress, lost_again)
            if not lost_again:
                continue
        yield task, WorkerDied(f"its process was killed, perhaps for want of memory; try fewer {Remedy.JOBS}")


def _in_pool(
    function: Callable[[Task], Result], waiting: deque[Task], workers: int, on_progress: OnProgress, lost: list[Task]
) -> Generator[tuple[Task, Result | Exception], None, None]:
    """Runs tasks of `waiting` in processes and yields outcomes; those of a worker that dies are added to `lost`."""
    spawn, running = multiprocessing.get_context("spawn"), dict[Future[Result], Task]()
    hearing, saying = spawn.Pipe(duplex=False)
    others = {*multiprocessing.active_children()}
    with hearing, saying:
        pool = ProcessPoolExecutor(workers, spawn, _prepare_worker, (saying, audience()))

        def submit_next() -> None:
            future = pool.submit(function, waiting[0])
            running[future] = waiting.popleft()

        try:
            _check_threads()
            with _ignoring_interrupts():
                while waiting and len(running) < workers:
                    submit_next()
            while running:
                done, _ = wait(running, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
                while hearing.poll():
                    on_progress(hearing.recv())
                for future in done:
                    task, outcome = running.pop(future), _outcome(future.result)
                    if isinstance(outcome, BrokenProcessPool):
                        lost.append(task)
                        continue
                    # what is not taken now is given to another pool, when this one has done what it has
                    with suppress(*NO_POOL):
                        if waiting:
                            submit_next()
                    yield task, outcome
        except BaseException as error:
            if isinstance(error, NO_POOL):
                waiting.extendleft(running.values())
            # at once, and they clean up
            for process in {*multiprocessing.active_children()} - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _check_threads() -> None:
    """Raises RuntimeError where this process has no room for the threads of a pool."""
    is_checked = threading.Event()
    try:
        for _ in range(THREADS):
            threading.Thread(target=is_checked.wait).start()
    finally:
        is_checked.set()


class _Cluster:
    """A Dask cluster, whose answers and workers are waited for `patience_s`. All its methods raise DataError."""

    def __init__(self, address: str, patience_s: float) -> None:
        self.address, self.patience_s, self._dask = address, patience_s, importlib.import_module("distributed")
        self._checked = set[str]()

    def problem(self, what: str) -> DataError:
        """Returns the error that names the scheduler, and says what is wrong with it or its workers."""
        return DataError(Remedy.SCHEDULER, f" {self.address}: {what}")

    def workers(self) -> set[str]:
        """Returns the addresses of the workers that the scheduler has."""

        async def ask() -> set[str]:
            security = self._dask.Security().get_connection_args("client")
            async with self._dask.rpc(self.address, connection_args=security) as scheduler:
                return {*(await scheduler.identity())["workers"]}

        # in a thread, as whoever calls from a notebook is in a loop of asyncio
        answer = beside(lambda: asyncio.run(asyncio.wait_for(ask(), self.patience_s)))
        if not wait([answer], SECONDS_UNSAID).done:
            self._say("an answer of the scheduler")
        try:
            return answer.result()
        except (OSError, asyncio.TimeoutError) as error:
            raise self.problem(f"no Dask scheduler answers within {self.patience_s:g} s; does it run there?") from error
        except Exception as error:
            what = f"is no Dask scheduler ({error}); its address is like tcp://host:8786, tls:// needs certificates"
            raise self.problem(what) from error

    def check(self, client: Any) -> None:
        """Waits for a worker where there is none, and compares the version of new ones with that of this process."""
        workers, until = self.workers(), time.monotonic() + self.patience_s
        if not workers:
            self._say("a worker")
        while not workers:
            if time.monotonic() > until:
                command = f"dask worker {self.address}"
                raise self.problem(f"no worker within {self.patience_s:g} s; start one where {NAME} is: {command}")
            time.sleep(SECONDS_BETWEEN_LOOKS)
            workers = self.workers()
        new, ours = [*workers - self._checked], version(NAME)
        # by a function of the standard library, which workers have without execgraph
        for worker, theirs in (client.run(version, NAME, workers=new, on_error="return") if new else {}).items():
            if theirs != ours and not isinstance(theirs, OSError):
                has = f"has {NAME} {theirs}" if isinstance(theirs, str) else f"has no {NAME}"
                raise self.problem(f"the worker {worker} {has}; install {NAME} {ours} there")
        self._checked.update(new)

    def _say(self, what: str) -> None:
        log.info(f"{Remedy.SCHEDULER} {self.address}: waits for {what}, up to {self.patience_s:g} s")


def on_cluster(
    function: Callable[[Task], Result], tasks: Sequence[Task], address: str, patience_s: float = PATIENCE_S
) -> Generator[tuple[Task, Result | Exception], None, None]:
    """Runs the tasks on the Dask cluster with the scheduler at `address`; its workers see the same paths.

    Raises DataError when no scheduler or worker is there within `patience_s`, or a worker has another version.
    """
    cluster = _Cluster(address, patience_s)
    cluster.workers()
    with _unlogged("distributed", "asyncio"), importlib.import_module("distributed").Client(address) as client:
        cluster.check(client)
        pool = client.get_executor()
        try:
            here = partial(_as_here, function, os.environ.get(MAX_SIZE), audience(), version(NAME))
            running = {pool.submit(here, task): task for task in tasks}
            while running:
                done, _ = wait(running, SECONDS_UNSAID, FIRST_COMPLETED)
                for future in done:
                    task, outcome = running.pop(future), _outcome(future.result)
                    if isinstance(outcome, CancelledError):
                        left = f"{len(running) + 1} of {len(tasks)} tasks were not done"
                        raise cluster.problem(f"the scheduler ended, or the way to it, when {left}; start it again")
                    if type(outcome).__name__ == "KilledWorker":
                        outcome = WorkerDied("each worker that had it was killed, perhaps for want of memory")
                    yield task, outcome
                if not done:
                    cluster.check(client)
        finally:
            pool.shutdown(wait=False)


@contextmanager
def _unlogged(*names: str) -> Iterator[None]:
    """Leaves out what loggers of these names, and those below, say in the block: errors come as exceptions, too."""
    known = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in names]
    loggers = [logger for logger in map(logging.getLogger, known) if not logger.disabled]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


def _as_here(
    function: Callable[[Task], Result], max_size: str | None, readers: Audience, ours: str, task: Task
) -> Result:
    """Runs the task with the limit and for the readers of who gave it, which processes of a cluster do not inherit.

    Nothing takes them back: each task brings its own, and threads beside this one may have tasks of the same job.
    Raises DataError where this process has another version than who gave the task.
    """
    if (theirs := version(NAME)) != ours:
        raise DataError(f"a worker on {platform.node()} has {NAME} {theirs}; install {NAME} {ours} there")
    os.environ.pop(MAX_SIZE, None)
    if max_size is not None:
        os.environ[MAX_SIZE] = max_size
    speak_to(readers)
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


def _prepare_worker(saying: Connection, readers: Audience) -> None:
    """Sets a worker up: it reports stages, shows no progress, ignores Ctrl-C, and ends with its parent."""
    _on_progress.set(saying.send)
    speak_to(readers)
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    for number in FROM_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_worker)
    with suppress(RuntimeError):  # there may be no more threads
        start_new_thread(_end_with_parent, ())


def end_worker(*_: object) -> NoReturn:
    """Ends a worker when it has cleaned up, or by an alarm: it may wait to send a result, with what locks that."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, SECONDS_TO_END)
    sys.exit(1)


def _end_with_parent() -> None:
    """At once: what a worker would clean up is cleaned up by the next run, which may have begun."""
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)
