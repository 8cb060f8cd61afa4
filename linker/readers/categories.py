"""Finds the role of a row of the device trace by its category. Unknown categories are counted, never guessed."""

import re
from enum import Enum
from functools import lru_cache


class Role(Enum):
    """What a row of a device trace is about."""

    OP = "op"
    CALL = "call"
    ACTIVITY = "activity"
    SYNC = "sync"
    EVENT_RECORD = "event record"
    DEVICE_WAIT = "device wait"
    PYTHON = "python"
    IGNORED = "ignored"
    UNKNOWN = "unknown"

    __hash__ = object.__hash__
    """By identity, as they compare: roles are looked up for every row."""


_ROLES = {
    Role.OP: ("cpu_op", "user_annotation", "operator", "user", "hpu_op"),
    Role.CALL: (
        "cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime", "mtia_runtime", "xpu_runtime",
        "xpu_driver", "privateuse1_runtime", "privateuse1_driver", "glow_runtime",
    ),
    Role.ACTIVITY: (
        "kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events", "collective_comm",
        "concurrent_kernel",
    ),
    Role.SYNC: ("cuda_sync", "xpu_sync"),
    Role.EVENT_RECORD: ("cuda_event",),
    Role.PYTHON: ("python_function",),
    Role.IGNORED: (
        "gpu_user_annotation", "ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu",
        "cpu_instant_event", "overhead", "trace", "external_correlation", "mtia_insight", "mtia_counters",
        "cuda_profiler_range", "xpu_scope_profiler", "hardware_counters",
    ),
}  # fmt: skip

INSTANT = "cpu_instant_event"
PYTHON = "python_function"
_SKIPPED_PHASES = {PYTHON: "X", INSTANT: "i"}


def skip_categories(*read: str) -> "re.Pattern[bytes] | None":
    """Returns a pattern of rows to skip: Python's calls and allocations, of which files may hold millions.

    It matches rows as profilers write them, with the comma after them. It does not match rows of the categories that
    are `read`, and is None where all are.
    """
    rows = b"|".join(
        rb'"%b"\s*,\s*"cat"\s*:\s*"%b"' % (phase.encode(), category.encode())
        for category, phase in _SKIPPED_PHASES.items()
        if category not in read
    )
    if not rows:
        return None
    return re.compile(
        rb'\{\s*"ph"\s*:\s*(?:' + rows + rb')[^{]*(?:(?<="args":)|(?<="args": ))\{[^}]*\}\s*\}\s*,',
    )


ROLE_OF_CATEGORY = {category: role for role, categories in _ROLES.items() for category in categories}

ROLE_OF_ENDING = {"_runtime": Role.CALL, "_driver": Role.CALL}
"""Roles by the end of a category: future vendors will name the categories of their calls as all others do."""

ANNOTATIONS = ("user_annotation", "user")

DEVICE_SIDE_WAITS = ("event_wait", "event_record")
"""Names of rows in MTIA's device queues that record waiting, not work."""


def role_of(category: str | None, name: str | None = "") -> Role:
    """Returns the role of a row by its category in any case; rows without a category are bookkeeping of the viewer."""
    role = _role_of_category(category)
    return Role.DEVICE_WAIT if role is Role.ACTIVITY and name in DEVICE_SIDE_WAITS else role


@lru_cache(maxsize=1024)
def _role_of_category(category: str | None) -> Role:
    if not category:
        return Role.IGNORED
    category = category.lower()
    by_ending = (role for ending, role in ROLE_OF_ENDING.items() if category.endswith(ending))
    return ROLE_OF_CATEGORY.get(category) or next(by_ending, Role.UNKNOWN)
