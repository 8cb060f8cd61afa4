"""One process at a time in a folder, and what a killed one left there."""

import contextlib
import os
import platform
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import DataError

try:
    import fcntl
except ImportError:  # not a system with flock
    fcntl = None  # type: ignore[assignment,unused-ignore]

LONGEST = 200
HOLDER = b"process "
"""How a lock file that names a process begins."""


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Holds the lock file `path` while the block runs. Raises DataError where another process works on `what`.

    Where the system has no such locks a file that names a process counts as held, and a killed one leaves it behind.
    """
    descriptor = _locked(path, what)

    def free() -> None:
        # before the lock goes: who gets that of a file that has no name any more looks again
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            path.unlink(missing_ok=True)

    try:
        with contextlib.suppress(OSError):  # there may be no room for a name
            os.ftruncate(descriptor, 0)
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            os.write(descriptor, HOLDER + f"{os.getpid()} on {platform.node()} since {since}".encode())
        yield
    finally:
        try:
            _in_spite_of_interrupts(free)
        finally:
            os.close(descriptor)


def _in_spite_of_interrupts(remove: Callable[[], None]) -> None:
    """Begins again where it is interrupted, which a command is once."""
    try:
        remove()
    except KeyboardInterrupt:
        remove()
        raise


def _locked(path: Path, what: str) -> int:
    """Returns the open lock file, which this process holds. DataError for what is not ours: it would be emptied."""
    foreign = DataError(f"{path}: is a link or a file of somebody, where the lock of {what} has to be; move it away")
    while True:
        if path.is_symlink():
            raise foreign
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except OSError as error:
            raise DataError(f"{what}: cannot be written ({error.strerror or error})") from error
        state = os.fstat(descriptor)
        is_ours = stat.S_ISREG(state.st_mode) and state.st_nlink <= 1
        if not is_ours or not HOLDER.startswith(os.read(descriptor, len(HOLDER))):
            os.close(descriptor)
            raise foreign
        os.lseek(descriptor, 0, os.SEEK_SET)
        is_held, locks = False, bool(fcntl)
        try:
            if fcntl:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_held = True
        except OSError:
            locks = False  # a file system without locks
        if is_held or (not locks and os.fstat(descriptor).st_size > 0):
            os.close(descriptor)
            name = ""
            with contextlib.suppress(OSError), path.open("rb") as file:
                name = file.read(LONGEST).decode("utf-8", "replace")
            holder = (name or "another process") + ("" if fcntl else f" (remove {path} if that has ended)")
            raise DataError(f"{what}: {holder} works on it; wait until it is done")
        # an earlier owner may have removed the name of this file
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


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
        entries = [entry for entry in os.scandir(folder) if name.fullmatch(entry.name)]
        for path in [Path(entry) for entry in entries if entry.is_file(follow_symlinks=False)]:
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
    """An empty folder, for one process at a time, without what a killed one left; DataError where there is none."""
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir()
    except OSError as error:
        raise DataError(f"{path}: cannot be made a folder ({error.strerror or error}); is it in use?") from error
    try:
        yield path
    finally:
        _in_spite_of_interrupts(lambda: shutil.rmtree(path, ignore_errors=True))
