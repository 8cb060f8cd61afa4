"""Attached to a profiler: the host trace of the same window, and both where trace-build finds them."""

import tempfile
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from ...schema.errors import DataError
from .destination import Destination, announce
from .installed import import_torch, this_rank

BY_WINDOW = "window{window}/{trace}_rank{rank}"


def trace_handler(folder: str | Path, *, ranks: Collection[int] | None = None, name: str = BY_WINDOW) -> Any:
    """What a `torch.profiler.profile` is to get both as `on_trace_ready` and as `execution_trace_observer` (PyTorch 2.5 or newer).

        handler = trace_handler("traces")
        with torch.profiler.profile(schedule=…, on_trace_ready=handler, execution_trace_observer=handler) as profiler:

    Each window that the schedule records leaves a pair of traces in `folder`, named by `name` with {trace} (host or device), {rank}
    and {window} (from 1). Only `ranks` leave theirs, all by default. Raises ImportError without PyTorch, ValueError for a name
    that two traces would have in common; DataError, when a window ends, where they cannot be written.
    """
    return TraceHandler(Destination(folder, name), ranks)


class TraceHandler:
    """Records the host trace while a profiler records the device trace, and keeps both once the profiler is done.

    `start`, `stop` and `cleanup` are what PyTorch's profiler calls of its observers, `__call__` what it calls when a trace is ready.
    """

    def __init__(self, destination: Destination, ranks: Collection[int] | None = None) -> None:
        self._torch, self._destination, self._ranks = import_torch(), destination, ranks
        self._window = 0
        self._host: _HostTrace | None = None

    @cached_property
    def wanted(self) -> bool:
        """Whether this rank is one of those to record."""
        return self._ranks is None or this_rank(self._torch) in self._ranks

    def start(self) -> None:
        """Begins a window."""
        if self.wanted:
            self.cleanup()
            self._host = _HostTrace(self._torch)
            if self._torch.cuda.is_available():
                self._torch.cuda.synchronize()  # else the first activities belong to calls that nobody recorded
            self._host.observer.start()

    def stop(self) -> None:
        """Ends the window; its host trace is kept when the device trace is ready."""
        if self._host:
            self._host.observer.stop()

    def __call__(self, profiler: Any) -> None:
        """Keeps both traces of the window that has ended, and says where they are."""
        if not self.wanted:
            return
        if not self._host:
            raise DataError("no host trace: give the handler to the profiler as execution_trace_observer, too")
        rank = this_rank(self._torch)
        self._window += 1
        try:
            kept = self._destination.keep(self._host.beside(profiler), rank, self._window)
        finally:
            self.cleanup()
        announce(kept, rank, speaker=min(self._ranks or (0,)))

    def cleanup(self) -> None:
        """Drops a window that nobody kept."""
        if self._host:
            self._host.drop()
            self._host = None


class _HostTrace:
    """An observer that has begun to write the host trace into a folder of its own."""

    def __init__(self, torch: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="execgraph-capture-")
        self._path = Path(self._folder.name, "host.json")
        self.observer = torch.profiler.ExecutionTraceObserver()
        self.observer.register_callback(str(self._path))

    def beside(self, profiler: Any) -> tuple[Path, Path]:
        """The finished host trace, and the profiler's device trace in the same folder."""
        self.observer.unregister_callback()
        device = self._path.with_name("device.json")
        profiler.export_chrome_trace(str(device))
        return self._path, device

    def drop(self) -> None:
        self.observer.unregister_callback()
        self._folder.cleanup()
