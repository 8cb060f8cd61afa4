"""The host trace of a window, recorded while a profiler records the device trace, and both where trace-build finds
them.
"""

import tempfile
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from ...schema.errors import DataError
from .conflicts import REMEDY, Conflict
from .destination import Destination, announce
from .installed import synchronise, this_rank


class PairRecorder:
    """Records one window after the other; its methods raise whatever goes wrong."""

    def __init__(self, torch: Any, destination: Destination, ranks: Collection[int] | None) -> None:
        if isinstance(ranks, int):
            raise TypeError(f"ranks: {ranks} is one, give several or [{ranks}]")
        self._torch, self._destination = torch, destination
        self._ranks = None if ranks is None else frozenset(ranks)
        self._window = 0
        self._host: HostTraceObserver | None = None

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
        try:
            kept = self._destination.keep(self._host.beside(profiler), rank, self._window)
        finally:
            self.drop()
        announce(kept, rank, speaker=min(self._ranks or (0,)))

    def drop(self) -> None:
        """Drops a window that nobody kept."""
        host, self._host = self._host, None
        if host:
            host.drop()


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
