"""How long a step takes while nothing is recorded, and how much of it the loop waits for its data loader.

Recording slows every op, but not the processes of the loader, which get ahead of the loop: the traces do not tell.
"""

import sys
import threading
from itertools import pairwise
from operator import sub
from statistics import median
from time import perf_counter
from typing import Any

from ...schema.linked import DATA_WAIT_WITHOUT_PROFILER, STEP_WITHOUT_PROFILER
from .pytorch import synchronise, warn

UNEVEN = 3.0
"""If a step keeps the host, besides waiting for data, more than so many times as long as the median one takes, it did
something else, such as compiling. Batches arrive unevenly where the loop waits for them.
"""


class LoaderTimer:
    """Measures between `start` and `stop` the time that this thread spends in `next` of PyTorch's data loaders.

    `workers` is how many processes the loader with the most of them has.
    """

    def __init__(self) -> None:
        self._iterator: Any = None
        self._next: Any = None
        self.total_s = 0.0
        self.workers = 0

    def start(self) -> None:
        """Begins to measure, by taking the place of `next`; does nothing where PyTorch's loader is not in use."""
        self._iterator = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        self._next = getattr(self._iterator, "__next__", None)
        if self._next:
            self._iterator.__next__ = self._timed(self._next)

    def stop(self) -> None:
        """Puts the loader's own `next` back; may be called again."""
        own_next, self._next = self._next, None
        if own_next:
            self._iterator.__next__ = own_next

    def _timed(self, get: Any) -> Any:
        thread, is_open = threading.get_ident(), False

        def timed(iterator: Any) -> Any:
            nonlocal is_open
            if is_open or threading.get_ident() != thread:
                return get(iterator)  # a loader of another thread, or one that another loader reads
            self.workers = max(self.workers, getattr(iterator, "_num_workers", 0))
            is_open, begin = True, perf_counter()
            try:
                return get(iterator)
            finally:
                is_open = False
                self.total_s += perf_counter() - begin

        return timed


class StepTimer:
    """Measures the mean length of the steps between `start` and `stop`, devices included, and how much of it the loop
    waits for its data loader; `lap` ends each step but the last.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._laps: list[tuple[float, float]] = []
        """When each step began on the host, and how long the loop had waited for data by then."""
        self._loader = LoaderTimer()
        self._mean_us: dict[str, float] = {}

    def start(self) -> None:
        """Waits for the device and begins to measure."""
        synchronise(self._torch)
        self._loader.start()
        self.lap()

    def lap(self) -> None:
        """Notes that a step has ended on the host and the next begins."""
        self._laps.append((perf_counter(), self._loader.total_s))

    def stop(self) -> None:
        """Waits for the device and ends the measurement; warns if the steps are too few or too different."""
        self.lap()
        self.drop()
        synchronise(self._torch)
        begun, waited = zip(*self._laps, strict=True)
        lengths, waits = ([after - before for before, after in pairwise(ends)] for ends in (begun, waited))
        work, usual, steps, workers = (
            list(map(sub, lengths, waits)),
            median(lengths),
            len(lengths),
            self._loader.workers,
        )
        if (longest := max(work)) > UNEVEN * usual:
            why = f"of the steps before recording one took {longest * 1e3:.1f} ms and most {usual * 1e3:.1f} ms"
            is_early = work.index(longest) < steps / 2
            advice = "raise wait" if is_early else "something held the loop up, so record again"
            warn(f"{why}, so how long one takes without a profiler is not known; {advice}", stacklevel=5)
            return
        times = {STEP_WITHOUT_PROFILER: perf_counter() - begun[0], DATA_WAIT_WITHOUT_PROFILER: self._loader.total_s}
        self._mean_us = {key: time / steps * 1e6 for key, time in times.items()}
        if workers > steps:
            why = f"the data loader has {workers} workers, and {steps} steps were measured before recording"
            warn(
                f"{why}, so the loop may wait longer for its data than was measured; give wait={workers + 2}",
                stacklevel=5,
            )

    def drop(self) -> None:
        """Lets go of the data loader, which a block that ends early leaves measured."""
        self._loader.stop()

    def add_to(self, profiler: Any) -> None:
        """Has the profiler, which must be recording, write what was measured into its trace; warns if it cannot."""
        try:
            for key, time_us in self._mean_us.items():
                profiler.add_metadata_json(key, f"{time_us:.1f}")
        except Exception as error:
            warn(f"the trace does not say how long a step takes without a profiler: {error!r}", stacklevel=6)
