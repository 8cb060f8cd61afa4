"""Attached to a profiler: the host trace of each window that it records, and both traces where trace-build finds them.

A pair is kept whole or not at all. PyTorch has one profiler and one execution trace observer at a time: what the
installed one can record, and what else records, is asked first, and a failure is a warning.
"""

import gc
import importlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from ...schema.errors import DataError, require
from ...schema.io import open_output, without_link
from ...schema.linked import INCOMPLETE_STEP, RECORDING_COST, WINDOW

TRACES = ("host", "device", "detail")
ENDING = ".json.gz"
BY_WINDOW = "window{window}/{trace}_rank{rank}"
BETWEEN = {"execgraph", "contextlib", "torch"}
REMEDY = "end it first, or record with it: trace_handler of execgraph.tools.capture"


class Conflict(RuntimeError):
    """Something else in this process records, or is about to."""


def check_no_other_profiler(torch: Any) -> None:
    """Raises Conflict where a profiler is active, or waits for the steps of its schedule.

    One that marks steps may not be active yet: PyTorch counts its steps, but not whose they are, so it is looked for.
    """
    profilers, profile = torch.autograd.profiler, torch.profiler.profile
    is_active = profilers._is_profiler_enabled or torch.autograd._profiler_enabled()
    if is_active or (
        "ProfilerStep" in profilers.KinetoStepTracker._step_dict
        and any(isinstance(one, profile) and getattr(one, "step_rec_fn", None) for one in gc.get_referrers(profile))
    ):
        raise Conflict(f"another profiler is active in this process, and PyTorch has one at a time; {REMEDY}")


@contextmanager
def training_goes_on(clean_up: Callable[[], None]) -> Iterator[None]:
    """Cleans up after a failure of the block and warns of it, in the name of who called the method that this is in."""
    try:
        yield
    except Exception as error:
        clean_up()
        warn(f"recording stopped, training goes on: {str(error) or repr(error)}")


def warn(text: str) -> None:
    """Warns in one line, at the line of the recorded program that called this package, maybe through PyTorch."""
    callers = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(sys._getframe())]
    outside = (level for level, name in enumerate(callers) if name.partition(".")[0] not in BETWEEN)
    warnings.warn(f"execgraph: {' '.join(text.split())}", stacklevel=next(outside, 0) + 1)


def import_torch() -> Any:
    """PyTorch; ImportError with the remedy where there is none."""
    require("torch")
    return importlib.import_module("torch")


def this_rank(torch: Any) -> int:
    """Returns the rank in the job: of the initialised process group, else what the launcher says, else 0."""
    return int(torch.distributed.get_rank() if is_distributed(torch) else os.environ.get("RANK", "0"))


