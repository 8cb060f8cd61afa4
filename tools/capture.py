"""Records the host trace and the device trace of a training loop over exactly the same steps, as linking them needs.

    with capture("traces", active=2) as recorder:
        for batch in loader:
            train(batch)
            recorder.step()

Every rank writes `host_rank{N}.json.gz` and `device_rank{N}.json.gz` into the folder, each whole or not at all.
"""

import importlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..schema.errors import DataError
from ..schema.io import open_output

log = logging.getLogger("execgraph")

WISHES = (
    "enable_cuda_sync_events",  # which event, stream or device every wait waits for
    "profile_all_threads",  # the host trace follows all threads, the device trace without this only some
    "trace_only",  # no event objects in memory beside the file
)
"""Profiler options that not every PyTorch version has; each is asked for where it exists."""


@contextmanager
def capture(
    folder: str | Path, *, wait: int = 1, warmup: int = 1, active: int = 2, modules: bool = False
) -> Iterator["Recorder"]:
    """Records `active` steps of the loop in the block, after `wait` unobserved ones and `warmup` with a ready profiler.

    With `modules` the device trace also tells which nn.Module and Python function called each op, which slows the run down.
    `step()` on the recorder ends a step. A block that ends earlier leaves what was recorded until then. Raises
    ImportError without PyTorch 2.1 or newer; DataError when the block ends before recording begins or when the traces
    cannot be written.
    """
    recorder = Recorder(Path(folder), ready=wait, first=wait + warmup, active=active, modules=modules)
    try:
        yield recorder
    finally:
        recorder.finish()
    if not recorder.begun:
        raise DataError(
            f"{folder}: no traces, the loop ended after {recorder.steps} steps and recording begins after "
            f"{wait + warmup}; run more steps, or give a smaller wait and warmup"
        )


class Recorder:
    """Counts the steps of a loop and records `active` of them into `folder`, from the one with number `first` on."""

    def __init__(self, folder: Path, *, ready: int, first: int, active: int, modules: bool = False) -> None:
        self.steps = 0
        self._folder, self._first, self._end = folder, first, first + active
        self._torch = _import_torch()
        config = _experimental_config(self._torch)
        self._profiler = self._torch.profiler.profile(
            record_shapes=True, with_stack=modules, with_modules=modules, experimental_config=config
        )
        self._boundaries = ((ready, self._profiler.prepare_trace), (first, self._begin), (self._end, self.finish))
        self._window = ExitStack()
        self._annotation = ExitStack()
        self._enter_step()

    @property
    def begun(self) -> bool:
        """Whether the steps before the recorded ones are over."""
        return self.steps >= self._first

    def step(self) -> None:
        """Ends the current step and begins the next one."""
        self._annotation.close()
        self.steps += 1
        self._enter_step()

    def finish(self) -> None:
        """Ends recording and writes both traces, if there are any to write."""
        self._annotation.close()
        self._window.close()

    def _enter_step(self) -> None:
        for boundary, cross in self._boundaries:
            if boundary == self.steps:
                cross()
        if self._first <= self.steps < self._end:
            self._annotation.enter_context(self._torch.profiler.record_function(f"ProfilerStep#{self.steps}"))

    def _begin(self) -> None:
        self._window.enter_context(_both_traces(self._torch, self._profiler, self._folder))


@contextmanager
def _both_traces(torch: Any, profiler: Any, folder: Path) -> Iterator[None]:
    """Both observers run while the block does; its traces then stand in the folder.

    They start and stop in the order of a `torch.profiler.profile` that has an observer, which not every version takes.
    """
    rank = _rank(torch)
    with tempfile.TemporaryDirectory(prefix="execgraph-capture-") as scratch:
        host, device = Path(scratch, f"host_rank{rank}.json"), Path(scratch, f"device_rank{rank}.json")
        observer = torch.profiler.ExecutionTraceObserver()
        observer.register_callback(str(host))
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # else the first activities belong to calls that nobody recorded
        observer.start()
        profiler.start_trace()
        try:
            yield
        finally:
            observer.stop()
            profiler.stop_trace()
            observer.unregister_callback()
        profiler.export_chrome_trace(str(device))
        _keep((host, device), folder)


def _keep(traces: tuple[Path, ...], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for trace in traces:
        if not trace.exists():
            raise DataError(f"{trace.name}: not recorded; does this process have another ExecutionTraceObserver?")
        target = folder / f"{trace.name}.gz"
        with trace.open("rb") as written, open_output(str(target)) as kept:
            shutil.copyfileobj(written, kept)
        log.info("%s: %.1f MB before compression", target, trace.stat().st_size / 1e6)


def _rank(torch: Any) -> int:
    """The rank in the job: of the initialised process group, else what the launcher says, else 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return int(os.environ.get("RANK", "0"))


def _import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ImportError("recording traces needs PyTorch 2.1 or newer in this Python: pip install torch") from error


def _experimental_config(torch: Any) -> Any:
    config = torch._C._profiler._ExperimentalConfig
    return config(**{wish: True for wish in WISHES if _takes(config, wish)})


def _takes(config: Any, option: str) -> bool:
    try:
        config(**{option: True})
    except TypeError:
        return False
    return True
