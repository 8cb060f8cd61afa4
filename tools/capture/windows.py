"""Attached to a profiler: the host trace of each window that it records, and both traces where trace-build finds them.

A pair is kept whole or not at all, and whoever runs the job is told where it is and what to do with it.
"""

import shlex
import shutil
import sys
import tempfile
from collections.abc import Collection
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from ...schema.errors import DataError
from ...schema.io import open_output
from .pytorch import REMEDY, Conflict, import_torch, record_synchronisation, synchronise, this_rank, training_goes_on

TRACES = ("host", "device")
ENDING = ".json.gz"
BY_WINDOW = "window{window}/{trace}_rank{rank}"


class PairRecorder:
    """Records one window after the other; its methods raise whatever goes wrong.

    Files go into a folder and are named by `name`, in which {trace}, {rank} and {window} stand for what they are of.
    Raises ValueError for a folder that is a file, and for a name that two traces would have in common.
    """

    def __init__(self, torch: Any, folder: str | Path, name: str, ranks: Collection[int] | None) -> None:
        if isinstance(ranks, int):
            raise TypeError(f"ranks: {ranks} is one, give several or [{ranks}]")
        self._torch, self._folder, self._name = torch, Path(folder), name
        self._ranks = None if ranks is None else frozenset(ranks)
        self._window = 0
        self._host: HostTraceObserver | None = None
        if self._folder.exists() and not self._folder.is_dir():
            raise ValueError(f"{folder}: not a folder; name one that the traces can go into")
        try:
            targets = {target for rank in (0, 1) for target in self._targets(rank)}
        except (LookupError, ValueError):
            targets = set()
        if len(targets) < 2 * len(TRACES):
            raise ValueError(f"name: {name!r} does not distinguish traces; it needs {{trace}} and {{rank}}")

    def _targets(self, rank: int) -> list[Path]:
        names = (self._name.format(trace=trace, rank=rank, window=self._window) for trace in TRACES)
        return [self._folder / f"{name}{ENDING}" for name in names]

    @cached_property
    def records_this_rank(self) -> bool:
        """Whether this rank is one of those to record. The rank may be known only when training has begun."""
        return self._ranks is None or this_rank(self._torch) in self._ranks

    def begin(self) -> None:
        """Begins a window, right before the profiler does."""
        if not self.records_this_rank:
            return
        self.drop()
        self._window += 1
        self._host = HostTraceObserver(self._torch)
        synchronise(self._torch)  # else the first activities belong to calls that nobody recorded
        self._host.observer.start()

    def end(self) -> None:
        """Ends the window; its host trace is kept when the device trace is ready."""
        if self._host:
            self._host.observer.stop()

    def keep(self, profiler: Any) -> None:
        """Keeps both traces of the window that has ended, and says where they are."""
        if self.records_this_rank and not self._window:
            raise DataError("no host trace: give the handler to the profiler as execution_trace_observer, too")
        if not self._host:
            return
        rank = this_rank(self._torch)
        targets = self._targets(rank)
        try:
            traces = self._host.beside(profiler)
            for trace in traces:
                _check_whole(trace)
            with ExitStack() as outputs:  # both whole or neither
                for trace, target in zip(traces, targets, strict=True):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with trace.open("rb") as written:
                        shutil.copyfileobj(written, outputs.enter_context(open_output(str(target))))
        finally:
            self.drop()
        print(f"execgraph: rank {rank} recorded {' and '.join(map(str, targets))}", file=sys.stderr)
        if rank == min(self._ranks or (0,)):  # which speaks for the job
            print(f"execgraph: next: trace-build {shlex.quote(str(targets[0].parent))} -o graphs", file=sys.stderr)

    def drop(self) -> None:
        """Drops a window that nobody kept."""
        host, self._host = self._host, None
        if host:
            host.drop()


def _check_whole(trace: Path) -> None:
    """Raises DataError where PyTorch could not write all of a trace, which it does not say itself. Each ends with a
    brace.
    """
    tail = b""
    if trace.exists():
        with trace.open("rb") as written:
            written.seek(max(trace.stat().st_size - 16, 0))
            tail = written.read().rstrip()
    if not tail.endswith(b"}"):
        raise DataError(
            f"PyTorch could not write the whole {trace.stem} trace to {trace.parent.parent}; make room there"
        )


class HostTraceObserver:
    """An observer that writes the host trace into a folder of its own; Conflict where the process has another one."""

    def __init__(self, torch: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="execgraph-capture-")
        self._path = Path(self._folder.name, "host.json")
        self.observer = torch.profiler.ExecutionTraceObserver()
        self.observer.register_callback(str(self._path))
        if not self.observer.is_registered:
            raise OSError(f"{self._path}: cannot be written")
        if not self._path.exists():
            # where another one is registered PyTorch says that this one is, and would end that one in its place
            self.observer._registered = False
            self._folder.cleanup()
            raise Conflict(f"this process has another ExecutionTraceObserver, and PyTorch has one at a time; {REMEDY}")

    def beside(self, profiler: Any) -> tuple[Path, Path]:
        """Returns the finished host trace, and the profiler's device trace in the same folder."""
        self.observer.unregister_callback()
        device = self._path.with_name("device.json")
        profiler.export_chrome_trace(str(device))
        return self._path, device

    def drop(self) -> None:
        """Ends the observer and removes the folder."""
        self.observer.unregister_callback()
        self._folder.cleanup()


def trace_handler(folder: str | Path, *, ranks: Collection[int] | None = None, name: str = BY_WINDOW) -> Any:
    """Returns what a `torch.profiler.profile` is to get both as `on_trace_ready` and as `execution_trace_observer`
    (PyTorch 2.5 or newer).

        handler = trace_handler("traces")
        with torch.profiler.profile(schedule=…, on_trace_ready=handler, execution_trace_observer=handler) as profiler:

    Each window that the schedule records leaves a pair of traces in `folder`, named by `name` with {trace} (host or
    device), {rank} and {window} (from 1). Only `ranks` leave theirs, all by default. A window that cannot be recorded
    or written is warned of. From here on all profilers of this process record what CUDA's waits were for, which no
    option of theirs switches off.

    Raises ImportError without PyTorch, ValueError for a folder that is a file and for a name that two traces would have
    in common.
    """
    torch = import_torch()
    handler = TraceHandler(PairRecorder(torch, folder, name, ranks))
    record_synchronisation(torch)
    return handler


class TraceHandler:
    """Records the host trace while a profiler records the device trace, and keeps both once the profiler is done.

    `start`, `stop` and `cleanup` are what PyTorch's profiler calls of its observers, `__call__` what it calls when a
    trace is ready.
    """

    def __init__(self, pairs: PairRecorder) -> None:
        self._pairs = pairs

    def start(self) -> None:
        """Begins a window."""
        with training_goes_on(self.cleanup):
            self._pairs.begin()

    def stop(self) -> None:
        """Ends the window; its host trace is kept when the device trace is ready."""
        with training_goes_on(self.cleanup):
            self._pairs.end()

    def __call__(self, profiler: Any) -> None:
        """Keeps both traces of the window that has ended, and says where they are."""
        with training_goes_on(self.cleanup):
            self._pairs.keep(profiler)

    def cleanup(self) -> None:
        """Drops a window that nobody kept."""
        self._pairs.drop()
