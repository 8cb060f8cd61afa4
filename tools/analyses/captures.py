"""The launches during the capture of a graph, or before it, which lead from a graph's kernels back to ops.

During capture, launches do not run: the trace holds the calls and their ops but no kernels, and only some profilers
(ROCm) record the kernel's name with the call. Warm-ups run the same kernels one by one, so their names are recorded.
"""

import re
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...linker.link import link
from ...linker.readers import read_device_trace, select_rows
from ...schema.columns import Bool, Categorical, Int64, ThreadIntervals, nest, rows_by_number
from ...schema.linked import Activities, LinkedTrace, integer, op_tree
from .annotations import op_path
from .classes import ActivityClass, activity_classes

KERNEL, COPY, SET = "kernel", "copy", "set"
STACK = " > "
BEGIN, END = re.compile("StreamBeginCapture"), re.compile("StreamEndCapture")
LAUNCH = re.compile(r"Launch(Cooperative)?Kernel|Mem(cpy|set)\w*Async|mem(cpy|set)\w*Async", re.IGNORECASE)
OF_SET = re.compile("memset|fill", re.IGNORECASE)
OF_COPY = re.compile("memcpy", re.IGNORECASE)


class Launched(NamedTuple):
    """One launch: KERNEL, COPY or SET, the name of what it runs and its graph node ("" and -1 if not recorded), and the
    path of the enclosing ops.
    """

    kind: str
    name: str
    node: int
    op: str


class Capture(NamedTuple):
    """Launches in their order: those of one captured graph (`whole`), or all launches outside of captures."""

    launches: list[Launched]
    whole: bool


class _Arguments(msgspec.Struct, gc=False):
    correlation: Any = None
    kernel: Any = None


class _Event(msgspec.Struct, gc=False):
    args: _Arguments | None = None


CALLS = msgspec.json.Decoder(list[_Event])
NAMED = re.compile(rb'"kernel"\s*:')


def read_captures(path: str) -> list[Capture]:
    """Returns the captures of a device trace, and the launches beside them. Raises DataError if it cannot be used."""
    names: dict[int, str] = {}
    linked = link(None, read_device_trace(path, tee=partial(_add_names, names)))
    launch, count = np.unique(linked.activities.call_row, return_counts=True)
    single = launch[(count == 1) & (launch >= 0)]
    single = single[np.argsort(linked.calls.start[single], kind="stable")]
    return [*_captures(linked, names), Capture(_launched(linked, single, names), False)]


def _add_names(names: dict[int, str], text: bytes) -> None:
    if NAMED.search(text) is None:
        return
    for event in CALLS.decode(text):
        if event.args is not None and isinstance(event.args.kernel, str):
            names[integer(event.args.correlation, 0)] = event.args.kernel


def captures_of(linked: LinkedTrace) -> list[Capture]:
    """Returns the captures in order of time."""
    return _captures(linked, {}) if _named(linked.calls.name, BEGIN).any() else []


def _captures(linked: LinkedTrace, names: dict[int, str]) -> list[Capture]:
    rows = _launching(linked)
    capture_of = _captured_by(linked, rows)
    captured = rows_by_number(np.flatnonzero(capture_of >= 0), capture_of)
    return [Capture(_launched(linked, rows[launches], names), True) for launches in captured.values()]


def _launched(linked: LinkedTrace, rows: Int64, names: dict[int, str]) -> list[Launched]:
    """Returns the launches of these calls; `names` are kernel names by correlation id, for calls without activities."""
    calls, activities = linked.calls, linked.activities
    called = np.flatnonzero(activities.call_row >= 0)[::-1]
    first = np.full(len(calls), -1)
    first[activities.call_row[called]] = called
    ran = first[rows]
    kinds, tree = np.full(len(rows), KERNEL, object), op_tree(linked.ops)
    kinds[ran >= 0] = kinds_of(select_rows(activities, ran[ran >= 0]))

    @cache
    def path(op: int) -> str:
        return STACK.join(op_path(linked, tree, op))

    return [
        Launched(kind, activities.name[row], int(activities.graph_node[row]), path(int(calls.op_row[call])))
        if row >= 0
        else Launched(
            _kind_of_call(calls.name[call]),
            names.get(int(calls.correlation[call]), ""),
            -1,
            path(int(calls.op_row[call])),
        )
        for call, row, kind in zip(rows.tolist(), ran.tolist(), kinds.tolist(), strict=True)
    ]


def _launching(linked: LinkedTrace) -> Int64:
    """Returns the launch calls by start, without driver calls within runtime calls."""
    calls = linked.calls
    rows = np.flatnonzero(_named(calls.name, LAUNCH))
    rows = rows[nest(ThreadIntervals(calls.thread[rows], calls.start[rows], calls.end[rows])).parent < 0]
    return rows[np.argsort(calls.start[rows], kind="stable")]


def _captured_by(linked: LinkedTrace, rows: Int64) -> Int64:
    """Returns the number of each launch's capture, from 0 on, -1 for none.

    A capture lasts from a thread's begin call to its next end call.
    """
    calls = linked.calls
    begin_calls, end_calls = (np.flatnonzero(_named(calls.name, pattern)) for pattern in (BEGIN, END))
    capture = np.full(len(rows), -1, np.int64)
    for number, begin in enumerate(begin_calls[np.argsort(calls.start[begin_calls], kind="stable")].tolist()):
        later = end_calls[
            (calls.thread[end_calls] == calls.thread[begin]) & (calls.start[end_calls] >= calls.end[begin])
        ]
        until = calls.start[later].min() if len(later) else calls.end.max()
        capture[(calls.start[rows] >= calls.end[begin]) & (calls.start[rows] < until)] = number
    return capture


def _named(names: Categorical, pattern: "re.Pattern[str]") -> Bool:
    return names.where(lambda name: bool(pattern.search(name)))


def kinds_of(activities: Activities) -> list[str]:
    """Returns KERNEL, COPY or SET for each activity."""
    memory = activity_classes(activities) == ActivityClass.MEMORY
    kinds: list[str] = np.where(memory, np.where(_named(activities.name, OF_SET), SET, COPY), KERNEL).tolist()
    return kinds


def _kind_of_call(name: str) -> str:
    return SET if OF_SET.search(name) else COPY if OF_COPY.search(name) else KERNEL
