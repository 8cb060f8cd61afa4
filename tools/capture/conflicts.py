"""What else records in this process: PyTorch has one profiler and one execution trace observer at a time."""

import gc
from typing import Any

REMEDY = "end it first, or record with it: trace_handler of execgraph.tools.capture"


class Conflict(RuntimeError):
    """Something else in this process records, or is about to."""


def check_no_other_profiler(torch: Any) -> None:
    """Raises Conflict where a profiler is active, or waits for the steps of its schedule.

    The flag knows the profilers of all threads, the function those of this thread that were started otherwise than from
    Python.
    """
    profilers = torch.autograd.profiler
    if profilers._is_profiler_enabled or torch.autograd._profiler_enabled() or _is_scheduled(torch):
        raise Conflict(f"another profiler is active in this process, and PyTorch has one at a time; {REMEDY}")


def _is_scheduled(torch: Any) -> bool:
    """Returns whether a torch.profiler.profile was started that marks steps; in its first steps it may not be active
    yet.

    PyTorch counts the steps of profilers until their block ends, but not whose they are, so they are looked for.
    """
    if "ProfilerStep" not in torch.autograd.profiler.KinetoStepTracker._step_dict:
        return False
    profile = torch.profiler.profile
    return any(
        isinstance(referrer, profile) and getattr(referrer, "step_rec_fn", None)
        for referrer in gc.get_referrers(profile)
    )
