"""Records the device trace and the host trace of a training loop, one after the other, as each slows the steps down."""

from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from time import sleep
from types import TracebackType
from typing import Any

from ...schema.arguments import flags, whole_number
from ...schema.linked import STEP_MARK, WINDOW
from . import windows
from .timing import StepTimer, recording_cost
from .windows import Conflict, PairRecorder, check_no_other_profiler, is_distributed, training_goes_on, warn

BY_RANK = "{trace}_rank{rank}"
SETTLING_S = 0.01
"""How long several processes record on after the last step, as gloo's communication may end later in another thread."""


def capture(
    folder: str | Path,
    *,
    wait: int = 10,
    warmup: int = 3,
    active: int = 2,
    stacks: bool = False,
    modules: bool = False,
    memory: bool = False,
    together: bool | None = None,
    ranks: Collection[int] | None = None,
    name: str = BY_RANK,
) -> "Recorder":
    """Records steps of the loop in the block: after `wait` skipped and `warmup` warm-up steps `active` ones with the
    profiler alone, for their times, then as many with the host trace. What makes ops slow is recorded beside that, in a
    second device trace, the detail trace; graphs and reports give it to the same ops of the first one.

    The loop needs wait + warmup + 2 × active steps. A block that ends early leaves what was recorded until then, which
    is the device trace alone where the host trace has no complete step. Where the files are, and what to do with them,
    is printed on stderr. Once the block has begun, training goes on whatever becomes of the recording: `warnings.warn`
    says what could not be recorded or written, or that no complete step was. Exceptions of the block pass through.

    Example:
        with capture("traces", active=2) as recorder:
            for batch in loader:
                train_step(batch)
                recorder.step()  # ends a step

    Args:
        folder: Where the files go; it is made if it does not exist.
        wait: The number of steps without a profiler, at the beginning. If there are 2 or more, those after the first
            one are measured, and the device trace says how long a step takes without a profiler.
        warmup: The number of steps that warm the profiler up: with it the first ones are slower, and other threads and
            processes get ahead of the loop while it starts.
        active: The number of steps to record in each trace, 1 or more.
        stacks: Whether to record Python's calls, in the detail trace, as the next two are.
        modules: Whether to record the nn.Module of each op; this includes `stacks`.
        memory: Whether to record allocations; the detail trace lacks ops of other Python threads then.
        together: Whether all is recorded in the same `active` steps, in two traces; by default where PyTorch finds a
            GPU. This makes each op many times slower, but takes fewer steps.
        ranks: The ranks that record; by default all do.
        name: How files are named, with {trace} (host, device or detail) and {rank}.

    Returns:
        A context manager; call its `step` at the end of each step of the loop.

    Raises:
        ImportError: PyTorch 2.1 or newer is not installed.
        ValueError: A number of steps, a rank, the folder or the name cannot be used. A TypeError says the same of a
            type.
        RuntimeError: The block begins inside another profiler, capture or ExecutionTraceObserver.
    """
    steps = {"wait": wait, "warmup": warmup, "active": active}
    wait, warmup, active = (whole_number(count, f"capture({name}=…)") for name, count in steps.items())
    flags("capture", stacks=stacks, modules=modules, memory=memory, together=together is None or together)
    if min(wait, warmup) < 0 or active < 1:
        wanted = "wait and warmup are 0 steps or more, active is 1 or more"
        raise ValueError(f"wait {wait}, warmup {warmup}, active {active}: {wanted}")
    torch = windows.import_torch()
    together = torch.cuda.is_available() if together is None else together
    details = {"with_stack": stacks or modules, "with_modules": modules, "profile_memory": memory}
    profiler = windows.device_profiler(record_shapes=together, **(details if together else {}))
    detail = windows.device_profiler(**details) if any(details.values()) and not together else None
    pairs = PairRecorder(torch, folder, name, ranks, has_python=details["with_stack"])
    first, end = wait + warmup, wait + warmup + active
    steps_at = wait, first, first if together else end, end if together else end + active
    return Recorder(torch, profiler, pairs, *steps_at, detail=detail)


