"""Reads both traces of a process at the same time: the host trace in a second process, as decoding blocks the
interpreter.

The second process returns its columns in a file without a name, which is mapped and not copied.
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
from ...schema.progress import OnProgress, unseen
from .device_rows import DeviceTrace
from .device_trace import read_device_trace
from .host_trace import HostTrace, read_host_trace

LARGE = 1 << 25
"""Bytes of each trace, as text, from which on a second process saves more time than it takes."""
COMPRESSED, RATIO = (".gz", ".zst"), 12
ALIGNED, AT_ONCE = 64, 1 << 16


class Traces(NamedTuple):
    """The traces of one process; the host trace may be missing."""

    host: HostTrace | None
    device: DeviceTrace


class _PickledTrace(NamedTuple):
    """A pickled trace, and the sizes of its columns in the file, in bytes."""

    trace: bytes
    sizes: list[int]


def read_traces(
    host: str | None,
    device: str,
    *,
    strict: bool = False,
    folder: Path | None = None,
    on_progress: OnProgress = unseen,
    modules: bool = False,
) -> Traces:
    """Reads both traces, as `read_host_trace` and `read_device_trace` do.

    They are read at the same time where both are large, there is a second core, and there is a `folder` for the
    columns. `on_progress` is called with the number of bytes read in this process.
    """
    if host is None or folder is None or not (os.access(folder, os.W_OK) and _is_worth_it(host, device)):
        host_trace = read_host_trace(host, strict=strict, on_progress=on_progress) if host is not None else None
        without_host = host_trace is None
        return Traces(
            host_trace,
            read_device_trace(device, strict=strict, arguments=without_host, on_progress=on_progress, modules=modules),
        )
    note_input(host)
    with tempfile.TemporaryFile(dir=folder, prefix=".columns.") as columns:
        # modules must not come from the folder that the command runs in
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
                device_trace = _device_or_error(device, strict, on_progress, modules)
                answer = process.stdout.read() if process.stdout else b""
            except BaseException:
                process.kill()
                raise
        # a process that failed had no memory: there may be more now
        host_trace = _unpickle(answer, columns) if not process.returncode else read_host_trace(host, strict=strict)
    if isinstance(device_trace, DataError):
        raise device_trace
    return Traces(host_trace, device_trace)


def _device_or_error(path: str, strict: bool, on_progress: OnProgress, modules: bool) -> DeviceTrace | DataError:
    """Returns the trace, or the error, which is raised later: an error of the host trace comes first."""
    try:
        return read_device_trace(path, strict=strict, on_progress=on_progress, modules=modules)
    except DataError as error:
        return error


def _is_worth_it(*paths: str) -> bool:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return os.name == "posix" and cores > 1 and all(_size(path) >= LARGE for path in paths)


def _size(path: str) -> int:
    """Returns the estimated number of bytes of text in a file."""
    try:
        size = 0 if path == STANDARD_STREAM else Path(path).stat().st_size
    except OSError:
        return 0
    return size * (RATIO if path.endswith(COMPRESSED) else 1)


def _unpickle(answer: bytes, columns: IO[bytes]) -> HostTrace:
    """Returns the trace that the second process read. Raises the DataError that it ended with."""
    pickled = pickle.loads(answer)
    if isinstance(pickled, DataError):
        raise pickled
    file = mapped(columns) if any(pickled.sizes) else memoryview(b"")
    buffers, offset = [], 0
    for size in pickled.sizes:
        buffers.append(file[offset : offset + size])
        offset += -(-size // ALIGNED) * ALIGNED
    trace: HostTrace = pickle.loads(pickled.trace, buffers=buffers)
    return trace


def _pickle(trace: HostTrace, descriptor: int) -> _PickledTrace:
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(trace, 5, buffer_callback=buffers.append)
    sizes = []
    with open(descriptor, "wb", buffering=0) as file:
        for buffer in buffers:
            unwritten = buffer.raw()
            sizes.append(len(unwritten))
            while unwritten:
                unwritten = unwritten[file.write(unwritten[:AT_ONCE]) :]
            file.seek(-file.tell() % ALIGNED, os.SEEK_CUR)
        file.truncate()
    return _PickledTrace(pickled, sizes)


def read_for_another() -> None:
    """Runs in the second process: reads the trace that its arguments name, and writes the result to standard output."""
    path, strict, folder, descriptor = sys.argv[1:]
    with suppress(RuntimeError):  # there may be no more threads
        start_new_thread(_end_with_parent, ())
    gc.disable()
    try:
        with workspace_in(Path(folder)):
            answer: _PickledTrace | DataError = _pickle(
                read_host_trace(path, strict=bool(int(strict))), int(descriptor)
            )
    except DataError as error:
        answer = error
    sys.stdout.buffer.write(pickle.dumps(answer))


def _end_with_parent() -> None:
    """Ends this process with its parent: nobody writes to standard input, which closes when the parent ends."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)
