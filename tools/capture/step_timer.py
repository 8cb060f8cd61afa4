"""How long a step takes while nothing is recorded: recording slows every op, so the traces do not tell."""

from time import perf_counter
from typing import Any

from ...schema.traces import STEP_WITHOUT_PROFILER
from .failures import warn
from .installed import synchronise


class StepTimer:
    """Measures the mean length of the steps between `start` and `stop`, devices included."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._begin = 0.0
        self._mean_us: float | None = None

    def start(self) -> None:
        """Waits for the device and begins to measure."""
        synchronise(self._torch)
        self._begin = perf_counter()

    def stop(self, steps: int) -> None:
        """Waits for the device and ends the measurement of this many steps."""
        synchronise(self._torch)
        self._mean_us = (perf_counter() - self._begin) / steps * 1e6

    def add_to(self, profiler: Any) -> None:
        """Has the profiler, which must be recording, write the measured length into its trace; warns if it cannot."""
        if self._mean_us is None:
            return
        try:
            profiler.add_metadata_json(STEP_WITHOUT_PROFILER, f"{self._mean_us:.1f}")
        except Exception as error:
            warn(f"the trace does not say how long a step takes without a profiler: {error!r}", stacklevel=6)
