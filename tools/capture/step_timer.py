"""How long a step takes while nothing is recorded: recording slows every op, so the traces do not tell."""

from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

from ...schema.traces import DATA_WAIT_WITHOUT_PROFILER, STEP_WITHOUT_PROFILER
from .failures import warn
from .installed import synchronise
from .loader_timer import LoaderTimer

UNEVEN = 3.0
"""If a step keeps the host more than so many times as long as the median one, it did something else, such as
compiling.
"""


class StepTimer:
    """Measures the mean length of the steps between `start` and `stop`, devices included, and how much of it the loop
    waits for its data loader; `lap` ends each step but the last.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._laps: list[float] = []
        self._loader = LoaderTimer()
        self._mean_us: dict[str, float] = {}

    def start(self) -> None:
        """Waits for the device and begins to measure."""
        synchronise(self._torch)
        self._loader.start()
        self.lap()

    def lap(self) -> None:
        """Notes that a step has ended on the host and the next begins."""
        self._laps.append(perf_counter())

    def stop(self) -> None:
        """Waits for the device and ends the measurement; warns if the steps are too different to have a length."""
        self.lap()
        self.drop()
        lengths = [after - before for before, after in pairwise(self._laps)]
        synchronise(self._torch)
        if max(lengths) > UNEVEN * median(lengths):
            longest, usual = max(lengths) * 1e3, median(lengths) * 1e3
            why = f"of the steps before recording one took {longest:.1f} ms and most {usual:.1f} ms"
            warn(f"{why}, so how long one takes without a profiler is not known; raise wait", stacklevel=5)
            return
        times = {
            STEP_WITHOUT_PROFILER: perf_counter() - self._laps[0],
            DATA_WAIT_WITHOUT_PROFILER: self._loader.total_s,
        }
        self._mean_us = {key: time / len(lengths) * 1e6 for key, time in times.items()}

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