def is_distributed(torch: Any) -> bool:
    """Whether this process is one of a group."""
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def synchronise(torch: Any) -> None:
    """Waits until the device has done all of its work, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def experimental_config(*, memory: bool = False, trace_only: bool = False) -> Any:
    """Returns what `torch.profiler.profile` is to get as `experimental_config`, as far as the installed PyTorch has it.

    That records what waits were for, of all threads; but with `memory` of its own thread, as PyTorch (issue 166121)
    loses allocations otherwise. `trace_only` makes no event objects beside the file.
    """
    torch = import_torch()
    options = {"enable_cuda_sync_events": True, "profile_all_threads": not memory, "trace_only": trace_only}
    try:
        config = torch._C._profiler._ExperimentalConfig
        switches = {}
        for option in (option for option, is_on in options.items() if is_on):
            with suppress(TypeError):  # which this PyTorch does not have
                config(**{option: True})
                switches[option] = True
        if "enable_cuda_sync_events" not in switches:
            warn("this PyTorch takes no enable_cuda_sync_events: no synchronisation records")
        return config(**switches)
    except Exception as error:
        warn(f"recording without synchronisation records and other threads: {error!r}")
        return None


def device_profiler(**options: bool) -> Any:
    """Returns a profiler with these options, without the schedule and the observer that a `profile` may have."""
    memory, stacks = (options.get(name, False) for name in ("profile_memory", "with_stack"))
    config = experimental_config(memory=memory, trace_only=not stacks)  # stacks need the objects
    return import_torch().profiler._KinetoProfile(experimental_config=config, **options)


def record_synchronisation(torch: Any) -> None:
    """Has the profilers of this process record what waits were for, whatever their own experimental_config says."""
    try:
        torch._C._profiler._set_cuda_sync_enabled_val(True)
    except Exception as error:
        advice = "give the profiler experimental_config=experimental_config() of execgraph.tools.capture"
        warn(f"synchronisation records were not switched on ({error!r}); {advice}")


class PairRecorder:
    """Records one window after the other into files of a folder; its methods raise whatever goes wrong.

    In `name` {trace}, {rank} and {window} stand for what a file is of. Raises ValueError for a folder that is a file,
    and for a name that two traces would have in common.
    """

    def __init__(
        self, torch: Any, folder: str | Path, name: str, ranks: Collection[int] | None, has_python: bool = False
    ) -> None:
        if isinstance(ranks, int):
            raise TypeError(f"ranks: {ranks} is one, give several or [{ranks}]")
        self._torch, self._folder, self._name, self._has_python = torch, Path(folder), name, has_python
        self._ranks = None if ranks is None else frozenset(ranks)
        self._window = 0
        self._is_alone = False
        """Whether the profiler does not record while the host trace is written."""
        self._host: HostTraceObserver | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"{folder}: not a folder ({error.strerror}); name one that can be made") from error
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

    def begin(self, together: bool = True) -> None:
        """Begins a window, right before the profiler does. The host trace begins with it, unless not `together`."""
        if not self.records_this_rank:
            return
        self.drop()
        self._window += 1
        self._host = HostTraceObserver(self._torch)
        synchronise(self._torch)  # else the first activities belong to calls that nobody recorded
        self._is_alone = not together
        if together:
            self.begin_host()

    def begin_host(self) -> None:
        """Begins the host trace of the window."""
        if self._host:
            self._host.observer.start()

    def end(self) -> None:
        """Ends the window; its host trace is kept when the device trace is ready."""
        if self._host:
            self._host.observer.stop()

    def keep(
        self,
        *profilers: Any,
        is_whole: bool = True,
        incomplete: str = "",
        measure: Callable[[], dict[str, float]] = dict[str, float],
    ) -> None:
        """Keeps the traces of the window that has ended, of one or two profilers and the host, and says where they are.

        `incomplete` is the annotation of a step that did not end, `measure` says what a device trace alone cost.
        """
        if self.records_this_rank and not self._window:
            raise DataError("no host trace: give the handler to the profiler as execution_trace_observer, too")
        if not self._host:
            return
        rank = this_rank(self._torch)
        target_of = dict(zip(TRACES, self._targets(rank), strict=True))
        try:
            traces = self._host.beside(*profilers) if is_whole else self._host.beside(profilers[0])[1:]
            targets = [target_of.pop(trace.stem) for trace in traces]
            earlier = ", in place of earlier ones" * any(target.exists() for target in targets)
            for absent in target_of.values():  # an older one would pass for that of this device trace
                absent.unlink(missing_ok=True)
            for trace in traces:
                _check_whole(trace)
            cost = measure() if self._is_alone else {}
            members: dict[str, dict[str, Any]] = {trace: {WINDOW: trace} for trace in TRACES if self._is_alone}
            members[TRACES[1]] = {RECORDING_COST: cost} if cost else {}
            with ExitStack() as outputs:  # all whole or none
                for trace, target in zip(traces, targets, strict=True):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with trace.open("rb") as written:
                        output = outputs.enter_context(open_output(str(without_link(target))))
                        _copy(written, output, members.get(trace.stem, {}), incomplete)
        finally:
            self.drop()
        listed = " and ".join(filter(None, (", ".join(map(str, targets[:-1])), str(targets[-1]))))
        listed += ", but no host trace" * (not is_whole)
        print(f"execgraph: rank {rank} recorded {listed}{earlier}", file=sys.stderr)
        if rank == min(self._ranks or (0,)):  # which speaks for the job
            if not self._is_alone:
                print("execgraph: both traces are of the same steps, and their ops take longer for it", file=sys.stderr)
            folder, modules = shlex.quote(str(targets[0].parent)), " --modules" * self._has_python
            print(f"execgraph: next: trace-report {folder}{modules}", file=sys.stderr)

    def drop(self) -> None:
        """Drops a window that nobody kept."""
        host, self._host = self._host, None
        if host:
            host.drop()


def _copy(trace: IO[bytes], output: IO[bytes], members: dict[str, Any], incomplete: str) -> None:
    """Copies a trace, with further members at its top level; the annotation `incomplete` is no longer one of a step."""
    if members:
        before, brace, after = trace.read(64).partition(b"{")
        output.write(before + brace + json.dumps(members)[1:-1].encode() + b"," + after)
    if incomplete:
        mark, instead = (json.dumps(name).encode() for name in (incomplete, INCOMPLETE_STEP))
        output.writelines(line.replace(mark, instead) for line in trace)
    else:
        shutil.copyfileobj(trace, output)


def _check_whole(trace: Path) -> None:
    """Raises DataError where a trace does not end with a brace, as PyTorch does not say that it could not write it."""
    tail = b""
    if trace.exists():
        with trace.open("rb") as written:
            written.seek(max(trace.stat().st_size - 16, 0))
            tail = written.read().rstrip()
    if not tail.endswith(b"}"):
        folder = trace.parent.parent
        raise DataError(f"PyTorch could not write the whole {trace.stem} trace to {folder}; make room there")


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

    def beside(self, *profilers: Any) -> list[Path]:
        """Returns the finished host trace, and the profilers' device trace and detail trace in the same folder."""
        self.observer.unregister_callback()
        paths = [self._path.with_name(f"{trace}.json") for trace in TRACES[: 1 + len(profilers)]]
        for path, profiler in zip(paths[1:], profilers, strict=True):
            profiler.export_chrome_trace(str(path))
        return paths

    def drop(self) -> None:
        """Ends the observer and removes the folder."""
        self.observer.unregister_callback()
        self._folder.cleanup()


def trace_handler(folder: str | Path, *, ranks: Collection[int] | None = None, name: str = BY_WINDOW) -> Any:
    """Returns what `torch.profiler.profile` gets as `on_trace_ready` and `execution_trace_observer` (from PyTorch 2.5).

        handler = trace_handler("traces")
        with torch.profiler.profile(schedule=…, on_trace_ready=handler, execution_trace_observer=handler) as profiler:

    Each window that the schedule records leaves a pair of traces in `folder`, named by `name` with {trace} (host or
    device), {rank} and {window} (from 1), or a warning. Only `ranks` leave theirs, all by default. From here on all
    profilers of this process record what CUDA's waits were for.

    Raises ImportError without PyTorch, ValueError for a folder that is a file and for a name of two traces.
    """
    torch = import_torch()
    handler = TraceHandler(PairRecorder(torch, folder, name, ranks))
    record_synchronisation(torch)
    return handler


class TraceHandler:
    """Records the host trace while a profiler, of which it is an observer, records the device trace, and keeps both."""

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
