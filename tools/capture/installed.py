"""What the installed PyTorch can record, and which rank of a job this process is."""

import importlib
import os
from typing import Any

from ...schema.optional import require


def import_torch() -> Any:
    """PyTorch; ImportError with the remedy where there is none."""
    require("torch")
    return importlib.import_module("torch")


def this_rank(torch: Any) -> int:
    """Returns the rank in the job: of the initialised process group, else what the launcher says, else 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return int(os.environ.get("RANK", "0"))


def experimental_config(*, memory: bool = False, trace_only: bool = False) -> Any:
    """Returns what `torch.profiler.profile` is to get as `experimental_config`, as far as the installed PyTorch has it.

    Records of what waits were for, and all threads, which the host trace always follows. For a profiler that records
    `memory` only its own thread: PyTorch (issue 166121) loses allocations otherwise. `trace_only` makes no event
    objects beside the file.
    """
    config = import_torch()._C._profiler._ExperimentalConfig
    options = {"enable_cuda_sync_events": True, "profile_all_threads": not memory, "trace_only": trace_only}
    return config(**{option: True for option, is_enabled in options.items() if is_enabled and _takes(config, option)})


def _takes(config: Any, option: str) -> bool:
    try:
        config(**{option: True})
    except TypeError:
        return False
    return True
