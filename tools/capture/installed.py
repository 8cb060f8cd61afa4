"""What the installed PyTorch can record, and which rank of a job this process is."""

import importlib
import os
from typing import Any

from ...schema.errors import require
from .failures import warn


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
        switches = {option: True for option, is_on in options.items() if is_on and _takes(config, option)}
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


def _takes(config: Any, option: str) -> bool:
    try:
        config(**{option: True})
    except TypeError:
        return False
    return True
