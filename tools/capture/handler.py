"""Attached to a profiler: the host trace of the same window, and both where trace-build finds them."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from .destination import Destination
from .failures import training_goes_on
from .installed import import_torch, record_synchronisation
from .pair_recorder import PairRecorder

BY_WINDOW = "window{window}/{trace}_rank{rank}"


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
    handler = TraceHandler(PairRecorder(torch, Destination(folder, name), ranks))
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