class Recorder:
    """Counts the steps of a loop, measures those without a profiler and records those that are active.

    Where both traces begin together, it goes through the window in the order of a `torch.profiler.profile` that has an
    observer, which not every version takes; else the host trace takes over, with the profiler `detail` beside it.
    """

    _open: "Recorder | None" = None
    """The one of this process that records or is going to."""

    def __init__(self, torch: Any, profiler: Any, pairs: PairRecorder, *steps: int, detail: Any = None) -> None:
        self.steps = 0
        self._torch, self._profiler, self._pairs, self._detail = torch, profiler, pairs, detail
        prepare, self._first, self._host, self._end = steps
        self._is_together = self._host == self._first
        self._timer = timer = StepTimer(torch)
        # of the steps without a profiler the first one is slower, so it does not count
        laps = [(step, timer.lap) for step in range(2, prepare)]
        measured = [(1, self._measure), *laps, (prepare, timer.stop)] if prepare > 1 else []
        self._boundaries = [*measured, (prepare, self._prepare), (self._first, self._begin)]
        self._boundaries += [] if self._is_together else [(self._host, self._begin_host)]
        self._boundaries.append((self._end, self._finish))
        self._recording = False
        self._annotation, self._ends = ExitStack(), ExitStack()

    def __enter__(self) -> "Recorder":
        if Recorder._open:
            raise Conflict("another capture is open in this process; end its block first")
        check_no_other_profiler(self._torch)
        with suppress(OSError):  # a lack of room for temporary files is warned of when they are written
            windows.HostTraceObserver(self._torch).drop()
        Recorder._open = self
        with training_goes_on(self._give_up):
            self._enter_step()
        return self

    def step(self) -> None:
        """Ends the current step and begins the next one."""
        self.steps += 1
        with training_goes_on(self._give_up):
            self._annotation.close()
            self._enter_step()

    def __exit__(self, error: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        lacks = ""
        hidden = [Warning] if error else []  # where warnings are errors they must not hide that of the block
        with suppress(*hidden):
            with training_goes_on(self._give_up):
                self._finish()
                if not error and self._boundaries and self._pairs.records_this_rank:
                    lacks = self._lacks()
            if lacks:
                warn(lacks)

    def _lacks(self) -> str:
        """Says which steps the block ended too early for, and what to do; "" if it did not."""
        steps, active = self.steps, self._end - self._host
        if steps >= self._end:
            return ""
        short = "{} has {} of " + f"{active} steps"
        if steps <= self._first:
            what = "no complete step was recorded"
        elif steps <= self._host:
            few = f", and {short.format('the device trace', steps - self._first)}" if steps < self._host else ""
            what = f"no host trace was recorded{few}"
        else:
            what = short.format("each trace" if self._is_together else "the host trace", steps - self._host)
        if not steps:
            return f"{what}: recorder.step() was never called; call it at the end of each step"
        begins = self._first if steps <= self._first else self._host
        fewer = f"a smaller wait{', warmup and active' if active > 1 else ' and warmup'}"
        fewer += "" if self._is_together else ", or together=True"
        when = f"the block ended after {steps} step{'s' if steps > 1 else ''} and recording begins after {begins}"
        return f"{what}: {when}; run {self._end} steps or more (recorder.step() ends one), or give {fewer}"

    def _enter_step(self) -> None:
        for boundary, cross in self._boundaries:
            if boundary == self.steps and self._pairs.records_this_rank:
                cross()
        if self._recording:
            self._annotation.enter_context(self._torch.profiler.record_function(f"{STEP_MARK}{self.steps}"))

    def _measure(self) -> None:
        self._ends.callback(self._timer.drop)
        self._timer.start()

    def _prepare(self) -> None:
        """Has the profiler get ready, which takes long; alone it records from here on: warm-up steps have no mark."""
        check_no_other_profiler(self._torch)
        self._profiler.prepare_trace()
        self._ends.callback(self._cancel)
        if not self._is_together:
            self._start({WINDOW: "device"})

    def _start(self, further: dict[str, str]) -> None:
        self._pairs.begin(self._is_together)
        self._ends.pop_all()
        self._profiler.start_trace()
        self._ends.callback(self._profiler.stop_trace)
        self._timer.add_to(self._profiler, further)

    def _begin(self) -> None:
        if self._is_together:
            check_no_other_profiler(self._torch)
            self._start({})
        self._end_with(self._pairs.end)
        self._recording = True

    def _begin_host(self) -> None:
        """Ends the device trace and begins the host trace."""
        self._ends.close()
        check_no_other_profiler(self._torch)
        self._end_with(*([self._detail.stop_trace] if self._detail else []), self._pairs.end)
        self._pairs.begin_host()
        if self._detail:
            self._detail.start()

    def _end_with(self, *ends: Callable[[], object]) -> None:
        """Has the recording end its last step, and then, in reverse order, with `ends`."""
        for end in (*ends, self._settle, self._annotation.close):
            self._ends.callback(end)

    def _settle(self) -> None:
        if is_distributed(self._torch):
            sleep(SETTLING_S)

    def _finish(self) -> None:
        """Ends recording and writes both traces, if there are any to write."""
        Recorder._open = None
        recorded, self._recording = self._recording, False
        self._ends.close()
        if recorded:
            self._pairs.keep(
                *filter(None, (self._profiler, self._detail)),
                is_whole=self._is_together or self.steps > self._host,
                incomplete=f"{STEP_MARK}{self.steps}" if self.steps < self._end else "",
                measure=lambda: recording_cost(self._torch, self._profiler.experimental_config),
            )
        else:
            self._pairs.drop()

    def _cancel(self) -> None:
        """Lets go of a profiler that is ready, as PyTorch's own does."""
        with suppress(Conflict):
            check_no_other_profiler(self._torch)
            self._profiler.start_trace()
            self._profiler.stop_trace()

    def _give_up(self) -> None:
        """Ends what was begun, and keeps nothing of it."""
        Recorder._open = None
        self._boundaries, self._recording = [], False
        with suppress(Exception):
            self._ends.close()
        with suppress(Exception):
            self._pairs.drop()
