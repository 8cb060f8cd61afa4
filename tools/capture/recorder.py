"""Records the host trace and the device trace of a training loop over exactly the same steps, as linking them needs.

    with capture("traces", active=2) as recorder:
        for batch in loader:
            train(batch)
            recorder.step()

Every rank writes `host_rank{N}.json.gz` and `device_rank{N}.json.gz` into the folder, each whole or not at all.
"""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ...schema.errors import DataError
from .destination import Destination
from .handler import TraceHandler
from .installed import experimental_config, import_torch

BY_RANK = "{trace}_rank{rank}"


@contextmanager
def capture(
    folder: str | Path,
    *,
    wait: int = 1,
    warmup: int = 1,
    active: int = 2,
    stacks: bool = False,
    modules: bool = False,
    memory: bool = False,
    ranks: Collection[int] | None = None,
    name: str = BY_RANK,
) -> Iterator["Recorder"]:
    """Records `active` steps of the loop in the block, after `wait` unobserved ones and `warmup` with a ready profiler.

    `step()` on the recorder ends a step. A block that ends earlier leaves what was recorded until then. The device trace also tells
    Python's calls with `stacks`, which nn.Module made each op with `modules`, which includes stacks, and allocations with `memory`, but
    then no ops of other Python threads; all of them slow the run down. Only `ranks` record, all by default. Files are named by `name`,
    with {trace} (host or device) and {rank}. What was written, and what to do with it, is said on stderr.

    Raises ImportError without PyTorch 2.1 or newer; ValueError for numbers of steps or a name that cannot be; DataError when the
    block ends before recording begins or when the traces cannot be written.
    """
    if min(wait, warmup) < 0 or active < 1:
        raise ValueError(f"wait {wait}, warmup {warmup}, active {active}: no such steps; the last is 1 or more")
    stacks = stacks or modules
    profiler = import_torch().profiler.profile(
        record_shapes=True,
        with_stack=stacks,
        with_modules=modules,
        profile_memory=memory,
        experimental_config=experimental_config(memory=memory, trace_only=not stacks),  # stacks need the objects
    )
    handler = TraceHandler(Destination(folder, name), ranks)
    recorder = Recorder(profiler, handler, ready=wait, first=wait + warmup, active=active)
    try:
        yield recorder
    finally:
        recorder.finish()
    if not recorder.begun:
        raise DataError(f"{folder}: no traces, {_too_short(recorder.steps, wait + warmup)}")


def _too_short(steps: int, first: int) -> str:
    if not steps:
        return "recorder.step() was never called; call it at the end of each step, or record the whole block with wait=0, warmup=0"
    return (
        f"the loop ended after {steps} steps and recording begins after {first}; run more steps (recorder.step() ends one), "
        "or give a smaller wait and warmup"
    )


class Recorder:
    """Counts the steps of a loop and records `active` of them, from the one with number `first` on.

    It goes through a window in the order of a `torch.profiler.profile` that has an observer, which not every version takes.
    """

    def __init__(self, profiler: Any, handler: TraceHandler, *, ready: int, first: int, active: int) -> None:
        self.steps = 0
        self._profiler, self._handler = profiler, handler
        self._first, self._end = first, first + active
        self._boundaries = ((ready, profiler.prepare_trace), (first, self._begin), (self._end, self.finish))
        self._recording = False
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
        if self._recording:
            self._recording = False
            self._handler.stop()
            self._profiler.stop_trace()
            self._handler(self._profiler)

    def _enter_step(self) -> None:
        for boundary, cross in self._boundaries:
            if boundary == self.steps and self._handler.wanted:
                cross()
        if self._recording:
            step = import_torch().profiler.record_function(f"ProfilerStep#{self.steps}")
            self._annotation.enter_context(step)

    def _begin(self) -> None:
        self._handler.start()
        self._profiler.start_trace()
        self._recording = True
