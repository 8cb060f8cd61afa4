"""Reads both traces of a process at once: the host trace in a process of its own, as decoding holds the interpreter.

What that process read comes back in a file without a name, whose columns are mapped and not copied.
"""

import gc
import os
import pickle
import subprocess
import sys
import tempfile
from _thread import start_new_thread
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from ...schema.columns import mapped, workspace_in
from ...schema.errors import DataError
from ...schema.io import STANDARD_STREAM, note_input
from ...schema.progress import Advanced, unseen
from .device_rows import DeviceTrace
from .device_trace import read_device_trace
from .host_trace import HostTrace, read_host_trace

LARGE = 1 << 25
"""Bytes of either trace, as text, from which on a second process takes less time than it saves."""
COMPRESSED, RATIO = (".gz", ".zst"), 12
ALIGNED, AT_ONCE = 64, 1 << 16


class Traces(NamedTuple):
    """The traces of one process; a host trace is not always there."""

    host: HostTrace | None
    device: DeviceTrace


class _Handed(NamedTuple):
    """A pickled trace, and how many bytes of the file each of its columns has."""

    trace: bytes
    sizes: list[int]


def read_traces(
    host: str | None,
    device: str,
    strict: bool = False,
    folder: Path | None = None,
    advanced: Advanced = unseen,
    modules: bool = False,
) -> Traces:
    """Reads both traces, as `read_host_trace` and `read_device_trace` do; `advanced` is told of the bytes of what is
    read here.

    Side by side where both are large, there is a second core, and a `folder` for the columns is given.
    """
    if host is None or folder is None or not (os.access(folder, os.W_OK) and _is_worth_it(host, device)):
        read = read_host_trace(host, strict, advanced) if host is not None else None
        found = read_device_trace(device, strict, arguments=read is None, advanced=advanced, modules=modules)
        return Traces(read, found)
    note_input(host)
    with tempfile.TemporaryFile(dir=folder, prefix=".columns.") as columns:
        # else modules would come from the folder that the command runs in, whatever is there
        path = f"import sys; sys.path[:] = {sys.path!r}"
        program = f"{path}; from {__name__} import read_for_another; read_for_another()"
        command = [sys.executable, "-c", program, host, str(int(strict)), str(folder), str(columns.fileno())]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[columns.fileno()],
        ) as process:
            try:
                seen = _device_or_error(device, strict, advanced, modules)
                answer = process.stdout.read() if process.stdout else b""
            except BaseException:
                process.kill()
                raise
        # a process that did not end well had no memory: here there may be more now
        other = _taken_over(answer, columns) if not process.returncode else read_host_trace(host, strict)
    if isinstance(seen, DataError):
        raise seen
    return Traces(other, seen)


def _device_or_error(path: str, strict: bool, advanced: Advanced, modules: bool) -> DeviceTrace | DataError:
    """Returns the error is for later: if the host trace cannot be read, that is said first."""
    try:
        return read_device_trace(path, strict, advanced=advanced, modules=modules)
    except DataError as error:
        return error


def _is_worth_it(*paths: str) -> bool:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return os.name == "posix" and cores > 1 and all(_size(path) >= LARGE for path in paths)


def _size(path: str) -> int:
    """About how many bytes of text a file holds."""
    try:
        size = 0 if path == STANDARD_STREAM else Path(path).stat().st_size
    except OSError:
        return 0
    return size * (RATIO if path.endswith(COMPRESSED) else 1)


def _taken_over(answer: bytes, columns: IO[bytes]) -> HostTrace:
    """Returns what the other process read, or the DataError that it ended with."""
    handed = pickle.loads(answer)
    if isinstance(handed, DataError):
        raise handed
    whole = mapped(columns) if any(handed.sizes) else memoryview(b"")
    buffers, place = [], 0
    for size in handed.sizes:
        buffers.append(whole[place : place + size])
        place += -(-size // ALIGNED) * ALIGNED
    trace: HostTrace = pickle.loads(handed.trace, buffers=buffers)
    return trace


def _hand_over(trace: HostTrace, descriptor: int) -> _Handed:
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(trace, 5, buffer_callback=buffers.append)
    sizes = []
    with open(descriptor, "wb", buffering=0) as file:
        for buffer in buffers:
            rest = buffer.raw()
            sizes.append(len(rest))
            while rest:
                rest = rest[file.write(rest[:AT_ONCE]) :]
            file.seek(-file.tell() % ALIGNED, os.SEEK_CUR)
        file.truncate()
    return _Handed(pickled, sizes)


def read_for_another() -> None:
    """What the other process does: reads the trace that its arguments name, and writes to standard output what it hands
    over.
    """
    path, strict, folder, descriptor = sys.argv[1:]
    with suppress(RuntimeError):  # there may be no more threads
        start_new_thread(_end_with_parent, ())
    gc.disable()
    try:
        with workspace_in(Path(folder)):
            answer: _Handed | DataError = _hand_over(read_host_trace(path, bool(int(strict))), int(descriptor))
    except DataError as error:
        answer = error
    sys.stdout.buffer.write(pickle.dumps(answer))


def _end_with_parent() -> None:
    """Nobody writes to standard input, which ends when the parent does, killed or not."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)
