"""What the installed PyTorch can record, what else records in this process, and warnings in place of failures.

PyTorch has one profiler and one execution trace observer at a time.
"""

import gc
import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...schema.errors import require

REMEDY = "end it first, or record with it: trace_handler of execgraph.tools.capture"


class Conflict(RuntimeError):
    """Something else in this process records, or is about to."""


def check_no_other_profiler(torch: Any) -> None:
    """Raises Conflict where a profiler is active, or waits for the steps of its schedule.

    The flag knows the profilers of all threads, the function those of this thread that were started otherwise than from
    Python. One that was started and marks steps may not be active yet in its first steps: PyTorch counts the steps of
    profilers until their block ends, but not whose they are, so they are looked for.
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
        warn(f"recording stopped, training goes on: {str(error) or repr(error)}", stacklevel=5)


def warn(text: str, stacklevel: int) -> None:
    """Warns in one line."""
    warnings.warn(f"execgraph: {' '.join(text.split())}", stacklevel=stacklevel)


def import_torch() -> Any:
    """PyTorch; ImportError with the remedy where there is none."""
    require("torch")
    return importlib.import_module("torch")


def this_rank(torch: Any) -> int:
    """Returns the rank in the job: of the initialised process group, else what the launcher says, else 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return int(os.environ.get("RANK", "0"))


def synchronise(torch: Any) -> None:
    """Waits until the device has done all of its work, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def experimental_config(*, memory: bool = False, trace_only: bool = False) -> Any:
    """Returns what `torch.profiler.profile` is to get as `experimental_config`, as far as the installed PyTorch has it.

    Records of what waits were for, and all threads, which the host trace always follows. For a profiler that records
    `memory` only its own thread: PyTorch (issue 166121) loses allocations otherwise. `trace_only` makes no event
    objects beside the file.
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
            warn("this PyTorch takes no enable_cuda_sync_events: no synchronisation records", stacklevel=3)
        return config(**switches)
    except Exception as error:
        warn(f"recording without synchronisation records and other threads: {error!r}", stacklevel=3)
        return None


def record_synchronisation(torch: Any) -> None:
    """Has the profilers of this process record what waits were for, whatever their own experimental_config says.

    PyTorch records it where either this switch or the config asks for it, so that the rest of a user's config stays as
    it is. Without a GPU, and with one that is not CUDA's, there is nothing to record. A failure is warned of.
    """
    try:
        torch._C._profiler._set_cuda_sync_enabled_val(True)
    except Exception as error:
        advice = "give the profiler experimental_config=experimental_config() of execgraph.tools.capture"
        warn(f"synchronisation records were not switched on ({error!r}); {advice}", stacklevel=4)
