"""Chooses calls by step, by module and by op."""

import difflib
import re
from collections.abc import Iterable

import numpy as np

from ...schema.columns import Bool, Categorical, Int64
from ...schema.errors import RequestError
from ...schema.graph import STEP_START, ExecutionGraph
from .calls import Calls
from .flows import flows_of, recorded_texts

LISTED = 8
PART = re.compile(r"[./_]+")
"""What is between the parts of a module's path: `Net_0/Block_1` is also written `net.0.block.1`."""


def steps_of(graph: ExecutionGraph) -> dict[int, int]:
    """Returns the start (ns) of each step by its number, in order of time."""
    starts = {
        int(key.removeprefix(STEP_START)): value
        for key, value in graph.metadata.items()
        if key.startswith(STEP_START) and key.removeprefix(STEP_START).isdecimal() and isinstance(value, int)
    }
    return dict(sorted(starts.items(), key=lambda item: item[1]))


def median_step(graph: ExecutionGraph) -> int | None:
    """Returns the number of the step of median length, from each start to the next; None if no steps are marked."""
    steps = steps_of(graph)
    ends = [*[*steps.values()][1:], int((graph.host_clock_start_ns + graph.duration_ns).max(initial=0))]
    lengths = sorted((end - start, number) for (number, start), end in zip(steps.items(), ends, strict=False))
    return lengths[len(lengths) // 2][1] if lengths else None


def rows_of_step(graph: ExecutionGraph, calls: Calls, step: int) -> Bool:
    """Returns which nodes belong to a step: those of calls whose outermost call began in it, and idle time in it.

    The end of the first slice tells when a call began, as its start may be that of a short slice before the step's mark
    that was folded into it.
    """
    steps = steps_of(graph)
    if step not in steps:
        there_are = f"there are {_list(map(str, steps))}" if steps else "its steps are not marked"
        raise RequestError(f"the graph has no step {step}; {there_are}")
    first_row = np.arange(len(graph))
    is_call = calls.of_row >= 0
    first_row[is_call] = calls.first_row[calls.roots()[calls.of_row[is_call]]]
    begun = (graph.host_clock_start_ns + graph.duration_ns)[first_row]
    end = min((other for other in steps.values() if other > steps[step]), default=np.iinfo(np.int64).max)
    return np.asarray((begun > steps[step]) & (begun <= end))


def calls_of_module(graph: ExecutionGraph, calls: Calls, module: str) -> Bool:
    """Returns which calls were made for a module, or for one in it; it is named by its path or a part of it."""
    recorded = graph.texts("module")
    sought = _parts(module)
    is_of_module = recorded.where(lambda path: _contains(_parts(path), sought))[calls.first_row]
    if not is_of_module.any():
        paths = sorted({path for path in recorded.table if path})
        there_are = f"there are {_list(paths)}" if paths else "the graph holds no modules: build it with --modules"
        raise RequestError(f"no module is called {module}; {there_are}")
    return with_inner(calls, is_of_module)


def _parts(path: str) -> list[str]:
    return [part for part in PART.split(path.lower()) if part]


def _contains(parts: list[str], sought: list[str]) -> bool:
    return any(parts[start : start + len(sought)] == sought for start in range(len(parts) - len(sought) + 1))


def calls_of_op(graph: ExecutionGraph, calls: Calls, op: str) -> Bool:
    """Returns which calls are of this op, call or kernel: `aten::mm`, or `mm`."""
    names: Categorical = graph.name.take(calls.first_row)
    chosen = names.where(lambda name: op in (name, name.rpartition("::")[2]))
    if not chosen.any():
        alike = difflib.get_close_matches(op, names.table, LISTED) or [name for name in names.table if op in name]
        raise RequestError(f"no op is called {op}{f'; there are {_list(alike)}' if alike else ''}")
    return chosen


def with_inner(calls: Calls, chosen: Bool) -> Bool:
    """Adds to the chosen calls all that these called or launched."""
    below = np.append(chosen, False)
    while (added := below[calls.parent] & ~below[:-1]).any():
        below[:-1] |= added
    return below[:-1]


def with_neighbours(graph: ExecutionGraph, calls: Calls, chosen: Bool, hops: int) -> Bool:
    """Adds to the chosen calls those that are at most so many flows away, either way, and what called all these."""
    flows = flows_of(graph, calls, recorded_texts(graph))
    near = with_inner(calls, chosen)
    for _ in range(hops):
        ends: Int64 = np.concatenate((flows.source[near[flows.target]], flows.target[near[flows.source]]))
        near = near.copy()
        near[ends] = True
    return _with_callers(calls, with_inner(calls, near))


def _with_callers(calls: Calls, chosen: Bool) -> Bool:
    above = chosen.copy()
    while True:
        callers = calls.parent[above]
        callers = callers[callers >= 0]
        if above[callers].all():
            return above
        above[callers] = True


def _list(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:LISTED]) + (f" and {len(listed) - LISTED} more" if len(listed) > LISTED else "")
