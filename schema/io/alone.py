"""One process at a time in a folder, and what a killed one left there."""

import contextlib
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import DataError

try:
    import fcntl
except ImportError:  # not a system with flock
    fcntl = None  # type: ignore[assignment,unused-ignore]

LONGEST = 200


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Holds the lock file `path`, which names this process, while the block runs; the system frees it in any ending.

    Raises DataError, which says who works on `what`, where another process holds it. Where the system has no such locks
    a file that is there and names a process counts as held, and a killed one leaves it behind.
    """
    descriptor = _locked(path, what)
    try:
        with contextlib.suppress(OSError):  # there may be no room for a name
            os.ftruncate(descriptor, 0)
            os.write(descriptor, _this_process().encode())
        yield
    finally:
        try:
            _in_spite_of_interrupts(lambda: _remove_name(descriptor, path))
        finally:
            os.close(descriptor)


def _remove_name(descriptor: int, path: Path) -> None:
    """Comes before the lock goes: who gets that of a file that has no name any more looks again."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        path.unlink(missing_ok=True)


def _in_spite_of_interrupts(remove: Callable[[], None]) -> None:
    """Begins again where it is interrupted, which a command is once."""
    try:
        remove()
    except KeyboardInterrupt:
        remove()
        raise


def _locked(path: Path, what: str) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DataError(f"{what}: cannot be written ({error.strerror or error})") from error
        if _is_held(descriptor):
            os.close(descriptor)
            raise DataError(f"{what}: {_holder(path)} works on it; wait until it is done")
        if _is(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_held(descriptor: int) -> bool:
    """Returns whether another process holds the file, which this one does otherwise."""
    try:
        if fcntl:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        pass  # a file system without locks
    return os.fstat(descriptor).st_size > 0


def _is(descriptor: int, path: Path) -> bool:
    """Returns whether the descriptor's file still has its name, which an earlier owner may have removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _this_process() -> str:
    return f"process {os.getpid()} on {platform.node()} since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}"


def _holder(path: Path) -> str:
    named = ""
    with contextlib.suppress(OSError), path.open("rb") as file:
        named = file.read(LONGEST).decode("utf-8", "replace")
    holder = named or "another process"
    return holder if fcntl else f"{holder} (remove {path} if that has ended)"


@contextlib.contextmanager
def in_use(descriptor: int) -> Iterator[None]:
    """Keeps `remove_abandoned` of other processes from removing the file while the block runs, open or closed."""
    if fcntl is None:
        yield
        return
    duplicate = os.dup(descriptor)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(duplicate, fcntl.LOCK_EX)
        yield
    finally:
        os.close(duplicate)


def remove_abandoned(folder: Path, name: re.Pattern[str]) -> None:
    """Removes files of such names that no process uses any more; none if the system cannot tell."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for path in [Path(entry) for entry in os.scandir(folder) if name.fullmatch(entry.name)]:
            with contextlib.suppress(OSError), path.open("rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def make_folder(path: Path) -> None:
    """Makes a folder and those above it, where they are not there. Raises DataError where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be made a folder ({error.strerror or error})") from error


@contextlib.contextmanager
def fresh_folder(path: Path) -> Iterator[Path]:
    """An empty folder while the block runs, for one process at a time: what a killed one left there is removed first.

    Raises DataError where there can be none.
    """
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir()
    except OSError as error:
        raise DataError(f"{path}: cannot be made a folder ({error.strerror or error}); is there room?") from error
    try:
        yield path
    finally:
        _in_spite_of_interrupts(lambda: shutil.rmtree(path, ignore_errors=True))
