"""How every command runs: exit codes, one-line errors, results on stdout, progress and messages on stderr.

Exit 0: done. 1: the data is unusable. 2: wrong usage. SIGTERM and SIGHUP act as Ctrl-C, exit 130.
"""

import argparse
import atexit
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import length_hint
from typing import Any, NoReturn, TypeVar

from ..schema.errors import DataError, RequestError, WrongUsage
from ..schema.io import decompressing_at_most, protecting_inputs
from ..schema.progress import OnProgress, unseen
from . import terminal

STOPPED = 130
"""The exit status of what was stopped, as shells have it for Ctrl-C."""
SECONDS_TO_CLEAN_UP = 10
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
T = TypeVar("T")
log = logging.getLogger("execgraph")
NO_MEMORY = "out of memory; use a machine with more, or a shorter trace"
SCARCE = {
    os.strerror(errno.EMFILE): "too many files are open; raise the limit, such as by ulimit -n 1024",
    os.strerror(errno.ENFILE): "too many files are open on this machine; try again when there are fewer",
    os.strerror(errno.ENOMEM): NO_MEMORY,
    "failed to map segment from shared object": NO_MEMORY,
    "can't start new thread": "the system gives no more processes and threads; raise the limit, such as by ulimit -u "
    "1024",
}
"""What the system says where it has no more of something, and what to do."""


@contextmanager
def ended_by_signals(name: str) -> Iterator[None]:
    """Makes the first SIGINT, SIGTERM or SIGHUP in the block a KeyboardInterrupt, and later ones nothing.

    Where Python drops exceptions, as while it closes files that nobody has any more, it is one at the end of the block.
    A block in a long call, which hears of no signal, ends with the process after SECONDS_TO_CLEAN_UP, as by SIGKILL.
    """
    # who starts a command in the background may have made it deaf to Ctrl-C
    before = {number: signal.getsignal(number) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    # while Python goes down there is nobody to raise to
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)
    asked: list[int] = []
    ended = threading.Event()

    def stop(number: int, _: object) -> NoReturn:
        asked.append(number)
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    def end_late() -> None:
        with receiver:
            if receiver.recv(1) and not ended.wait(SECONDS_TO_CLEAN_UP):
                print(f"{name}: interrupted", file=sys.stderr)
                sys.stderr.flush()
                os._exit(STOPPED)

    receiver, sender = socket.socketpair()
    with sender:
        sender.setblocking(False)
        woken = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        with suppress(RuntimeError):  # there may be no more threads
            start_new_thread(end_late, ())
        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)
            ended.set()
            if asked:
                raise KeyboardInterrupt


def end_without_reader() -> NoReturn:
    """Ends a command whose output nobody reads any more, before Python complains about it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


def refuse_contradictions(*cases: tuple[object, str]) -> None:
    """Raises WrongUsage with the text of the first case that holds."""
    for is_so, problem in cases:
        if is_so:
            raise WrongUsage(problem)


def run_command(
    work: Callable[[argparse.Namespace], int | None],
    arguments: argparse.Namespace,
    name: str,
    refuse: Callable[[str], NoReturn] = sys.exit,
) -> NoReturn:
    """Runs `work` and ends the process, by `refuse` for WrongUsage: errors are one line, never a traceback."""
    level = logging.ERROR if arguments.quiet else logging.DEBUG if arguments.verbose else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(terminal.PlainFormatter())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    try:
        at_most = decompressing_at_most(getattr(arguments, "max_size", None))
        with ended_by_signals(name), no_garbage_collection(), at_most, protecting_inputs(), step(name):
            sys.exit(work(arguments) or 0)
    except WrongUsage as error:
        refuse(str(error))
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(STOPPED)
    except BrokenPipeError:
        end_without_reader()
    except Exception as error:
        if problem := _problem(error):
            log.error(f"{name}: error: {problem}")
        else:
            what = f"{name}: internal error: {error!r}; run again with -v and report what it prints"
            log.error(what, exc_info=arguments.verbose)
        sys.exit(2 if isinstance(error, RequestError) else 1)


def _problem(error: Exception) -> str:
    """Returns what is wrong with the data or the machine, in a line; "" for a mistake of ours."""
    if isinstance(error, DataError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return NO_MEMORY
    if isinstance(error, OSError) and error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
        return f"{error.filename}: cannot be used ({error.strerror}); check the path"
    if isinstance(error, RuntimeError) and "Symlink loop" in str(error):  # of Path.resolve before Python 3.13
        return f"{error}; check the path"
    return next((remedy for kind, remedy in SCARCE.items() if kind in str(error)), "")


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Says in errors which files they are about."""
    try:
        yield
    except DataError as error:
        raise type(error)(f"{what}: {error}") from error


def log_notes(name: str, notes: Iterable[object]) -> None:
    """Says what is odd, a line each."""
    for note in notes:
        log.warning(f"{name}: note: {note}")


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Turns the garbage collector off: records and columns form no cycles, and looking takes a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def print_json(summary: dict[str, Any]) -> None:
    """Prints the summary as one JSON object on stdout."""
    import orjson

    terminal.print_json([orjson.dumps(summary, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS), b"\n"])


def progress(items: Iterable[T], what: str, total: int | None = None, unit: str = "it") -> Iterable[T]:
    """Yields `items` with a progress bar on stderr, if that is a terminal and without --quiet."""
    with progress_bar(what, total or length_hint(items) or None, unit) as on_progress:
        for item in items:
            yield item
            on_progress(1)


@contextmanager
def progress_bar(what: str, total: int | None = None, unit: str = "B") -> Iterator[OnProgress]:
    """Shows a progress bar for work that is not an iteration, and returns what the work calls as it goes on."""
    with step(what):
        if not sys.stderr.isatty() or logging.getLogger().level >= logging.ERROR:
            yield unseen
            return
        # it loads much else, and most commands run where nobody looks on
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # for its thread there may be no room
        with tqdm(None, what, total, unit=unit, unit_scale=True, leave=False, file=sys.stderr) as bar:
            yield bar.update


@contextmanager
def step(what: str) -> Iterator[None]:
    """Says with --verbose that a piece of work begins, and how long it took."""
    begun = time.monotonic()
    log.debug(f"{what} …")
    try:
        yield
    finally:
        log.debug(f"{what}: {time.monotonic() - begun:.2f} s")
